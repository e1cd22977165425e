import { nullTranslator } from '@jupyterlab/translation';

import type { IHealth } from '../api';
import { ServerSection } from '../sections';
import { attach, FakeModel } from './support/fakes';
import { health } from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');

async function show(fields: Partial<IHealth>): Promise<string> {
  const model = new FakeModel();
  model.server = { kind: 'health', health: health(fields) };
  const rendered = jest.fn();
  const section = await attach(new ServerSection(model, trans, rendered));
  expect(rendered).toHaveBeenCalled();
  expect(section.textHeight).toBe(0);
  return section.node.textContent;
}

const spawner = {
  kind: 'warm',
  pid: null,
  interpreter: '/opt/python',
  launches: 3,
  failures: 0,
  state: 'ready',
  reason: null
};

describe('the section of the server', () => {
  it('has a line for each means', async () => {
    const text = await show({
      spawners: [{ ...spawner, kind: 'plain', pid: 5 }, spawner]
    });
    expect(text).toContain('Every kernel is watched');
    expect(text).toContain('pid 10, 1 min');
    expect(text).toContain('all 3 act');
    expect(text).toContain('plain + warm, 6 launches');
    expect(text).toContain('1 record');
  });

  it('says in plain words what is off', async () => {
    const text = await show({
      mode: 'provisioner-only',
      reason: 'another manager was chosen',
      owner: null,
      layers: {
        pidfd: { active: false, why: 'old kernel' },
        other: { active: false, why: 'no idea' },
        warm: { active: false, why: 'off for /opt/python: it failed' }
      },
      spawners: [{ ...spawner, state: 'failed', reason: 'it crashed' }],
      journal: { path: null, writable: false, records: 0, reason: 'disk full' }
    });
    expect(text).toContain('another manager was chosen.');
    expect(text).toContain('0 of 2 act');
    expect(text).toContain('process handles (old kernel)');
    expect(text).toContain('it crashed. Kernels start the plain way.');
    expect(text).toContain('disk full. Kernels are watched all the same.');
  });

  it.each(['failed', 'off'])('warns of a spawner that is %s', async state => {
    const model = new FakeModel();
    const broken = { ...spawner, state, reason: 'it crashed' };
    model.server = { kind: 'health', health: health({ spawners: [broken] }) };
    const section = await attach(new ServerSection(model, trans, jest.fn()));
    const warned = [
      ...section.node.querySelectorAll('dd:has([data-tone="warning"])')
    ].map(line => line.previousElementSibling?.textContent);
    expect(warned).toEqual(['Warm starts', 'Spawners']);
  });

  it('does not say that all is watched when launches fell back', async () => {
    const text = await show({
      layers: { spawner: { active: false, why: 'it could not be started' } }
    });
    expect(text).not.toContain('Every kernel is watched');
    expect(text).toContain(
      'The newest kernel is not watched: it could not be started.'
    );
  });

  it('has no lines when nothing is owned', async () => {
    const text = await show({ mode: 'inactive', reason: 'Gateway' });
    expect(text).toBe('Not active: Gateway.');
  });

  it('does without layers, spawners and journal', async () => {
    const text = await show({ layers: {}, journal: null });
    expect(text).toContain('none yet');
  });

  it('shows the command that switches the extension on', async () => {
    const model = new FakeModel();
    model.server = { kind: 'off' };
    const section = await attach(
      new ServerSection(model, trans, () => undefined)
    );
    expect(section.node.querySelector('code')?.textContent).toContain(
      'jupyter server extension enable'
    );
  });
});
