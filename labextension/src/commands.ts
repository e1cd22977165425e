import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  cleaningIcon,
  refreshIcon,
  searchIcon
} from '@jupyterlab/ui-components';

import type { IFinding } from './api';
import { cleanUp } from './cleandialog';
import { Selection } from './selection';
import {
  CommandIDs,
  type IOwnershipModel,
  type IOwnershipPanel
} from './tokens';

/** Add the commands of the panel; the palette, the View menu and the toolbar name them. */
export function addCommands(
  app: JupyterFrontEnd,
  model: IOwnershipModel,
  panel: () => IOwnershipPanel,
  trans: TranslationBundle
): void {
  const { commands, shell } = app;
  let asked: Promise<void> | null = null;
  const inToolbar = describe({
    toolbar: ['boolean', trans.__('Shown in a toolbar')]
  });
  commands.addCommand(CommandIDs.show, {
    // In the View menu it stands among the bare names of other panels.
    label: args =>
      args.isPalette
        ? trans.__('Show Kernel Ownership')
        : trans.__('Kernel Ownership'),
    caption: trans.__('Show what this server does for its kernels'),
    describedBy: describe({
      isPalette: ['boolean', trans.__('Shown in the palette')],
      kernelId: ['string', trans.__('The kernel to point at')],
      strays: ['boolean', trans.__('Whether to point at the strays')]
    }),
    execute: args => {
      shell.activateById(panel().id);
      if (args.kernelId) {
        panel().revealKernel(args.kernelId as string);
      } else if (args.strays) {
        panel().revealStrays();
      }
    }
  });
  commands.addCommand(CommandIDs.refresh, {
    label: args => (args.toolbar ? '' : trans.__('Refresh Kernel Ownership')),
    caption: trans.__('Refresh'),
    icon: args => (args.toolbar ? refreshIcon : undefined),
    describedBy: inToolbar,
    execute: () => model.refresh()
  });
  commands.addCommand(CommandIDs.scan, {
    label: args => (args.toolbar ? '' : trans.__('Scan for Stray Kernels')),
    caption: trans.__('Scan for strays and stale files now'),
    icon: args => (args.toolbar ? searchIcon : undefined),
    describedBy: inToolbar,
    // Also during a scan: a button that is switched off loses the keyboard, and a look of
    // the poll is a scan, too.
    isEnabled: () => model.server.kind !== 'off',
    execute: async args => {
      if (!args.toolbar) {
        // What comes of it is said in the panel.
        shell.activateById(panel().id);
      }
      panel().announceScan();
      await (asked ??= model.scan().finally(() => (asked = null)));
    }
  });
  commands.addCommand(CommandIDs.clean, {
    label: args => (args.toolbar ? '' : trans.__('Clean Up Stray Kernels…')),
    caption: trans.__('Clean up strays and stale files…'),
    icon: args => (args.toolbar ? cleaningIcon : undefined),
    describedBy: describe({
      toolbar: ['boolean', trans.__('Shown in a toolbar')],
      ids: [
        'array',
        trans.__('The findings to choose; those checked without it')
      ]
    }),
    isEnabled: () =>
      model.server.kind !== 'off' &&
      !model.cleaning?.running &&
      (model.strays.kind !== 'report' || actionable(model).length > 0),
    execute: async args => {
      if (model.strays.kind !== 'report') {
        await model.refreshStrays();
      }
      if (actionable(model).length === 0) {
        // The panel says why: none are there, or none could be looked for.
        shell.activateById(panel().id);
        panel().revealStrays();
        return;
      }
      const ids = (args.ids as string[] | undefined) ?? panel().checkedStrays();
      await cleanUp(
        model,
        findings(model),
        chosen(findings(model), ids),
        trans
      );
      // What had the focus is probably gone.
      if (document.activeElement === document.body) {
        panel().revealStrays();
      }
    }
  });
  model.changed.connect(() => {
    commands.notifyCommandChanged(CommandIDs.scan);
    commands.notifyCommandChanged(CommandIDs.clean);
  });
}

function findings(model: IOwnershipModel): readonly IFinding[] {
  return model.strays.kind === 'report' ? model.strays.report.findings : [];
}

function actionable(model: IOwnershipModel): IFinding[] {
  return findings(model).filter(({ action }) => action !== null);
}

/** A selection of exactly these. */
function chosen(all: readonly IFinding[], ids: readonly string[]): Selection {
  const wanted = new Set(ids);
  const selection = new Selection();
  selection.set(all, false);
  selection.set(
    all.filter(({ id }) => wanted.has(id)),
    true
  );
  return selection;
}

/** JSON schema of optional arguments. */
export function describe(args: Record<string, [type: string, text: string]>) {
  const properties = Object.fromEntries(
    Object.entries(args).map(([name, [type, description]]) => [
      name,
      { type, description }
    ])
  );
  return { args: { type: 'object', properties } };
}
