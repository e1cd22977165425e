import { expect, test } from '@jupyterlab/galata';

import { openPanel, panelOf } from './support/panel';
import {
  end,
  isAlive,
  pidOf,
  run,
  shutDownAll,
  startSession
} from './support/server';

/** Within this time an event must be on the screen. The poll is sixty times slower. */
const AT_ONCE = { timeout: 1000 };

// Galata would answer for the server, and hide what another browser starts.
test.use({ kernels: null, sessions: null });

test.afterEach(async ({ request }) => {
  await shutDownAll(request);
});

test('the panel opens from the command palette', async ({ page }) => {
  await page.keyboard.press('Control+Shift+C');
  const palette = page.locator('#modal-command-palette');
  await palette.locator('input').fill('Show Kernel Ownership');
  await expect(palette.getByRole('menuitem')).toHaveCount(1);
  await page.keyboard.press('Enter');
  await expect(panelOf(page)).toBeVisible();
});

test('the panel opens from the side bar and says one sentence', async ({
  page
}) => {
  await expect(panelOf(page)).toBeHidden();
  const panel = await openPanel(page);
  await expect(panel.getByText('This server', { exact: true })).toBeVisible();
  await expect(panel.getByText('Every kernel is watched')).toBeVisible();
  await expect(panel.getByText('No kernels.')).toBeVisible();
});

test('starts and ends are shown at once, without a poll', async ({
  page,
  request
}) => {
  const panel = await openPanel(page);
  await expect(panel.getByText('No kernels.')).toBeVisible();
  const { kernel } = await startSession(request, 'started.ipynb');
  const row = panel.getByRole('treeitem').filter({ hasText: 'MB' });
  await expect(row).toBeVisible(AT_ONCE);
  // The name of the notebook is on the server a little later than the kernel.
  await expect(row).toHaveAccessibleName(/^started\.ipynb,/);
  await request.delete(`/api/kernels/${kernel.id}`);
  await expect(row).toHaveCount(0, AT_ONCE);
  await expect(panel.getByText('No kernels.')).toBeVisible();
});

test('a kernel shows its processes, detached ones marked', async ({
  page,
  request
}) => {
  const { kernel } = await startSession(request, 'tree.ipynb');
  const pid = await run(
    page,
    kernel.id,
    "import subprocess\nprint(subprocess.Popen(['sleep', '601'], start_new_session=True).pid)"
  );
  try {
    const panel = await openPanel(page);
    const row = panel.getByRole('treeitem', { name: /^tree\.ipynb/ });
    await expect(row).toHaveAttribute('aria-expanded', 'false');
    await row.click();
    await expect(row).toHaveAttribute('aria-expanded', 'true');
    await expect(
      panel.getByRole('treeitem', { name: /^kernel, python/ })
    ).toBeVisible();
    await expect(
      panel.getByRole('treeitem', { name: `detached, sleep 601, pid ${pid}` })
    ).toBeVisible();
  } finally {
    end(Number(pid));
  }
});

test('a row opens its notebook, restarts and shuts down its kernel', async ({
  page,
  request,
  tmpPath
}) => {
  // A new notebook would be renamed while its session starts.
  const path = `${tmpPath}/actions.ipynb`;
  const notebook = { cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5 };
  Object.assign(notebook.metadata, {
    kernelspec: { name: 'python3', display_name: 'Python 3' }
  });
  await page.contents.uploadContent(JSON.stringify(notebook), 'text', path);
  await page.notebook.openByPath(path);
  const panel = await openPanel(page);
  const row = panel.getByRole('treeitem', { name: /^actions\.ipynb/ });
  await expect(row).toBeVisible();
  const [{ kernel }] = (await (await request.get('/api/sessions')).json()) as {
    kernel: { id: string };
  }[];
  const first = await pidOf(request, kernel.id);

  await page.notebook.close(true);
  await row.hover();
  await row.getByRole('button', { name: 'Open actions.ipynb' }).click();
  await expect(
    page.getByRole('main').getByRole('tab', { name: 'actions.ipynb' })
  ).toBeVisible();

  await row.hover();
  await row.getByRole('button', { name: /^Restart/ }).click();
  const question = page.getByRole('dialog');
  await expect(question).toContainText('All its variables will be lost');
  await question.getByRole('button', { name: 'Restart' }).click();
  await expect.poll(() => isAlive(first)).toBe(false);
  await expect(row).toBeVisible();
  const second = await pidOf(request, kernel.id, first);

  await row.hover();
  await row.getByRole('button', { name: /^Shut down/ }).click();
  await question.getByRole('button', { name: 'Cancel' }).click();
  expect(isAlive(second)).toBe(true);
  await row.hover();
  await row.getByRole('button', { name: /^Shut down/ }).click();
  await question.getByRole('button', { name: 'Shut Down' }).click();
  await expect.poll(() => isAlive(second)).toBe(false);
  await page.mouse.move(900, 500);
  await expect(row).toHaveCount(0);
});

test('a kernel that dies says why: in a notification, and on its row', async ({
  page,
  request
}) => {
  const { kernel } = await startSession(request, 'dies.ipynb');
  await expect(panelOf(page)).toBeHidden();
  // The events arrive over a socket that opens after the page.
  await expect
    .poll(() =>
      page.evaluate(() => window.jupyterapp.serviceManager.sessions.isReady)
    )
    .toBe(true);
  process.kill(await pidOf(request, kernel.id), 'SIGKILL');
  const notice = page.getByRole('alert').filter({ hasText: 'died' });
  await expect(notice).toContainText(
    'The kernel of dies.ipynb died: killed by SIGKILL'
  );
  await expect(notice).toHaveCount(1);
  await notice.getByRole('button', { name: 'Show' }).click();
  const row = panelOf(page).getByRole('treeitem', { name: /^dies\.ipynb/ });
  await expect(row).toBeFocused();
  await expect(row).toContainText('Killed by SIGKILL, restarted');
});

test('a hidden panel asks for nothing', async ({ page, request }) => {
  const panel = await openPanel(page);
  await expect(panel.getByText('No kernels.')).toBeVisible();
  await page.getByRole('tab', { name: 'Kernel Ownership' }).click();
  await expect(panel).toBeHidden();
  await page.waitForLoadState('networkidle');

  const asked: string[] = [];
  page.on('request', one => {
    if (one.url().includes('/api/ownedkernels/')) {
      asked.push(one.url());
    }
  });
  // The page hears of this kernel by the same socket that brings our events.
  const heard = page.evaluate(
    () =>
      new Promise<void>(resolve => {
        window.jupyterapp.serviceManager.events.stream.connect((_, event) => {
          if (event.action === 'ended') {
            resolve();
          }
        });
      })
  );
  const { kernel } = await startSession(request, 'unseen.ipynb');
  await request.delete(`/api/kernels/${kernel.id}`);
  await heard;
  // Longer than events are collected, and than the look for a late session.
  await page.waitForTimeout(2000);
  expect(asked).toEqual([]);
});
