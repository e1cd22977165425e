import { type ICommandPalette, type IPaletteItem } from '@jupyterlab/apputils';
import type { AccordionPanel } from '@lumino/widgets';
import plugins, { CommandIDs, IOwnershipModel, PANEL_ID } from '..';
import { EVENT_SCHEMA } from '../api';
import { frames, nameOf, until } from './support/fakes';
import { finding, report } from './support/samples';
import {
  modelPlugin,
  fakeApp,
  startModel,
  activate,
  settings,
  answerDialog,
  answers,
  asked
} from './support/app';

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

  it('tells one that a scan has failed, or has not seen everything', async () => {
    const { model, panel } = await activate();
    panel.show();
    const live = panel.node.querySelector('.jp-OwnedKernels-live')!;
    await until(() => live.textContent);
    answers['strays?refresh=1'] = report([], {
      complete: false,
      incomplete_reason: '/proc is hidden'
    });
    await model.scan();
    expect(live.textContent).toContain('not complete');
    expect(live.textContent).not.toContain('none');
    answers['strays?refresh=1'] = report([finding('k')], { complete: false });
    await model.scan();
    expect(live.textContent).toContain('not complete');
    expect(live.textContent).toContain('1 stray');
    asked.mockRejectedValue(new Error('No network.'));
    await model.scan();
    expect(live.textContent).toContain('The scan failed: No network. Scan');
  });

  it('tells of each scan that a person asks for, and of no other', async () => {
    const { commands, model, panel } = await activate();
    panel.show();
    const live = panel.node.querySelector('.jp-OwnedKernels-live')!;
    await until(() => live.textContent);
    answers['strays?refresh=1'] = answers.strays;
    const texts: (string | null)[] = [];
    const observer = new MutationObserver(() => texts.push(live.textContent));
    observer.observe(live, { childList: true });
    const text = live.textContent;
    await model.scan();
    await model.refresh();
    expect(texts).toEqual([]);
    await commands.execute(CommandIDs.scan);
    expect(texts).toEqual(['']);
    await until(() => texts.length > 1);
    expect(texts).toEqual(['', text]);
    // A panel that goes away meanwhile has nothing to say.
    await commands.execute(CommandIDs.scan);
    panel.dispose();
    await new Promise(resolve => setTimeout(resolve, 300));
    observer.disconnect();
    expect(texts).toEqual(['', text, '']);
  });

  it('keeps the scan button on while it scans, and scans once', async () => {
    const { commands, model } = await activate();
    const looked = model.refreshStrays();
    expect(model.scanning).toBe(true);
    expect(commands.isEnabled(CommandIDs.scan)).toBe(true);
    const toolbar = { toolbar: true };
    await Promise.all([
      looked,
      commands.execute(CommandIDs.scan, toolbar),
      commands.execute(CommandIDs.scan, toolbar)
    ]);
    const scans = () =>
      asked.mock.calls.filter(([path]) => path === 'strays?refresh=1');
    expect(scans()).toHaveLength(1);
    await commands.execute(CommandIDs.scan, toolbar);
    expect(scans()).toHaveLength(2);
  });

  it('opens the section of what it points at', async () => {
    const { commands, panel } = await activate();
    panel.show();
    const content = panel.content as AccordionPanel;
    content.collapse(1);
    content.collapse(2);
    await commands.execute(CommandIDs.show, { kernelId: 'a' });
    await commands.execute(CommandIDs.show, { strays: true });
    expect(
      content.titles.map(title => title.getAttribute('aria-expanded'))
    ).toEqual(['true', 'true', 'true']);
    expect(content.widgets.map(({ isHidden }) => isHidden)).toEqual([
      false,
      false,
      false
    ]);
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
    const { commands, model, shell } = await activate();
    await commands.execute(CommandIDs.refresh);
    expect(model.server.kind).toBe('health');
    await commands.execute(CommandIDs.scan, { toolbar: true });
    expect(shell.activateById).not.toHaveBeenCalled();
    await commands.execute(CommandIDs.scan);
    expect(shell.activateById).toHaveBeenCalledWith(PANEL_ID);
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
    expect(model.strays).toMatchObject({ report: { findings: [] } });
    await until(() => document.activeElement === panel.node);
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
    expect(empty.shell.activateById).toHaveBeenCalledWith(PANEL_ID);
  });
});
