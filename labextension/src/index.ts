import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { addCommands } from './commands';
import { addKernelCommands, kernelActions } from './kernelcommands';
import { OwnershipModel } from './model';
import { kernelTitle } from './names';
import { Notifier } from './notifications';
import { OwnershipPanel } from './panel';
import { removeSection, StrayManager } from './running';
import { followSettings, SETTINGS_ID } from './settings';
import { StatusItem } from './statusitem';
import {
  CommandIDs,
  IOwnershipModel,
  IOwnershipPanel,
  NAMESPACE,
  PANEL_ID,
  TRANSLATION_DOMAIN
} from './tokens';
import { strayCount } from './words';

export * from './api';
export * from './tokens';

/** Provides the one client of the server extension. */
const modelPlugin: JupyterFrontEndPlugin<IOwnershipModel> = {
  id: `${NAMESPACE}:model`,
  description: 'Provides the state of the kernels that this server owns.',
  autoStart: true,
  provides: IOwnershipModel,
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const { contents, serverSettings, events, sessions } = app.serviceManager;
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const model = new OwnershipModel({ serverSettings, events, trans });
    void followSettings(registry, ({ pollInterval }) => {
      model.pollInterval = pollInterval;
    });
    // What the app finds out about its sessions anyway: busy or idle, renamed, moved.
    let known = '';
    sessions.runningChanged.connect((_, models) => {
      const now = JSON.stringify(
        models.map(({ id, path, kernel }) => [
          id,
          path,
          kernel?.id,
          kernel?.execution_state
        ])
      );
      if (now !== known) {
        known = now;
        model.touch();
      }
    });
    contents.fileChanged.connect((_, { type }) => {
      if (type === 'rename') {
        model.touchTwice();
      }
    });
    return model;
  }
};

/** The side panel, its commands and its settings. */
const panelPlugin: JupyterFrontEndPlugin<IOwnershipPanel> = {
  id: SETTINGS_ID,
  description: 'Adds the side panel "Kernel Ownership".',
  autoStart: true,
  provides: IOwnershipPanel,
  requires: [IOwnershipModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IOwnershipModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    translator = translator ?? nullTranslator;
    const trans = translator.load(TRANSLATION_DOMAIN);
    // The toolbar of the panel is made of commands, and commands point into the panel.
    addCommands(app, model, () => panel, trans);
    addKernelCommands(app, model, trans);
    const panel = new OwnershipPanel({
      commands: app.commands,
      model,
      translator,
      handlers: {
        titleOf: kernel =>
          kernelTitle(kernel, app.serviceManager.sessions.running()),
        actionsOf: kernelActions(app, trans),
        open: kernel =>
          void app.commands.execute(CommandIDs.openKernel, {
            kernelId: kernel.kernel_id
          })
      }
    });
    // The left area keeps ranks below 500 for JupyterLab itself.
    app.shell.add(panel, 'left', { rank: 600, type: 'Kernel Ownership' });
    restorer?.add(panel, PANEL_ID);
    const category = trans.__('Kernel Operations');
    for (const command of [
      CommandIDs.show,
      CommandIDs.refresh,
      CommandIDs.scan,
      CommandIDs.clean
    ]) {
      palette?.addItem({ command, category, args: { isPalette: true } });
    }
    return panel;
  }
};

/** "Stray Kernels" in Running Terminals and Kernels. */
const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:running`,
  description: 'Adds stray kernels to Running Terminals and Kernels.',
  autoStart: true,
  requires: [IOwnershipModel],
  optional: [IRunningSessionManagers, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IOwnershipModel,
    managers: IRunningSessionManagers | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    let added: IDisposable | null = null;
    void followSettings(registry, ({ showInRunningPanel }) => {
      if (managers && showInRunningPanel && !added) {
        added = managers.add(new StrayManager(model, app.commands, trans));
      } else if (!showInRunningPanel && added) {
        added.dispose();
        added = null;
        removeSection(app.shell, trans.__('Stray Kernels'));
      }
    });
  }
};

/** Notifications of strays at the start, and of kernels that died. */
const notificationPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:notifications`,
  description: 'Tells of kernels that died and of what dead servers have left.',
  autoStart: true,
  requires: [IOwnershipModel],
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IOwnershipModel,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const notifier = new Notifier({
      model,
      commands: app.commands,
      trans,
      nameOf: async kernelId => {
        const { sessions } = app.serviceManager;
        const kernel = model.kernels?.find(
          ({ kernel_id }) => kernel_id === kernelId
        ) ?? { kernel_id: kernelId, session: null };
        const title = kernelTitle(kernel, sessions.running());
        if (title.path) {
          return title.name;
        }
        // Another page may have started it a moment ago.
        await sessions.refreshRunning().catch(() => undefined);
        return kernelTitle(kernel, sessions.running()).name;
      },
      baseUrl: app.serviceManager.serverSettings.baseUrl,
      memory: window.localStorage
    });
    const settings = followSettings(
      registry,
      ({ notifyStrays, notifyDeaths }) => {
        notifier.strays = notifyStrays;
        notifier.deaths = notifyDeaths;
      }
    );
    void Promise.all([app.restored, settings]).then(() => notifier.start());
  }
};

/** A count of strays in the status bar, while there are any. */
const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:status`,
  description: 'Shows in the status bar that there are strays.',
  autoStart: true,
  requires: [IOwnershipModel],
  optional: [IStatusBar, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IOwnershipModel,
    statusBar: IStatusBar | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    // Notebook 7 has none.
    if (!statusBar) {
      return;
    }
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    let registered: IDisposable | null = null;
    void followSettings(registry, ({ showInStatusBar }) => {
      if (!showInStatusBar) {
        registered?.dispose();
        registered = null;
      } else if (!registered) {
        registered = statusBar.registerStatusItem(`${NAMESPACE}:strays`, {
          // The status bar disposes of it when it is taken out.
          item: new StatusItem(model, trans, () => {
            // The panel, which has the command, may be switched off alone.
            if (app.commands.hasCommand(CommandIDs.show)) {
              void app.commands.execute(CommandIDs.show, { strays: true });
            }
          }),
          align: 'left',
          rank: 900,
          isActive: () => strayCount(model) > 0,
          activeStateChanged: model.changed
        });
      }
    });
  }
};

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  panelPlugin,
  runningPlugin,
  notificationPlugin,
  statusPlugin
];

export default plugins;
