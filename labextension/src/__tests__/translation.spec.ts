import { ServerConnection } from '@jupyterlab/services';
import {
  nullTranslator,
  type ITranslator,
  type TranslationBundle
} from '@jupyterlab/translation';

import schema from '../../schema/plugin.json';
import { CommandIDs, TRANSLATION_DOMAIN } from '..';
import { NotJSONError } from '../request';
import { activate, answerDialog, answers } from './support/app';
import { until } from './support/fakes';
import {
  detached,
  exit,
  finding,
  foreign,
  health,
  kernel,
  processOf,
  report,
  staleFile
} from './support/samples';

const plain = nullTranslator.load(TRANSLATION_DOMAIN);
const marked = (text: string) => `«${text}»`;
/** What is put into a text is not translated with it. */
const unmarked = (values: unknown[]) =>
  values.map(value => `»${value as string}«`);

/** A language in which each text of this package is in quotation marks. */
const translator: ITranslator = {
  languageCode: 'en',
  load: () =>
    ({
      __: (text: string, ...values: unknown[]) =>
        plain.__(marked(text), ...(unmarked(values) as never[])),
      _n: (one: string, many: string, count: number, ...values: unknown[]) =>
        plain._n(
          marked(one),
          marked(many),
          count,
          ...(unmarked(values) as never[])
        )
    }) as TranslationBundle
};

/** All that a reader sees or hears below a node, text by text. */
function texts(node: Element): string[] {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const found: string[] = [];
  while (walker.nextNode()) {
    found.push(walker.currentNode.textContent ?? '');
  }
  for (const one of [node, ...node.querySelectorAll('*')]) {
    for (const name of ['aria-label', 'title', 'placeholder']) {
      found.push(one.getAttribute(name) ?? '');
    }
  }
  return found;
}

/** What is no word of this package: the server's own words, names, units, Lumino's. */
const FOREIGN =
  / Section$|kernel-\d\.json|[\w.-]+\.ipynb|Python 3|python3|-m thing|python |work(?=\/)|x\.py|sleepd|its owner is gone|killed by SIGKILL|no spawner|\b[kMGT]?B\b|https?:\S+|\/\S+|pidfd|ready|yes|\bvm\b|jupyter server extension enable jupyter_ownedkernels|\bSIG\w+|[\da-f-]{36}/g;

/** Words that nobody has translated. */
function untranslated(node: Element): string[] {
  return texts(node)
    .map(text => text.replace(/«[^«»]*»/g, '').replace(FOREIGN, ''))
    .filter(rest => /\p{Letter}{3}/u.test(rest));
}

describe('what a reader sees is translated', () => {
  it('in the panel', async () => {
    answers.kernels = {
      kernels: [
        kernel('a', { last_exit: exit(), reason: 'no spawner' }),
        kernel('b', { state: 'unwatched', cpu_percent: 50 })
      ]
    };
    answers['kernels/a'] = { processes: [processOf(21), processOf(22)] };
    answers.strays = report([
      finding('k'),
      detached('d'),
      foreign('x'),
      staleFile('1'),
      staleFile('2')
    ]);
    const { model, panel } = await activate(null, translator);
    panel.show();
    model.expand('a', true);
    await until(() => panel.node.querySelectorAll('.jp-OwnedKernels-pid')[1]);
    await until(() => panel.node.querySelector('.jp-OwnedKernels-finding'));
    expect(untranslated(panel.node)).toEqual([]);
  });

  it.each([
    ['an answer that is no JSON', new NotJSONError(new Response(''))],
    [
      'a server that cannot be reached',
      new ServerConnection.NetworkError(new TypeError('Failed to fetch'))
    ]
  ])('after %s', async (_, error) => {
    const { model, panel } = await activate(null, translator);
    panel.show();
    answers.health = Promise.reject(error);
    await model.refresh();
    await until(() => panel.node.textContent?.includes('did not answer'));
    expect(untranslated(panel.node)).toEqual([]);
  });

  it('of a server that is not as it should be', async () => {
    const { model, panel } = await activate(null, translator);
    panel.show();
    for (const state of [
      health({ mode: 'provisioner-only', reason: 'ready' }),
      health({ mode: 'inactive', reason: 'ready' }),
      health({ journal: null, spawners: [], owner: null })
    ]) {
      answers.health = state;
      await model.refresh();
      await until(() => model.server.kind === 'health');
      expect(untranslated(panel.node)).toEqual([]);
    }
  });

  it('in the dialogs of a clean', async () => {
    answers.strays = report([
      finding('k'),
      foreign('x'),
      staleFile('1'),
      staleFile('2')
    ]);
    const { commands } = await activate(null, translator);
    const done = commands.execute(CommandIDs.clean);
    const dialog = () => document.querySelector('.jp-Dialog')!;
    await until(() => dialog()?.textContent?.includes('chosen'));
    expect(untranslated(dialog())).toEqual([]);
    await answerDialog(marked('Clean Up'));
    await until(() => dialog()?.textContent?.includes('items cleaned'));
    expect(untranslated(dialog())).toEqual([]);
    await answerDialog(marked('Close'));
    await done;
  });

  it('in the settings, by the domain of this package', () => {
    // Without it JupyterLab looks for their words among its own.
    expect(schema['jupyter.lab.internationalization'].domain).toBe(
      TRANSLATION_DOMAIN
    );
  });
});
