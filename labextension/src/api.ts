/** What the REST API of the server extension answers, as its OpenAPI file says. */

/** How far the server's kernels are owned. */
export type Mode = 'full' | 'provisioner-only' | 'inactive';

export interface IOwner {
  owner_id: string | null;
  pid: number | null;
  host: string;
  url: string;
  user: string;
}

export interface ILayer {
  active: boolean;
  why: string;
}

export interface ISpawner {
  kind: string;
  pid: number | null;
  interpreter: string;
  launches: number;
  failures: number;
  state: string;
  reason: string | null;
}

export interface IJournal {
  path: string | null;
  writable: boolean;
  records: number;
  reason: string | null;
}

export interface IHealth {
  mode: Mode;
  /** Why it is this mode. */
  reason: string;
  owner: (IOwner & { owner_id: string; started_at: number }) | null;
  layers: Record<string, ILayer>;
  spawners: ISpawner[];
  journal: IJournal | null;
  version: string;
}

export interface IExit {
  code: number | null;
  signal: string | null;
  core_dump: boolean;
  oom: boolean | null;
  cause: string;
  max_rss_bytes: number | null;
  cpu_s: number | null;
  /** Seconds since 1970. */
  at: number;
  /** One sentence for a person. */
  summary: string;
}

export interface ISession {
  path: string | null;
  name: string | null;
  type: string | null;
}

export interface IKernel {
  kernel_id: string;
  launch_id: string | null;
  generation: number | null;
  /** Of the kernelspec. */
  name: string;
  display_name: string;
  state: string;
  execution_state: string | null;
  owner: IOwner;
  session: ISession | null;
  launch_mode: string;
  keeper_pid: number | null;
  pid: number | null;
  started_at: number | null;
  uptime_s: number | null;
  cpu_s: number | null;
  cpu_percent: number | null;
  rss_bytes: number | null;
  pss_bytes: number | null;
  process_count: number | null;
  detached_count: number | null;
  gpu: { index: number; bytes: number }[] | null;
  restarts: number;
  last_exit: IExit | null;
  connection_file: string;
  journaled: boolean;
  reason: string | null;
}

export interface IProcess {
  pid: number;
  ppid: number;
  name: string;
  cmdline: string[];
  started_at: number;
  rss_bytes: number;
  cpu_s: number;
  detached: boolean;
  state: string;
  depth: number;
}

export type FindingKind =
  | 'stray_kernel'
  | 'stray_process'
  | 'detached'
  | 'stale_file'
  | 'foreign'
  | 'unknown';

export interface IFinding {
  id: string;
  kind: FindingKind;
  pid: number | null;
  kernel_id: string | null;
  kernel_name: string | null;
  owner: IOwner | null;
  started_at: number | null;
  age_s: number | null;
  rss_bytes: number | null;
  cmdline: string[] | null;
  path: string | null;
  proofs: string[];
  action: 'terminate' | 'remove' | null;
  /** Whether a clean of all takes it. */
  by_default: boolean;
}

export interface IReport {
  scanned_at: number;
  duration_ms: number;
  complete: boolean;
  incomplete_reason: string | null;
  findings: IFinding[];
  counts: Partial<Record<FindingKind, number>>;
}

export interface ICleanResult {
  id: string;
  kind: FindingKind | null;
  outcome: string;
  reason: string;
  pid: number | null;
}

export interface IHistoryEntry {
  at: number;
  event: string;
  owner_id: string;
  count: number | null;
  message: string | null;
}

/** The schema of the events that this package emits. */
export const EVENT_SCHEMA =
  'https://events.jupyter.org/jupyter_ownedkernels/kernel_ownership/v1';

export interface IOwnershipEvent {
  action: string;
  message: string;
  kernel_id?: string;
  launch_id?: string;
  generation?: number;
  pid?: number;
  count?: number;
  exit?: IExit;
}
