import { Notification } from '@jupyterlab/apputils';
import type { IRunningSessions } from '@jupyterlab/running';
import type { IStatusBar } from '@jupyterlab/statusbar';
import { SidePanel } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import { DisposableDelegate } from '@lumino/disposable';
import { Widget } from '@lumino/widgets';
import { CommandIDs } from '..';
import { EVENT_SCHEMA } from '../api';
import { click, frames, until } from './support/fakes';
import { exit, health, report } from './support/samples';
import {
  runningPlugin,
  notificationPlugin,
  statusPlugin,
  fakeApp,
  startModel,
  settings,
  disposables,
  answers,
  asked,
  holdCleanup,
  type Fake
} from './support/app';

/** Those that the other plugins use; the panel has them. */
function addPanelCommands(commands: CommandRegistry): void {
  for (const id of [CommandIDs.show, CommandIDs.clean]) {
    commands.addCommand(id, { execute: jest.fn() });
  }
}

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
    expect(item.detail?.()).toBe('2.0 kB · 1 h');
    expect(item.icon()).toBeDefined();
    // The panel has these commands; without it there is nothing to press.
    expect([item.open, item.shutdown]).toEqual([undefined, undefined]);
    addPanelCommands(commands);
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    const [able] = manager.running({ mode: 'list' });
    able.open?.();
    able.shutdown?.();
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

  it('cleans nothing while a clean runs, and says so', async () => {
    const { add, model } = await start();
    const manager = add.mock.calls[0][0] as IRunningSessions.IManager;
    await model.refreshStrays();
    const finish = holdCleanup();
    manager.shutdownAll();
    manager.shutdownAll();
    const posts = () => asked.mock.calls.filter(([path]) => path === 'cleanup');
    expect(posts()).toHaveLength(1);
    expect(Notification.manager.notifications[0].message).toContain(
      'still running'
    );
    finish();
    await until(() => model.cleaning?.running === false);
    expect(posts()).toHaveLength(1);
  });

  it('is not there when the settings say so', async () => {
    const { add } = await start({ showInRunningPanel: false });
    expect(add).not.toHaveBeenCalled();
  });

  it.each(['4.0', '4.6'])('comes and goes with the setting in %s', async at => {
    const composite = { showInRunningPanel: true };
    const fake = fakeApp();
    const { registry, loaded } = settings(composite);
    const panel = new SidePanel();
    panel.id = 'jp-running-sessions';
    const [other, ours] = ['Kernels', 'Stray Kernels'].map(label => {
      const section = new Widget();
      section.title.label = label;
      panel.addWidget(section);
      return section;
    });
    if (at === '4.6') {
      ours.title.label = 'moved elsewhere';
      Object.assign(panel, {
        removeSectionById: (name: string) =>
          name === 'Stray Kernels' ? ours : null
      });
    }
    fake.shell.widgets.mockReturnValue([new Widget(), panel]);
    const added = { dispose: jest.fn() };
    const add = jest.fn(() => added);
    const model = await startModel(fake);
    runningPlugin.activate(fake.app, model, { add }, registry, null);
    await frames();
    composite.showInRunningPanel = false;
    loaded.changed.emit();
    expect(added.dispose).toHaveBeenCalledTimes(1);
    expect([other.isDisposed, ours.isDisposed]).toEqual([false, true]);
    composite.showInRunningPanel = true;
    loaded.changed.emit();
    expect(add).toHaveBeenCalledTimes(2);
  });
});

describe('notifications', () => {
  const messages = () =>
    Notification.manager.notifications.map(({ message }) => message);

  async function start(composite: object = {}, fake = fakeApp()) {
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
    const fake = fakeApp();
    const { commands } = fake;
    addPanelCommands(commands);
    await start({}, fake);
    expect(messages()).toEqual([
      '1 stray was found: its owner is gone, and it still runs.',
      '2 processes of owners that had died were ended.'
    ]);
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    Notification.manager.notifications[0].options.actions![0].callback(
      new MouseEvent('click')
    );
    expect(executed).toHaveBeenCalledWith(CommandIDs.show, { strays: true });
    Notification.dismiss();
    await start();
    expect(messages()).toEqual([]);
    // Another server behind the same hub has its own start.
    answers.health = health({ owner: { ...health().owner!, owner_id: 'b' } });
    const other = fakeApp();
    Object.assign(other.serviceManager.serverSettings, {
      baseUrl: 'http://hub/user/ada/b/'
    });
    await start({}, other);
    expect(messages()).toHaveLength(2);
    Notification.dismiss();
    answers.health = health();
    await start();
    expect(messages()).toEqual([]);
  });

  it('have no way to a panel that is switched off', async () => {
    const fake = await start();
    await die(fake);
    const { notifications } = Notification.manager;
    expect(notifications).toHaveLength(2);
    expect(notifications.map(({ options }) => options.actions)).toEqual([
      [],
      []
    ]);
  });

  it('of strays vanish with the strays', async () => {
    const { model } = await start();
    expect(messages()).toHaveLength(1);
    await model.scan();
    expect(messages()).toEqual([]);
  });

  it('tell of strays when the browser keeps nothing', async () => {
    jest.spyOn(Storage.prototype, 'setItem').mockImplementation(() => {
      throw new DOMException('full', 'QuotaExceededError');
    });
    await start();
    expect(messages()).toHaveLength(1);
  });

  it('of strays stay when a scan fails', async () => {
    const { model } = await start();
    asked.mockRejectedValue(new Error('no network'));
    await model.scan();
    expect(model.strays.kind).toBe('failed');
    expect(messages()).toHaveLength(1);
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
      '1 process of an owner that had died was ended.'
    ]);
  });

  it('tell once why a kernel died, with a way to it', async () => {
    answers.strays = report([]);
    const fake = await start();
    addPanelCommands(fake.commands);
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
    // As that of JupyterLab, which disposes of what it was given.
    const registerStatusItem = jest.fn(
      (_: string, { item }: IStatusBar.IItem) =>
        new DisposableDelegate(() => {
          item.dispose();
          removed();
        })
    );
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
    const options = registerStatusItem.mock.calls[0][1];
    expect(options.isActive?.()).toBe(false);
    await model.refreshStrays();
    expect(options.isActive?.()).toBe(true);
    Widget.attach(options.item, document.body);
    disposables.unshift(options.item);
    await frames();
    expect(options.item.node.textContent).toBe('1 stray');
    const executed = jest.spyOn(commands, 'execute').mockResolvedValue(null);
    await click(options.item.node.querySelector('button'));
    expect(executed).not.toHaveBeenCalled();
    addPanelCommands(commands);
    await click(options.item.node.querySelector('button'));
    expect(executed).toHaveBeenCalledWith(CommandIDs.show, { strays: true });
    loaded.composite = { showInStatusBar: false };
    loaded.changed.emit();
    expect(removed).toHaveBeenCalledTimes(1);
    loaded.composite = { showInStatusBar: true };
    loaded.changed.emit();
    const { item } = registerStatusItem.mock.calls[1][1];
    expect(item.isDisposed).toBe(false);
    disposables.unshift(item);
  });

  it('is left out where there is no status bar', async () => {
    const fake = fakeApp();
    const model = await startModel(fake);
    statusPlugin.activate(fake.app, model, null, null, null);
    await frames();
  });
});
