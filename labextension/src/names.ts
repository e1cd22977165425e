import type { Session } from '@jupyterlab/services';

import type { IKernel } from './api';
import { fileName, shortId } from './format';

/** What a person calls a kernel: the notebook or console that it serves. */
export interface IKernelTitle {
  name: string;
  /** Empty when no document belongs to the kernel. */
  path: string;
  type: string;
}

/**
 * The title of a kernel.
 *
 * @param sessions - those that the app knows: the server's answer is older than them
 * right after a start or a rename
 */
export function kernelTitle(
  kernel: Pick<IKernel, 'kernel_id' | 'session'> & { display_name?: string },
  sessions: Iterable<Session.IModel> = []
): IKernelTitle {
  for (const session of sessions) {
    if (session.kernel?.id === kernel.kernel_id) {
      return titleOf(session.path, session.name, session.type);
    }
  }
  if (kernel.session) {
    const { path, name, type } = kernel.session;
    return titleOf(path ?? '', name ?? '', type ?? '');
  }
  const id = shortId(kernel.kernel_id);
  const name = kernel.display_name ? `${kernel.display_name} (${id})` : id;
  return { name, path: '', type: '' };
}

function titleOf(path: string, name: string, type: string): IKernelTitle {
  return { name: name || fileName(path), path, type };
}
