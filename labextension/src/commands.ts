import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';

import { CommandIDs, PANEL_ID, type IOwnershipModel } from './tokens';

/** Add the commands of the panel; the palette and the View menu name them. */
export function addCommands(
  app: JupyterFrontEnd,
  model: IOwnershipModel,
  trans: TranslationBundle
): void {
  app.commands.addCommand(CommandIDs.show, {
    // In the View menu it stands among the bare names of other panels.
    label: args =>
      args.isPalette
        ? trans.__('Show Kernel Ownership')
        : trans.__('Kernel Ownership'),
    caption: trans.__('Show what this server does for its kernels'),
    describedBy: { args: flag('isPalette', trans.__('Shown in the palette')) },
    execute: () => {
      app.shell.activateById(PANEL_ID);
    }
  });
  app.commands.addCommand(CommandIDs.refresh, {
    label: args => (args.toolbar ? '' : trans.__('Refresh Kernel Ownership')),
    caption: trans.__('Ask the server again'),
    icon: args => (args.toolbar ? refreshIcon : undefined),
    describedBy: { args: flag('toolbar', trans.__('Shown in a toolbar')) },
    execute: () => model.refresh()
  });
}

/** JSON schema of arguments with one optional flag. */
function flag(name: string, description: string) {
  return {
    type: 'object',
    properties: { [name]: { type: 'boolean', description } }
  };
}
