import * as fs from 'fs';

import { expect, test } from '@jupyterlab/galata';

import { openPanel, panelOf } from './support/panel';
import {
  end,
  isAlive,
  makeStaleFile,
  makeStray,
  run,
  shutDownAll,
  startSession
} from './support/server';

// Galata would answer for the server, and hide what another browser starts.
test.use({ kernels: null, sessions: null });

const started: number[] = [];

test.afterEach(async ({ request }) => {
  await shutDownAll(request);
  started.splice(0).forEach(end);
});

test('strays are found, shown everywhere, and cleaned after the dialog', async ({
  page,
  request
}) => {
  const panel = await openPanel(page);
  await expect(panel.getByText('Nothing is left behind.')).toBeVisible();

  // A stray, a process that left its kernel on purpose, and a file.
  const stray = makeStray();
  started.push(stray);
  const { kernel } = await startSession(request, 'leaves.ipynb');
  const detached = Number(
    await run(
      page,
      kernel.id,
      "import subprocess\nprint(subprocess.Popen(['sleep', '602'], start_new_session=True).pid)"
    )
  );
  started.push(detached);
  await request.delete(`/api/kernels/${kernel.id}`);
  const file = makeStaleFile();

  await panel.getByRole('button', { name: /^Scan/ }).click();
  const rows = panel
    .getByRole('tree', { name: 'Strays and stale files' })
    .getByRole('treeitem');
  const strayRow = rows.filter({ hasText: `sleep 600` });
  const detachedRow = rows.filter({ hasText: `sleep 602` });
  const fileRow = rows.filter({ hasText: 'kernel-5ca1ab1e' });
  await expect(strayRow).toHaveAttribute('aria-checked', 'true');
  await expect(strayRow).toContainText('stray');
  await expect(detachedRow).toHaveAttribute('aria-checked', 'false');
  await expect(detachedRow).toContainText('detached');
  await expect(fileRow).toHaveAttribute('aria-checked', 'true');

  // The proofs are below the row.
  await strayRow.click();
  await expect(rows.filter({ hasText: 'is dead' })).toBeVisible();
  await strayRow.click();

  // The status bar and the Running panel know it, too.
  await expect(page.getByRole('button', { name: '1 stray' })).toBeVisible();
  await page
    .getByRole('tab', { name: 'Running Terminals and Kernels' })
    .click();
  const running = page.locator('.jp-OwnedKernels-runningItem');
  await expect(running).toHaveCount(1);
  await expect(running).toContainText('sleep 600');
  await page.getByRole('button', { name: '1 stray' }).click();
  await expect(panelOf(page)).toBeVisible();

  // Cancel leaves everything.
  const clean = panel.getByRole('button', { name: /^Clean Up 2/ });
  await clean.click();
  const dialog = page.getByRole('dialog');
  const boxes = dialog.getByRole('checkbox');
  await expect(boxes).toHaveCount(3);
  await expect(
    dialog.getByRole('checkbox', { name: /sleep 602/ })
  ).not.toBeChecked();
  await expect(dialog).toContainText('Why: its owner');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  expect(isAlive(stray)).toBe(true);
  expect(fs.existsSync(file)).toBe(true);

  // Clean ends the stray, removes the file, and keeps what is wanted.
  await clean.click();
  await dialog.getByRole('button', { name: 'Clean Up' }).click();
  await expect(dialog).toContainText('2 items cleaned up.');
  await dialog.getByRole('button', { name: 'Close' }).click();
  expect(isAlive(stray)).toBe(false);
  expect(fs.existsSync(file)).toBe(false);
  expect(isAlive(detached)).toBe(true);
  await page.mouse.move(900, 500);
  await expect(strayRow).toHaveCount(0);
  await expect(fileRow).toHaveCount(0);
  await expect(detachedRow).toHaveCount(1);
  await expect(page.getByRole('button', { name: '1 stray' })).toBeHidden();

  // It is ended when somebody asks for it.
  await detachedRow.press('Space');
  await expect(detachedRow).toHaveAttribute('aria-checked', 'true');
  await panel.getByRole('button', { name: /^Clean Up 1/ }).click();
  await dialog.getByRole('button', { name: 'Clean Up' }).click();
  await expect(dialog).toContainText('1 item cleaned up.');
  await dialog.getByRole('button', { name: 'Close' }).click();
  expect(isAlive(detached)).toBe(false);
});

test('strays that were there at the start are told of once', async ({
  page
}) => {
  started.push(makeStray());
  // The server gives out a report for a while; a scan makes a newer one.
  await page.request.get('/api/ownedkernels/strays?refresh=1');
  await page.evaluate(() => localStorage.clear());
  await page.reload();
  const notice = page
    .getByRole('alert')
    .filter({ hasText: '1 stray was found' });
  await expect(notice).toBeVisible();
  await notice.getByRole('button', { name: 'Show' }).click();
  await expect(
    panelOf(page).getByRole('treeitem', { name: /^sleep 600/ })
  ).toBeFocused();
  await page.reload();
  await expect(page.getByRole('button', { name: '1 stray' })).toBeVisible();
  await expect(notice).toHaveCount(0);
});

test('the section of the Running panel comes and goes with its setting', async ({
  page
}) => {
  await page.sidebar.openTab('jp-running-sessions');
  const section = page
    .locator('#jp-running-sessions')
    .getByText('Stray Kernels', { exact: true });
  await expect(section).toHaveCount(1);
  for (const shown of [false, true]) {
    await page.evaluate(async value => {
      const registry = await window.galata.getPlugin(
        '@jupyterlab/apputils-extension:settings'
      );
      await registry?.set(
        'jupyter-ownedkernels:plugin',
        'showInRunningPanel',
        value
      );
    }, shown);
    await expect(section).toHaveCount(shown ? 1 : 0);
  }
});
