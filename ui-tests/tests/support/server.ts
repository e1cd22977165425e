import { execFileSync } from 'child_process';
import * as fs from 'fs';
import * as path from 'path';

import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { APIRequestContext } from '@playwright/test';

/** Folders of the server that the tests use; see the configuration of Playwright. */
const HOME = path.join(__dirname, '..', '..', '.jupyter');
export const RUNTIME = path.join(HOME, 'runtime');

export interface ISession {
  id: string;
  kernel: { id: string };
}

/** Start a kernel for a notebook, as another browser would. */
export async function startSession(
  request: APIRequestContext,
  name: string
): Promise<ISession> {
  const answer = await request.post('/api/sessions', {
    data: { path: name, name, type: 'notebook', kernel: { name: 'python3' } }
  });
  return (await answer.json()) as ISession;
}

export interface IKernel {
  kernel_id: string;
  pid: number | null;
  state: string;
}

export async function kernels(request: APIRequestContext): Promise<IKernel[]> {
  const answer = await request.get('/api/ownedkernels/kernels');
  return ((await answer.json()) as { kernels: IKernel[] }).kernels;
}

/** The number of a kernel's process, once it has one that is not `former`. */
export async function pidOf(
  request: APIRequestContext,
  kernelId: string,
  former: number | null = null
): Promise<number> {
  const deadline = Date.now() + 20_000;
  while (Date.now() < deadline) {
    const found = (await kernels(request)).find(
      one => one.kernel_id === kernelId
    );
    if (found?.pid && found.pid !== former) {
      return found.pid;
    }
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`kernel ${kernelId} has no process`);
}

/** Shut down every kernel of the server. */
export async function shutDownAll(request: APIRequestContext): Promise<void> {
  const answer = await request.get('/api/kernels');
  for (const { id } of (await answer.json()) as { id: string }[]) {
    await request.delete(`/api/kernels/${id}`);
  }
}

/** Run a cell in a kernel, through the page; what it printed. */
export async function run(
  page: IJupyterLabPageFixture,
  kernelId: string,
  code: string
): Promise<string> {
  return page.evaluate(
    async ([id, code]) => {
      const { kernels } = window.jupyterapp.serviceManager;
      const kernel = kernels.connectTo({ model: { id, name: 'python3' } });
      const future = kernel.requestExecute({ code });
      let text = '';
      future.onIOPub = message => {
        const { content } = message as { content: { text?: string } };
        text += content.text ?? '';
      };
      await future.done;
      kernel.dispose();
      return text.trim();
    },
    [kernelId, code]
  );
}

export function isAlive(pid: number): boolean {
  try {
    // The state comes after the name in brackets; a zombie has ended.
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2)[0] !== 'Z';
  } catch {
    return false;
  }
}

/** End a process that a test has started; it may have ended. */
export function end(pid: number): void {
  if (isAlive(pid)) {
    process.kill(pid, 'SIGKILL');
  }
}

/** Let an owner die unnoticed; the number of the process that its kernel has left. */
export function makeStray(): number {
  const program = path.join(__dirname, 'stray.py');
  try {
    execFileSync('python', [program], {
      env: {
        ...process.env,
        JUPYTER_CONFIG_DIR: path.join(HOME, 'config'),
        JUPYTER_DATA_DIR: path.join(HOME, 'data'),
        JUPYTER_RUNTIME_DIR: RUNTIME,
        TMPDIR: path.join(HOME, 'tmp'),
        JUPYTER_DEFAULT_PROVISIONER_NAME: 'owned-provisioner'
      },
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: 60_000
    });
  } catch (error) {
    // It ends by SIGKILL, as it should.
    const pid = Number((error as { stdout: Buffer }).stdout.toString());
    if (pid) {
      return pid;
    }
    throw error;
  }
  throw new Error('the owner has outlived its end');
}

/** A connection file of a kernel that ended two hours ago. */
export function makeStaleFile(): string {
  const id = '5ca1ab1e-0000-4000-8000-000000000000';
  const file = path.join(RUNTIME, `kernel-${id}.json`);
  const ports = Object.fromEntries(
    ['shell', 'iopub', 'stdin', 'control', 'hb'].map((name, index) => [
      `${name}_port`,
      1 + index
    ])
  );
  const content = { ...ports, ip: '127.0.0.1', transport: 'tcp', key: '' };
  fs.writeFileSync(file, JSON.stringify(content), { mode: 0o600 });
  const before = Date.now() / 1000 - 7200;
  fs.utimesSync(file, before, before);
  return file;
}
