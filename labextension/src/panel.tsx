import { CommandToolbarButton } from '@jupyterlab/apputils';
import type { ITranslator, TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, SidePanel, UseSignal } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import { Poll } from '@lumino/polling';
import type { Message } from '@lumino/messaging';
import React from 'react';

import { ownershipIcon } from './icons';
import { ServerView } from './serverview';
import {
  CommandIDs,
  NAMESPACE,
  PANEL_ID,
  TRANSLATION_DOMAIN,
  type IOwnershipModel
} from './tokens';

/**
 * The side panel "Kernel Ownership".
 *
 * It asks when it is shown and then at a slow rate; while it is hidden, or its
 * browser tab is, nothing is fetched.
 */
export class OwnershipPanel extends SidePanel {
  constructor(options: OwnershipPanel.IOptions) {
    super({ translator: options.translator });
    const trans = options.translator.load(TRANSLATION_DOMAIN);
    const title = trans.__('Kernel Ownership');
    this.id = PANEL_ID;
    this.addClass('jp-OwnedKernels');
    this.title.icon = ownershipIcon;
    this.title.caption = title;
    this.title.dataset = { ...this.title.dataset, jpTabLabel: title };
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', title);
    this.toolbar.node.setAttribute('aria-label', trans.__('Kernel ownership'));
    this.toolbar.addItem(
      'refresh',
      new CommandToolbarButton({
        commands: options.commands,
        id: CommandIDs.refresh,
        args: { toolbar: true }
      })
    );
    this.addWidget(new ServerSection(options.model, trans));
    this._poll = new Poll({
      auto: false,
      factory: () => options.model.refresh(),
      frequency: { interval: 60_000, backoff: true, max: 300_000 },
      name: `${NAMESPACE}:poll`,
      standby: () => (this.isVisible ? 'when-hidden' : true)
    });
  }

  /** Seconds between two requests while the panel is visible. */
  set pollInterval(seconds: number) {
    const interval = seconds * 1000;
    const max = Math.max(interval, 300_000);
    this._poll.frequency = { interval, backoff: true, max };
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._poll.dispose();
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    void this._poll.refresh();
  }

  private _poll: Poll<void>;
}

export namespace OwnershipPanel {
  export interface IOptions {
    commands: CommandRegistry;
    model: IOwnershipModel;
    translator: ITranslator;
  }
}

/** The section "This server". */
class ServerSection extends ReactWidget {
  constructor(
    private _model: IOwnershipModel,
    private _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-OwnedKernels-section');
    this.title.label = this._trans.__('This server');
  }

  protected render(): React.ReactElement {
    return (
      <UseSignal signal={this._model.changed}>
        {() => <ServerView server={this._model.server} trans={this._trans} />}
      </UseSignal>
    );
  }
}
