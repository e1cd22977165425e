import type { ServerConnection } from '@jupyterlab/services';

import type { ICleanResult } from './api';
import { requestAPI } from './request';

/**
 * A clean is sent in so many parts, so that there is progress to show. For each of them the
 * server looks at everything twice: more parts for more items would take quadratic time.
 */
const PARTS = 20;
const LEAST_PART = 50;
/** The server takes no more ids at once. */
const MOST_IDS = 10_000;

/**
 * Let the server end and remove these findings.
 *
 * @param onResults - called after each part
 * @throws what `requestAPI` throws; the parts before that are done
 */
export async function cleanInParts(
  ids: readonly string[],
  settings: ServerConnection.ISettings,
  onResults: (results: readonly ICleanResult[]) => void
): Promise<void> {
  const size = Math.min(
    MOST_IDS,
    Math.max(LEAST_PART, Math.ceil(ids.length / PARTS))
  );
  for (let start = 0; start < ids.length; start += size) {
    const part = ids.slice(start, start + size);
    const answer = await requestAPI<{ results: ICleanResult[] }>(
      'cleanup',
      settings,
      { method: 'POST', body: JSON.stringify({ ids: part, dry_run: false }) }
    );
    onResults(answer.results);
  }
}
