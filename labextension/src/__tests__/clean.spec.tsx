import { Dialog, Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';

import type { IFinding } from '../api';
import {
  cleaningFailed,
  cleaningSummary,
  cleanUp,
  tellCleaning
} from '../cleandialog';
import { Selection } from '../selection';
import type { ICleaning } from '../tokens';
import { click, FakeModel, frames, until } from './support/fakes';
import { detached, finding, foreign, staleFile } from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');

const dialog = () => document.querySelector<HTMLElement>('.jp-Dialog');
const boxes = () => [
  ...document.querySelectorAll<HTMLInputElement>('input[type=checkbox]')
];

async function button(label: string): Promise<void> {
  const found = [...document.querySelectorAll('.jp-Dialog button')].find(
    one => one.textContent === label
  );
  await click(found);
}

async function start(model: FakeModel, findings: IFinding[]) {
  const done = cleanUp(model, findings, new Selection(), trans);
  await until(dialog);
  await frames();
  return { done };
}

function cleaning(fields: Partial<ICleaning> = {}): ICleaning {
  return {
    ids: ['a', 'b'],
    results: new Map(),
    running: false,
    error: '',
    ...fields
  };
}

const result = (id: string, outcome: string) =>
  [id, { id, kind: null, outcome, reason: 'busy', pid: 1 }] as const;

afterEach(() => {
  Dialog.flush();
});

describe('the dialog of a clean', () => {
  it('lists each item: what will happen, and why it is safe', async () => {
    const { done } = await start(new FakeModel(), [
      finding('k'),
      detached('d'),
      foreign('x')
    ]);
    const text = dialog()!.textContent;
    expect(text).toContain('End process 30: python3 kernel');
    expect(text).toContain('Why: its owner is gone');
    expect(text).toContain('1 of 2 chosen');
    expect(text).toContain('1 more is shown in the panel and never touched');
    expect(boxes().map(box => box.checked)).toEqual([true, false]);
    await button('Cancel');
    expect(await done).toBe(false);
  });

  it('ends nothing when it is cancelled', async () => {
    const model = new FakeModel();
    const { done } = await start(model, [finding('k')]);
    await button('Cancel');
    expect(await done).toBe(false);
    expect(model.clean).not.toHaveBeenCalled();
  });

  it('ends nothing when nothing is chosen', async () => {
    const model = new FakeModel();
    const { done } = await start(model, [finding('k')]);
    boxes()[0].click();
    await frames();
    expect(dialog()!.textContent).toContain('0 of 1 chosen');
    await button('Clean Up');
    expect(await done).toBe(false);
    expect(model.clean).not.toHaveBeenCalled();
  });

  it('cleans what is chosen and says what became of each', async () => {
    const model = new FakeModel();
    const { done } = await start(model, [finding('k'), detached('d')]);
    boxes()[1].click();
    await frames();
    await button('Clean Up');
    await until(() => dialog()?.textContent?.includes('2 items cleaned up'));
    expect(model.clean).toHaveBeenCalledWith(['k', 'd']);
    expect(dialog()!.textContent).toContain('Ended');
    await button('Close');
    expect(await done).toBe(true);
  });

  it('is not asked for while a clean runs', async () => {
    const model = new FakeModel();
    model.cleaning = cleaning({ running: true });
    const findings = [finding('k')];
    const asked = cleanUp(model, findings, new Selection(), trans);
    expect(await asked).toBe(false);
    expect(dialog()).toBeNull();
    expect(Notification.manager.notifications[0].message).toContain(
      'still running'
    );
    Notification.dismiss();
  });

  it('cleans nothing when another clean has begun before the answer', async () => {
    const model = new FakeModel();
    const { done } = await start(model, [finding('k')]);
    model.cleaning = cleaning({ running: true });
    await button('Clean Up');
    expect(await done).toBe(false);
    expect(model.clean).not.toHaveBeenCalled();
    expect(Notification.manager.count).toBe(1);
    Notification.dismiss();
  });

  it('leaves the selection of the panel alone', async () => {
    const selection = new Selection();
    const done = cleanUp(new FakeModel(), [finding('k')], selection, trans);
    await until(dialog);
    await frames();
    boxes()[0].click();
    await button('Cancel');
    await done;
    expect(selection.has(finding('k'))).toBe(true);
  });

  it('puts many files into one item, with their names on demand', async () => {
    const model = new FakeModel();
    const { done } = await start(model, [
      staleFile('1'),
      staleFile('2', { by_default: false })
    ]);
    expect(dialog()!.textContent).toContain('Remove 2 files');
    expect(dialog()!.querySelector('details')?.textContent).toContain(
      '/run/kernel-2.json'
    );
    expect(boxes()).toHaveLength(1);
    expect(boxes()[0].indeterminate).toBe(true);
    boxes()[0].click();
    await frames();
    await button('Clean Up');
    await until(() => model.clean.mock.calls.length > 0);
    expect(model.clean).toHaveBeenCalledWith(['1', '2']);
    await until(() => dialog()?.textContent?.includes('cleaned up'));
    await button('Close');
    await done;
  });

  it('shows progress, and tells of the end when it is closed before', async () => {
    const model = new FakeModel();
    let finish: (done: ICleaning) => void = () => undefined;
    model.clean.mockImplementation(ids => {
      model.cleaning = cleaning({ ids, running: true });
      return new Promise(resolve => (finish = resolve));
    });
    const told = jest.spyOn(Notification, 'promise').mockReturnValue('');
    const { done } = await start(model, [finding('a'), finding('b')]);
    await button('Clean Up');
    await until(() => dialog()?.querySelector('progress'));
    expect(dialog()!.textContent).toContain('Cleaning up 2 items…');
    expect(dialog()!.textContent).toContain('Waiting…');
    model.cleaning = cleaning({
      running: false,
      error: 'lost',
      results: new Map([result('a', 'refused')])
    });
    await model.tell();
    expect(dialog()!.textContent).toContain('Refused: busy');
    expect(dialog()!.textContent).toContain('scan again to see what is left');
    model.cleaning = cleaning({ running: true });
    await button('Close');
    await until(() => told.mock.calls.length > 0);
    finish(cleaning());
    expect(await done).toBe(true);
    told.mockRestore();
  });
});

describe('a clean in words', () => {
  it.each<[string, Partial<ICleaning>, boolean, string]>([
    [
      'done',
      { results: new Map([result('a', 'killed'), result('b', 'removed')]) },
      false,
      '2 items cleaned up.'
    ],
    [
      'half done',
      { results: new Map([result('a', 'killed'), result('b', 'kept')]) },
      true,
      '1 of 2 items cleaned up.'
    ],
    [
      'lost',
      { error: 'no network', results: new Map([result('a', 'killed')]) },
      true,
      'no network. 1 of 2 items are done. Scan again'
    ],
    [
      'lost, in a sentence',
      { error: 'No network.' },
      true,
      'No network. 0 of 2 items are done.'
    ]
  ])('%s', (_, fields, failed, text) => {
    expect(cleaningFailed(cleaning(fields))).toBe(failed);
    expect(cleaningSummary(cleaning(fields), trans)).toContain(text);
  });

  it.each([
    ['success', cleaning()],
    ['error', cleaning({ error: 'lost' })]
  ])('as a notification of %s', async (type, done) => {
    tellCleaning(Promise.resolve(done), trans);
    const newest = () => Notification.manager.notifications[0];
    await until(() => newest().type === type);
    expect(newest().message).toContain(type === 'error' ? 'lost' : '0 of 2');
    Notification.dismiss();
  });
});
