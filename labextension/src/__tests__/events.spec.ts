import { type IOwnershipEvent } from '../api';
import { until } from './support/fakes';
import {
  fakeEvents,
  hideDocument,
  make,
  serve,
  status,
  type Answers
} from './support/served';

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
