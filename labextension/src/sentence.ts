import type { TranslationBundle } from '@jupyterlab/translation';

import type { IHealth, ServerState } from './tokens';

/** How much attention a state asks for; shown as an icon beside the sentence. */
export type Tone = 'good' | 'warning' | 'neutral';

export interface ISentence {
  tone: Tone;
  text: string;
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
          'The server extension jupyter_ownedkernels is off: kernels of this server are not watched.'
        )
      };
    case 'failed':
      return {
        tone: 'warning',
        text: trans.__('The server did not answer: %1', server.message)
      };
    case 'health':
      return describeHealth(server.health, trans);
  }
}

function describeHealth(health: IHealth, trans: TranslationBundle): ISentence {
  switch (health.mode) {
    case 'full':
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
          'Kernels are watched, but without a full record: %1',
          health.reason
        )
      };
    case 'inactive':
      return {
        tone: 'warning',
        text: trans.__('Not active: %1', health.reason)
      };
    default:
      // A newer server may know more modes than this panel.
      return {
        tone: 'neutral',
        text: trans.__('Mode “%1”. %2', health.mode, health.reason)
      };
  }
}
