import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

import type { IKernel } from './api';
import { bytes, exactBytes } from './format';
import type { RowActions } from './kernelrows';
import { KernelsView } from './kernelsview';
import type { IKernelTitle } from './names';
import { Section } from './section';
import { Selection } from './selection';
import { ServerView } from './serverview';
import { findingsInWords, StraysView } from './straysview';
import type { IOwnershipModel } from './tokens';

/** "This server": how far it owns its kernels, and by what means. */
export class ServerSection extends Section {
  constructor(
    model: IOwnershipModel,
    private _trans: TranslationBundle,
    private _onRendered: () => void
  ) {
    super(model, _trans.__('This server'));
  }

  /** Pixels that the text takes at the present width. */
  get textHeight(): number {
    return [...this.node.children].reduce(
      (sum, child) => sum + (child as HTMLElement).offsetHeight,
      0
    );
  }

  protected summary() {
    return { text: '', title: '' };
  }

  protected render(): React.ReactElement {
    return (
      <ServerView
        server={this.model.server}
        trans={this._trans}
        onRendered={this._onRendered}
      />
    );
  }
}

export interface IKernelHandlers {
  titleOf: (kernel: IKernel) => IKernelTitle;
  actionsOf: RowActions;
  open: (kernel: IKernel, title: IKernelTitle) => void;
}

/** "Owned kernels", with their processes. */
export class KernelsSection extends Section {
  constructor(
    model: IOwnershipModel,
    private _trans: TranslationBundle,
    private _handlers: IKernelHandlers
  ) {
    super(model, _trans.__('Owned kernels'));
  }

  /** Give a kernel the focus as soon as it is there. */
  reveal(kernelId: string): void {
    this._reveal = kernelId;
    this.update();
  }

  protected summary() {
    const { kernels } = this.model;
    if (!kernels) {
      return { text: '', title: '' };
    }
    const total = kernels.reduce((sum, one) => sum + (one.rss_bytes ?? 0), 0);
    const count = this._trans._n('%1 kernel', '%1 kernels', kernels.length);
    return total > 0
      ? {
          text: `${kernels.length} · ${bytes(total)}`,
          title: `${count}, ${exactBytes(total, this._trans)}`
        }
      : { text: String(kernels.length), title: count };
  }

  protected render(): React.ReactElement {
    return (
      <KernelsView
        model={this.model}
        trans={this._trans}
        {...this._handlers}
        reveal={this._reveal}
        onRevealed={() => {
          this._reveal = null;
          this.update();
        }}
      />
    );
  }

  private _reveal: string | null = null;
}

/** "Strays and stale files", to be checked and cleaned. */
export class StraysSection extends Section {
  constructor(
    model: IOwnershipModel,
    private _trans: TranslationBundle,
    private _clean: () => void
  ) {
    super(model, _trans.__('Strays and stale files'));
  }

  readonly selection = new Selection();

  reveal(): void {
    this._reveal = true;
    this.update();
  }

  checked(): string[] {
    const { strays } = this.model;
    return strays.kind === 'report'
      ? this.selection.ids(strays.report.findings)
      : [];
  }

  protected summary() {
    const { strays } = this.model;
    if (strays.kind !== 'report') {
      return { text: '', title: '' };
    }
    const { findings } = strays.report;
    return {
      text: String(findings.length),
      title: findingsInWords(strays.report, this._trans)
    };
  }

  protected render(): React.ReactElement {
    return (
      <StraysView
        model={this.model}
        trans={this._trans}
        selection={this.selection}
        onSelected={() => this.update()}
        clean={this._clean}
        reveal={this._reveal}
        onRevealed={() => {
          this._reveal = false;
          this.update();
        }}
      />
    );
  }

  private _reveal = false;
}
