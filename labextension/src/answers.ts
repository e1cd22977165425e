import type { StrayState } from './tokens';

/**
 * The report to show, in whatever order the answers come.
 *
 * A scan takes its time, and what the server has kept of the last one overtakes it, or
 * is overtaken. Of two requests that were under way at once the later report is shown, or
 * with a failure among them what was asked for later. Clocks are compared only then: one
 * that is set back must not keep an old report for good.
 */
export class ReportAnswers {
  /** What there is to show. */
  state: StrayState = { kind: 'unknown' };

  /** Begin a request; its answer is given to what this returns. */
  ask(): (answer: StrayState) => void {
    const turn = ++this._last;
    const before = this._answers;
    return answer => {
      const isAlone = this._answers === before;
      this._answers += 1;
      if (isAlone || this._isBetter(answer, turn)) {
        this.state = answer;
        this._shown = turn;
      }
    };
  }

  private _isBetter(answer: StrayState, turn: number): boolean {
    return answer.kind === 'report' && this.state.kind === 'report'
      ? answer.report.scanned_at > this.state.report.scanned_at
      : turn > this._shown;
  }

  private _last = 0;
  private _shown = 0;
  private _answers = 0;
}
