import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IOwnershipEvent } from './api';
import { asSentence } from './format';
import { CommandIDs, NAMESPACE, type IOwnershipModel } from './tokens';
import { isDeath, strayCount } from './words';

/** Entries of the history in which a recovery at the start of the server is looked for. */
const HISTORY_LIMIT = 50;

export namespace Notifier {
  export interface IOptions {
    model: IOwnershipModel;
    commands: CommandRegistry;
    trans: TranslationBundle;
    /** What a person calls a kernel. */
    nameOf: (kernelId: string) => Promise<string>;
    /** Of the server: those behind one hub share the memory. */
    baseUrl: string;
    /** Keeps which start of a server was told of. */
    memory: Pick<Storage, 'getItem' | 'setItem'>;
  }
}

/** Tells of what a reader should not miss: once, and with a way to see more. */
export class Notifier {
  constructor(private _options: Notifier.IOptions) {
    _options.model.happened.connect(this._onEvent, this);
    _options.model.changed.connect(this._onChanged, this);
  }

  /** Whether to tell of strays, and of kernels that died. */
  strays = true;
  deaths = true;

  /** Tell of what the last start of the server has found and ended, unless it was told. */
  async start(): Promise<void> {
    const { baseUrl, model, memory } = this._options;
    await model.refresh();
    const { server } = model;
    if (!this.strays || server.kind !== 'health' || !server.health.owner) {
      return;
    }
    const { owner_id, started_at } = server.health.owner;
    const key = `${NAMESPACE}:told:${baseUrl}`;
    if (memory.getItem(key) === owner_id) {
      return;
    }
    try {
      memory.setItem(key, owner_id);
    } catch {
      // It is full: better told again by the next page than not at all.
    }
    const entries = await model.history(HISTORY_LIMIT).catch(() => []);
    const ended = entries
      .filter(({ event, at }) => event === 'recovered' && at >= started_at)
      .reduce((sum, { count }) => sum + (count ?? 0), 0);
    if (ended > 0) {
      this._tellRecovered(ended);
    }
    const found = strayCount(model);
    if (found > 0) {
      this._tellStrays(found);
    }
  }

  dispose(): void {
    this._options.model.happened.disconnect(this._onEvent, this);
    this._options.model.changed.disconnect(this._onChanged, this);
  }

  private _onEvent(_: unknown, event: IOwnershipEvent): void {
    if (event.action === 'recovered' && this.strays && event.count) {
      this._tellRecovered(event.count);
    } else if (event.action === 'ended' && this.deaths) {
      void this._tellDeath(event);
    }
  }

  private _tellRecovered(count: number): void {
    const { trans } = this._options;
    Notification.info(
      trans._n(
        '%1 process of an owner that had died was ended.',
        '%1 processes of owners that had died were ended.',
        count
      )
    );
  }

  private _tellStrays(count: number): void {
    const { trans } = this._options;
    this._strayNotice = Notification.warning(
      trans._n(
        '%1 stray was found: its owner is gone, and it still runs.',
        '%1 strays were found: their owners are gone, and they still run.',
        count
      ),
      {
        autoClose: false,
        actions: this._show(
          trans.__('Show the strays in the panel Kernel Ownership'),
          { strays: true }
        )
      }
    );
  }

  private async _tellDeath({
    kernel_id,
    exit
  }: IOwnershipEvent): Promise<void> {
    const { nameOf, trans } = this._options;
    if (!kernel_id || !isDeath(exit)) {
      return;
    }
    const name = await nameOf(kernel_id);
    // A kernel that dies again and again has one notification, the newest.
    const earlier = this._told.get(kernel_id);
    if (earlier !== undefined) {
      Notification.dismiss(earlier);
    }
    const id = Notification.warning(
      trans.__('The kernel of %1 died: %2', name, asSentence(exit.summary)),
      {
        autoClose: false,
        actions: this._show(
          trans.__('Show the kernel in the panel Kernel Ownership'),
          { kernelId: kernel_id }
        )
      }
    );
    this._told.set(kernel_id, id);
  }

  /** The way to more: none without the panel, which may be switched off alone. */
  private _show(
    caption: string,
    args: ReadonlyPartialJSONObject
  ): Notification.IAction[] {
    const { commands, trans } = this._options;
    return commands.hasCommand(CommandIDs.show)
      ? [
          {
            label: trans.__('Show'),
            caption,
            callback: () => void commands.execute(CommandIDs.show, args)
          }
        ]
      : [];
  }

  /** What was told of is cleaned: by this page or by somebody else. */
  private _onChanged(): void {
    const { model } = this._options;
    // A request that failed says nothing of strays.
    const isKnown = model.strays.kind === 'report';
    if (this._strayNotice && isKnown && strayCount(model) === 0) {
      Notification.dismiss(this._strayNotice);
      this._strayNotice = '';
    }
  }

  private _strayNotice = '';
  private _told = new Map<string, string>();
}
