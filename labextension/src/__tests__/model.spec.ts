import { ServerConnection, type Event } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { EVENT_SCHEMA, type IOwnershipEvent } from '../api';
import { OwnershipModel } from '../model';
import * as request from '../request';
import { until } from './support/fakes';
import { finding, health, kernel, processOf, report } from './support/samples';

const serverSettings = ServerConnection.makeSettings();

type Answers = Record<string, unknown>;

/** A server: an Error is thrown, a function is called, all else is the answer. */
function serve(answers: Answers): jest.SpyInstance {
  const all: Answers = {
    health: health(),
    kernels: { kernels: [kernel('a')] },
    strays: report([]),
    'strays?refresh=1': report([finding('fresh')]),
    ...answers
  };
  return jest
    .spyOn(request, 'requestAPI')
    .mockImplementation((endpoint, _settings, init) => {
      const answer = all[endpoint];
      if (answer instanceof Error) {
        return Promise.reject(answer);
      }
      return Promise.resolve(
        typeof answer === 'function'
          ? (answer as (body: unknown) => unknown)(init?.body)
          : answer
      );
    });
}

function status(
  code: number,
  message?: string
): ServerConnection.ResponseError {
  const response = new Response('', { status: code });
  return new ServerConnection.ResponseError(response, message);
}

function fakeEvents() {
  const stream = new Signal<Event.IManager, Event.Emission>(
    {} as Event.IManager
  );
  return {
    events: { stream } as unknown as Event.IManager,
    emit: (action: string, schema_id = EVENT_SCHEMA) =>
      stream.emit({ schema_id, action, message: '' })
  };
}

const models: OwnershipModel[] = [];

function make(events?: Event.IManager): OwnershipModel {
  const model = new OwnershipModel({ serverSettings, events });
  models.push(model);
  return model;
}

function hideDocument(hidden: boolean): void {
  jest.spyOn(document, 'hidden', 'get').mockReturnValue(hidden);
  document.dispatchEvent(new window.Event('visibilitychange'));
}

afterEach(() => {
  jest.useRealTimers();
  models.splice(0).forEach(model => model.dispose());
  jest.restoreAllMocks();
});

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
    ['health', status(500, 'broken')],
    ['health', new ServerConnection.NetworkError(new TypeError('broken'))],
    ['kernels', status(500, 'broken')]
  ])('keeps a failure of %s as a message', async (endpoint, error) => {
    serve({ [endpoint]: error });
    const model = make();
    await model.refresh();
    expect(model.server).toEqual({ kind: 'failed', message: 'broken' });
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

describe('events', () => {
  it('refresh at once while somebody observes', async () => {
    const asked = serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    model.observe();
    await until(() => model.kernels !== null);
    const before = asked.mock.calls.length;
    emit('ended');
    // The next poll would come a minute later.
    await until(() => asked.mock.calls.length > before);
  });

  it('are told to listeners, those of other schemas are not', () => {
    const { events, emit } = fakeEvents();
    const model = make(events);
    const heard: IOwnershipEvent[] = [];
    model.happened.connect((_, event) => heard.push(event));
    emit('ended');
    emit('started', 'https://events.jupyter.org/other');
    expect(heard.map(({ action }) => action)).toEqual(['ended']);
  });

  it('ask for nothing while nobody observes', async () => {
    jest.useFakeTimers();
    const asked = serve({});
    const { events, emit } = fakeEvents();
    make(events);
    emit('launched');
    emit('ended');
    await jest.advanceTimersByTimeAsync(10_000);
    jest.useRealTimers();
    expect(asked).not.toHaveBeenCalled();
  });

  it('of strays refresh the report alone when the panel is hidden', async () => {
    const asked = serve({});
    const { events, emit } = fakeEvents();
    make(events);
    emit('stray_found');
    await until(() => asked.mock.calls.length > 0);
    emit('left_detached');
    await until(() => asked.mock.calls.length > 1);
    expect(asked.mock.calls.map(([path]) => path)).toEqual([
      'strays',
      'strays?refresh=1'
    ]);
  });

  it('that make the report old ask for a new scan', async () => {
    const asked = serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    model.observe();
    await until(() => model.kernels !== null);
    emit('left_detached');
    await until(() =>
      asked.mock.calls.some(([path]) => path === 'strays?refresh=1')
    );
  });

  it('of a start look once more for its session', async () => {
    jest.useFakeTimers();
    const asked = serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    model.observe();
    await jest.advanceTimersByTimeAsync(10);
    const rounds = () =>
      asked.mock.calls.filter(([path]) => path === 'health').length;
    const before = rounds();
    emit('launched');
    await jest.advanceTimersByTimeAsync(1000);
    expect(rounds()).toBe(before + 1);
    await jest.advanceTimersByTimeAsync(2000);
    expect(rounds()).toBe(before + 2);
    jest.useRealTimers();
  });

  it('wait while the page is hidden', async () => {
    const asked = serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    model.observe();
    await until(() => model.kernels !== null);
    hideDocument(true);
    const before = asked.mock.calls.length;
    emit('ended');
    emit('stray_found');
    await new Promise(resolve => setTimeout(resolve, 400));
    expect(asked).toHaveBeenCalledTimes(before);
    hideDocument(false);
    await until(() => asked.mock.calls.length > before);
  });

  it.each([
    ['stray_found', 'strays'],
    ['left_detached', 'strays?refresh=1']
  ])('of kind %s wait, too, when the panel is hidden', async (kind, path) => {
    jest.useFakeTimers();
    const asked = serve({});
    const { events, emit } = fakeEvents();
    make(events);
    hideDocument(true);
    emit(kind);
    await jest.advanceTimersByTimeAsync(1000);
    expect(asked).not.toHaveBeenCalled();
    hideDocument(false);
    await jest.advanceTimersByTimeAsync(1000);
    expect(asked.mock.calls.map(([endpoint]) => endpoint)).toEqual([path]);
    hideDocument(true);
    hideDocument(false);
    await jest.advanceTimersByTimeAsync(1000);
    expect(asked).toHaveBeenCalledTimes(1);
  });

  it('that came to a hidden page scan when it is seen', async () => {
    const asked = serve({});
    const { events, emit } = fakeEvents();
    const model = make(events);
    model.observe();
    await until(() => model.kernels !== null);
    hideDocument(true);
    emit('left_detached');
    await new Promise(resolve => setTimeout(resolve, 400));
    hideDocument(false);
    await until(() =>
      asked.mock.calls.some(([path]) => path === 'strays?refresh=1')
    );
  });
});

describe('the poll', () => {
  it('runs while somebody observes, and only then', async () => {
    const asked = serve({});
    const model = make();
    model.pollInterval = 0.02;
    const observation = model.observe();
    const rounds = () =>
      asked.mock.calls.filter(([path]) => path === 'health').length;
    await until(() => rounds() > 2);
    observation.dispose();
    await new Promise(resolve => setTimeout(resolve, 100));
    // A round may have been on its way.
    const before = rounds();
    await new Promise(resolve => setTimeout(resolve, 100));
    expect(rounds()).toBe(before);
  });

  it('goes on after a failure', async () => {
    const answers: Answers = { health: status(500, 'broken') };
    const asked = serve(answers);
    const model = make();
    model.pollInterval = 0.02;
    model.observe();
    await until(() => asked.mock.calls.length > 1);
  });
});
