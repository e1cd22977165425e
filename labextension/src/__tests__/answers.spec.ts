import { ReportAnswers } from '../answers';
import type { StrayState } from '../tokens';
import { report } from './support/samples';

const scanned = (scanned_at: number): StrayState => ({
  kind: 'report',
  report: report([], { scanned_at })
});
const failed: StrayState = { kind: 'failed', message: 'lost' };

describe('of two requests at once', () => {
  it.each([
    ['the later report', scanned(200), scanned(100), scanned(200)],
    ['the later report', scanned(100), scanned(200), scanned(200)],
    ['a report that was asked for last', failed, scanned(100), scanned(100)],
    ['a failure that was asked for last', scanned(100), failed, failed]
  ])('%s is shown, in either order', (_, one, other, shown) => {
    for (const order of [
      [0, 1],
      [1, 0]
    ]) {
      const answers = new ReportAnswers();
      const takes = [answers.ask(), answers.ask()];
      order.forEach(at => takes[at]([one, other][at]));
      expect(answers.state).toEqual(shown);
    }
  });
});

it('of two requests in turn the second counts, whatever the clock says', () => {
  const answers = new ReportAnswers();
  expect(answers.state.kind).toBe('unknown');
  answers.ask()(scanned(200));
  answers.ask()(scanned(100));
  expect(answers.state).toEqual(scanned(100));
  answers.ask()(failed);
  expect(answers.state).toEqual(failed);
});
