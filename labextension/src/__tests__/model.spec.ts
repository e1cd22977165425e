import { ServerConnection } from '@jupyterlab/services';

import { NotJSONError } from '../request';
import { until } from './support/fakes';
import { finding, processOf, report } from './support/samples';
import {
  fakeEvents,
  make,
  serve,
  serverSettings,
  status
} from './support/served';

const lost = new TypeError('Failed to fetch');

describe('OwnershipModel', () => {
  it('knows nothing before the first answer', () => {
    const model = make();
    expect(model.server).toEqual({ kind: 'unknown' });
    expect(model.kernels).toBeNull();
    expect(model.strays).toEqual({ kind: 'unknown' });
  });

  it('keeps what the server says, and tells that it changed', async () => {
    serve({});
    const model = make();
    const changed = jest.fn();
    model.changed.connect(changed);
    await model.refresh();
    expect(model.server.kind).toBe('health');
    expect(model.kernels?.map(one => one.kernel_id)).toEqual(['a']);
    expect(model.kernelsAt).toBeGreaterThan(0);
    expect(model.strays.kind).toBe('report');
    expect(model.scanning).toBe(false);
    expect(changed).toHaveBeenCalled();
  });

  it('takes a 404 for an extension that is off, and asks for no more', async () => {
    const asked = serve({ health: status(404) });
    const model = make();
    await model.refresh();
    expect(model.server).toEqual({ kind: 'off' });
    expect(model.kernels).toBeNull();
    expect(asked).toHaveBeenCalledTimes(1);
  });

  it.each([
    ['health', status(500, 'broken'), 'broken'],
    ['health', new ServerConnection.NetworkError(lost), 'No connection.'],
    ['kernels', new NotJSONError(new Response('')), 'The answer is not JSON.'],
    ['kernels', status(500, 'broken'), 'broken']
  ])('keeps a failure of %s as a message', async (endpoint, error, message) => {
    serve({ [endpoint]: error });
    const model = make();
    await model.refresh();
    expect(model.server).toEqual({ kind: 'failed', message });
  });

  it('keeps a failed scan apart', async () => {
    serve({ strays: status(503, 'no processes to be seen') });
    const model = make();
    await model.refresh();
    expect(model.server.kind).toBe('health');
    expect(model.strays).toEqual({
      kind: 'failed',
      message: 'no processes to be seen'
    });
  });

  it('asks once for all who ask during a round, after that round', async () => {
    const asked = serve({});
    const model = make();
    const first = model.refresh();
    const second = model.refresh();
    const third = model.refresh();
    expect(second).toBe(third);
    await Promise.all([first, second, third]);
    const rounds = asked.mock.calls.filter(([path]) => path === 'health');
    expect(rounds).toHaveLength(2);
  });

  it('scans when it is told to', async () => {
    serve({});
    const model = make();
    const scanned = model.scan();
    expect(model.scanning).toBe(true);
    await scanned;
    expect(model.strays).toMatchObject({
      report: { findings: [{ id: 'fresh' }] }
    });
  });

  it.each([
    ['an older report', (old: unknown) => old],
    [
      'a failure',
      () => {
        throw new Error('lost');
      }
    ]
  ])('is not taken back by %s that comes late', async (_, answer) => {
    let late: () => void = () => undefined;
    const old = report([], { scanned_at: 100 });
    const fresh = report([finding('fresh')], { scanned_at: 200 });
    const overtaken = new Promise<void>(resolve => (late = resolve));
    serve({
      strays: () => overtaken.then(() => answer(old)),
      'strays?refresh=1': fresh
    });
    const model = make();
    const first = model.refreshStrays();
    await model.scan();
    late();
    await first;
    expect(model.strays).toEqual({ kind: 'report', report: fresh });
    expect(model.scanning).toBe(false);
  });

  it('replaces an older report that has overtaken it', async () => {
    let late: () => void = () => undefined;
    const old = report([], { scanned_at: 100 });
    const fresh = report([finding('fresh')], { scanned_at: 200 });
    serve({
      strays: old,
      'strays?refresh=1': new Promise(resolve => (late = () => resolve(fresh)))
    });
    const model = make();
    const scanned = model.scan();
    await model.refreshStrays();
    expect(model.strays).toEqual({ kind: 'report', report: old });
    late();
    await scanned;
    expect(model.strays).toEqual({ kind: 'report', report: fresh });
  });

  it('stays silent once disposed', async () => {
    serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    const changed = jest.fn();
    model.changed.connect(changed);
    const refreshed = model.refresh();
    model.dispose();
    model.dispose();
    emit('launched');
    await refreshed;
    expect(model.isDisposed).toBe(true);
    expect(changed).not.toHaveBeenCalled();
    expect(model.server).toEqual({ kind: 'unknown' });
  });
});

describe('the processes of a kernel', () => {
  it('are fetched while it is expanded', async () => {
    const asked = serve({ 'kernels/a': { processes: [processOf(1)] } });
    const model = make();
    model.expand('a', true);
    model.expand('a', true);
    expect(model.processes('a')).toEqual({ kind: 'loading' });
    await until(() => model.processes('a')?.kind === 'processes');
    expect(asked).toHaveBeenCalledTimes(1);
    await model.refresh();
    expect(asked.mock.calls.map(([path]) => path)).toContain('kernels/a');
    model.expand('a', false);
    expect(model.processes('a')).toBeUndefined();
  });

  it('are asked for no more when it is gone', async () => {
    const asked = serve({ 'kernels/a': { processes: [processOf(1)] } });
    const model = make();
    model.expand('a', true);
    await until(() => model.processes('a')?.kind === 'processes');
    const list = jest.fn(() => ({ kernels: [] }));
    serve({ kernels: list, 'kernels/a': status(404, 'no such kernel') });
    asked.mockClear();
    await model.refresh();
    expect(list).toHaveBeenCalledTimes(1);
    expect(asked.mock.calls.map(([path]) => path)).not.toContain('kernels/a');
    // A list that still has its row shows what it has shown.
    expect(model.processes('a')?.kind).toBe('processes');
  });

  it('say why they are not there', async () => {
    serve({ 'kernels/a': status(404, 'no such kernel') });
    const model = make();
    model.expand('a', true);
    await until(() => model.processes('a')?.kind === 'failed');
    expect(model.processes('a')).toMatchObject({ message: 'no such kernel' });
  });

  it('are forgotten when they come after the collapse', async () => {
    let answer: (value: unknown) => void = () => undefined;
    serve({ 'kernels/a': () => new Promise(resolve => (answer = resolve)) });
    const model = make();
    model.expand('a', true);
    model.expand('a', false);
    answer({ processes: [] });
    await Promise.resolve();
    expect(model.processes('a')).toBeUndefined();
  });
});

describe('a clean', () => {
  const results = (body: unknown) => ({
    results: (JSON.parse(body as string) as { ids: string[] }).ids.map(id => ({
      id,
      outcome: 'terminated'
    }))
  });

  it('is sent in parts and looks again at the end', async () => {
    const asked = serve({ cleanup: results });
    const model = make();
    const progress: number[] = [];
    model.changed.connect(() => {
      progress.push(model.cleaning?.results.size ?? -1);
    });
    const ids = Array.from({ length: 120 }, (_, index) => `id${index}`);
    const done = await model.clean(ids);
    expect(done).toMatchObject({ running: false, error: '' });
    expect(done.results.size).toBe(120);
    expect(progress).toEqual(expect.arrayContaining([0, 50, 100, 120]));
    const posts = asked.mock.calls.filter(([path]) => path === 'cleanup');
    expect(posts).toHaveLength(3);
    expect(posts[0][2]).toMatchObject({ method: 'POST' });
    expect(JSON.parse(posts[0][2].body as string)).toMatchObject({
      dry_run: false
    });
    expect(asked).toHaveBeenLastCalledWith('strays?refresh=1', serverSettings);
  });

  it.each([
    [10_000, 20, 500],
    [250_000, 25, 10_000]
  ])('of %i is sent in %i parts', async (count, parts, size) => {
    const asked = serve({ cleanup: results });
    const model = make();
    const progress = new Set<number>();
    model.changed.connect(() => {
      progress.add(model.cleaning?.results.size ?? -1);
    });
    const ids = Array.from({ length: count }, (_, index) => `id${index}`);
    const done = await model.clean(ids);
    expect(done.results.size).toBe(count);
    const sizes = asked.mock.calls
      .filter(([path]) => path === 'cleanup')
      .map(([, , { body }]) => results(body).results.length);
    expect(sizes).toEqual(Array(parts).fill(size));
    expect(progress.size).toBe(parts + 1);
  });

  it('is the only one while it runs', async () => {
    const asked = serve({ cleanup: results });
    const model = make();
    const first = model.clean(['a']);
    expect(await model.clean(['b'])).toBe(await first);
    const bodies = () =>
      asked.mock.calls
        .filter(([path]) => path === 'cleanup')
        .map(([, , { body }]) => results(body).results.map(({ id }) => id));
    expect(bodies()).toEqual([['a']]);
    expect((await model.clean(['b'])).ids).toEqual(['b']);
    expect(bodies()).toEqual([['a'], ['b']]);
  });

  it('says what failed, and keeps what is done', async () => {
    let parts = 0;
    serve({
      cleanup: (body: unknown) => {
        parts += 1;
        if (parts === 2) {
          throw new Error('lost');
        }
        return results(body);
      }
    });
    const model = make();
    const done = await model.clean(
      Array.from({ length: 60 }, (_, index) => `id${index}`)
    );
    expect(done).toMatchObject({ running: false, error: 'lost' });
    expect(done.results.size).toBe(50);
  });
});

describe('history', () => {
  it('is asked for on demand', async () => {
    const asked = serve({
      'history?limit=5': { entries: [{ event: 'ended' }] }
    });
    expect(await make().history(5)).toEqual([{ event: 'ended' }]);
    expect(asked).toHaveBeenCalledTimes(1);
  });
});
