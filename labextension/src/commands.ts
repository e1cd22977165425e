import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';

import { ownershipIcon } from './icons';
import { CommandIDs, PANEL_ID, type IOwnershipModel } from './tokens';

const NO_ARGS = { type: 'object', properties: {} } as const;

/** Add the commands of the panel; the palette and the View menu name them. */
export function addCommands(
  app: JupyterFrontEnd,
  model: IOwnershipModel,
  trans: TranslationBundle
): void {
  app.commands.addCommand(CommandIDs.show, {
    label: trans.__('Show Kernel Ownership'),
    caption: trans.__('Show what this server does for its kernels'),
    icon: args => (args.isPalette ? undefined : ownershipIcon),
    describedBy: { args: NO_ARGS },
    execute: () => {
      app.shell.activateById(PANEL_ID);
    }
  });
  app.commands.addCommand(CommandIDs.refresh, {
    label: args => (args.toolbar ? '' : trans.__('Refresh Kernel Ownership')),
    caption: trans.__('Ask the server again'),
    icon: args => (args.toolbar ? refreshIcon : undefined),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          toolbar: {
            type: 'boolean',
            description: trans.__('Whether it is a button of the toolbar')
          }
        }
      }
    },
    execute: () => model.refresh()
  });
}
