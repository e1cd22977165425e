import type { TranslationBundle } from '@jupyterlab/translation';

import type { ICleanResult, IExit, IFinding, IKernel } from './api';
import { ago, bytes, command, fileName } from './format';
import type { IOwnershipModel } from './tokens';

/** The state of a kernel in one word. */
export function kernelState(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'launching':
      return trans.__('starting');
    case 'retiring':
      return trans.__('ending');
    case 'ended':
      return trans.__('ended');
    default:
      return executionState(kernel.execution_state, trans);
  }
}

function executionState(
  state: string | null,
  trans: TranslationBundle
): string {
  switch (state) {
    case 'idle':
      return trans.__('idle');
    case 'busy':
      return trans.__('busy');
    case 'starting':
      return trans.__('starting');
    case 'restarting':
    case 'autorestarting':
      return trans.__('restarting');
    case 'dead':
      return trans.__('dead');
    default:
      return trans.__('running');
  }
}

/** What is wrong with the ownership of a kernel; empty when nothing is. */
export function kernelTrouble(
  kernel: IKernel,
  trans: TranslationBundle
): string {
  if (kernel.state === 'unwatched') {
    return trans.__('not watched');
  }
  return kernel.state === 'unjournaled' ? trans.__('not on record') : '';
}

/** Ends that somebody asked for are no news. */
const WISHED = new Set(['shutdown', 'restart', 'culled', 'owner-died']);

/** Whether a kernel died by itself. */
export function isDeath(exit: IExit | null | undefined): exit is IExit {
  return !!exit && !WISHED.has(exit.cause);
}

/** A stray: something that runs although its owner is gone. */
export function isStray(finding: IFinding): boolean {
  return finding.kind === 'stray_kernel' || finding.kind === 'stray_process';
}

/** How many strays the last report has. */
export function strayCount({
  strays
}: Pick<IOwnershipModel, 'strays'>): number {
  return strays.kind === 'report'
    ? strays.report.findings.filter(isStray).length
    : 0;
}

/** What a finding is, in a few words. */
export function findingTitle(
  finding: IFinding,
  trans: TranslationBundle
): string {
  switch (finding.kind) {
    case 'stray_kernel':
      return finding.kernel_name
        ? trans.__('%1 kernel', finding.kernel_name)
        : trans.__('Kernel %1', finding.pid);
    case 'stale_file':
      return fileName(finding.path ?? '');
    default:
      return (
        command(finding.cmdline) ||
        finding.kernel_name ||
        fileName(finding.path ?? '') ||
        trans.__('Process %1', finding.pid)
      );
  }
}

/** The kind of a finding as a tag: one word, and never by colour alone. */
export function findingTag(
  finding: IFinding,
  trans: TranslationBundle
): string {
  switch (finding.kind) {
    case 'stray_kernel':
    case 'stray_process':
      return trans.__('stray');
    case 'detached':
      return trans.__('detached');
    case 'stale_file':
      return trans.__('stale file');
    case 'foreign':
      return trans.__('foreign');
    default:
      return trans.__('unknown');
  }
}

/** Where a finding comes from. */
export function findingOrigin(
  finding: IFinding,
  trans: TranslationBundle
): string {
  const pid = finding.owner?.pid;
  switch (finding.kind) {
    case 'stray_kernel':
    case 'stray_process':
      return pid
        ? trans.__('owner %1 is gone', pid)
        : trans.__('its owner is gone');
    case 'detached':
      return trans.__('left its kernel on purpose');
    case 'stale_file':
      return trans.__('nothing uses it');
    case 'foreign':
      return finding.owner?.host
        ? trans.__('belongs to %1', finding.owner.host)
        : trans.__('belongs to another machine or container');
    default:
      return trans.__('not proven to be left behind');
  }
}

/** What a clean will do with a finding. */
export function findingPlan(
  finding: IFinding,
  trans: TranslationBundle
): string {
  switch (finding.action) {
    case 'terminate':
      return trans.__('End process %1', finding.pid);
    case 'remove':
      return trans.__('Remove file');
    default:
      return trans.__('Shown only');
  }
}

/** Whether a clean did what it was asked for. */
export function isDone(result: ICleanResult): boolean {
  return ['terminated', 'killed', 'removed', 'already-gone'].includes(
    result.outcome
  );
}

/** What became of an item, and what to do when it was not done. */
export function outcome(
  result: ICleanResult,
  trans: TranslationBundle
): string {
  switch (result.outcome) {
    case 'terminated':
      return trans.__('Ended');
    case 'killed':
      return trans.__('Ended by SIGKILL');
    case 'removed':
      return trans.__('Removed');
    case 'already-gone':
      return trans.__('Was gone already');
    case 'identity-changed':
      return result.kind === 'stale_file'
        ? trans.__('Not touched: the file was written again or replaced.')
        : trans.__(
            'Not touched: the number belongs to another process now. Nothing is left to do.'
          );
    case 'not-permitted':
      return trans.__(
        'Not permitted: %1. Ask the user that owns it, or an administrator, to end it.',
        result.reason
      );
    case 'kept':
      return trans.__('Kept: %1', result.reason);
    default:
      return trans.__('Refused: %1', result.reason);
  }
}

/** How a kernel has ended, short enough for a row: the reason comes first. */
export function deathNote(
  kernel: IKernel,
  exit: IExit,
  now: number,
  trans: TranslationBundle
): string {
  const since = ago(now / 1000 - exit.at, trans);
  const reason = deathReason(exit, trans);
  return kernel.state === 'ended'
    ? trans.__('%1, died %2', reason, since)
    : trans.__('%1, restarted %2', reason, since);
}

function deathReason(exit: IExit, trans: TranslationBundle): string {
  if (exit.oom) {
    return exit.max_rss_bytes
      ? trans.__('Out of memory at %1', bytes(exit.max_rss_bytes))
      : trans.__('Out of memory');
  }
  if (exit.cause === 'keeper-died') {
    return trans.__('Its keeper died');
  }
  if (exit.signal) {
    return trans.__('Killed by %1', exit.signal);
  }
  return exit.code === null
    ? trans.__('Ended')
    : trans.__('Exited with code %1', exit.code);
}
