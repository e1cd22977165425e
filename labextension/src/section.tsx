import { ReactWidget, Toolbar } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import type { IOwnershipModel } from './tokens';

/** Ages are written in words; a minute's text need not be newer than this. */
const TICK_MS = 20_000;

/** One section of the panel. It is rendered while it is visible, and only then. */
export abstract class Section extends ReactWidget {
  constructor(
    protected model: IOwnershipModel,
    label: string
  ) {
    super();
    this.addClass('jp-OwnedKernels-section');
    this.title.label = label;
    // The accordion finds the toolbar by this name and puts it into the section's head.
    this.toolbar = new Toolbar();
    this.toolbar.addItem('summary', this._summary);
    this._summary.addClass('jp-OwnedKernels-summary');
    model.changed.connect(this._onChanged, this);
  }

  readonly toolbar: Toolbar;

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    clearInterval(this._timer);
    this.model.changed.disconnect(this._onChanged, this);
    this.toolbar.dispose();
    super.dispose();
  }

  /** A few characters for the section's head. They stay there when it is collapsed. */
  protected abstract summary(): { text: string; title: string };

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._start();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (this.isVisible) {
      this._start();
    }
  }

  protected onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    clearInterval(this._timer);
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    clearInterval(this._timer);
  }

  private _start(): void {
    clearInterval(this._timer);
    this._timer = setInterval(() => this.update(), TICK_MS);
    this._onChanged();
  }

  private _onChanged(): void {
    const { text, title } = this.summary();
    if (this._summary.node.textContent !== text) {
      this._summary.node.textContent = text;
    }
    this._summary.node.title = title;
    if (this.isVisible) {
      this.update();
    }
  }

  private _summary = new Widget();
  private _timer: ReturnType<typeof setInterval> | undefined;
}
