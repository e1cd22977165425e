import { AxeBuilder } from '@axe-core/playwright';
import { expect, test } from '@jupyterlab/galata';
import type { Page } from '@playwright/test';

import * as sample from './support/fixtures';
import {
  mock,
  openPanel,
  panelOf,
  refresh,
  setWidth,
  world,
  type IWorld
} from './support/panel';

/** The states that are hard to bring about for real. */
const STATES: [name: string, change: (is: IWorld) => void][] = [
  ['empty', () => undefined],
  [
    'incomplete',
    is => {
      is.report = sample.report([sample.finding(1, {})], {
        complete: false,
        incomplete_reason: 'processes of this user are hidden (hidepid)'
      });
    }
  ],
  [
    'troubled',
    is => {
      is.health = sample.health({
        layers: {
          ...(sample.health().layers as object),
          pidfd: { active: false, why: 'Linux is older than 5.3' }
        },
        spawners: [
          sample.spawner({
            kind: 'warm',
            state: 'failed',
            reason: '3 starts in a row failed, retry in 8 min'
          })
        ],
        journal: {
          path: '/srv/jupyter/ada',
          writable: false,
          records: 0,
          reason: 'no space left on device'
        }
      });
    }
  ],
  [
    'gateway',
    is => {
      is.health = sample.health({
        mode: 'inactive',
        reason: 'kernels run behind a Gateway, which owns them',
        owner: null
      });
    }
  ],
  [
    'provisioner-only',
    is => {
      is.health = sample.health({
        mode: 'provisioner-only',
        reason: 'the kernel manager MyManager was chosen for this server'
      });
    }
  ],
  ['broken', is => (is.status = 500)],
  ['off', is => (is.status = 404)],
  ['kernels-25', is => (is.kernels = many(25))],
  ['kernels-200', is => (is.kernels = many(200))]
];

function many(count: number): unknown[] {
  return Array.from({ length: count }, (_, index) => sample.kernel(index + 1));
}

function full(is: IWorld): void {
  is.kernels = sample.kernels();
  is.report = sample.report(sample.findings());
}

/** Nothing under the pointer, nothing with the focus. */
async function rest(page: Page): Promise<void> {
  await page.mouse.move(900, 400);
  await page.evaluate(() => (document.activeElement as HTMLElement)?.blur());
}

let is: IWorld;

test.beforeEach(async ({ page }) => {
  is = world();
  await mock(page, is);
  // Nothing that the real server said before shall stay.
  await page.reload();
  await page.getByRole('tab', { name: 'Kernel Ownership' }).waitFor();
});

test('every state looks as it did', async ({ page }) => {
  test.slow();
  const panel = await openPanel(page);
  await setWidth(page, 280);
  for (const [name, change] of STATES) {
    Object.assign(is, world());
    change(is);
    await refresh(page);
    await rest(page);
    await expect(panel).toHaveScreenshot(`${name}.png`);
  }
});

test('every theme and width looks as it did', async ({ page }) => {
  test.slow();
  full(is);
  const panel = await openPanel(page);
  await setWidth(page, 280);
  await panel.getByRole('treeitem', { name: /^scrape/ }).click();
  await panel.getByRole('treeitem', { name: /^python3 kernel/ }).click();
  for (const [theme, width] of [
    ['JupyterLab Light', 200],
    ['JupyterLab Light', 280],
    ['JupyterLab Light', 500],
    ['JupyterLab Dark', 280],
    ['JupyterLab Dark High Contrast', 280]
  ] as const) {
    await page.theme.setTheme(theme);
    await setWidth(page, width);
    await rest(page);
    const name = theme.replace('JupyterLab ', '').replace(/ /g, '-');
    await expect(panel).toHaveScreenshot(`${name.toLowerCase()}-${width}.png`);
  }
});

test('nothing in the way of a screen reader', async ({ page }) => {
  full(is);
  is.report = sample.report(sample.findings(3));
  const panel = await openPanel(page);
  await panel.getByRole('treeitem', { name: /^scrape/ }).click();
  await panel.getByRole('treeitem', { name: /^python3 kernel/ }).click();
  await panel.getByRole('treeitem', { name: /^3 files/ }).click();
  await expect(panel.getByRole('status').first()).toContainText(
    '3 stale files'
  );
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark High Contrast']) {
    await page.theme.setTheme(theme);
    await rest(page);
    expect(await violations(page, '.jp-OwnedKernels')).toEqual([]);
  }
  await panel.getByRole('button', { name: /^Clean Up 5/ }).click();
  await expect(page.getByRole('dialog')).toBeVisible();
  expect(await violations(page, '.jp-OwnedKernels-dialog')).toEqual([]);
});

/** What axe finds in a part of the page. */
async function violations(page: Page, part: string): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).include(part).analyze();
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html }) => `${id}: ${html}`)
  );
}

test('everything by keyboard', async ({ page }) => {
  full(is);
  const focused = page.locator(':focus');
  const tabTo = async (name: RegExp) => {
    for (let presses = 0; presses < 20; presses++) {
      await page.keyboard.press('Tab');
      const label = await page.evaluate(() => {
        const node = document.activeElement!;
        return node.getAttribute('aria-label') ?? node.textContent ?? '';
      });
      if (name.test(label)) {
        return;
      }
    }
    throw new Error(`Tab does not come to ${name}`);
  };

  await page.keyboard.press('Control+Shift+C');
  await page.locator('#modal-command-palette input').fill('Show Kernel Owner');
  await page.keyboard.press('Enter');
  const panel = panelOf(page);
  await expect(panel).toBeFocused();

  // Kernels: walk, expand, and reach the actions of a row.
  await tabTo(/^train-resnet/);
  await page.keyboard.press('ArrowDown');
  await expect(focused).toHaveAccessibleName(/^scrape/);
  await page.keyboard.press('ArrowRight');
  await expect(focused).toHaveAttribute('aria-expanded', 'true');
  await page.keyboard.press('ArrowRight');
  await expect(focused).toHaveAccessibleName(/^kernel, python/);
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Tab');
  await expect(focused).toHaveAccessibleName('Open scrape.ipynb');
  await tabTo(/^Shut down/);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toContainText(
    '1 detached process is kept'
  );
  await page.keyboard.press('Escape');
  await expect(focused).toHaveAccessibleName(/^Shut down/);

  // Strays: check, read the proofs, clean.
  await tabTo(/^python3 kernel/);
  await page.keyboard.press('Space');
  await expect(focused).toHaveAttribute('aria-checked', 'false');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  await expect(focused).toHaveAccessibleName(/its owner, process 28870/);
  await tabTo(/^Clean Up 38/);
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('button', { name: 'Cancel' })).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await expect(focused).toHaveText(/^Clean Up 38/);
});

test('rows stay where they are under the pointer', async ({ page }) => {
  is.kernels = many(4);
  const panel = await openPanel(page);
  const third = panel.getByRole('treeitem', { name: /^notebook-3/ });
  await third.hover();
  const before = await third.boundingBox();
  // Two rows above vanish, one comes.
  is.kernels = [sample.kernel(9), ...many(4).slice(2)];
  await page.evaluate(() => {
    void window.jupyterapp.commands.execute('ownedkernels:refresh');
  });
  const gone = panel.getByRole('treeitem', { name: /^notebook-1\S+, gone/ });
  await expect(gone).toBeVisible();
  expect(await third.boundingBox()).toEqual(before);
  await page.mouse.move(900, 400);
  await expect(gone).toHaveCount(0);
});
