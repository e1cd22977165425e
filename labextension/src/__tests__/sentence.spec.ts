import { nullTranslator } from '@jupyterlab/translation';

import { describe as sentence } from '../sentence';
import type { IHealth, Mode, ServerState } from '../tokens';

const trans = nullTranslator.load('jupyter_ownedkernels');

function health(mode: string, reason = ''): ServerState {
  const health: IHealth = { mode: mode as Mode, reason, version: '0.1.0' };
  return { kind: 'health', health };
}

describe('the sentence about this server', () => {
  it.each<[string, ServerState, string, string]>([
    ['nothing known', { kind: 'unknown' }, 'neutral', 'Asking the server'],
    ['extension off', { kind: 'off' }, 'warning', 'is off'],
    ['failure', { kind: 'failed', message: '502' }, 'warning', '502'],
    ['full', health('full'), 'good', 'Every kernel is watched'],
    [
      'provisioner-only',
      health('provisioner-only', 'Another manager is set.'),
      'warning',
      'Another manager is set.'
    ],
    [
      'inactive',
      health('inactive', 'Kernels run behind a Gateway.'),
      'warning',
      'Not active: Kernels run behind a Gateway.'
    ],
    ['a mode of the future', health('partial', 'New.'), 'neutral', 'partial']
  ])('for %s', (_, state, tone, text) => {
    const said = sentence(state, trans);
    expect(said.tone).toBe(tone);
    expect(said.text).toContain(text);
  });
});
