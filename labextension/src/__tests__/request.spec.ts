import { ServerConnection } from '@jupyterlab/services';

import { NotJSONError, requestAPI } from '../request';

const settings = ServerConnection.makeSettings({
  baseUrl: 'http://server.test/base/',
  token: 'secret'
});

/** Answer the next request; returns what was asked. */
function answer(
  body: string,
  init: ResponseInit = {}
): jest.SpyInstance<Promise<Response>> {
  return jest
    .spyOn(ServerConnection, 'makeRequest')
    .mockResolvedValue(new Response(body, init));
}

afterEach(() => {
  jest.restoreAllMocks();
});

describe('requestAPI', () => {
  it('asks below the base URL, with the given settings', async () => {
    const asked = answer('{"mode": "full"}');
    await requestAPI('health', settings, { method: 'GET' });
    expect(asked).toHaveBeenCalledWith(
      'http://server.test/base/api/ownedkernels/health',
      { method: 'GET' },
      settings
    );
  });

  it('keeps the query of the endpoint', async () => {
    const asked = answer('{}');
    await requestAPI('strays?refresh=1', settings);
    expect(asked.mock.calls[0][0]).toBe(
      'http://server.test/base/api/ownedkernels/strays?refresh=1'
    );
  });

  it('returns the JSON of the answer', async () => {
    answer('{"mode": "inactive", "reason": "Gateway"}');
    expect(await requestAPI('health', settings)).toEqual({
      mode: 'inactive',
      reason: 'Gateway'
    });
  });

  it('returns undefined for an empty answer', async () => {
    answer('');
    expect(await requestAPI('health', settings)).toBeUndefined();
  });

  it('throws the message and the status of an error answer', async () => {
    answer('{"message": "Unknown kernel", "code": "unknown_kernel"}', {
      status: 404
    });
    const error = await requestAPI<never>('kernels/x', settings).catch(
      (reason: ServerConnection.ResponseError) => reason
    );
    expect(error).toBeInstanceOf(ServerConnection.ResponseError);
    expect(error.message).toBe('Unknown kernel');
    expect(error.response.status).toBe(404);
  });

  it('names the status when an error answer has no message', async () => {
    answer('<html>', { status: 502, statusText: 'Bad Gateway' });
    await expect(requestAPI('health', settings)).rejects.toThrow(
      '502 Bad Gateway'
    );
  });

  it('refuses a page that is not JSON', async () => {
    answer('<html>Sign in</html>');
    const refused = requestAPI('health', settings);
    await expect(refused).rejects.toBeInstanceOf(NotJSONError);
    await expect(refused).rejects.toBeInstanceOf(
      ServerConnection.ResponseError
    );
  });

  it('throws a NetworkError when the server cannot be reached', async () => {
    jest
      .spyOn(ServerConnection, 'makeRequest')
      .mockRejectedValue(new TypeError('Failed to fetch'));
    await expect(requestAPI('health', settings)).rejects.toBeInstanceOf(
      ServerConnection.NetworkError
    );
  });
});
