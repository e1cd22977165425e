import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type {
  ICleanResult,
  IHealth,
  IHistoryEntry,
  IKernel,
  IOwnershipEvent,
  IProcess,
  IReport
} from './api';

/** The npm name; prefix of plugin and icon ids. */
export const NAMESPACE = 'jupyter-ownedkernels';

/** Domain of the translations: letters, digits and underscores only. */
export const TRANSLATION_DOMAIN = 'jupyter_ownedkernels';

/** Id of the panel in the shell and in a saved layout. */
export const PANEL_ID = `${NAMESPACE}:panel`;

export namespace CommandIDs {
  export const show = 'ownedkernels:show';
  export const refresh = 'ownedkernels:refresh';
  export const scan = 'ownedkernels:scan';
  export const clean = 'ownedkernels:clean';
  export const openKernel = 'ownedkernels:open';
  export const interruptKernel = 'ownedkernels:interrupt';
  export const restartKernel = 'ownedkernels:restart';
  export const shutDownKernel = 'ownedkernels:shut-down';
}

/** What is known about the server: nothing yet, its answer, or why there is none. */
export type ServerState =
  | { kind: 'unknown' }
  | { kind: 'health'; health: IHealth }
  | { kind: 'off' }
  | { kind: 'failed'; message: string };

/** The processes of one kernel: on their way, there, or why not. */
export type ProcessState =
  | { kind: 'loading' }
  | { kind: 'processes'; processes: IProcess[] }
  | { kind: 'failed'; message: string };

/** The report of the last scan: none yet, there, or why not. */
export type StrayState =
  | { kind: 'unknown' }
  | { kind: 'report'; report: IReport }
  | { kind: 'failed'; message: string };

/** A clean, from the request to the last answer. */
export interface ICleaning {
  ids: readonly string[];
  results: ReadonlyMap<string, ICleanResult>;
  running: boolean;
  /** Why the server did not answer; items without a result may be done or not. */
  error: string;
}

/**
 * What the server says about its kernels, for everything that shows it.
 *
 * Views read the properties and listen to `changed`; none of them asks the server itself.
 * A view calls `observe` while a reader can see it: without an observer nothing is fetched.
 */
export interface IOwnershipModel {
  readonly server: ServerState;
  /** The kernels of this server, the oldest first; null before the first answer. */
  readonly kernels: readonly IKernel[] | null;
  /** When `kernels` came, in milliseconds of `Date.now()`. */
  readonly kernelsAt: number;
  readonly strays: StrayState;
  readonly scanning: boolean;
  readonly cleaning: ICleaning | null;
  readonly changed: ISignal<IOwnershipModel, void>;
  /** Events of the server, whether or not somebody observes. */
  readonly happened: ISignal<IOwnershipModel, IOwnershipEvent>;
  /** Keep everything fresh until the answer is disposed. */
  observe(): IDisposable;
  /** Ask the server for everything. Never rejects: a failure becomes the state. */
  refresh(): Promise<void>;
  /** Ask for the newest report only. Never rejects. */
  refreshStrays(): Promise<void>;
  /** Let the server scan now. Never rejects. */
  scan(): Promise<void>;
  /**
   * End and remove these findings. Never rejects: the answer says what failed.
   *
   * One at a time: while a clean runs this begins no other, and answers with that one.
   */
  clean(ids: readonly string[]): Promise<ICleaning>;
  /** What is known of a kernel's processes; undefined unless it is expanded. */
  processes(kernelId: string): ProcessState | undefined;
  /** Whether to fetch the processes of a kernel. */
  expand(kernelId: string, expanded: boolean): void;
  /** How kernels have ended, the newest first. */
  history(limit: number): Promise<IHistoryEntry[]>;
}

export const IOwnershipModel = new Token<IOwnershipModel>(
  `${NAMESPACE}:IOwnershipModel`,
  'The state of the kernels that this server owns.'
);

/** The panel, for what points at something in it. */
export interface IOwnershipPanel {
  readonly id: string;
  /** Scroll to a kernel and give it the focus. */
  revealKernel(kernelId: string): void;
  /** Give the list of strays the focus. */
  revealStrays(): void;
  /** Tell a screen reader of the next scan, even when it finds the same as the last one. */
  announceScan(): void;
  /** The strays that are checked; those that a clean of all takes, at first. */
  checkedStrays(): string[];
}

export const IOwnershipPanel = new Token<IOwnershipPanel>(
  `${NAMESPACE}:IOwnershipPanel`,
  'The side panel "Kernel Ownership".'
);
