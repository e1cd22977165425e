import { nullTranslator } from '@jupyterlab/translation';

import { StraysSection } from '../sections';
import { Selection } from '../selection';
import { sorted } from '../strayrows';
import {
  attach,
  click,
  FakeModel,
  frames,
  nameOf,
  point,
  press,
  row,
  rows
} from './support/fakes';
import {
  detached,
  finding,
  foreign,
  report,
  staleFile
} from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');
const clean = jest.fn();

async function show(model: FakeModel): Promise<StraysSection> {
  return attach(new StraysSection(model, trans, clean));
}

const checked = (node: Element) =>
  rows(node).map(one => one.getAttribute('aria-checked'));

describe('the section of strays', () => {
  it.each([
    ['unknown', 'No scan yet'],
    ['failed', 'Scan again, or run']
  ])('in the state %s', async (kind, text) => {
    const model = new FakeModel();
    model.strays = { kind, message: 'broken' } as FakeModel['strays'];
    const section = await show(model);
    expect(section.node.textContent).toContain(text);
    expect(section.checked()).toEqual([]);
    expect(section.toolbar.node.textContent).toBe('');
  });

  it('says that the extension is off', async () => {
    const model = new FakeModel();
    model.server = { kind: 'off' };
    const section = await show(model);
    expect(section.node.textContent).toContain('cannot be shown');
  });

  it('says in words that there is nothing', async () => {
    const section = await show(new FakeModel().found());
    expect(section.node.textContent).toContain('Nothing is left behind');
    expect(section.node.textContent).toContain('Last scan just now');
    expect(section.node.querySelector('button')).toBeNull();
    expect(section.toolbar.node.textContent).toBe('0');
  });

  it('says that a scan is not complete, and then claims nothing', async () => {
    const model = new FakeModel();
    model.strays = {
      kind: 'report',
      report: report([], {
        complete: false,
        incomplete_reason: '/proc is hidden'
      })
    };
    const section = await show(model);
    expect(section.node.textContent).toContain('/proc is hidden');
    expect(section.node.textContent).not.toContain('Nothing is left');
    model.scanning = true;
    await model.tell();
    expect(section.node.textContent).toContain('Scanning…');
  });

  it('checks what a clean of all takes, and nothing else', async () => {
    const section = await show(
      new FakeModel().found(
        staleFile('f'),
        foreign('other'),
        detached('d'),
        finding('k')
      )
    );
    expect(rows(section.node).map(one => nameOf(one).split(',')[1])).toEqual([
      ' stray',
      ' detached',
      ' foreign',
      ' stale file'
    ]);
    expect(checked(section.node)).toEqual(['true', 'false', null, 'true']);
    expect(section.checked()).toEqual(['f', 'k']);
    expect(section.node.querySelector('button')?.textContent).toBe(
      'Clean Up 2…'
    );
  });

  it('is checked by the keyboard and the mouse', async () => {
    const section = await show(
      new FakeModel().found(finding('k'), detached('d'))
    );
    rows(section.node)[0].focus();
    await press(' ');
    expect(section.checked()).toEqual([]);
    const button = section.node.querySelector('button')!;
    expect(button.disabled).toBe(true);
    await click(rows(section.node)[1].querySelector('.jp-OwnedKernels-check'));
    expect(section.checked()).toEqual(['d']);
    await click(section.node.querySelector('button'));
    expect(clean).toHaveBeenCalledTimes(1);
  });

  it('shows the proofs of what is expanded', async () => {
    const section = await show(new FakeModel().found(finding('k')));
    await click(rows(section.node)[0]);
    expect(rows(section.node).slice(1).map(nameOf)).toEqual([
      'its owner is gone',
      'Command: /usr/bin/python x.py',
      'File: /run/kernel.json'
    ]);
    await click(rows(section.node)[0]);
    expect(rows(section.node)).toHaveLength(1);
  });

  it('puts many files into one row', async () => {
    const section = await show(
      new FakeModel().found(staleFile('1'), staleFile('2'), staleFile('3'))
    );
    const group = row(section.node, '3 files');
    expect(group.getAttribute('aria-checked')).toBe('true');
    await click(group);
    expect(rows(section.node)).toHaveLength(4);
    await click(rows(section.node)[1].querySelector('.jp-OwnedKernels-check'));
    expect(checked(section.node)[0]).toBe('mixed');
    rows(section.node)[0].focus();
    await press(' ');
    expect(section.checked()).toEqual(['1', '2', '3']);
    await press(' ');
    expect(section.checked()).toEqual([]);
  });

  it('shows some of very many, and more on demand', async () => {
    const many = <T,>(count: number, make: (index: number) => T) =>
      Array.from({ length: count }, (_, index) => make(index));
    const section = await show(
      new FakeModel().found(
        ...many(250, index => finding(`k${index}`)),
        ...many(5000, index => staleFile(`f${index}`, { age_s: -index }))
      )
    );
    expect(rows(section.node)).toHaveLength(202);
    await click(row(section.node, 'Show more (50 left)'));
    expect(rows(section.node)).toHaveLength(251);
    await click(row(section.node, '5000 files'));
    expect(rows(section.node)).toHaveLength(452);
    row(section.node, 'Show more (4800 left)').focus();
    await frames();
    await press('Enter');
    expect(rows(section.node)).toHaveLength(652);
    expect(row(section.node, 'Show more (4600 left)')).toBeTruthy();
    // The reader goes on where the list had ended.
    expect(nameOf(document.activeElement!)).toContain('kernel-f200.json');
    // What is not shown is chosen all the same, as its group says.
    expect(section.checked()).toHaveLength(5250);
  });

  it('holds no row that was taken away from under the pointer', async () => {
    const model = new FakeModel().found(finding('k'), finding('l'));
    const section = await show(model);
    await point(rows(section.node)[0], true);
    model.strays = { kind: 'failed', message: 'broken' };
    await model.tell();
    expect(rows(section.node)).toHaveLength(0);
    await model.found(finding('k'), finding('l')).tell();
    await model.found(finding('l')).tell();
    expect(rows(section.node)).toHaveLength(1);
  });

  it('says what becomes of each item of a clean', async () => {
    const model = new FakeModel().found(finding('k'), finding('l'));
    const section = await show(model);
    const result = { kind: null, reason: 'still busy', pid: 1 };
    model.cleaning = {
      ids: ['k', 'l'],
      results: new Map([['k', { ...result, id: 'k', outcome: 'refused' }]]),
      running: true,
      error: ''
    };
    await model.tell();
    expect(row(section.node, 'Refused: still busy')).toBeTruthy();
    expect(row(section.node, 'Working on it')).toBeTruthy();
    expect(section.node.querySelector('button')?.textContent).toBe(
      'Cleaning up…'
    );
    model.cleaning = { ...model.cleaning, running: false };
    await model.tell();
    expect(section.node.textContent).not.toContain('Working on it');
  });

  it('gives the first row the focus when strays are to be shown', async () => {
    const section = await show(new FakeModel().found(finding('k')));
    section.reveal();
    await frames();
    expect(nameOf(document.activeElement!)).toContain('python3 kernel');
  });

  it('gives it when the first report comes', async () => {
    const model = new FakeModel();
    const section = await show(model);
    section.reveal();
    await frames();
    await model.found(finding('k')).tell();
    expect(nameOf(document.activeElement!)).toContain('python3 kernel');
  });

  it.each(['nothing', 'a failure'])(
    'leaves the focus alone when strays come after %s was shown',
    async what => {
      const model = new FakeModel().found();
      if (what === 'a failure') {
        model.strays = { kind: 'failed', message: 'broken' };
      }
      const section = await show(model);
      section.reveal();
      await frames();
      await model.found(finding('k')).tell();
      expect(rows(section.node)).toHaveLength(1);
      expect(document.activeElement === document.body).toBe(true);
    }
  );
});

it('sorts what runs before files, and the oldest first', () => {
  const ids = sorted([
    staleFile('f'),
    finding('b', { age_s: 5 }),
    finding('a', { age_s: 5 }),
    finding('old', { age_s: 50 }),
    finding('p', { kind: 'stray_process' })
  ]).map(({ id }) => id);
  expect(ids).toEqual(['old', 'a', 'b', 'p', 'f']);
});

it('never selects what nothing can be done about', () => {
  const selection = new Selection();
  selection.set([foreign('x')], true);
  expect(selection.ids([foreign('x')])).toEqual([]);
  const copy = selection.copy();
  copy.set([finding('k')], false);
  expect(selection.has(finding('k'))).toBe(true);
  expect(copy.has(finding('k'))).toBe(false);
});
