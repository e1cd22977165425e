import type { TranslationBundle } from '@jupyterlab/translation';
import {
  circleEmptyIcon,
  circleIcon,
  consoleIcon,
  errorIcon,
  fileIcon,
  kernelIcon,
  notebookIcon,
  type LabIcon
} from '@jupyterlab/ui-components';
import React from 'react';

import type { IKernel, IProcess } from './api';
import {
  bytes,
  command,
  duration,
  exactBytes,
  moment,
  shortId
} from './format';
import type { IKernelTitle } from './names';
import { Facts, Size, Tag, ToneIcon } from './pieces';
import type { IRow, IRowAction } from './tree';
import { deathNote, isDeath, kernelState, kernelTrouble } from './words';

const ICONS: Record<string, LabIcon> = {
  notebook: notebookIcon,
  console: consoleIcon,
  file: fileIcon
};

/** Seconds for which a kernel that runs again has its death on its row. */
const NEWS_S = 300;

/** Everything that the row of a kernel shows. */
export interface IKernelRow {
  kernel: IKernel;
  title: IKernelTitle;
  gone: boolean;
  /** Memory in comparison to the largest kernel, 0 to 1; undefined with one kernel. */
  share?: number;
  /** Milliseconds: when it is now, and when the numbers were taken. */
  now: number;
  taken: number;
}

/** Two lines, whatever happens: a row that grew would push those below it. */
export function kernelRow(
  props: IKernelRow,
  trans: TranslationBundle
): Pick<IRow, 'name' | 'content' | 'className'> {
  const { kernel, title, gone, now, taken } = props;
  const Icon = ICONS[title.type] ?? kernelIcon;
  const state = gone ? trans.__('gone') : kernelState(kernel, trans);
  const trouble = kernelTrouble(kernel, trans);
  const ended = gone || kernel.state === 'ended';
  const age =
    kernel.uptime_s === null || ended
      ? ''
      : duration(kernel.uptime_s + (now - taken) / 1000, trans);
  const processes = kernel.process_count
    ? trans._n('%1 process', '%1 processes', kernel.process_count)
    : '';
  const detached = kernel.detached_count
    ? trans.__('%1 detached', kernel.detached_count)
    : '';
  const cpu =
    kernel.cpu_percent !== null && kernel.cpu_percent >= 1
      ? trans.__('%1 % CPU', Math.round(kernel.cpu_percent))
      : '';
  const gpu = kernel.gpu?.length
    ? trans.__(
        '%1 GPU',
        bytes(kernel.gpu.reduce((sum, one) => sum + one.bytes, 0))
      )
    : '';
  const pid =
    kernel.pid !== null && !ended ? trans.__('pid %1', kernel.pid) : '';
  const death = isDeath(kernel.last_exit) ? kernel.last_exit : null;
  const past = death ? deathNote(kernel, death, now, trans) : '';
  const isNews =
    death !== null &&
    !gone &&
    (kernel.state === 'ended' || now / 1000 - death.at < NEWS_S);
  const note = isNews ? past : '';
  const rss = ended ? null : kernel.rss_bytes;
  const facts = [age, processes, detached, cpu, gpu, pid];
  const names = [kernel.display_name, shortId(kernel.kernel_id)];
  return {
    className: `jp-OwnedKernels-kernel${gone ? ' jp-mod-gone' : ''}`,
    name: [
      title.name,
      note && death?.summary,
      note,
      state,
      trouble,
      ...facts,
      rss === null ? '' : bytes(rss),
      ...names
    ]
      .filter(Boolean)
      .join(', '),
    content: (
      <>
        <Icon.react tag="span" className="jp-OwnedKernels-icon" />
        <span
          className="jp-OwnedKernels-lines"
          title={hoverText(kernel, title, past, trans)}
        >
          <span className="jp-OwnedKernels-line">
            <span className="jp-OwnedKernels-name">{title.name}</span>
            <Size value={rss} share={props.share} trans={trans} />
          </span>
          {note ? (
            <span className="jp-OwnedKernels-note">
              {trouble && <Trouble text={trouble} />}
              <ToneIcon tone="warning" />
              <span>{note}</span>
            </span>
          ) : (
            <Facts
              facts={[
                <State
                  key="state"
                  kernel={kernel}
                  word={state}
                  ended={ended}
                />,
                trouble && <Trouble text={trouble} />,
                ...facts,
                ...names
              ]}
            />
          )}
        </span>
      </>
    )
  };
}

function State(props: {
  kernel: IKernel;
  word: string;
  ended: boolean;
}): React.ReactElement {
  const Icon =
    props.kernel.execution_state === 'busy' && !props.ended
      ? circleIcon
      : circleEmptyIcon;
  return (
    <span className="jp-OwnedKernels-state">
      {!props.ended && <Icon.react tag={null} />}
      {props.word}
    </span>
  );
}

function Trouble(props: { text: string }): React.ReactElement {
  return (
    <span className="jp-OwnedKernels-trouble">
      <errorIcon.react tag={null} />
      {props.text}
    </span>
  );
}

function hoverText(
  kernel: IKernel,
  title: IKernelTitle,
  death: string,
  trans: TranslationBundle
): string {
  const lines = [
    death,
    death && kernel.last_exit ? kernel.last_exit.summary : '',
    title.path || title.name,
    trans.__('Kernel: %1 (%2)', kernel.display_name, kernel.kernel_id),
    kernel.pid !== null ? trans.__('Process: %1', kernel.pid) : '',
    kernel.keeper_pid !== null ? trans.__('Keeper: %1', kernel.keeper_pid) : '',
    kernel.started_at !== null
      ? trans.__('Started: %1', moment(kernel.started_at))
      : '',
    kernel.restarts ? trans.__('Restarts: %1', kernel.restarts) : '',
    kernel.rss_bytes !== null
      ? trans.__('Memory: %1', exactBytes(kernel.rss_bytes, trans))
      : '',
    kernel.cpu_s !== null
      ? trans.__('CPU time: %1', duration(kernel.cpu_s, trans))
      : '',
    kernel.reason ?? ''
  ];
  return lines.filter(Boolean).join('\n');
}

/** One line: what runs, its number, its memory. */
export function processRow(
  process: IProcess,
  kernel: IKernel,
  gone: boolean,
  trans: TranslationBundle
): Pick<IRow, 'name' | 'content' | 'className'> {
  const line = command(process.cmdline) || process.name;
  const tag = process.detached
    ? trans.__('detached')
    : process.pid === kernel.pid
      ? trans.__('kernel')
      : '';
  return {
    className: `jp-OwnedKernels-process${gone ? ' jp-mod-gone' : ''}`,
    name: [
      gone ? trans.__('ended') : '',
      tag,
      line,
      trans.__('pid %1', process.pid),
      bytes(process.rss_bytes)
    ]
      .filter(Boolean)
      .join(', '),
    content: (
      <span
        className="jp-OwnedKernels-line"
        title={[
          process.cmdline.join(' ') || process.name,
          trans.__('Started: %1', moment(process.started_at)),
          trans.__('CPU time: %1', duration(process.cpu_s, trans))
        ].join('\n')}
      >
        <span className="jp-OwnedKernels-name">{line}</span>
        {tag && <Tag>{tag}</Tag>}
        <span className="jp-OwnedKernels-pid">{process.pid}</span>
        <Size value={process.rss_bytes} trans={trans} />
      </span>
    )
  };
}

/** A line of text inside an expanded row. */
export function textRow(
  key: string,
  level: number,
  text: string,
  warning = false
): IRow {
  return {
    key,
    level,
    name: text,
    className: 'jp-OwnedKernels-text',
    content: (
      <span className="jp-OwnedKernels-wrapped">
        {warning && <ToneIcon tone="warning" />}
        <span>{text}</span>
      </span>
    )
  };
}

export type RowActions = (kernel: IKernel, title: IKernelTitle) => IRowAction[];
