import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { KernelAPI } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  closeIcon,
  launchIcon,
  refreshIcon,
  stopIcon,
  type LabIcon
} from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';

import type { IKernel } from './api';
import { describe } from './commands';
import { asSentence } from './format';
import { kernelTitle, type IKernelTitle } from './names';
import { messageOf } from './request';
import { CommandIDs, type IOwnershipModel } from './tokens';
import type { IRowAction } from './tree';

/**
 * Add what can be done with one kernel: buttons of its row, and its context menu.
 *
 * Without the argument a command works on the row under the context menu.
 */
export function addKernelCommands(
  app: JupyterFrontEnd,
  model: IOwnershipModel,
  trans: TranslationBundle
): void {
  const { commands, serviceManager } = app;
  const settings = serviceManager.serverSettings;
  const describedBy = describe({
    kernelId: ['string', trans.__('The kernel; that of the row without it')]
  });
  const find = (args: { kernelId?: unknown }): IKernel | undefined => {
    const id =
      args.kernelId ??
      app.contextMenuHitTest(
        node => 'id' in node.dataset && node.matches('.jp-OwnedKernels-kernel')
      )?.dataset.id;
    return model.kernels?.find(({ kernel_id }) => kernel_id === id);
  };
  const titleOf = (kernel: IKernel) =>
    kernelTitle(kernel, serviceManager.sessions.running());
  const isEnabled = (args: { kernelId?: unknown }) => {
    const kernel = find(args);
    return kernel !== undefined && kernel.state !== 'ended';
  };
  /** Do it; what fails is said, and what has changed is shown. */
  const act = async (failure: string, work: () => Promise<unknown>) => {
    try {
      await work();
    } catch (error) {
      await showErrorMessage(
        failure,
        trans.__(
          '%1 Refresh the panel to see whether the kernel still runs; if it does, try again.',
          asSentence(messageOf(error, trans))
        ),
        [Dialog.okButton({ label: trans.__('Close') })]
      );
    }
    await model.refresh();
  };

  commands.addCommand(CommandIDs.openKernel, {
    label: trans.__('Open'),
    icon: launchIcon,
    describedBy,
    isEnabled: args => {
      const kernel = find(args);
      return kernel !== undefined && canOpen(commands, titleOf(kernel));
    },
    execute: async args => {
      const kernel = find(args);
      if (kernel) {
        const title = titleOf(kernel);
        try {
          await commands.execute(openerOf(title), { path: title.path });
        } catch (error) {
          await showErrorMessage(
            trans.__('%1 was not opened', title.name),
            asSentence(messageOf(error, trans)),
            [Dialog.okButton({ label: trans.__('Close') })]
          );
        }
      }
    }
  });
  commands.addCommand(CommandIDs.interruptKernel, {
    label: trans.__('Interrupt Kernel'),
    icon: stopIcon,
    describedBy,
    isEnabled,
    execute: async args => {
      const kernel = find(args);
      if (kernel) {
        await act(trans.__('The kernel was not interrupted'), () =>
          KernelAPI.interruptKernel(kernel.kernel_id, settings)
        );
      }
    }
  });
  commands.addCommand(CommandIDs.restartKernel, {
    label: trans.__('Restart Kernel…'),
    icon: refreshIcon,
    describedBy,
    isEnabled,
    execute: async args => {
      const kernel = find(args);
      if (
        kernel &&
        (await confirm(
          trans.__('Restart kernel?'),
          trans.__(
            'The kernel of %1 starts again. All its variables will be lost.',
            titleOf(kernel).name
          ),
          trans.__('Restart'),
          trans
        ))
      ) {
        await act(trans.__('The kernel was not restarted'), () =>
          KernelAPI.restartKernel(kernel.kernel_id, settings)
        );
      }
    }
  });
  commands.addCommand(CommandIDs.shutDownKernel, {
    label: trans.__('Shut Down Kernel…'),
    icon: closeIcon,
    describedBy,
    isEnabled,
    execute: async args => {
      const kernel = find(args);
      if (
        kernel &&
        (await confirm(
          trans.__('Shut down kernel?'),
          [
            trans.__(
              'The kernel of %1 and its processes end. All its variables will be lost.',
              titleOf(kernel).name
            ),
            kernel.detached_count
              ? trans._n(
                  '%1 detached process is kept.',
                  '%1 detached processes are kept.',
                  kernel.detached_count
                )
              : ''
          ].join(' '),
          trans.__('Shut Down'),
          trans
        ))
      ) {
        await act(trans.__('The kernel was not shut down'), () =>
          serviceManager.kernels.shutdown(kernel.kernel_id)
        );
      }
    }
  });
  model.changed.connect(() => {
    for (const id of KERNEL_COMMANDS) {
      commands.notifyCommandChanged(id);
    }
  });
}

/** The command that opens the document of a kernel. */
function openerOf({ type }: IKernelTitle): string {
  return type === 'console' ? 'console:open' : 'docmanager:open';
}

/** Whether there is a document, and the app has what opens it. */
export function canOpen(
  commands: CommandRegistry,
  title: IKernelTitle
): boolean {
  return title.path !== '' && commands.hasCommand(openerOf(title));
}

const KERNEL_COMMANDS = [
  CommandIDs.openKernel,
  CommandIDs.interruptKernel,
  CommandIDs.restartKernel,
  CommandIDs.shutDownKernel
];

async function confirm(
  title: string,
  body: string,
  verb: string,
  trans: TranslationBundle
): Promise<boolean> {
  const result = await showDialog({
    title,
    body,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: verb })
    ]
  });
  return result.button.accept;
}

/** The buttons of a kernel's row. */
export function kernelActions(
  app: JupyterFrontEnd,
  trans: TranslationBundle
): (kernel: IKernel, title: IKernelTitle) => IRowAction[] {
  return (kernel, title) => {
    const alive = kernel.state !== 'ended';
    const action = (
      command: string,
      icon: LabIcon,
      label: string,
      enabled: boolean
    ): IRowAction => ({
      id: command,
      icon,
      label,
      enabled,
      execute: () =>
        void app.commands.execute(command, { kernelId: kernel.kernel_id })
    });
    const { name } = title;
    const { openKernel, interruptKernel, restartKernel, shutDownKernel } =
      CommandIDs;
    return [
      action(
        openKernel,
        launchIcon,
        trans.__('Open %1', name),
        canOpen(app.commands, title)
      ),
      action(
        interruptKernel,
        stopIcon,
        trans.__('Interrupt the kernel of %1', name),
        alive
      ),
      action(
        restartKernel,
        refreshIcon,
        trans.__('Restart the kernel of %1…', name),
        alive
      ),
      action(
        shutDownKernel,
        closeIcon,
        trans.__('Shut down the kernel of %1…', name),
        alive
      )
    ];
  };
}
