import { kernelIcon } from '@jupyterlab/ui-components';
import { nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { IKernel } from '../api';
import { kernelTitle } from '../names';
import { KernelsSection } from '../sections';
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
import { exit, kernel, processOf } from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');

const open = jest.fn();
const act = jest.fn();

async function show(model: FakeModel): Promise<KernelsSection> {
  return attach(
    new KernelsSection(model, trans, {
      titleOf: one => kernelTitle(one),
      actionsOf: (one: IKernel) =>
        ['stop', 'off'].map(id => ({
          id,
          icon: kernelIcon,
          label: `${id} ${one.kernel_id}`,
          enabled: id !== 'off',
          execute: () => act(id, one.kernel_id)
        })),
      open
    })
  );
}

function withKernels(...kernels: IKernel[]): FakeModel {
  const model = new FakeModel();
  model.kernels = kernels;
  return model;
}

beforeEach(() => {
  open.mockClear();
  act.mockClear();
});

describe('the section of kernels', () => {
  it('says in words that there is none', async () => {
    const section = await show(withKernels());
    expect(section.node.textContent).toContain('Open a notebook');
    expect(rows(section.node)).toHaveLength(0);
  });

  it('says that it is asking, or cannot', async () => {
    const model = new FakeModel();
    model.kernels = null;
    const section = await show(model);
    expect(section.node.textContent).toContain('Asking the server');
    model.server = { kind: 'off' };
    await model.tell();
    expect(section.node.textContent).toContain('cannot be shown');
  });

  it('has a row for each kernel, with everything in its name', async () => {
    const section = await show(
      withKernels(
        kernel('a', {
          execution_state: 'busy',
          uptime_s: 8040,
          process_count: 6,
          detached_count: 2,
          cpu_percent: 187.4,
          gpu: [{ index: 0, bytes: 1e9 }],
          rss_bytes: 2.8e9
        }),
        kernel('b', { state: 'unwatched', session: null, rss_bytes: null })
      )
    );
    const [first, second] = rows(section.node);
    expect(nameOf(first)).toBe(
      'a.ipynb, busy, 2 h 14 min, 6 processes, 2 detached, 187 % CPU, 1.0 GB GPU, pid 21, 2.8 GB, Python 3, a'
    );
    expect(nameOf(second)).toContain('not watched');
    expect(first.getAttribute('aria-setsize')).toBe('2');
    expect(second.getAttribute('aria-posinset')).toBe('2');
    expect(first.querySelector('[title*="bytes"]')).not.toBeNull();
    expect(section.toolbar.node.textContent).toContain('2 · 2.8 GB');
  });

  it('says why a kernel died, before anything else', async () => {
    const section = await show(
      withKernels(
        kernel('a', { restarts: 1, last_exit: exit({ oom: true }) }),
        kernel('b', { state: 'ended', last_exit: exit(), uptime_s: null }),
        kernel('c', { last_exit: exit({ cause: 'restart' }) })
      )
    );
    const [first, second, third] = rows(section.node);
    expect(first.textContent).toContain('Out of memory, restarted 1 min ago');
    expect(second.textContent).toContain('Killed by SIGKILL, died 1 min ago');
    expect(third.textContent).toContain('idle');
  });

  it('shows the state again some minutes after a death', async () => {
    const last_exit = exit({ at: Date.now() / 1000 - 3600 });
    const section = await show(
      withKernels(
        kernel('a', { last_exit, execution_state: 'busy' }),
        kernel('b', { last_exit, state: 'ended' })
      )
    );
    const [first, second] = rows(section.node);
    expect(first.textContent).toContain('busy');
    expect(first.textContent).not.toContain('Killed by');
    expect(nameOf(first)).not.toContain('Killed by');
    expect(first.querySelector('[title^="Killed by"]')).not.toBeNull();
    expect(second.textContent).toContain('Killed by SIGKILL, died 1 h ago');
  });

  it('says at any time that a kernel is not watched', async () => {
    const section = await show(
      withKernels(kernel('a', { state: 'unwatched', last_exit: exit() }))
    );
    const [first] = rows(section.node);
    expect(first.textContent).toContain('not watched');
    expect(first.textContent).toContain('Killed by SIGKILL, restarted');
  });

  it('expands to the processes', async () => {
    const model = withKernels(
      kernel('a', { last_exit: exit(), reason: 'no spawner' })
    );
    const section = await show(model);
    await click(row(section.node, 'a.ipynb'));
    expect(model.expand).toHaveBeenCalledWith('a', true);
    expect(section.node.textContent).toContain('Looking at its processes');
    model.known.set('a', {
      kind: 'processes',
      processes: [
        processOf(21, { cmdline: [], name: 'zombie' }),
        processOf(22, { depth: 1, detached: true })
      ]
    });
    await model.tell();
    const names = rows(section.node).map(nameOf);
    expect(names[1]).toContain('Last end');
    expect(names[2]).toBe('no spawner');
    expect(names[3]).toContain('kernel, zombie, pid 21');
    expect(names[4]).toContain('detached, python -m thing, pid 22');
    expect(
      rows(section.node).map(one => one.getAttribute('aria-level'))
    ).toEqual(['1', '2', '2', '2', '3']);
    model.known.set('a', { kind: 'processes', processes: [] });
    await model.tell();
    expect(section.node.textContent).toContain('No process of it is left');
    model.known.set('a', { kind: 'failed', message: 'broken' });
    await model.tell();
    expect(section.node.textContent).toContain('broken');
    await click(row(section.node, 'a.ipynb'));
    expect(model.expand).toHaveBeenLastCalledWith('a', false);
  });

  it('moves nothing while the pointer is over it', async () => {
    const model = withKernels(kernel('a'), kernel('b'));
    const section = await show(model);
    await point(row(section.node, 'a.ipynb'), true);
    model.kernels = [kernel('n'), kernel('b')];
    await model.tell();
    const names = () =>
      rows(section.node).map(one => nameOf(one).split(', ').slice(0, 2));
    expect(names()).toEqual([
      ['a.ipynb', 'gone'],
      ['b.ipynb', 'idle'],
      ['n.ipynb', 'idle']
    ]);
    await point(row(section.node, 'a.ipynb'), false);
    expect(names().map(([name]) => name)).toEqual(['n.ipynb', 'b.ipynb']);
  });

  it('keeps the processes of a kernel in place, too', async () => {
    const model = withKernels(kernel('a'));
    model.known.set('a', {
      kind: 'processes',
      processes: [processOf(1), processOf(2)]
    });
    const section = await show(model);
    await point(row(section.node, 'a.ipynb'), true);
    model.known.set('a', { kind: 'processes', processes: [processOf(2)] });
    await model.tell();
    expect(nameOf(rows(section.node)[1])).toContain('ended');
    expect(rows(section.node)).toHaveLength(3);
  });

  it('tells a process from an earlier one with the same number', async () => {
    const complained = jest.spyOn(console, 'error').mockImplementation();
    const model = withKernels(kernel('a'));
    model.known.set('a', { kind: 'processes', processes: [processOf(1)] });
    const section = await show(model);
    await point(row(section.node, 'a.ipynb'), true);
    const next = processOf(1, { started_at: 2000, name: 'next', cmdline: [] });
    model.known.set('a', { kind: 'processes', processes: [next] });
    await model.tell();
    const names = rows(section.node).map(nameOf);
    expect(names[1]).toContain('ended, python -m thing, pid 1');
    expect(names[2]).toContain('next, pid 1');
    expect(complained).not.toHaveBeenCalled();
    complained.mockRestore();
  });

  it('says on which day a kernel ended the last time', async () => {
    const at = Date.now() / 1000 - 3 * 24 * 3600;
    const model = withKernels(kernel('a', { last_exit: exit({ at }) }));
    model.known.set('a', { kind: 'loading' });
    const section = await show(model);
    expect(nameOf(rows(section.node)[1])).toContain(
      new Date(at * 1000).toLocaleDateString()
    );
  });

  it('runs the actions of a row that are enabled', async () => {
    const section = await show(withKernels(kernel('a')));
    const [stop, off] = section.node.querySelectorAll('button');
    expect(stop.getAttribute('aria-label')).toBe('stop a');
    expect(off.getAttribute('aria-disabled')).toBe('true');
    await click(stop);
    await click(off);
    expect(act.mock.calls).toEqual([['stop', 'a']]);
  });

  it('opens the notebook on a double click', async () => {
    const section = await show(withKernels(kernel('a')));
    row(section.node, 'a.ipynb').dispatchEvent(
      new MouseEvent('dblclick', { bubbles: true })
    );
    expect(open).toHaveBeenCalledTimes(1);
  });

  it('gives a kernel the focus that is to be shown', async () => {
    const model = withKernels(kernel('a'));
    const section = await show(model);
    section.reveal('b');
    await frames();
    model.kernels = [kernel('a'), kernel('b')];
    await model.tell();
    expect(nameOf(document.activeElement!)).toContain('b.ipynb');
    await press('Home');
    await model.tell();
    expect(nameOf(document.activeElement!)).toContain('a.ipynb');
  });
});

it('forgets a kernel that was to be shown and was not there', async () => {
  const model = withKernels(kernel('a'), kernel('c'));
  const section = await show(model);
  section.reveal('b');
  await frames();
  rows(section.node)[1].focus();
  model.kernels = [kernel('a')];
  model.kernelsAt += 1000;
  await model.tell();
  // The next row has the keyboard, although another one was looked for.
  expect(nameOf(document.activeElement!)).toContain('a.ipynb');
  model.kernels = [kernel('a'), kernel('b')];
  await model.tell();
  expect(nameOf(document.activeElement!)).toContain('a.ipynb');
});

describe('the keyboard', () => {
  const current = () => nameOf(document.activeElement!).split(',')[0];

  async function focused(): Promise<FakeModel> {
    const model = withKernels(kernel('a'), kernel('b'), kernel('c'));
    const section = await show(model);
    rows(section.node)[0].focus();
    return model;
  }

  it('walks with the arrows, Home and End, and stops at the ends', async () => {
    await focused();
    await press('ArrowUp');
    expect(current()).toBe('a.ipynb');
    await press('ArrowDown');
    expect(current()).toBe('b.ipynb');
    await press('End');
    await press('ArrowDown');
    expect(current()).toBe('c.ipynb');
    await press('Home');
    expect(current()).toBe('a.ipynb');
  });

  it('expands, enters, leaves and collapses', async () => {
    const model = await focused();
    await press('ArrowRight');
    expect(model.expand).toHaveBeenLastCalledWith('a', true);
    await press('ArrowRight');
    expect(current()).toBe('Looking at its processes…');
    await press('ArrowRight');
    expect(current()).toBe('Looking at its processes…');
    await press('ArrowLeft');
    expect(current()).toBe('a.ipynb');
    await press('ArrowLeft');
    expect(model.expand).toHaveBeenLastCalledWith('a', false);
    await press('ArrowLeft');
    expect(current()).toBe('a.ipynb');
    await press(' ');
    expect(model.expand).toHaveBeenLastCalledWith('a', true);
    await press('ArrowDown');
    // A line of text has nothing to expand.
    await press('Enter');
  });

  it('opens with Enter and leaves other keys alone', async () => {
    await focused();
    await press('Enter');
    expect(open).toHaveBeenCalledTimes(1);
    const event = new KeyboardEvent('keydown', {
      key: 'x',
      bubbles: true,
      cancelable: true
    });
    document.activeElement!.dispatchEvent(event);
    expect(event.defaultPrevented).toBe(false);
  });

  it('has one row in the order of Tab, with its actions', async () => {
    await focused();
    const order = [...document.querySelectorAll<HTMLElement>('[tabindex="0"]')]
      .filter(one => one.closest('[role=tree]'))
      .map(nameOf);
    expect(order).toHaveLength(3);
    expect(order.slice(1)).toEqual(['stop a', 'off a']);
  });

  it('finds the next row when its own vanishes', async () => {
    const model = await focused();
    await press('ArrowDown');
    model.kernels = [kernel('a'), kernel('c')];
    await model.tell();
    expect(current()).toBe('c.ipynb');
    model.kernels = [kernel('a')];
    await model.tell();
    expect(current()).toBe('a.ipynb');
  });

  it('does not take the focus from elsewhere', async () => {
    const model = await focused();
    const other = document.body.appendChild(document.createElement('input'));
    other.focus();
    model.kernels = [kernel('c')];
    await model.tell();
    expect(document.activeElement).toBe(other);
    other.remove();
  });
});

it('renders nothing while it is hidden', async () => {
  const model = withKernels(kernel('a'));
  const section = await show(model);
  section.hide();
  model.kernels = [];
  await model.tell();
  expect(rows(section.node)).toHaveLength(1);
  section.show();
  await frames();
  expect(rows(section.node)).toHaveLength(0);
  section.dispose();
  section.dispose();
});

it('is not rendered any more once it is taken off the page', async () => {
  const section = await show(withKernels(kernel('a')));
  jest.useFakeTimers();
  section.hide();
  section.show();
  const update = jest.spyOn(section, 'update');
  jest.advanceTimersByTime(60_000);
  expect(update).toHaveBeenCalled();
  Widget.detach(section);
  update.mockClear();
  jest.advanceTimersByTime(60_000);
  jest.useRealTimers();
  expect(update).not.toHaveBeenCalled();
});
