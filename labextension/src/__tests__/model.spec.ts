import { ServerConnection } from '@jupyterlab/services';

import { OwnershipModel } from '../model';
import * as request from '../request';

const settings = ServerConnection.makeSettings();

function answering(answer: Promise<unknown>): OwnershipModel {
  jest.spyOn(request, 'requestAPI').mockReturnValue(answer);
  return new OwnershipModel(settings);
}

afterEach(() => {
  jest.restoreAllMocks();
});

describe('OwnershipModel', () => {
  it('knows nothing before the first answer', () => {
    expect(new OwnershipModel(settings).server).toEqual({ kind: 'unknown' });
  });

  it('keeps the health and says that it changed', async () => {
    const health = { mode: 'full', reason: '', version: '0.1.0' };
    const model = answering(Promise.resolve(health));
    const changed = jest.fn();
    model.changed.connect(changed);
    await model.refresh();
    expect(model.server).toEqual({ kind: 'health', health });
    expect(changed).toHaveBeenCalledTimes(1);
  });

  it('takes a 404 for a server extension that is off', async () => {
    const response = new Response('', { status: 404 });
    const model = answering(
      Promise.reject(new ServerConnection.ResponseError(response))
    );
    await model.refresh();
    expect(model.server).toEqual({ kind: 'off' });
  });

  it.each([
    new ServerConnection.ResponseError(
      new Response('', { status: 500 }),
      'broken'
    ),
    new ServerConnection.NetworkError(new TypeError('broken'))
  ])('keeps any other failure as a message', async error => {
    const model = answering(Promise.reject(error));
    await model.refresh();
    expect(model.server).toEqual({ kind: 'failed', message: 'broken' });
  });

  it('stays silent once disposed', async () => {
    const model = answering(Promise.resolve({}));
    const changed = jest.fn();
    model.changed.connect(changed);
    const refreshed = model.refresh();
    model.dispose();
    model.dispose();
    await refreshed;
    expect(changed).not.toHaveBeenCalled();
    expect(model.server).toEqual({ kind: 'unknown' });
  });
});
