import { ServerConnection, type Event } from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { EVENT_SCHEMA } from '../../api';
import { OwnershipModel } from '../../model';
import * as request from '../../request';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { finding, health, kernel, report } from './samples';

export const serverSettings = ServerConnection.makeSettings();

export type Answers = Record<string, unknown>;

/** A server: an Error is thrown, a function is called, all else is the answer. */
export function serve(answers: Answers): jest.SpyInstance {
  const all: Answers = {
    health: health(),
    kernels: { kernels: [kernel('a')] },
    strays: report([]),
    'strays?refresh=1': report([finding('fresh')]),
    ...answers
  };
  return jest
    .spyOn(request, 'requestAPI')
    .mockImplementation((endpoint, _settings, init) => {
      const answer = all[endpoint];
      if (answer instanceof Error) {
        return Promise.reject(answer);
      }
      return Promise.resolve(
        typeof answer === 'function'
          ? (answer as (body: unknown) => unknown)(init?.body)
          : answer
      );
    });
}

export function status(
  code: number,
  message?: string
): ServerConnection.ResponseError {
  const response = new Response('', { status: code });
  return new ServerConnection.ResponseError(response, message);
}

export function fakeEvents() {
  const stream = new Signal<Event.IManager, Event.Emission>(
    {} as Event.IManager
  );
  return {
    events: { stream } as unknown as Event.IManager,
    emit: (action: string, schema_id = EVENT_SCHEMA) =>
      stream.emit({ schema_id, action, message: '' })
  };
}

const models: OwnershipModel[] = [];

export function make(events?: Event.IManager): OwnershipModel {
  const trans = nullTranslator.load(TRANSLATION_DOMAIN);
  const model = new OwnershipModel({ serverSettings, events, trans });
  models.push(model);
  return model;
}

export function hideDocument(hidden: boolean): void {
  jest.spyOn(document, 'hidden', 'get').mockReturnValue(hidden);
  document.dispatchEvent(new window.Event('visibilitychange'));
}

afterEach(() => {
  jest.useRealTimers();
  models.splice(0).forEach(model => model.dispose());
  jest.restoreAllMocks();
});
