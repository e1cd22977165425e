import { KernelAPI } from '@jupyterlab/services';

import { CommandIDs } from '..';
import { activate, answerDialog, answers } from './support/app';
import { click, nameOf, until } from './support/fakes';
import { kernel } from './support/samples';

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

  it.each([
    ['is missing', undefined, 'Close'],
    [
      'fails',
      { execute: () => Promise.reject(new Error('No such file')) },
      'No such file.'
    ]
  ])('says so when what opens it %s', async (_, command, text) => {
    const { commands } = await ready();
    if (command) {
      commands.addCommand('docmanager:open', command);
    }
    const done = commands.execute(CommandIDs.openKernel, target);
    const shown = await answerDialog('Close');
    expect(shown).toContain('a.ipynb was not opened');
    expect(shown).toContain(text);
    await done;
  });

  it('offers to open it when the app can', async () => {
    const { commands, model, panel } = await ready();
    panel.show();
    const open = () =>
      panel.node
        .querySelector('.jp-OwnedKernels-action')
        ?.getAttribute('aria-disabled');
    await until(open);
    expect(open()).toBe('true');
    expect(commands.isEnabled(CommandIDs.openKernel, target)).toBe(false);
    commands.addCommand('docmanager:open', { execute: jest.fn() });
    await model.refresh();
    await until(() => open() === 'false');
    expect(commands.isEnabled(CommandIDs.openKernel, target)).toBe(true);
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
      .mockRejectedValue(new Error('No network'));
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
