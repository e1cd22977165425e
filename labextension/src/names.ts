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
 * @param sessions - those that the app knows: the server puts a session on record a
 * little later than its kernel. The app's own list is older after a rename.
 */
export function kernelTitle(
  kernel: Pick<IKernel, 'kernel_id' | 'session'> & { display_name?: string },
  sessions: Iterable<Session.IModel> = []
): IKernelTitle {
  if (kernel.session) {
    const { path, name, type } = kernel.session;
    return titleOf(path ?? '', name ?? '', type ?? '');
  }
  for (const session of sessions) {
    if (session.kernel?.id === kernel.kernel_id) {
      return titleOf(session.path, session.name, session.type);
    }
  }
  const id = shortId(kernel.kernel_id);
  const name = kernel.display_name ? `${kernel.display_name} (${id})` : id;
  return { name, path: '', type: '' };
}

/** The path of a console is made up; that of a document is its name. */
function titleOf(path: string, name: string, type: string): IKernelTitle {
  const shown = type === 'console' ? name : fileName(path);
  return { name: shown || name || path, path, type };
}
