import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

/** The npm name; prefix of plugin and icon ids. */
export const NAMESPACE = 'jupyter-ownedkernels';

/** Domain of the translations: letters, digits and underscores only. */
export const TRANSLATION_DOMAIN = 'jupyter_ownedkernels';

/** Id of the panel in the shell and in a saved layout. */
export const PANEL_ID = `${NAMESPACE}:panel`;

export namespace CommandIDs {
  export const show = 'ownedkernels:show';
  export const refresh = 'ownedkernels:refresh';
}

/** How far the server's kernels are owned. */
export type Mode = 'full' | 'provisioner-only' | 'inactive';

/** The part of `GET /api/ownedkernels/health` that the panel shows. */
export interface IHealth {
  mode: Mode;
  /** Why the mode is not `full`; empty when it is. */
  reason: string;
  version: string;
}

/** What is known about the server: nothing yet, its answer, or why there is none. */
export type ServerState =
  | { kind: 'unknown' }
  | { kind: 'health'; health: IHealth }
  | { kind: 'off' }
  | { kind: 'failed'; message: string };

/**
 * What the server says about its kernels, for everything that shows it.
 * Views read `server` and listen to `changed`; none of them asks the server itself.
 */
export interface IOwnershipModel {
  readonly server: ServerState;
  readonly changed: ISignal<IOwnershipModel, void>;
  /** Ask the server once. Never rejects: a failure becomes the state. */
  refresh(): Promise<void>;
}

export const IOwnershipModel = new Token<IOwnershipModel>(
  `${NAMESPACE}:IOwnershipModel`,
  'The state of the kernels that this server owns.'
);
