import { nullTranslator } from '@jupyterlab/translation';

import type { FindingKind } from '../api';
import { kernelTitle } from '../names';
import * as words from '../words';
import { exit, finding, kernel } from './support/samples';

const trans = nullTranslator.load('jupyter_ownedkernels');

describe('the state of a kernel', () => {
  it.each([
    ['launching', null, 'starting'],
    ['retiring', 'idle', 'ending'],
    ['ended', null, 'ended'],
    ['running', 'idle', 'idle'],
    ['running', 'busy', 'busy'],
    ['running', 'starting', 'starting'],
    ['running', 'autorestarting', 'restarting'],
    ['running', 'dead', 'dead'],
    ['unwatched', null, 'running']
  ])('%s, %s is "%s"', (state, execution_state, word) => {
    const one = kernel('a', { state, execution_state });
    expect(words.kernelState(one, trans)).toBe(word);
  });

  it('has words for what is wrong with its ownership', () => {
    const trouble = (state: string) =>
      words.kernelTrouble(kernel('a', { state }), trans);
    expect(trouble('unwatched')).toBe('not watched');
    expect(trouble('unjournaled')).toBe('not on record');
    expect(trouble('running')).toBe('');
  });
});

describe('a death', () => {
  it.each([
    ['killed', true],
    ['exited', true],
    ['keeper-died', true],
    ['shutdown', false],
    ['restart', false],
    ['culled', false],
    ['owner-died', false]
  ])('%s: %s', (cause, death) => {
    expect(words.isDeath(exit({ cause }))).toBe(death);
  });

  it('is none without an exit', () => {
    expect(words.isDeath(null)).toBe(false);
  });

  it.each([
    [{ oom: true, max_rss_bytes: 2e9 }, 'Out of memory at 2.0 GB'],
    [{ oom: true }, 'Out of memory'],
    [{ cause: 'keeper-died' }, 'Its keeper died'],
    [{}, 'Killed by SIGKILL'],
    [{ signal: null, code: 3 }, 'Exited with code 3'],
    [{ signal: null }, 'Ended']
  ])('of %j starts with "%s"', (fields, text) => {
    const now = Date.now();
    const restarted = words.deathNote(kernel('a'), exit(fields), now, trans);
    expect(restarted).toBe(`${text}, restarted 1 min ago`);
    const dead = kernel('a', { state: 'ended' });
    expect(words.deathNote(dead, exit(fields), now, trans)).toBe(
      `${text}, died 1 min ago`
    );
  });
});

describe('a finding', () => {
  it.each<[FindingKind, string, string, string]>([
    ['stray_kernel', 'python3 kernel', 'stray', 'owner 29 is gone'],
    ['stray_process', 'python x.py', 'stray', 'owner 29 is gone'],
    ['detached', 'python x.py', 'detached', 'left its kernel on purpose'],
    ['stale_file', 'kernel.json', 'stale file', 'nothing uses it'],
    ['foreign', 'python x.py', 'foreign', 'belongs to vm'],
    ['unknown', 'python x.py', 'unknown', 'not proven to be left behind']
  ])('of kind %s', (kind, title, tag, origin) => {
    const one = finding('a', { kind });
    expect(words.findingTitle(one, trans)).toBe(title);
    expect(words.findingTag(one, trans)).toBe(tag);
    expect(words.findingOrigin(one, trans)).toBe(origin);
  });

  it('has words when little is known', () => {
    const bare = { owner: null, cmdline: null, path: null, kernel_name: null };
    const title = (kind: FindingKind) =>
      words.findingTitle(finding('a', { kind, ...bare }), trans);
    expect(title('unknown')).toBe('Process 30');
    expect(title('stray_kernel')).toBe('Kernel 30');
    const origin = (kind: FindingKind) =>
      words.findingOrigin(finding('a', { kind, ...bare }), trans);
    expect(origin('stray_kernel')).toBe('its owner is gone');
    expect(origin('foreign')).toContain('another machine');
  });

  it.each([
    ['terminate', 'End process 30'],
    ['remove', 'Remove file'],
    [null, 'Shown only']
  ] as const)('with the action %s: %s', (action, text) => {
    expect(words.findingPlan(finding('a', { action }), trans)).toBe(text);
  });

  it.each([
    ['terminated', true, 'Ended'],
    ['killed', true, 'SIGKILL'],
    ['removed', true, 'Removed'],
    ['already-gone', true, 'gone already'],
    ['identity-changed', false, 'Nothing is left to do'],
    ['not-permitted', false, 'administrator'],
    ['kept', false, 'Kept: because'],
    ['refused', false, 'Refused: because']
  ])('with the outcome %s', (outcome, done, text) => {
    const result = { id: 'a', kind: null, outcome, reason: 'because', pid: 1 };
    expect(words.isDone(result)).toBe(done);
    expect(words.outcome(result, trans)).toContain(text);
  });

  it('speaks of a file, not of a process, when a file has changed', () => {
    const result = {
      id: 'a',
      kind: 'stale_file' as const,
      outcome: 'identity-changed',
      reason: 'because',
      pid: null
    };
    expect(words.outcome(result, trans)).toContain('the file');
  });
});

describe('the title of a kernel', () => {
  const sessions = [
    {
      id: 's',
      path: 'x/new.ipynb',
      name: '',
      type: 'notebook',
      kernel: { id: 'a', name: 'python3' }
    }
  ];

  it('is that of the server, which knows of a rename first', () => {
    expect(kernelTitle(kernel('a'), sessions)).toEqual({
      name: 'a.ipynb',
      path: 'work/a.ipynb',
      type: 'notebook'
    });
  });

  it('is that of the app before the server knows the session', () => {
    expect(kernelTitle(kernel('a', { session: null }), sessions)).toEqual({
      name: 'new.ipynb',
      path: 'x/new.ipynb',
      type: 'notebook'
    });
  });

  it('of a console is the name of the console', () => {
    const session = { path: 'console-1', name: 'Console 1', type: 'console' };
    expect(kernelTitle(kernel('a', { session })).name).toBe('Console 1');
    const bare = { path: null, name: 'x', type: null };
    expect(kernelTitle(kernel('a', { session: bare })).name).toBe('x');
  });

  it('is the kernel itself without a session', () => {
    const one = kernel('123456789', { session: null });
    expect(kernelTitle(one)).toEqual({
      name: 'Python 3 (12345678)',
      path: '',
      type: ''
    });
    expect(kernelTitle({ kernel_id: '123456789', session: null }).name).toBe(
      '12345678'
    );
  });
});
