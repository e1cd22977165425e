import type {
  IExit,
  IFinding,
  IHealth,
  IKernel,
  IProcess,
  IReport
} from '../../api';

export function health(fields: Partial<IHealth> = {}): IHealth {
  return {
    mode: 'full',
    reason: '',
    owner: {
      owner_id: 'owner',
      pid: 10,
      host: 'vm',
      url: 'http://vm/',
      user: 'ada',
      started_at: Date.now() / 1000 - 90
    },
    layers: {
      pidfd: { active: true, why: 'yes' },
      subreaper: { active: true, why: 'yes' },
      pdeathsig: { active: true, why: 'yes' },
      warm: { active: true, why: 'ready' }
    },
    spawners: [],
    journal: { path: '/j', writable: true, records: 1, reason: null },
    version: '0.1.0',
    ...fields
  };
}

export function exit(fields: Partial<IExit> = {}): IExit {
  return {
    code: null,
    signal: 'SIGKILL',
    core_dump: false,
    oom: null,
    cause: 'killed',
    max_rss_bytes: null,
    cpu_s: null,
    at: Date.now() / 1000 - 60,
    summary: 'killed by SIGKILL',
    ...fields
  };
}

export function kernel(id: string, fields: Partial<IKernel> = {}): IKernel {
  return {
    kernel_id: id,
    launch_id: `launch-${id}`,
    generation: 1,
    name: 'python3',
    display_name: 'Python 3',
    state: 'running',
    execution_state: 'idle',
    owner: { owner_id: 'owner', pid: 10, host: 'vm', url: '', user: 'ada' },
    session: {
      path: `work/${id}.ipynb`,
      name: `${id}.ipynb`,
      type: 'notebook'
    },
    launch_mode: 'exec',
    keeper_pid: 20,
    pid: 21,
    started_at: Date.now() / 1000 - 100,
    uptime_s: 100,
    cpu_s: 1,
    cpu_percent: null,
    rss_bytes: 50e6,
    pss_bytes: null,
    process_count: 1,
    detached_count: 0,
    gpu: null,
    restarts: 0,
    last_exit: null,
    connection_file: `/run/kernel-${id}.json`,
    journaled: true,
    reason: null,
    ...fields
  };
}

export function processOf(
  pid: number,
  fields: Partial<IProcess> = {}
): IProcess {
  return {
    pid,
    ppid: 1,
    name: 'python',
    cmdline: ['/usr/bin/python', '-m', 'thing'],
    started_at: 1000,
    rss_bytes: 1000,
    cpu_s: 1,
    detached: false,
    state: 'S',
    depth: 0,
    ...fields
  };
}

export function finding(id: string, fields: Partial<IFinding> = {}): IFinding {
  return {
    id,
    kind: 'stray_kernel',
    pid: 30,
    kernel_id: null,
    kernel_name: 'python3',
    owner: { owner_id: 'dead', pid: 29, host: 'vm', url: '', user: 'ada' },
    started_at: 1000,
    age_s: 3600,
    rss_bytes: 2048,
    cmdline: ['/usr/bin/python', 'x.py'],
    path: '/run/kernel.json',
    proofs: ['its owner is gone'],
    action: 'terminate',
    by_default: true,
    ...fields
  };
}

export function staleFile(
  id: string,
  fields: Partial<IFinding> = {}
): IFinding {
  return finding(id, {
    kind: 'stale_file',
    pid: null,
    owner: null,
    cmdline: null,
    rss_bytes: null,
    action: 'remove',
    path: `/run/kernel-${id}.json`,
    ...fields
  });
}

export const detached = (id: string) =>
  finding(id, { kind: 'detached', by_default: false, cmdline: ['sleepd'] });

export const foreign = (id: string) =>
  finding(id, { kind: 'foreign', by_default: false, action: null, pid: null });

export function report(
  findings: IFinding[],
  fields: Partial<IReport> = {}
): IReport {
  return {
    scanned_at: Date.now() / 1000,
    duration_ms: 1,
    complete: true,
    incomplete_reason: null,
    findings,
    counts: {},
    ...fields
  };
}
