import { ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import { requestAPI } from './request';
import type { IHealth, IOwnershipModel, ServerState } from './tokens';

/** The one place of the front end that asks the server. */
export class OwnershipModel implements IOwnershipModel, IDisposable {
  constructor(private _settings: ServerConnection.ISettings) {}

  get server(): ServerState {
    return this._server;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  async refresh(): Promise<void> {
    const server = await fetchState(this._settings);
    if (this._isDisposed) {
      return;
    }
    this._server = server;
    this._changed.emit();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    Signal.clearData(this);
  }

  private _changed = new Signal<this, void>(this);
  private _isDisposed = false;
  private _server: ServerState = { kind: 'unknown' };
}

async function fetchState(
  settings: ServerConnection.ISettings
): Promise<ServerState> {
  try {
    const health = await requestAPI<IHealth>('health', settings);
    return { kind: 'health', health };
  } catch (error) {
    if (
      error instanceof ServerConnection.ResponseError &&
      error.response.status === 404
    ) {
      return { kind: 'off' };
    }
    return { kind: 'failed', message: (error as Error).message };
  }
}
