import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

/** Where the server extension answers, below the base URL. */
export const API_NAMESPACE = 'api/ownedkernels';

/** An answer that is not JSON: a proxy's login page, for instance. */
export class NotJSONError extends ServerConnection.ResponseError {}

/**
 * Call one endpoint of the server extension.
 *
 * @param endpoint - path below `api/ownedkernels`, with its query
 * @param settings - settings of the app's service manager
 * @param init - verb, body and so on
 * @returns the JSON of the answer; `undefined` for an empty one
 * @throws ServerConnection.NetworkError when the server cannot be reached
 * @throws ServerConnection.ResponseError when it answers with an error
 * @throws NotJSONError when it answers with something else
 */
export async function requestAPI<T>(
  endpoint: string,
  settings: ServerConnection.ISettings,
  init: RequestInit = {}
): Promise<T> {
  const url = URLExt.join(settings.baseUrl, API_NAMESPACE, endpoint);
  let response: Response;
  try {
    response = await ServerConnection.makeRequest(url, init, settings);
  } catch (error) {
    if (error instanceof ServerConnection.NetworkError) {
      throw error;
    }
    throw new ServerConnection.NetworkError(error as TypeError);
  }
  const text = await response.text();
  const data = parse(text);
  if (!response.ok) {
    const message = (data as { message?: unknown } | undefined)?.message;
    throw new ServerConnection.ResponseError(
      response,
      typeof message === 'string' && message
        ? message
        : `${response.status} ${response.statusText}`
    );
  }
  if (data === undefined && text.length > 0) {
    throw new NotJSONError(response);
  }
  return data as T;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A 404 of the route itself: the server extension is off. */
export function isMissing(error: unknown): boolean {
  return (
    error instanceof ServerConnection.ResponseError &&
    error.response.status === 404
  );
}

/** What an error says: in the reader's language what is said here, the rest as it came. */
export function messageOf(error: unknown, trans: TranslationBundle): string {
  if (error instanceof NotJSONError) {
    return trans.__('The answer is not JSON.');
  }
  if (error instanceof ServerConnection.NetworkError) {
    // The browser's own text is English, and another one in each browser.
    return trans.__('No connection.');
  }
  return error instanceof Error ? error.message : String(error);
}
