import type { JupyterFrontEnd } from '@jupyterlab/application';
import {
  Dialog,
  Notification,
  type ICommandPalette,
  type IPaletteItem
} from '@jupyterlab/apputils';
import type { IRunningSessions } from '@jupyterlab/running';
import { KernelAPI, ServerConnection } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { CommandRegistry } from '@lumino/commands';
import { DisposableDelegate } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import plugins, { CommandIDs, IOwnershipModel, PANEL_ID } from '..';
import { EVENT_SCHEMA } from '../api';
import type { OwnershipModel } from '../model';
import type { OwnershipPanel } from '../panel';
import * as request from '../request';
import type { StatusItem } from '../statusitem';
import { click, frames, nameOf, until } from './support/fakes';
import {
  detached,
  exit,
  finding,
  health,
  kernel,
  report
} from './support/samples';

const [
  modelPlugin,
  panelPlugin,
  runningPlugin,
  notificationPlugin,
  statusPlugin
] = plugins;

/** What the plugins use of the app. */
function fakeApp() {
  const commands = new CommandRegistry();
  const shell = { add: jest.fn(), activateById: jest.fn() };
  const stream = new Signal<object, object>({});
  const running: object[] = [];
  const sessions = {
    running: () => running,
    runningChanged: new Signal<object, object[]>({}),
    refreshRunning: jest.fn().mockResolvedValue(undefined)
  };
  const app = {
    commands,
    shell,
    restored: Promise.resolve(),
    contextMenuHitTest: jest.fn(),
    serviceManager: {
      serverSettings: ServerConnection.makeSettings(),
      events: { stream },
      contents: { fileChanged: new Signal<object, object>({}) },
      sessions,
      kernels: { shutdown: jest.fn().mockResolvedValue(undefined) }
    }
  };
  return { ...app, app: app as unknown as JupyterFrontEnd, stream, sessions };
}

type Fake = ReturnType<typeof fakeApp>;
const disposables: { dispose(): void }[] = [];

async function startModel(fake: Fake, registry: unknown = null) {
  const model = (await modelPlugin.activate(
    fake.app,
    registry
  )) as OwnershipModel;
  disposables.push(model);
  return model;
}

/** Activate model and panel; the panel is on the page, hidden as a side bar has it. */
async function activate(palette: ICommandPalette | null = null) {
  const fake = fakeApp();
  const model = await startModel(fake);
  const restorer = { add: jest.fn() };
  const panel = (await panelPlugin.activate(
    fake.app,
    model,
    null,
    palette,
    restorer
  )) as OwnershipPanel;
  disposables.unshift(panel);
  panel.hide();
  Widget.attach(panel, document.body);
  return { ...fake, model, panel, restorer };
}

function settings(composite: object) {
  const changed = new Signal<object, void>({});
  const loaded = { changed, composite };
  return {
    loaded,
    registry: {
      load: jest.fn().mockResolvedValue(loaded)
    } as unknown as ISettingRegistry
  };
}

let answers: Record<string, unknown>;
let asked: jest.SpyInstance;

beforeEach(() => {
  localStorage.clear();
  answers = {
    health: health(),
    kernels: { kernels: [kernel('a', { detached_count: 1 })] },
    'kernels/a': { processes: [] },
    strays: report([finding('k'), detached('d')]),
    'strays?refresh=1': report([]),
    'history?limit=50': { entries: [] },
    cleanup: { results: [{ id: 'k', outcome: 'terminated' }] }
  };
  asked = jest
    .spyOn(request, 'requestAPI')
    .mockImplementation(endpoint => Promise.resolve(answers[endpoint]));
});

afterEach(() => {
  disposables.splice(0).forEach(one => one.dispose());
  Dialog.flush();
  Notification.dismiss();
  document.body.replaceChildren();
  jest.restoreAllMocks();
});

async function answerDialog(label: string): Promise<string> {
  await until(() => document.querySelector('.jp-Dialog button'));
  await frames();
  const dialog = document.querySelector('.jp-Dialog')!;
  const text = dialog.textContent;
  await click(
    [...dialog.querySelectorAll('button')].find(
      one => one.textContent === label
    )
  );
  return text;
}

describe('the plugins', () => {
  it('have ids of this package and need only the model', () => {
    expect(plugins.map(({ id }) => id)).toEqual([
      'jupyter-ownedkernels:model',
      'jupyter-ownedkernels:plugin',
      'jupyter-ownedkernels:running',
      'jupyter-ownedkernels:notifications',
      'jupyter-ownedkernels:status'
    ]);
    expect(modelPlugin.provides).toBe(IOwnershipModel);
    for (const { requires } of plugins.slice(1)) {
      expect(requires).toEqual([IOwnershipModel]);
    }
  });

  it('poll at the rate of the settings', async () => {
    const { loaded, registry } = settings({ pollInterval: 0.02 });
    const model = await startModel(fakeApp(), registry);
    model.observe();
    await until(() => asked.mock.calls.length > 12);
    loaded.composite = { pollInterval: 3600 };
    loaded.changed.emit();
  });

  it('work with the defaults when the settings cannot be read', async () => {
    const warned = jest.spyOn(console, 'warn').mockImplementation();
    const load = jest.fn().mockRejectedValue(new Error('no schema'));
    await startModel(fakeApp(), { load });
    await until(() => warned.mock.calls.length > 0);
  });

  it('look again, twice, when a file gets another name', async () => {
    const fake = fakeApp();
    const model = await startModel(fake);
    const touched = jest.spyOn(model, 'touchTwice');
    const { fileChanged } = fake.serviceManager.contents;
    fileChanged.emit({ type: 'save' });
    fileChanged.emit({ type: 'rename' });
    expect(touched).toHaveBeenCalledTimes(1);
  });

  it('look again when the app learns of another session', async () => {
    const fake = fakeApp();
    const model = await startModel(fake);
    const touched = jest.spyOn(model, 'touch');
    const session = { id: 's', path: 'p', kernel: { id: 'a' } };
    fake.sessions.runningChanged.emit([session]);
    fake.sessions.runningChanged.emit([{ ...session }]);
    expect(touched).toHaveBeenCalledTimes(1);
  });
});

describe('the panel', () => {
  it('is in the left area, with a name, restored with the layout', async () => {
    const { panel, restorer, shell } = await activate();
    expect(shell.add.mock.calls[0][1]).toBe('left');
    expect(panel.title.caption).toBe('Kernel Ownership');
    expect(panel.node.getAttribute('role')).toBe('region');
    expect(panel.node.getAttribute('aria-label')).toBe('Kernel Ownership');
    expect(restorer.add).toHaveBeenCalledWith(panel, PANEL_ID);
  });

  it('asks when it is shown, and for nothing while it is hidden', async () => {
    const { model, panel, stream } = await activate();
    stream.emit({ schema_id: EVENT_SCHEMA, action: 'launched' });
    await new Promise(resolve => setTimeout(resolve, 300));
    expect(asked).not.toHaveBeenCalled();
    panel.show();
    await until(() => panel.node.textContent?.includes('Every kernel'));
    expect(model.kernels).toHaveLength(1);
    panel.hide();
    const before = asked.mock.calls.length;
    stream.emit({ schema_id: EVENT_SCHEMA, action: 'ended' });
    await new Promise(resolve => setTimeout(resolve, 300));
    expect(asked).toHaveBeenCalledTimes(before);
    panel.dispose();
    panel.dispose();
  });

  it('tells a screen reader what a scan has found', async () => {
    const { panel } = await activate();
    panel.show();
    const live = panel.node.querySelector('.jp-OwnedKernels-live')!;
    await until(() => live.textContent);
    expect(live.getAttribute('role')).toBe('status');
    expect(live.textContent).toBe(
      'Strays and stale files: 1 stray, 1 detached'
    );
  });

  it('has the keyboard once it is activated', async () => {
    const { panel } = await activate();
    panel.show();
    panel.activate();
    await frames();
    expect(document.activeElement).toBe(panel.node);
  });

  it('makes room for the text of its first section, once', async () => {
    const { panel } = await activate();
    jest
      .spyOn(HTMLElement.prototype, 'clientHeight', 'get')
      .mockReturnValue(600);
    jest
      .spyOn(HTMLElement.prototype, 'offsetHeight', 'get')
      .mockReturnValue(60);
    const content = panel.content as unknown as {
      setRelativeSizes: (sizes: number[]) => void;
    };
    const sized = jest.spyOn(content, 'setRelativeSizes');
    panel.show();
    await until(() => sized.mock.calls.length > 0);
    expect(sized.mock.calls[0][0][0]).toBeCloseTo(120 / 504);
    await frames();
    expect(sized).toHaveBeenCalledTimes(1);
  });

  it('has the commands in the palette', async () => {
    const addItem = jest.fn();
    const { commands, shell } = await activate({
      addItem
    } as unknown as ICommandPalette);
    const items = addItem.mock.calls.map(([item]) => item as IPaletteItem);
    expect(
      items.map(({ command, args }) => commands.label(command, args))
    ).toEqual([
      'Show Kernel Ownership',
      'Refresh Kernel Ownership',
      'Scan for Stray Kernels',
      'Clean Up Stray Kernels…'
    ]);
    expect(commands.label(CommandIDs.show)).toBe('Kernel Ownership');
    for (const id of [CommandIDs.refresh, CommandIDs.scan, CommandIDs.clean]) {
      expect(commands.label(id, { toolbar: true })).toBe('');
      expect(commands.icon(id, { toolbar: true })).toBeDefined();
      expect(commands.icon(id)).toBeUndefined();
    }
    await commands.execute(CommandIDs.show);
    expect(shell.activateById).toHaveBeenCalledWith(PANEL_ID);
  });

  it('points at a kernel and at the strays', async () => {
    const { commands, panel } = await activate();
    panel.show();
    await until(
      () => panel.node.querySelectorAll('[role=treeitem]').length > 2
    );
    await commands.execute(CommandIDs.show, { kernelId: 'a' });
    await frames();
    expect(nameOf(document.activeElement!)).toContain('a.ipynb');
    await commands.execute(CommandIDs.show, { strays: true });
    await frames();
    expect(nameOf(document.activeElement!)).toContain('python3 kernel');
  });

  it('refreshes and scans on demand', async () => {
    const { commands, model } = await activate();
    await commands.execute(CommandIDs.refresh);
    expect(model.server.kind).toBe('health');
    await commands.execute(CommandIDs.scan);
    expect(asked.mock.calls.map(([path]) => path)).toContain(
      'strays?refresh=1'
    );
    expect(commands.isEnabled(CommandIDs.clean)).toBe(false);
  });

  it('cleans what is checked, after the dialog', async () => {
    const { commands, model, panel } = await activate();
    panel.show();
    await until(() => model.strays.kind === 'report');
    const done = commands.execute(CommandIDs.clean);
    expect(await answerDialog('Clean Up')).toContain('1 of 2 chosen');
    await until(() =>
      document
        .querySelector('.jp-Dialog')
        ?.textContent?.includes('1 item cleaned')
    );
    await answerDialog('Close');
    await done;
    expect(
      asked.mock.calls.find(([path]) => path === 'cleanup')?.[2]
    ).toMatchObject({ body: '{"ids":["k"],"dry_run":false}' });
  });

  it('looks for strays before a clean that nobody has prepared', async () => {
    const { commands } = await activate();
    const done = commands.execute(CommandIDs.clean, { ids: ['d'] });
    expect(await answerDialog('Cancel')).toContain('1 of 2 chosen');
    await done;
    answers.strays = report([]);
    const empty = await activate();
    await empty.commands.execute(CommandIDs.clean);
    expect(document.querySelector('.jp-Dialog')).toBeNull();
  });
});

describe('what can be done with a kernel', () => {
  const target = { kernelId: 'a' };

  async function ready() {
    const all = await activate();
    await all.model.refresh();
    return all;
  }

  it('opens its notebook or its console', async () => {
    const { commands, model, sessions } = await ready();
    const opened = jest.fn();
    commands.addCommand('docmanager:open', { execute: opened });
    commands.addCommand('console:open', { execute: opened });
    await commands.execute(CommandIDs.openKernel, target);
    answers.kernels = { kernels: [kernel('a', { session: null })] };
    await model.refresh();
    sessions
      .running()
      .push({ path: 'c', type: 'console', kernel: { id: 'a' } });
    await commands.execute(CommandIDs.openKernel, target);
    expect(opened.mock.calls).toEqual([
      [{ path: 'work/a.ipynb' }],
      [{ path: 'c' }]
    ]);
  });

  it('interrupts it', async () => {
    const { commands } = await ready();
    const done = jest.spyOn(KernelAPI, 'interruptKernel').mockResolvedValue();
    await commands.execute(CommandIDs.interruptKernel, target);
    expect(done.mock.calls[0][0]).toBe('a');
  });

  it('says what to do when something fails', async () => {
    const { commands } = await ready();
    jest
      .spyOn(KernelAPI, 'interruptKernel')
      .mockRejectedValue(new Error('No network.'));
    const done = commands.execute(CommandIDs.interruptKernel, target);
    expect(await answerDialog('Close')).toContain(
      'No network. Refresh the panel'
    );
    await done;
  });

  it('restarts it after a question', async () => {
    const { commands } = await ready();
    const restarted = jest
      .spyOn(KernelAPI, 'restartKernel')
      .mockResolvedValue();
    let done = commands.execute(CommandIDs.restartKernel, target);
    expect(await answerDialog('Cancel')).toContain('The kernel of a.ipynb');
    await done;
    expect(restarted).not.toHaveBeenCalled();
    done = commands.execute(CommandIDs.restartKernel, target);
    await answerDialog('Restart');
    await done;
    expect(restarted.mock.calls[0][0]).toBe('a');
  });

  it('shuts it down after a question, which tells what is kept', async () => {
    const { commands, serviceManager } = await ready();
    const done = commands.execute(CommandIDs.shutDownKernel, target);
    expect(await answerDialog('Shut Down')).toContain(
      '1 detached process is kept'
    );
    await done;
    expect(serviceManager.kernels.shutdown).toHaveBeenCalledWith('a');
  });

  it('works on the row under the context menu', async () => {
    const { app, commands } = await ready();
    const node = document.createElement('div');
    node.className = 'jp-OwnedKernels-kernel';
    node.dataset.id = 'a';
    (app.contextMenuHitTest as jest.Mock).mockImplementation(
      (test: (node: HTMLElement) => boolean) => (test(node) ? node : undefined)
    );
    expect(commands.isEnabled(CommandIDs.shutDownKernel)).toBe(true);
    node.dataset.id = 'gone';
    expect(commands.isEnabled(CommandIDs.shutDownKernel)).toBe(false);
    expect(commands.isEnabled(CommandIDs.openKernel)).toBe(false);
    for (const id of [
      CommandIDs.openKernel,
      CommandIDs.interruptKernel,
      CommandIDs.restartKernel,
      CommandIDs.shutDownKernel
    ]) {
      await commands.execute(id);
    }
    expect(document.querySelector('.jp-Dialog')).toBeNull();
  });

  it('is on the row of the kernel', async () => {
    const { commands, panel } = await ready();
    panel.show();
    await until(() => panel.node.querySelector('.jp-OwnedKernels-action'));
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    const buttons = [...panel.node.querySelectorAll('.jp-OwnedKernels-action')];
    expect(buttons.map(nameOf)).toEqual([
      'Open a.ipynb',
      'Interrupt the kernel of a.ipynb',
      'Restart the kernel of a.ipynb…',
      'Shut down the kernel of a.ipynb…'
    ]);
    await click(buttons[3]);
    expect(executed).toHaveBeenCalledWith(CommandIDs.shutDownKernel, target);
    panel.node
      .querySelector('.jp-OwnedKernels-kernel')!
      .dispatchEvent(new MouseEvent('dblclick', { bubbles: true }));
    expect(executed).toHaveBeenCalledWith(CommandIDs.openKernel, target);
  });
});

describe('the section of the Running panel', () => {
  async function start(composite: object = {}) {
    const fake = fakeApp();
    const model = await startModel(fake);
    const add = jest.fn();
    runningPlugin.activate(
      fake.app,
      model,
      { add },
      settings(composite).registry,
      null
    );
    await frames();
    return { ...fake, add, model };
  }

  it('shows strays, and no healthy or detached ones', async () => {
    const { add, commands, model } = await start();
    const manager = add.mock.calls[0][0] as IRunningSessions.IManager;
    expect(manager.name).toBe('Stray Kernels');
    expect(manager.runningChanged).toBe(model.changed);
    expect(manager.running({ mode: 'list' })).toEqual([]);
    manager.refreshRunning();
    await until(() => model.strays.kind === 'report');
    const [item, ...others] = manager.running({ mode: 'list' });
    expect(others).toEqual([]);
    expect(item.label()).toBe('python3 kernel');
    expect(item.labelTitle?.()).toContain('its owner is gone');
    expect(item.detail?.()).toBe('2 kB · 1 h');
    expect(item.icon()).toBeDefined();
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    item.open?.();
    item.shutdown?.();
    expect(executed.mock.calls).toEqual([
      [CommandIDs.show, { strays: true }],
      [CommandIDs.clean, { ids: ['k'] }]
    ]);
  });

  it('cleans all strays, and strays only', async () => {
    const { add, model } = await start();
    const manager = add.mock.calls[0][0] as IRunningSessions.IManager;
    manager.shutdownAll();
    expect(asked).not.toHaveBeenCalled();
    await model.refreshStrays();
    manager.shutdownAll();
    await until(() => model.cleaning?.running === false);
    expect(model.cleaning?.ids).toEqual(['k']);
  });

  it('is not there when the settings say so', async () => {
    const { add } = await start({ showInRunningPanel: false });
    expect(add).not.toHaveBeenCalled();
  });
});

describe('notifications', () => {
  const messages = () =>
    Notification.manager.notifications.map(({ message }) => message);

  async function start(composite: object = {}) {
    const fake = fakeApp();
    const model = await startModel(fake);
    await model.refresh();
    notificationPlugin.activate(
      fake.app,
      model,
      settings(composite).registry,
      null
    );
    await frames();
    return { ...fake, model };
  }

  const die = (fake: Fake, fields: object = {}) => {
    fake.stream.emit({
      schema_id: EVENT_SCHEMA,
      action: 'ended',
      kernel_id: 'a',
      exit: exit(),
      ...fields
    });
    return frames();
  };

  it('tell of strays and recovery once for each start of the server', async () => {
    const now = Date.now() / 1000;
    answers['history?limit=50'] = {
      entries: [
        { event: 'recovered', at: now, count: 2 },
        { event: 'recovered', at: 5, count: 40 },
        { event: 'ended', at: now, count: null }
      ]
    };
    const { commands } = await start();
    expect(messages()).toEqual([
      '1 stray was found: its server is gone, and it still runs.',
      '2 processes of servers that had died were ended.'
    ]);
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    Notification.manager.notifications[0].options.actions![0].callback(
      new MouseEvent('click')
    );
    expect(executed).toHaveBeenCalledWith(CommandIDs.show, { strays: true });
    Notification.dismiss();
    await start();
    expect(messages()).toEqual([]);
  });

  it('of strays vanish with the strays', async () => {
    const { model } = await start();
    expect(messages()).toHaveLength(1);
    await model.scan();
    expect(messages()).toEqual([]);
  });

  it('say nothing when there is nothing, or when nobody wants to hear', async () => {
    await start({ notifyStrays: false });
    expect(messages()).toEqual([]);
    answers.strays = report([]);
    await start();
    expect(messages()).toEqual([]);
  });

  it('say nothing when the history or the server does not answer', async () => {
    asked.mockImplementation(endpoint =>
      endpoint === 'health'
        ? Promise.resolve(health())
        : Promise.reject(new Error('broken'))
    );
    await start();
    expect(messages()).toEqual([]);
  });

  it('tell of a recovery that happens now', async () => {
    const fake = await start({});
    Notification.dismiss();
    fake.stream.emit({
      schema_id: EVENT_SCHEMA,
      action: 'recovered',
      count: 1
    });
    expect(messages()).toEqual([
      '1 process of a server that had died was ended.'
    ]);
  });

  it('tell once why a kernel died, with a way to it', async () => {
    answers.strays = report([]);
    const fake = await start();
    await die(fake);
    expect(messages()).toEqual([
      'The kernel of a.ipynb died: killed by SIGKILL.'
    ]);
    const executed = jest
      .spyOn(fake.commands, 'execute')
      .mockResolvedValue(null);
    Notification.manager.notifications[0].options.actions![0].callback(
      new MouseEvent('click')
    );
    expect(executed).toHaveBeenCalledWith(CommandIDs.show, { kernelId: 'a' });
    await die(fake);
    expect(messages()).toHaveLength(1);
    await die(fake, { kernel_id: 'unknown-kernel' });
    expect(messages()[0]).toContain('unknown-');
    const { sessions } = fake;
    sessions.refreshRunning.mockImplementation(() => {
      sessions.running().push({ path: 'x/late.ipynb', kernel: { id: 'late' } });
      return Promise.resolve();
    });
    await die(fake, { kernel_id: 'late' });
    expect(messages()[0]).toContain('late.ipynb');
  });

  it('are silent about ends that somebody asked for', async () => {
    answers.strays = report([]);
    const fake = await start();
    await die(fake, { exit: exit({ cause: 'shutdown' }) });
    await die(fake, { exit: undefined });
    await die(fake, { action: 'launched' });
    expect(messages()).toEqual([]);
    const quiet = await start({ notifyDeaths: false });
    Notification.dismiss();
    await die(quiet);
    expect(messages()).toEqual([]);
  });
});

describe('the item of the status bar', () => {
  async function start(composite: object = {}) {
    const fake = fakeApp();
    const model = await startModel(fake);
    const removed = jest.fn();
    const registerStatusItem = jest.fn(() => new DisposableDelegate(removed));
    const { loaded, registry } = settings(composite);
    statusPlugin.activate(
      fake.app,
      model,
      { registerStatusItem },
      registry,
      null
    );
    await frames();
    return { ...fake, loaded, model, registerStatusItem, removed };
  }

  it('is there while there are strays, and only then', async () => {
    const { commands, loaded, model, registerStatusItem, removed } =
      await start();
    const options = (registerStatusItem.mock.calls as unknown[][])[0][1] as {
      item: StatusItem;
      isActive: () => boolean;
    };
    expect(options.isActive()).toBe(false);
    await model.refreshStrays();
    expect(options.isActive()).toBe(true);
    Widget.attach(options.item, document.body);
    disposables.unshift(options.item);
    await frames();
    expect(options.item.node.textContent).toBe('1 stray');
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    await click(options.item.node.querySelector('button'));
    expect(executed).toHaveBeenCalledWith(CommandIDs.show, { strays: true });
    loaded.composite = { showInStatusBar: false };
    loaded.changed.emit();
    expect(removed).toHaveBeenCalledTimes(1);
  });

  it('is left out where there is no status bar', async () => {
    const fake = fakeApp();
    const model = await startModel(fake);
    statusPlugin.activate(fake.app, model, null, null, null);
    await frames();
  });
});
