import { nullTranslator } from '@jupyterlab/translation';

import type { Mode } from '../api';
import { describe as sentence } from '../sentence';
import type { ServerState } from '../tokens';
import { health as sample } from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');

function health(mode: string, reason = ''): ServerState {
  return { kind: 'health', health: sample({ mode: mode as Mode, reason }) };
}

describe('the sentence about this server', () => {
  it.each<[string, ServerState, string, string]>([
    ['nothing known', { kind: 'unknown' }, 'neutral', 'Asking the server'],
    ['extension off', { kind: 'off' }, 'warning', 'is off'],
    ['failure', { kind: 'failed', message: '502' }, 'warning', ': 502. It is'],
    [
      'failed in a sentence',
      { kind: 'failed', message: 'Not JSON.' },
      'warning',
      ': Not JSON. It is'
    ],
    ['full', health('full'), 'good', 'Every kernel is watched'],
    [
      'provisioner-only',
      health('provisioner-only', 'another manager is set'),
      'warning',
      'another manager is set.'
    ],
    [
      'inactive',
      health('inactive', 'kernels run behind a Gateway'),
      'warning',
      'Not active: kernels run behind a Gateway.'
    ],
    ['a mode of the future', health('partial', 'New.'), 'neutral', 'partial']
  ])('for %s', (_, state, tone, text) => {
    const said = sentence(state, trans);
    expect(said.tone).toBe(tone);
    expect(said.text).toContain(text);
  });

  it('says what to do when the extension is off', () => {
    expect(sentence({ kind: 'off' }, trans).advice).toBe(
      'jupyter server extension enable jupyter_ownedkernels'
    );
  });
});
