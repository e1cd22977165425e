import type { TranslationBundle } from '@jupyterlab/translation';

import type { IHealth } from './api';
import { asSentence } from './format';
import type { Tone } from './pieces';
import type { ServerState } from './tokens';

export interface ISentence {
  tone: Tone;
  text: string;
  /** A command that helps. */
  advice?: string;
}

/** Say in one plain sentence what this server does for its kernels. */
export function describe(
  server: ServerState,
  trans: TranslationBundle
): ISentence {
  switch (server.kind) {
    case 'unknown':
      return { tone: 'neutral', text: trans.__('Asking the server…') };
    case 'off':
      return {
        tone: 'warning',
        text: trans.__(
          'The server extension jupyter_ownedkernels is off: kernels of this server are not watched. To switch it on, restart the server after'
        ),
        advice: 'jupyter server extension enable jupyter_ownedkernels'
      };
    case 'failed':
      return {
        tone: 'warning',
        text: trans.__(
          'The server did not answer: %1 It is asked again from time to time.',
          asSentence(server.message)
        )
      };
    case 'health':
      return describeHealth(server.health, trans);
  }
}

function describeHealth(health: IHealth, trans: TranslationBundle): ISentence {
  switch (health.mode) {
    case 'full':
      if (health.layers.spawner?.active === false) {
        return {
          tone: 'warning',
          text: trans.__(
            'The newest kernel is not watched: %1',
            asSentence(health.layers.spawner.why)
          )
        };
      }
      return {
        tone: 'good',
        text: trans.__(
          'Every kernel is watched. If this server dies, they end with it.'
        )
      };
    case 'provisioner-only':
      return {
        tone: 'warning',
        text: trans.__(
          'Kernels are watched, with less on record: %1',
          asSentence(health.reason)
        )
      };
    case 'inactive':
      return {
        tone: 'warning',
        text: trans.__('Not active: %1', asSentence(health.reason))
      };
    default:
      // A newer server may know more modes than this panel.
      return {
        tone: 'neutral',
        text: trans.__('Mode “%1”. %2', health.mode, asSentence(health.reason))
      };
  }
}
