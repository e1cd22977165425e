import { expect, test } from '@jupyterlab/galata';

import * as sample from './support/fixtures';
import { mock, openPanel, setWidth, world } from './support/panel';

/** The pictures of the README are the screenshots that these tests compare with. */
test('the pictures of the README are true', async ({ page }) => {
  const is = world();
  is.kernels = sample.kernels().slice(0, 4);
  is.report = sample.report(sample.findings().filter(one => one.action));
  await mock(page, is);
  await page.reload();
  const panel = await openPanel(page);
  await setWidth(page, 340);
  await panel.getByRole('treeitem', { name: /^scrape/ }).click();
  await page.mouse.move(900, 400);
  await expect(panel).toHaveScreenshot('panel-light.png');
  await panel.getByRole('button', { name: /^Clean Up/ }).click();
  const dialog = page.locator('.jp-Dialog-content');
  await expect(dialog).toBeVisible();
  await expect(dialog).toHaveScreenshot('clean-dialog.png');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.theme.setDarkTheme();
  await page.mouse.move(900, 400);
  await expect(panel).toHaveScreenshot('panel-dark.png');
});
