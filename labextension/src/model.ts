import type { Event, ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll, Throttler } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import {
  EVENT_SCHEMA,
  type ICleanResult,
  type IHealth,
  type IHistoryEntry,
  type IKernel,
  type IOwnershipEvent,
  type IProcess,
  type IReport
} from './api';
import { ReportAnswers } from './answers';
import { cleanInParts } from './cleaning';
import { isMissing, messageOf, requestAPI } from './request';
import {
  NAMESPACE,
  type ICleaning,
  type IOwnershipModel,
  type ProcessState,
  type ServerState,
  type StrayState
} from './tokens';

/** Events come in bursts: many kernels may start or end at once. */
const EVENT_LIMIT_MS = 150;

/**
 * A kernel is on record before its session is: the server saves the session once the
 * kernel has started. One more look then finds the notebook's name. After a rename,
 * too, the session follows the file.
 */
const SETTLE_MS = 1500;

/** The longest pause of a poll that fails. */
const LONGEST_PAUSE_MS = 300_000;

/** After these the cached report of the server is out of date. */
const OUTDATES_REPORT = new Set(['left_detached', 'recovered']);
const TOUCHES_REPORT = new Set(['stray_found', 'cleaned', ...OUTDATES_REPORT]);

/** The one place of the front end that asks the server. */
export class OwnershipModel implements IOwnershipModel, IDisposable {
  constructor(options: OwnershipModel.IOptions) {
    this._settings = options.serverSettings;
    this._trans = options.trans;
    this._events = options.events ?? null;
    this._events?.stream.connect(this._onEmission, this);
    this._throttler = new Throttler(() => this._onQuiet(), {
      limit: EVENT_LIMIT_MS,
      edge: 'trailing'
    });
    this._poll = new Poll({
      auto: false,
      factory: async () => {
        await this.refresh();
        if (this._server.kind !== 'health') {
          // The poll makes longer pauses.
          throw new Error(this._server.kind);
        }
      },
      frequency: { interval: 60_000, backoff: true, max: LONGEST_PAUSE_MS },
      name: `${NAMESPACE}:poll`,
      standby: () => (this._observers > 0 ? 'when-hidden' : true)
    });
    document.addEventListener('visibilitychange', this._onVisibility);
  }

  get server(): ServerState {
    return this._server;
  }

  get kernels(): readonly IKernel[] | null {
    return this._kernels;
  }

  get kernelsAt(): number {
    return this._kernelsAt;
  }

  get strays(): StrayState {
    return this._strays.state;
  }

  get scanning(): boolean {
    return this._scans > 0;
  }

  get cleaning(): ICleaning | null {
    return this._cleaning;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get happened(): ISignal<this, IOwnershipEvent> {
    return this._happened;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Seconds between two looks at the server while somebody observes. */
  set pollInterval(seconds: number) {
    const interval = seconds * 1000;
    const max = Math.max(interval, LONGEST_PAUSE_MS);
    this._poll.frequency = { interval, backoff: true, max };
  }

  observe(): IDisposable {
    this._observers += 1;
    if (this._observers === 1) {
      void this._poll.refresh();
    }
    return new DisposableDelegate(() => {
      this._observers -= 1;
    });
  }

  /** One round at a time; who asks during a round gets the next one. */
  refresh(): Promise<void> {
    if (this._round === null) {
      this._round = this._look().finally(() => {
        this._round = null;
      });
      return this._round;
    }
    this._nextRound ??= this._round.then(() => {
      this._nextRound = null;
      return this.refresh();
    });
    return this._nextRound;
  }

  async refreshStrays(): Promise<void> {
    await this._fetchStrays('strays');
  }

  async scan(): Promise<void> {
    await this._fetchStrays('strays?refresh=1');
  }

  clean(ids: readonly string[]): Promise<ICleaning> {
    // Two at once would write over each other's progress.
    if (this._lastClean === null || !this._cleaning?.running) {
      this._lastClean = this._clean(ids);
    }
    return this._lastClean;
  }

  processes(kernelId: string): ProcessState | undefined {
    return this._processes.get(kernelId);
  }

  expand(kernelId: string, expanded: boolean): void {
    if (!expanded) {
      this._processes.delete(kernelId);
    } else if (!this._processes.has(kernelId)) {
      this._processes.set(kernelId, { kind: 'loading' });
      void this._fetchProcesses(kernelId);
    }
    this._emit();
  }

  async history(limit: number): Promise<IHistoryEntry[]> {
    const answer = await requestAPI<{ entries: IHistoryEntry[] }>(
      `history?limit=${limit}`,
      this._settings
    );
    return answer.entries;
  }

  /** Something that the server knows has changed; what exactly is not said. */
  touch(): void {
    this._stale = true;
    void this._throttler.invoke();
  }

  /** The same, of something that the server puts on record in two steps. */
  touchTwice(): void {
    clearTimeout(this._settle);
    this._settle = setTimeout(() => this.touch(), SETTLE_MS);
    this.touch();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    clearTimeout(this._settle);
    document.removeEventListener('visibilitychange', this._onVisibility);
    this._events?.stream.disconnect(this._onEmission, this);
    this._throttler.dispose();
    this._poll.dispose();
    Signal.clearData(this);
  }

  private async _look(): Promise<void> {
    this._stale = false;
    const server = await this._fetchServer();
    if (this._isDisposed) {
      return;
    }
    this._server = server;
    if (server.kind === 'off') {
      // What was known is not true any more; after a mere failure it may be.
      this._kernels = null;
      this._strays.state = { kind: 'unknown' };
    }
    this._emit();
    if (server.kind !== 'health') {
      return;
    }
    await Promise.all([
      this._fetchKernels().then(() => this._fetchExpanded()),
      this.refreshStrays()
    ]);
  }

  private async _clean(ids: readonly string[]): Promise<ICleaning> {
    const results = new Map<string, ICleanResult>();
    let error = '';
    const tell = (running: boolean) => {
      this._cleaning = { ids, results, running, error };
      this._emit();
      return this._cleaning;
    };
    tell(true);
    try {
      await cleanInParts(ids, this._settings, part => {
        part.forEach(result => results.set(result.id, result));
        tell(true);
      });
    } catch (reason) {
      error = messageOf(reason, this._trans);
    }
    const done = tell(false);
    await this.scan();
    return done;
  }

  private async _fetchServer(): Promise<ServerState> {
    try {
      const health = await requestAPI<IHealth>('health', this._settings);
      return { kind: 'health', health };
    } catch (error) {
      return isMissing(error)
        ? { kind: 'off' }
        : { kind: 'failed', message: messageOf(error, this._trans) };
    }
  }

  private async _fetchKernels(): Promise<void> {
    let answer: { kernels: IKernel[] };
    try {
      answer = await requestAPI('kernels', this._settings);
    } catch (error) {
      this._server = { kind: 'failed', message: messageOf(error, this._trans) };
      this._emit();
      return;
    }
    this._kernels = answer.kernels;
    this._kernelsAt = Date.now();
    this._emit();
  }

  /** Of a kernel that is not there any more nothing is asked: what is shown may stay. */
  private async _fetchExpanded(): Promise<void> {
    const ids = (this._kernels ?? []).map(({ kernel_id }) => kernel_id);
    const expanded = ids.filter(id => this._processes.has(id));
    await Promise.all(expanded.map(id => this._fetchProcesses(id)));
  }

  private async _fetchProcesses(kernelId: string): Promise<void> {
    let state: ProcessState;
    try {
      const answer = await requestAPI<{ processes: IProcess[] }>(
        `kernels/${encodeURIComponent(kernelId)}`,
        this._settings
      );
      state = { kind: 'processes', processes: answer.processes };
    } catch (error) {
      state = { kind: 'failed', message: messageOf(error, this._trans) };
    }
    // It may have been collapsed meanwhile.
    if (this._processes.has(kernelId)) {
      this._processes.set(kernelId, state);
      this._emit();
    }
  }

  private async _fetchStrays(endpoint: string): Promise<void> {
    const take = this._strays.ask();
    this._scans += 1;
    this._emit();
    try {
      const report = await requestAPI<IReport>(endpoint, this._settings);
      take({ kind: 'report', report });
    } catch (error) {
      take({ kind: 'failed', message: messageOf(error, this._trans) });
    }
    this._scans -= 1;
    this._emit();
  }

  private _onEmission(_: unknown, emission: Event.Emission): void {
    if (emission.schema_id !== EVENT_SCHEMA) {
      return;
    }
    const event = emission as unknown as IOwnershipEvent;
    this._staleReport ||= OUTDATES_REPORT.has(event.action);
    this._touchedReport ||= TOUCHES_REPORT.has(event.action);
    if (event.action === 'launched') {
      this.touchTwice();
    } else {
      this.touch();
    }
    this._happened.emit(event);
  }

  /** Nothing has happened for a moment: look, unless nobody is looking at us. */
  private _onQuiet(): void {
    // A page that is not seen keeps what it was told until it is.
    if (this._isDisposed || document.hidden) {
      return;
    }
    const staleReport = this._staleReport;
    const touchedReport = this._touchedReport;
    this._staleReport = this._touchedReport = false;
    if (this._observers > 0) {
      void this.refresh();
      if (staleReport) {
        void this.scan();
      }
    } else if (touchedReport) {
      // The status bar and the Running panel are in sight when this panel is not.
      void this._fetchStrays(staleReport ? 'strays?refresh=1' : 'strays');
    }
  }

  private _onVisibility = () => {
    if (this._stale || this._touchedReport) {
      this._onQuiet();
    }
  };

  private _emit(): void {
    if (!this._isDisposed) {
      this._changed.emit();
    }
  }

  private _settings: ServerConnection.ISettings;
  private _trans: TranslationBundle;
  private _events: Event.IManager | null;
  private _poll: Poll<void>;
  private _throttler: Throttler<void>;
  private _changed = new Signal<this, void>(this);
  private _happened = new Signal<this, IOwnershipEvent>(this);
  private _isDisposed = false;
  private _observers = 0;
  private _round: Promise<void> | null = null;
  private _nextRound: Promise<void> | null = null;
  private _settle: ReturnType<typeof setTimeout> | undefined;
  private _stale = false;
  private _staleReport = false;
  private _touchedReport = false;
  private _server: ServerState = { kind: 'unknown' };
  private _kernels: readonly IKernel[] | null = null;
  private _kernelsAt = 0;
  private _processes = new Map<string, ProcessState>();
  private _strays = new ReportAnswers();
  private _scans = 0;
  private _cleaning: ICleaning | null = null;
  private _lastClean: Promise<ICleaning> | null = null;
}

export namespace OwnershipModel {
  export interface IOptions {
    serverSettings: ServerConnection.ISettings;
    /** For what a failure says. */
    trans: TranslationBundle;
    /** Where the server's events arrive; without it the poll has to do. */
    events?: Event.IManager;
  }
}
