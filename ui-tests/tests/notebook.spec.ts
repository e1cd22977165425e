// Notebook 7 is another front end of the same server; Galata drives JupyterLab only.
import { expect, test } from '@playwright/test';

import { panelOf } from './support/panel';
import { shutDownAll } from './support/server';

const NAME = 'in-notebook-7.ipynb';

test.afterEach(async ({ request }) => {
  await shutDownAll(request);
  await request.delete(`/api/contents/${NAME}`);
});

test('Notebook 7 has the panel, with the kernel of its notebook', async ({
  page,
  request
}) => {
  const metadata = {
    kernelspec: {
      name: 'python3',
      display_name: 'Python 3',
      language: 'python'
    }
  };
  await request.put(`/api/contents/${NAME}`, {
    data: {
      type: 'notebook',
      content: { cells: [], metadata, nbformat: 4, nbformat_minor: 5 }
    }
  });
  await page.goto(`/notebooks/${NAME}`);
  // Its panels are in the menu View, under Left Sidebar.
  await page.getByRole('menuitem', { name: 'View' }).click();
  await page.getByText('Left Sidebar', { exact: true }).hover();
  await page.getByText('Show Kernel Ownership', { exact: true }).click();
  const panel = panelOf(page);
  await expect(panel.getByText('Every kernel is watched')).toBeVisible();
  const row = panel.getByRole('treeitem').filter({ hasText: NAME });
  await expect(row).toContainText('idle');
});
