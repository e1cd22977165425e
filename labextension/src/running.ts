import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import { kernelIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import type { Panel, Widget } from '@lumino/widgets';

import type { IFinding } from './api';
import { isCleaning, tellCleaning } from './cleandialog';
import { bytes, duration } from './format';
import { CommandIDs, type IOwnershipModel } from './tokens';
import { findingOrigin, findingTitle, isStray } from './words';

/**
 * The section "Stray Kernels" of Running Terminals and Kernels.
 *
 * Strays only: "Shut Down All" of this section must never reach a healthy kernel. The
 * button of an item has no confirmation of its own, so it opens the dialog of a clean.
 */
export class StrayManager implements IRunningSessions.IManager {
  constructor(
    private _model: IOwnershipModel,
    private _commands: CommandRegistry,
    private _trans: TranslationBundle
  ) {
    this.name = _trans.__('Stray Kernels');
    this.shutdownLabel = _trans.__('Clean up…');
    this.shutdownAllLabel = _trans.__('Clean All');
    this.shutdownAllConfirmationText = _trans.__(
      'End all stray kernels and their processes? Each is checked again right before it is ended.'
    );
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly supportsMultipleViews = false;

  get runningChanged(): ISignal<unknown, void> {
    return this._model.changed;
  }

  running(): IRunningSessions.IRunningItem[] {
    return this._strays().map(finding => this._item(finding));
  }

  refreshRunning(): void {
    void this._model.refreshStrays();
  }

  shutdownAll(): void {
    const ids = this._strays().map(({ id }) => id);
    if (ids.length > 0 && !isCleaning(this._model, this._trans)) {
      tellCleaning(this._model.clean(ids), this._trans);
    }
  }

  private _strays(): IFinding[] {
    const { strays } = this._model;
    return strays.kind === 'report'
      ? strays.report.findings.filter(isStray)
      : [];
  }

  private _item(finding: IFinding): IRunningSessions.IRunningItem {
    const trans = this._trans;
    const title = findingTitle(finding, trans);
    const facts = [
      finding.rss_bytes === null ? '' : bytes(finding.rss_bytes),
      finding.age_s === null ? '' : duration(finding.age_s, trans)
    ];
    return {
      icon: () => kernelIcon,
      label: () => title,
      labelTitle: () =>
        [
          title,
          trans.__('pid %1, %2', finding.pid, findingOrigin(finding, trans)),
          ...finding.proofs
        ].join('\n'),
      detail: () => facts.filter(Boolean).join(' · '),
      context: finding.id,
      className: 'jp-OwnedKernels-runningItem',
      open: this._command(CommandIDs.show, { strays: true }),
      shutdown: this._command(CommandIDs.clean, { ids: [finding.id] })
    };
  }

  /** Undefined without the panel, which has the commands: it may be switched off alone. */
  private _command(
    id: string,
    args: ReadonlyPartialJSONObject
  ): (() => void) | undefined {
    return this._commands.hasCommand(id)
      ? () => void this._commands.execute(id, args)
      : undefined;
  }
}

/** The part of Running Terminals and Kernels that sections are taken from. */
interface IRunningPanel extends Widget {
  readonly content: Panel;
  /** Since JupyterLab 4.6; finds a section that was moved to another panel, too. */
  removeSectionById?(name: string): Widget | null;
}

/**
 * Take a section out of Running Terminals and Kernels.
 *
 * A manager that is disposed of is forgotten there, but its section stays.
 */
export function removeSection(
  shell: JupyterFrontEnd.IShell,
  name: string
): void {
  for (const area of ['left', 'right']) {
    for (const widget of shell.widgets(area)) {
      if (widget.id === 'jp-running-sessions') {
        const panel = widget as IRunningPanel;
        const section = panel.removeSectionById
          ? panel.removeSectionById(name)
          : panel.content.widgets.find(({ title }) => title.label === name);
        section?.dispose();
      }
    }
  }
}
