/** An app with the plugins in it, as far as they use one. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import {
  Dialog,
  Notification,
  type ICommandPalette
} from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ITranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import plugins from '../..';
import type { OwnershipModel } from '../../model';
import type { OwnershipPanel } from '../../panel';
import * as request from '../../request';
import { click, until } from './fakes';
import { detached, finding, health, kernel, report } from './samples';

export const [
  modelPlugin,
  panelPlugin,
  runningPlugin,
  notificationPlugin,
  statusPlugin
] = plugins;

/** What the plugins use of the app. */
export function fakeApp() {
  const commands = new CommandRegistry();
  const shell = {
    add: jest.fn(),
    activateById: jest.fn(),
    widgets: jest.fn((): Iterable<Widget> => [])
  };
  const stream = new Signal<object, object>({});
  const running: object[] = [];
  const sessions = {
    running: () => running,
    runningChanged: new Signal<object, object[]>({}),
    refreshRunning: jest.fn().mockResolvedValue(undefined)
  };
  const app = {
    commands,
    shell,
    restored: Promise.resolve(),
    contextMenuHitTest: jest.fn(),
    serviceManager: {
      serverSettings: ServerConnection.makeSettings(),
      events: { stream },
      contents: { fileChanged: new Signal<object, object>({}) },
      sessions,
      kernels: { shutdown: jest.fn().mockResolvedValue(undefined) }
    }
  };
  return { ...app, app: app as unknown as JupyterFrontEnd, stream, sessions };
}

export type Fake = ReturnType<typeof fakeApp>;
export const disposables: { dispose(): void }[] = [];

export async function startModel(
  fake: Fake,
  registry: unknown = null,
  translator: ITranslator | null = null
) {
  const model = (await modelPlugin.activate(
    fake.app,
    registry,
    translator
  )) as OwnershipModel;
  disposables.push(model);
  return model;
}

/** Activate model and panel; the panel is on the page, hidden as a side bar has it. */
export async function activate(
  palette: ICommandPalette | null = null,
  translator: ITranslator | null = null
) {
  const fake = fakeApp();
  const model = await startModel(fake, null, translator);
  const restorer = { add: jest.fn() };
  const panel = (await panelPlugin.activate(
    fake.app,
    model,
    translator,
    palette,
    restorer
  )) as OwnershipPanel;
  disposables.unshift(panel);
  panel.hide();
  Widget.attach(panel, document.body);
  return { ...fake, model, panel, restorer };
}

export function settings(composite: object) {
  const changed = new Signal<object, void>({});
  const loaded = { changed, composite };
  return {
    loaded,
    registry: {
      load: jest.fn().mockResolvedValue(loaded)
    } as unknown as ISettingRegistry
  };
}

export let answers: Record<string, unknown>;
export let asked: jest.SpyInstance;

beforeEach(() => {
  localStorage.clear();
  answers = {
    health: health(),
    kernels: { kernels: [kernel('a', { detached_count: 1 })] },
    'kernels/a': { processes: [] },
    strays: report([finding('k'), detached('d')]),
    'strays?refresh=1': report([]),
    'history?limit=50': { entries: [] },
    cleanup: { results: [{ id: 'k', outcome: 'terminated' }] }
  };
  asked = jest
    .spyOn(request, 'requestAPI')
    .mockImplementation(endpoint => Promise.resolve(answers[endpoint]));
});

afterEach(() => {
  disposables.splice(0).forEach(one => one.dispose());
  Dialog.flush();
  Notification.dismiss();
  document.body.replaceChildren();
  jest.restoreAllMocks();
});

/** Let the server keep a clean waiting until the answer is called. */
export function holdCleanup(): () => void {
  const answer = answers.cleanup;
  let finish: () => void = () => undefined;
  answers.cleanup = new Promise(resolve => {
    finish = () => resolve(answer);
  });
  return () => finish();
}

export async function answerDialog(label: string): Promise<string> {
  // Title, body and buttons are rendered one after the other.
  await until(() =>
    ['.jp-Dialog-header', '.jp-Dialog-body', '.jp-Dialog-footer'].every(
      part => document.querySelector(`.jp-Dialog ${part}`)?.textContent
    )
  );
  const dialog = document.querySelector('.jp-Dialog')!;
  const text = dialog.textContent;
  await click(
    [...dialog.querySelectorAll('button')].find(
      one => one.textContent === label
    )
  );
  return text;
}
