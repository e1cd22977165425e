import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { expect } from '@jupyterlab/galata';
import type { Locator, Page } from '@playwright/test';

import { health, processes, report } from './fixtures';

/** What the mocked server answers; a spec changes it and refreshes the panel. */
export interface IWorld {
  health: unknown;
  kernels: unknown[];
  processes: unknown[];
  report: unknown;
  /** Answer everything with this status instead. */
  status: number;
}

export function world(): IWorld {
  return {
    health: health(),
    kernels: [],
    processes: processes(),
    report: report([]),
    status: 200
  };
}

/** Let the page believe in this world. Call it before the page is loaded. */
export async function mock(page: Page, is: IWorld): Promise<void> {
  await page.route('**/api/ownedkernels/**', route => {
    const path = new URL(route.request().url()).pathname;
    const endpoint = path.split('/api/ownedkernels/')[1];
    const answers: Record<string, unknown> = {
      health: is.health,
      kernels: { kernels: is.kernels },
      strays: is.report,
      history: { entries: [] }
    };
    return route.fulfill(
      is.status === 200
        ? { json: answers[endpoint] ?? { processes: is.processes } }
        : { status: is.status, json: { message: 'broken' } }
    );
  });
}

/** The panel, whether or not it is open. */
export function panelOf(page: Page): Locator {
  return page.getByRole('region', { name: 'Kernel Ownership' });
}

/** Open the panel by its tab in the side bar. */
export async function openPanel(page: Page): Promise<Locator> {
  const panel = panelOf(page);
  await page.getByRole('tab', { name: 'Kernel Ownership' }).click();
  await expect(panel).toBeVisible();
  return panel;
}

/** Press the button Refresh and wait for the answer. */
export async function refresh(page: Page): Promise<void> {
  const answered = page.waitForResponse('**/api/ownedkernels/**');
  await panelOf(page).getByRole('button', { name: 'Refresh' }).click();
  await answered;
}

/** Make the panel this wide. */
export async function setWidth(
  page: IJupyterLabPageFixture,
  width: number
): Promise<void> {
  // JupyterLab has a least width of its own; another front end may have another.
  await page.addStyleTag({
    content: '#jp-left-stack, .jp-SidePanel { min-width: 0 !important }'
  });
  await page.evaluate(() => {
    for (const widget of window.jupyterapp.shell.widgets('left')) {
      if (widget.id === 'jupyter-ownedkernels:panel') {
        widget.fit();
        widget.parent?.fit();
      }
    }
  });
  // The layout follows in the next round of its messages.
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.sidebar.setWidth(width, 'left');
}
