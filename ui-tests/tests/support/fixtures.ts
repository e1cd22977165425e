/** Answers of the REST API for states that are hard to bring about for real. */

type Fields = Record<string, unknown>;

const now = () => Date.now() / 1000;

export const MB = 1e6;
export const GB = 1e9;

const OWNER = {
  owner_id: 'a'.repeat(32),
  pid: 41120,
  host: 'vm',
  url: 'http://localhost:8888/',
  user: 'ada'
};

const layer = (why: string, active = true) => ({ active, why });

export function health(fields: Fields = {}): Fields {
  return {
    mode: 'full',
    reason: 'every kernel is watched and on record',
    owner: { ...OWNER, started_at: now() - 3 * 3600 - 60 },
    layers: {
      pidfd: layer('keepers see the end of the owner at once'),
      subreaper: layer('orphans of a kernel stay with its keeper'),
      pdeathsig: layer('a kernel whose keeper dies is ended by the system'),
      proc: layer('the processes of a kernel can be listed'),
      spawner: layer('each kernel is started below a keeper of its own'),
      warm: layer('kernels are forked from an interpreter that is ready')
    },
    spawners: [
      spawner({ kind: 'plain', pid: 41125, launches: 2 }),
      spawner({ kind: 'warm', pid: 41131, launches: 12 })
    ],
    journal: {
      path: '/run/user/1000/jupyter/ownedkernels/owner.jsonl',
      writable: true,
      records: 58,
      locked: true,
      write_errors: 0,
      reason: null
    },
    version: '0.1.0',
    ...fields
  };
}

export function spawner(fields: Fields): Fields {
  return {
    kind: 'plain',
    pid: 1,
    interpreter: '/opt/py312/bin/python',
    launches: 0,
    failures: 0,
    state: 'ready',
    reason: null,
    ...fields
  };
}

export function kernel(number: number, fields: Fields = {}): Fields {
  const id = `${String(number).padStart(8, '0')}-1111-4111-8111-111111111111`;
  const uptime = (fields.uptime_s as number) ?? 60 * number + 40;
  return {
    kernel_id: id,
    launch_id: `launch-${number}`,
    generation: 1,
    name: 'python3',
    display_name: 'Python 3 (ipykernel)',
    state: 'running',
    execution_state: 'idle',
    owner: OWNER,
    session: {
      path: `work/notebook-${number}.ipynb`,
      name: `notebook-${number}.ipynb`,
      type: 'notebook'
    },
    launch_mode: 'fork',
    keeper_pid: 41200 + 2 * number,
    pid: 41201 + 2 * number,
    started_at: now() - uptime,
    uptime_s: uptime,
    cpu_s: 4.5,
    cpu_percent: 0,
    rss_bytes: 93 * MB + number * MB,
    pss_bytes: null,
    process_count: 1,
    detached_count: 0,
    gpu: null,
    restarts: 0,
    last_exit: null,
    connection_file: `/run/user/1000/jupyter/kernel-${id}.json`,
    journaled: true,
    reason: null,
    provisioner: null,
    ...fields
  };
}

const notebook = (name: string) => ({
  path: `work/${name}`,
  name,
  type: 'notebook'
});

export const OOM = {
  code: null,
  signal: 'SIGKILL',
  core_dump: false,
  oom: true,
  cause: 'killed',
  max_rss_bytes: 11.8 * GB,
  cpu_s: 812,
  at: 0,
  summary: 'killed by SIGKILL: out of memory (peak 11.8 GB)'
};

/** Kernels of every kind that a row can show. */
export function kernels(): Fields[] {
  return [
    kernel(1, {
      session: notebook('train-resnet.ipynb'),
      execution_state: 'busy',
      rss_bytes: 2.8 * GB,
      uptime_s: 8040,
      process_count: 6,
      cpu_percent: 187,
      gpu: [{ index: 0, bytes: 5.1 * GB }]
    }),
    kernel(2, {
      session: notebook('scrape.ipynb'),
      rss_bytes: 734 * MB,
      uptime_s: 1860,
      process_count: 3,
      detached_count: 1
    }),
    kernel(3, {
      session: notebook('Untitled3.ipynb'),
      rss_bytes: 310 * MB,
      uptime_s: 40,
      restarts: 1,
      generation: 2,
      last_exit: { ...OOM, at: now() - 40 }
    }),
    kernel(4, {
      session: notebook(
        'a-very-long-notebook-name-for-the-quarterly-report.ipynb'
      ),
      display_name: 'R 4.2',
      name: 'ir',
      uptime_s: 18_000
    }),
    kernel(5, {
      session: { path: 'Console 1', name: 'Console 1', type: 'console' },
      state: 'unwatched',
      launch_mode: 'stock',
      reason: 'the spawner did not start: cannot allocate memory'
    }),
    kernel(6, {
      session: null,
      state: 'ended',
      execution_state: null,
      pid: null,
      uptime_s: null,
      rss_bytes: null,
      process_count: null,
      last_exit: {
        ...OOM,
        signal: 'SIGSEGV',
        oom: false,
        at: now() - 300,
        summary: 'killed by SIGSEGV (core dumped)'
      }
    })
  ];
}

export function processes(): Fields[] {
  const one = (
    pid: number,
    depth: number,
    cmdline: string,
    rss: number,
    detached = false
  ) => ({
    pid,
    ppid: pid - 1,
    name: cmdline.split(' ')[0],
    cmdline: cmdline.split(' '),
    started_at: now() - 1800,
    rss_bytes: rss,
    cpu_s: 12,
    detached,
    state: 'S',
    depth
  });
  return [
    one(41205, 0, '/opt/py312/bin/python -m ipykernel_launcher', 310 * MB),
    one(41533, 1, '/usr/lib/chromium/chromium --headless', 402 * MB),
    one(41580, 1, 'python fetch.py --all', 22 * MB, true)
  ];
}

export function finding(number: number, fields: Fields): Fields {
  return {
    id: `p${number}-1-000000000000`,
    kind: 'stray_kernel',
    proofs: ['its owner, process 28870, is gone'],
    action: 'terminate',
    by_default: true,
    pid: 30200 + number,
    kernel_id: null,
    kernel_name: 'python3',
    owner: { ...OWNER, pid: 28870 },
    started_at: now() - 3 * 86_400,
    age_s: 3 * 86_400,
    rss_bytes: 612 * MB,
    cmdline: ['python', '-m', 'ipykernel_launcher', '-f', '/run/kernel-1.json'],
    path: '/run/user/1000/jupyter/kernel-1.json',
    ...fields
  };
}

export function staleFile(number: number, fields: Fields = {}): Fields {
  const name = `kernel-${String(number).padStart(8, '0')}.json`;
  return finding(number, {
    id: `f-${String(number).padStart(12, '0')}`,
    kind: 'stale_file',
    proofs: ['no process uses it', 'nothing listens on its ports'],
    action: 'remove',
    pid: null,
    kernel_name: null,
    owner: null,
    age_s: number * 86_400,
    rss_bytes: null,
    cmdline: null,
    path: `/run/user/1000/jupyter/${name}`,
    ...fields
  });
}

/** A finding of each kind. */
export function findings(files = 37): Fields[] {
  return [
    finding(1, {}),
    finding(2, {
      kind: 'stray_process',
      cmdline: ['/usr/bin/python3', 'worker.py', '--queue', 'default'],
      rss_bytes: 88 * MB,
      age_s: 7500
    }),
    finding(3, {
      kind: 'detached',
      cmdline: ['sleepd'],
      by_default: false,
      rss_bytes: 4 * MB,
      age_s: 7200,
      proofs: ['it left the session of its kernel on purpose']
    }),
    finding(4, {
      id: 'o-000000000004',
      kind: 'unknown',
      action: null,
      by_default: false,
      pid: null,
      cmdline: null,
      kernel_name: null,
      owner: null,
      rss_bytes: null,
      age_s: null,
      path: '/run/user/1000/jupyter/ownedkernels/owner-4.jsonl',
      proofs: ['the journal does not name its owner\'s process']
    }),
    finding(5, {
      id: 'o-000000000005',
      kind: 'foreign',
      action: null,
      by_default: false,
      pid: null,
      cmdline: null,
      rss_bytes: null,
      age_s: null,
      owner: { ...OWNER, host: 'node17' },
      proofs: ['its journal was written on another machine']
    }),
    ...Array.from({ length: files }, (_, index) => staleFile(index + 1))
  ];
}

export function report(found: Fields[], fields: Fields = {}): Fields {
  return {
    scanned_at: now() - 125,
    duration_ms: 48,
    complete: true,
    incomplete_reason: null,
    findings: found,
    counts: {},
    ...fields
  };
}
