import { CommandToolbarButton } from '@jupyterlab/apputils';
import type { ITranslator, TranslationBundle } from '@jupyterlab/translation';
import { SidePanel } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Widget, type AccordionPanel } from '@lumino/widgets';

import { ownershipIcon } from './icons';
import {
  KernelsSection,
  ServerSection,
  StraysSection,
  type IKernelHandlers
} from './sections';
import { scanInWords } from './straysview';
import {
  CommandIDs,
  PANEL_ID,
  TRANSLATION_DOMAIN,
  type IOwnershipModel,
  type IOwnershipPanel
} from './tokens';

/** A live region that is empty for less than this may not have been for a screen reader. */
const SILENCE_MS = 150;

/** The heads of the three sections, in pixels. */
const HEADS = 3 * 32;
/** The most that the first section gets of the height. */
const MOST = 0.4;
/** Of the rest, what the kernels get. */
const KERNELS = 0.58;

/**
 * The side panel "Kernel Ownership".
 *
 * It observes the model while it is visible; hidden, it asks for nothing.
 */
export class OwnershipPanel extends SidePanel implements IOwnershipPanel {
  constructor(options: OwnershipPanel.IOptions) {
    super({ translator: options.translator });
    const { commands, model } = options;
    const trans = options.translator.load(TRANSLATION_DOMAIN);
    const title = trans.__('Kernel Ownership');
    this._model = model;
    this._ownTrans = trans;
    this.id = PANEL_ID;
    this.addClass('jp-OwnedKernels');
    this.title.icon = ownershipIcon;
    this.title.caption = title;
    this.title.dataset = { ...this.title.dataset, jpTabLabel: title };
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', title);
    this.toolbar.node.setAttribute('aria-label', trans.__('Kernel ownership'));
    for (const id of [CommandIDs.refresh, CommandIDs.scan, CommandIDs.clean]) {
      this.toolbar.addItem(
        id.split(':')[1],
        new CommandToolbarButton({ commands, id, args: { toolbar: true } })
      );
    }
    this._kernels = new KernelsSection(model, trans, options.handlers);
    this._strays = new StraysSection(
      model,
      trans,
      () => void commands.execute(CommandIDs.clean)
    );
    this._server = new ServerSection(model, trans, () => this._fit());
    this.addWidget(this._server);
    this.addWidget(this._kernels);
    this.addWidget(this._strays);
    this._live.addClass('jp-OwnedKernels-live');
    this._live.node.setAttribute('role', 'status');
    this.header.addWidget(this._live);
    this.header.addClass('jp-OwnedKernels-header');
    model.changed.connect(this._announce, this);
  }

  revealKernel(kernelId: string): void {
    (this.content as AccordionPanel).expand(1);
    this._kernels.reveal(kernelId);
  }

  revealStrays(): void {
    (this.content as AccordionPanel).expand(2);
    // The panel itself has the keyboard until there is a row, or when there is none.
    this.activate();
    this._strays.reveal();
  }

  checkedStrays(): string[] {
    return this._strays.checked();
  }

  announceScan(): void {
    // The same text once more would be no change, and not be read.
    this._live.node.textContent = '';
    this._silentSince = Date.now();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    clearTimeout(this._announcement);
    this._model.changed.disconnect(this._announce, this);
    this._observation?.dispose();
    super.dispose();
  }

  /** A command has shown the panel: the keyboard shall be in it. */
  protected onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    this.node.tabIndex = -1;
    // The palette gives the focus back when it closes, which is after its command.
    requestAnimationFrame(() => {
      if (this.isVisible && !this.node.contains(document.activeElement)) {
        this.node.focus();
      }
    });
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._observe();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (this.isVisible) {
      this._observe();
    }
  }

  protected onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    this._stopObserving();
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this._stopObserving();
  }

  private _observe(): void {
    this._observation ??= this._model.observe();
  }

  /** Once there is something to measure: the first section as high as its text. */
  private _fit(): void {
    const height = this.content.node.clientHeight - HEADS;
    const text = this._server.textHeight;
    if (
      this._isFitted ||
      this._model.server.kind === 'unknown' ||
      height <= 0 ||
      text === 0
    ) {
      return;
    }
    this._isFitted = true;
    const first = Math.min(text / height, MOST);
    const second = (1 - first) * KERNELS;
    (this.content as AccordionPanel).setRelativeSizes([
      first,
      second,
      1 - first - second
    ]);
  }

  private _stopObserving(): void {
    this._observation?.dispose();
    this._observation = null;
  }

  /** Tell a screen reader of a new scan: what it found, not how old it is. */
  private _announce(): void {
    const { strays, scanning } = this._model;
    if (strays.kind === 'unknown' || scanning || !this.isVisible) {
      return;
    }
    clearTimeout(this._announcement);
    const wait = this._silentSince + SILENCE_MS - Date.now();
    if (wait > 0) {
      this._announcement = setTimeout(() => this._announce(), wait);
      return;
    }
    const text = scanInWords(strays, this._ownTrans);
    if (this._live.node.textContent !== text) {
      this._live.node.textContent = text;
    }
  }

  private _model: IOwnershipModel;
  private _ownTrans: TranslationBundle;
  private _server: ServerSection;
  private _isFitted = false;
  private _kernels: KernelsSection;
  private _strays: StraysSection;
  private _live = new Widget();
  private _silentSince = 0;
  private _announcement: ReturnType<typeof setTimeout> | undefined;
  private _observation: IDisposable | null = null;
}

export namespace OwnershipPanel {
  export interface IOptions {
    commands: CommandRegistry;
    model: IOwnershipModel;
    translator: ITranslator;
    handlers: IKernelHandlers;
  }
}
