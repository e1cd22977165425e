import { expect, test } from '@jupyterlab/galata';

test('the panel opens from the command palette', async ({ page }) => {
  await page.keyboard.press('Control+Shift+C');
  const palette = page.locator('#modal-command-palette');
  await palette.locator('input').fill('Show Kernel Ownership');
  await expect(palette.getByRole('menuitem')).toHaveCount(1);
  await page.keyboard.press('Enter');
  await expect(
    page.getByRole('region', { name: 'Kernel Ownership' })
  ).toBeVisible();
});

test('the panel opens from the side bar and says one sentence', async ({
  page
}) => {
  const panel = page.getByRole('region', { name: 'Kernel Ownership' });
  await expect(panel).toBeHidden();
  await page.getByRole('tab', { name: 'Kernel Ownership' }).click();
  await expect(panel).toBeVisible();
  await expect(panel.getByText('This server', { exact: true })).toBeVisible();
  await expect(panel.getByText('Every kernel is watched')).toBeVisible();
});

test('one request when the panel opens, none while it is hidden', async ({
  page
}) => {
  const asked: string[] = [];
  page.on('request', request => {
    if (request.url().includes('/api/ownedkernels/')) {
      asked.push(new URL(request.url()).pathname);
    }
  });
  const tab = page.getByRole('tab', { name: 'Kernel Ownership' });
  await expect(tab).toBeVisible();
  expect(asked).toEqual([]);
  const answered = page.waitForResponse('**/api/ownedkernels/health*');
  await tab.click();
  await answered;
  expect(asked).toEqual(['/api/ownedkernels/health']);
});
