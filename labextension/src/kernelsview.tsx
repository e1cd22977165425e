import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

import type { IKernel, IProcess } from './api';
import { moment } from './format';
import { kernelRow, processRow, textRow, type RowActions } from './kernelrows';
import type { IKernelTitle } from './names';
import { Message } from './pieces';
import { describe } from './sentence';
import { steady, type ISteady } from './steady';
import type { IOwnershipModel } from './tokens';
import { Tree, type IRow } from './tree';

export interface IKernelsViewProps {
  model: IOwnershipModel;
  trans: TranslationBundle;
  titleOf: (kernel: IKernel) => IKernelTitle;
  actionsOf: RowActions;
  open: (kernel: IKernel, title: IKernelTitle) => void;
  /** The kernel that gets the focus, once. */
  reveal: string | null;
  onRevealed: () => void;
}

/** The kernels of this server, each with its processes when it is expanded. */
export function KernelsView(props: IKernelsViewProps): React.ReactElement {
  const { model, trans } = props;
  const [held, setHeld] = React.useState(false);
  const shown = React.useRef<ISteady<IKernel>[]>([]);
  const processes = React.useRef(new Map<string, ISteady<IProcess>[]>());

  const { kernels } = model;
  // It is looked for in the next list, too, and then no more: a kernel that comes back
  // much later must not take the focus.
  const { reveal, onRevealed } = props;
  const since = React.useRef(model.kernelsAt);
  React.useEffect(() => {
    since.current = model.kernelsAt;
  }, [reveal]);
  React.useEffect(() => {
    const isThere = kernels?.some(({ kernel_id }) => kernel_id === reveal);
    if (reveal && !isThere && model.kernelsAt !== since.current) {
      onRevealed();
    }
  });
  shown.current = steady(
    shown.current,
    kernels ?? [],
    held,
    kernel => kernel.kernel_id
  );
  if (shown.current.length === 0) {
    return <Empty {...props} />;
  }
  const largest = Math.max(
    ...shown.current.map(({ item }) => item.rss_bytes ?? 0)
  );
  const now = Date.now();
  const rows: IRow[] = [];
  for (const { item: kernel, gone } of shown.current) {
    const title = props.titleOf(kernel);
    const state = model.processes(kernel.kernel_id);
    const share =
      shown.current.length > 1 && largest > 0 && kernel.rss_bytes !== null
        ? kernel.rss_bytes / largest
        : undefined;
    rows.push({
      key: kernel.kernel_id,
      level: 1,
      data: kernel.kernel_id,
      expanded: state !== undefined,
      onExpand: expanded => model.expand(kernel.kernel_id, expanded),
      onOpen: title.path ? () => props.open(kernel, title) : undefined,
      actions: gone ? undefined : props.actionsOf(kernel, title),
      ...kernelRow(
        { kernel, title, gone, share, now, taken: model.kernelsAt },
        trans
      )
    });
    if (state === undefined) {
      processes.current.delete(kernel.kernel_id);
      continue;
    }
    const row = (key: string, text: string, warning = false) =>
      textRow(`${kernel.kernel_id}/${key}`, 2, text, warning);
    if (kernel.last_exit) {
      rows.push(row('exit', lastExit(kernel, trans)));
    }
    if (kernel.reason) {
      rows.push(row('reason', kernel.reason, true));
    }
    if (state.kind === 'loading') {
      rows.push(row('loading', trans.__('Looking at its processes…')));
    } else if (state.kind === 'failed') {
      rows.push(
        row(
          'failed',
          trans.__('Its processes cannot be shown: %1', state.message),
          true
        )
      );
    } else {
      const list = steady(
        processes.current.get(kernel.kernel_id) ?? [],
        state.processes,
        held && processes.current.has(kernel.kernel_id),
        keyOf
      );
      processes.current.set(kernel.kernel_id, list);
      if (list.length === 0) {
        rows.push(row('none', trans.__('No process of it is left.')));
      }
      for (const { item: process, gone } of list) {
        rows.push({
          key: `${kernel.kernel_id}/${keyOf(process)}`,
          level: 2 + process.depth,
          ...processRow(process, kernel, gone, trans)
        });
      }
    }
  }
  return (
    <Tree
      label={trans.__('Owned kernels')}
      rows={rows}
      onHold={setHeld}
      focusKey={props.reveal}
      onFocused={props.onRevealed}
    />
  );
}

/** A number alone may be given to another process while the old one keeps its row. */
function keyOf(process: IProcess): string {
  return `${process.pid} ${process.started_at}`;
}

function lastExit(kernel: IKernel, trans: TranslationBundle): string {
  const exit = kernel.last_exit!;
  return trans.__('Last end at %1: %2', moment(exit.at), exit.summary);
}

function Empty(props: IKernelsViewProps): React.ReactElement {
  const { model, trans } = props;
  const { server } = model;
  if (server.kind === 'off' || server.kind === 'failed') {
    return (
      <Message tone="neutral">{trans.__('Kernels cannot be shown.')}</Message>
    );
  }
  if (model.kernels === null) {
    return (
      <Message tone="neutral">
        {describe({ kind: 'unknown' }, trans).text}
      </Message>
    );
  }
  return (
    <Message tone="neutral">
      {trans.__('No kernels. Open a notebook to start one.')}
    </Message>
  );
}
