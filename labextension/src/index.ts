import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands } from './commands';
import { OwnershipModel } from './model';
import { OwnershipPanel } from './panel';
import {
  CommandIDs,
  IOwnershipModel,
  NAMESPACE,
  PANEL_ID,
  TRANSLATION_DOMAIN
} from './tokens';

export * from './tokens';

/** Provides the one client of the server extension. */
const modelPlugin: JupyterFrontEndPlugin<IOwnershipModel> = {
  id: `${NAMESPACE}:model`,
  description: 'Provides the state of the kernels that this server owns.',
  autoStart: true,
  provides: IOwnershipModel,
  activate: (app: JupyterFrontEnd) =>
    new OwnershipModel(app.serviceManager.serverSettings)
};

/** The side panel, its commands and its settings. */
const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:plugin`,
  description: 'Adds the side panel "Kernel Ownership".',
  autoStart: true,
  requires: [IOwnershipModel],
  optional: [ISettingRegistry, ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IOwnershipModel,
    settings: ISettingRegistry | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    translator = translator ?? nullTranslator;
    const trans = translator.load(TRANSLATION_DOMAIN);
    addCommands(app, model, trans);
    const panel = new OwnershipPanel({
      commands: app.commands,
      model,
      translator
    });
    // The left area keeps ranks below 500 for JupyterLab itself.
    app.shell.add(panel, 'left', { rank: 600, type: 'Kernel Ownership' });
    restorer?.add(panel, PANEL_ID);
    palette?.addItem({
      command: CommandIDs.show,
      category: trans.__('Kernel Operations'),
      args: { isPalette: true }
    });
    if (settings) {
      void followSettings(settings, panel);
    }
  }
};

async function followSettings(
  registry: ISettingRegistry,
  panel: OwnershipPanel
): Promise<void> {
  try {
    const settings = await registry.load(panelPlugin.id);
    const apply = () => {
      panel.pollInterval = settings.get('pollInterval').composite as number;
    };
    settings.changed.connect(apply);
    apply();
  } catch (error) {
    console.warn(`Settings of ${panelPlugin.id} cannot be read`, error);
  }
}

const plugins: JupyterFrontEndPlugin<unknown>[] = [modelPlugin, panelPlugin];

export default plugins;
