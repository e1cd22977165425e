import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

import type { IFinding, IReport } from './api';
import { ago, asSentence } from './format';
import { Message } from './pieces';
import type { Selection } from './selection';
import { steady, type ISteady } from './steady';
import {
  GROUP_FROM,
  fileGroupRow,
  findingRow,
  moreRow,
  proofRows,
  sorted
} from './strayrows';
import type { IOwnershipModel, StrayState } from './tokens';
import { Tree, type IRow } from './tree';
import { isStray } from './words';

const FILES = 'files';
const OTHERS = 'others';

/**
 * So many rows of a list are shown at first, and more on demand. 5,000 at once take a
 * browser more than a second, and a third of one for each key that is pressed in them.
 */
const PAGE = 200;

export interface IStraysViewProps {
  model: IOwnershipModel;
  trans: TranslationBundle;
  selection: Selection;
  onSelected: () => void;
  clean: () => void;
  /** Whether the list gets the focus, once. */
  reveal: boolean;
  onRevealed: () => void;
}

/** What dead owners have left, to be checked and cleaned. */
export function StraysView(props: IStraysViewProps): React.ReactElement {
  const { model, trans, selection } = props;
  const { strays, server } = model;
  const [held, setHeld] = React.useState(false);
  const [open, setOpen] = React.useState<ReadonlySet<string>>(new Set());
  const [pages, setPages] = React.useState<Record<string, number>>({});
  const shown = React.useRef<ISteady<IFinding>[]>([]);
  // Also when there is nothing to point at: a stray of later must not take the focus.
  React.useEffect(() => {
    if (props.reveal && (strays.kind !== 'unknown' || server.kind === 'off')) {
      props.onRevealed();
    }
  });

  if (server.kind === 'off') {
    return (
      <Message tone="neutral">{trans.__('Strays cannot be shown.')}</Message>
    );
  }
  if (strays.kind === 'failed') {
    return (
      <Message tone="warning">{failureInWords(strays.message, trans)}</Message>
    );
  }
  if (strays.kind === 'unknown') {
    return <Message tone="neutral">{trans.__('No scan yet.')}</Message>;
  }
  const { report } = strays;
  shown.current = steady(
    shown.current,
    sorted(report.findings),
    held,
    finding => finding.id
  );

  const toggle = (key: string) => (expanded: boolean) => {
    const next = new Set(open);
    if (expanded) {
      next.add(key);
    } else {
      next.delete(key);
    }
    setOpen(next);
  };
  const select = (findings: readonly IFinding[]) => (checked: boolean) => {
    selection.set(findings, checked);
    props.onSelected();
  };
  const rows: IRow[] = [];
  const add = ({ item, gone }: ISteady<IFinding>, level: number) => {
    const expanded = open.has(item.id);
    const checkable = item.action !== null && !gone;
    rows.push({
      key: item.id,
      level,
      expanded,
      onExpand: toggle(item.id),
      checked: checkable ? selection.has(item) : undefined,
      onCheck: checkable ? select([item]) : undefined,
      ...findingRow(item, gone, model.cleaning, trans)
    });
    if (expanded) {
      rows.push(...proofRows(item, level + 1, trans));
    }
  };
  const addSome = (
    list: string,
    entries: readonly ISteady<IFinding>[],
    level: number
  ) => {
    const count = pages[list] ?? 1;
    const hidden = entries.length - count * PAGE;
    entries.slice(0, count * PAGE).forEach(entry => add(entry, level));
    if (hidden > 0) {
      // Each has a key of its own: the first row that comes takes its place and its focus.
      rows.push({
        ...moreRow(`${list}/more${count}`, level, hidden, trans),
        onExpand: () => setPages({ ...pages, [list]: count + 1 })
      });
    }
  };
  const files = shown.current.filter(({ item }) => item.kind === 'stale_file');
  const others = shown.current.filter(({ item }) => item.kind !== 'stale_file');
  addSome(OTHERS, others, 1);
  if (files.length >= GROUP_FROM) {
    const items = files.map(({ item }) => item);
    const expanded = open.has(FILES);
    rows.push({
      key: FILES,
      level: 1,
      expanded,
      onExpand: toggle(FILES),
      checked: selection.of(items),
      onCheck: select(items),
      ...fileGroupRow(items, trans)
    });
    if (expanded) {
      addSome(FILES, files, 2);
    }
  } else {
    files.forEach(entry => add(entry, 1));
  }

  return (
    <>
      {!report.complete && (
        <Message tone="warning">{gapInWords(report, trans)}</Message>
      )}
      {rows.length > 0 ? (
        <Tree
          label={trans.__('Strays and stale files')}
          rows={rows}
          onHold={setHeld}
          focusKey={props.reveal ? rows[0].key : null}
          onFocused={props.onRevealed}
        />
      ) : (
        report.complete && (
          <Message tone="good">{trans.__('Nothing is left behind.')}</Message>
        )
      )}
      <Footer {...props} report={report} />
    </>
  );
}

function Footer(
  props: IStraysViewProps & { report: IReport }
): React.ReactElement {
  const { model, report, trans } = props;
  const count = props.selection.ids(report.findings).length;
  const actionable = report.findings.some(({ action }) => action !== null);
  const busy = model.cleaning?.running ?? false;
  return (
    <div className="jp-OwnedKernels-footer">
      <span>
        {model.scanning
          ? trans.__('Scanning…')
          : trans.__(
              'Last scan %1',
              ago(Date.now() / 1000 - report.scanned_at, trans)
            )}
      </span>
      {actionable && (
        <button
          className="jp-OwnedKernels-clean jp-mod-styled jp-mod-accept"
          disabled={count === 0 || busy}
          onClick={props.clean}
        >
          {busy
            ? trans.__('Cleaning up…')
            : count === 0
              ? trans.__('Clean Up…')
              : trans.__('Clean Up %1…', count)}
        </button>
      )}
    </div>
  );
}

function failureInWords(message: string, trans: TranslationBundle): string {
  return trans.__(
    'The scan failed: %1 Scan again, or run “jupyter ownedkernels doctor” in a terminal.',
    asSentence(message)
  );
}

function gapInWords(report: IReport, trans: TranslationBundle): string {
  return trans.__(
    'The scan is not complete, so nothing is called stale: %1',
    asSentence(report.incomplete_reason)
  );
}

/** What came of a scan, for the live region: as much as the section shows. */
export function scanInWords(
  strays: Exclude<StrayState, { kind: 'unknown' }>,
  trans: TranslationBundle
): string {
  if (strays.kind === 'failed') {
    return failureInWords(strays.message, trans);
  }
  const { report } = strays;
  if (!report.complete && report.findings.length === 0) {
    return gapInWords(report, trans);
  }
  const found = trans.__(
    'Strays and stale files: %1',
    findingsInWords(report, trans)
  );
  return report.complete ? found : `${gapInWords(report, trans)} ${found}`;
}

/** What a scan found, in words. */
export function findingsInWords(
  report: IReport,
  trans: TranslationBundle
): string {
  const count = (test: (finding: IFinding) => boolean) =>
    report.findings.filter(test).length;
  const strays = count(isStray);
  const detached = count(({ kind }) => kind === 'detached');
  const files = count(({ kind }) => kind === 'stale_file');
  const others = report.findings.length - strays - detached - files;
  const parts = [
    strays && trans._n('%1 stray', '%1 strays', strays),
    detached && trans.__('%1 detached', detached),
    files && trans._n('%1 stale file', '%1 stale files', files),
    others && trans._n('%1 other', '%1 others', others)
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(', ') : trans.__('none');
}
