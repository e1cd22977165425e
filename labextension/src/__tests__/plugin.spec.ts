import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette, IPaletteItem } from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { framePromise } from '@jupyterlab/testing';
import { CommandRegistry } from '@lumino/commands';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import plugins, { CommandIDs, IOwnershipModel, PANEL_ID } from '..';
import { OwnershipModel } from '../model';
import { OwnershipPanel } from '../panel';
import * as request from '../request';

const [modelPlugin, panelPlugin] = plugins;

/** What the plugins use of the app. */
function fakeApp() {
  const commands = new CommandRegistry();
  const shell = { add: jest.fn(), activateById: jest.fn() };
  const serviceManager = { serverSettings: ServerConnection.makeSettings() };
  const app = { commands, shell, serviceManager };
  return { app: app as unknown as JupyterFrontEnd, commands, shell };
}

/** Activate both plugins and return the panel. */
async function activate(
  settings: ISettingRegistry | null = null,
  palette: ICommandPalette | null = null
) {
  const fake = fakeApp();
  const model = (await modelPlugin.activate(fake.app)) as OwnershipModel;
  const restorer = { add: jest.fn() };
  await panelPlugin.activate(
    fake.app,
    model,
    settings,
    null,
    palette,
    restorer
  );
  const panel = fake.shell.add.mock.calls[0][0] as OwnershipPanel;
  return { ...fake, model, panel, restorer };
}

/** Put the panel on the page, hidden, as a side bar does. */
function attachHidden(panel: OwnershipPanel): void {
  panel.hide();
  Widget.attach(panel, document.body);
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    if (Date.now() > deadline) {
      throw new Error('the condition did not come true');
    }
    await framePromise();
  }
}

let asked: jest.SpyInstance;

beforeEach(() => {
  asked = jest
    .spyOn(request, 'requestAPI')
    .mockResolvedValue({ mode: 'full', reason: '', version: '0.1.0' });
});

afterEach(() => {
  jest.restoreAllMocks();
});

describe('the plugins', () => {
  it('have ids of this package and need only the model', () => {
    expect(plugins.map(plugin => plugin.id)).toEqual([
      'jupyter-ownedkernels:model',
      'jupyter-ownedkernels:plugin'
    ]);
    expect(modelPlugin.provides).toBe(IOwnershipModel);
    expect(panelPlugin.requires).toEqual([IOwnershipModel]);
  });

  it('add a left panel with a name, restored with the layout', async () => {
    const { panel, restorer, shell } = await activate();
    expect(shell.add.mock.calls[0][1]).toBe('left');
    expect(panel.title.caption).toBe('Kernel Ownership');
    expect(panel.node.getAttribute('role')).toBe('region');
    expect(panel.node.getAttribute('aria-label')).toBe('Kernel Ownership');
    expect(restorer.add).toHaveBeenCalledWith(panel, PANEL_ID);
    panel.dispose();
  });

  it('show the panel from the palette', async () => {
    const addItem = jest.fn<IDisposable, [IPaletteItem]>();
    const { commands, panel, shell } = await activate(null, {
      addItem
    } as unknown as ICommandPalette);
    const { command, args } = addItem.mock.calls[0][0];
    expect(commands.label(command, args)).toBe('Show Kernel Ownership');
    await commands.execute(command, args);
    expect(shell.activateById).toHaveBeenCalledWith(PANEL_ID);
    panel.dispose();
  });

  it('ask once when shown, and nothing while hidden', async () => {
    const { panel } = await activate();
    attachHidden(panel);
    await framePromise();
    expect(asked).not.toHaveBeenCalled();
    panel.show();
    await until(() => !!panel.node.textContent?.includes('Every kernel'));
    expect(asked).toHaveBeenCalledTimes(1);
    expect(asked.mock.calls[0][0]).toBe('health');
    panel.dispose();
  });

  it('poll at the rate of the settings while visible', async () => {
    const changed = new Signal<object, void>({});
    let pollInterval = 0.02;
    const settings = {
      changed,
      get: () => ({ composite: pollInterval })
    };
    const load = jest.fn().mockResolvedValue(settings);
    const { panel } = await activate({ load } as unknown as ISettingRegistry);
    expect(load).toHaveBeenCalledWith('jupyter-ownedkernels:plugin');
    attachHidden(panel);
    panel.show();
    await until(() => asked.mock.calls.length > 2);
    panel.hide();
    // A request may be on its way when the panel hides.
    const limit = asked.mock.calls.length + 1;
    for (let frame = 0; frame < 20; frame++) {
      await framePromise();
    }
    expect(asked.mock.calls.length).toBeLessThanOrEqual(limit);
    pollInterval = 3600;
    changed.emit();
    panel.dispose();
  });

  it('work with the defaults when the settings cannot be read', async () => {
    const warned = jest.spyOn(console, 'warn').mockImplementation();
    const load = jest.fn().mockRejectedValue(new Error('no schema'));
    const { panel } = await activate({ load } as unknown as ISettingRegistry);
    await until(() => warned.mock.calls.length > 0);
    panel.dispose();
    panel.dispose();
  });

  it('ask again on the command Refresh', async () => {
    const { commands, model, panel } = await activate();
    expect(commands.label(CommandIDs.refresh)).toContain('Refresh');
    expect(commands.label(CommandIDs.refresh, { toolbar: true })).toBe('');
    await commands.execute(CommandIDs.refresh);
    expect(model.server.kind).toBe('health');
    panel.dispose();
  });
});
