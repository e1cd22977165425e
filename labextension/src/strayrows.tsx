import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

import type { IFinding } from './api';
import { bytes, duration, moment } from './format';
import { textRow } from './kernelrows';
import { Facts, Size, Tag, ToneIcon } from './pieces';
import type { ICleaning } from './tokens';
import type { IRow } from './tree';
import {
  findingOrigin,
  findingTag,
  findingTitle,
  isDone,
  outcome
} from './words';

/** From so many files on they share a row. */
export const GROUP_FROM = 2;

const ORDER = [
  'stray_kernel',
  'stray_process',
  'detached',
  'unknown',
  'foreign',
  'stale_file'
];

/** As a list shows them: what runs first, files last, the oldest first. */
export function sorted(findings: readonly IFinding[]): IFinding[] {
  const rank = (finding: IFinding) => ORDER.indexOf(finding.kind);
  return [...findings].sort(
    (one, other) =>
      rank(one) - rank(other) ||
      (other.age_s ?? 0) - (one.age_s ?? 0) ||
      (one.id < other.id ? -1 : 1)
  );
}

/** What a clean in progress says about a finding; empty when it says nothing. */
export function cleaningNote(
  finding: IFinding,
  cleaning: ICleaning | null,
  trans: TranslationBundle
): string {
  const result = cleaning?.results.get(finding.id);
  if (result) {
    return outcome(result, trans);
  }
  return cleaning?.running && cleaning.ids.includes(finding.id)
    ? trans.__('Working on it…')
    : '';
}

/** Two lines for one finding. */
export function findingRow(
  finding: IFinding,
  gone: boolean,
  cleaning: ICleaning | null,
  trans: TranslationBundle
): Pick<IRow, 'name' | 'content' | 'className'> {
  const title = findingTitle(finding, trans);
  const tag = findingTag(finding, trans);
  const age =
    finding.age_s === null
      ? ''
      : trans.__('%1 old', duration(finding.age_s, trans));
  const pid = finding.pid === null ? '' : trans.__('pid %1', finding.pid);
  const note = cleaningNote(finding, cleaning, trans);
  const result = cleaning?.results.get(finding.id);
  const facts = [findingOrigin(finding, trans), age, pid];
  return {
    className: `jp-OwnedKernels-finding${gone ? ' jp-mod-gone' : ''}`,
    name: [
      title,
      tag,
      note,
      ...facts,
      finding.rss_bytes === null ? '' : bytes(finding.rss_bytes)
    ]
      .filter(Boolean)
      .join(', '),
    content: (
      <span
        className="jp-OwnedKernels-lines"
        title={[
          title,
          finding.cmdline?.join(' '),
          finding.path,
          finding.started_at === null
            ? ''
            : trans.__('Started: %1', moment(finding.started_at))
        ]
          .filter(Boolean)
          .join('\n')}
      >
        <span className="jp-OwnedKernels-line">
          <span className="jp-OwnedKernels-name">{title}</span>
          <Tag>{tag}</Tag>
          <Size value={finding.rss_bytes} trans={trans} />
        </span>
        {note ? (
          <span className="jp-OwnedKernels-note">
            {result && <ToneIcon tone={isDone(result) ? 'good' : 'warning'} />}
            <span>{note}</span>
          </span>
        ) : (
          <Facts facts={facts} />
        )}
      </span>
    )
  };
}

/** What is known of a finding, and why it is taken for what it is. */
export function proofRows(
  finding: IFinding,
  level: number,
  trans: TranslationBundle
): IRow[] {
  const rows = finding.proofs.map((proof, index) =>
    textRow(`${finding.id}/proof${index}`, level, proof)
  );
  if (finding.cmdline?.length && finding.kind === 'stray_kernel') {
    rows.push(
      textRow(
        `${finding.id}/command`,
        level,
        trans.__('Command: %1', finding.cmdline.join(' '))
      )
    );
  }
  if (finding.path) {
    rows.push(
      textRow(`${finding.id}/path`, level, trans.__('File: %1', finding.path))
    );
  }
  return rows;
}

/** The row at the end of a list that has more. */
export function moreRow(
  key: string,
  level: number,
  hidden: number,
  trans: TranslationBundle
): IRow {
  return {
    ...textRow(key, level, trans.__('Show more (%1 left)', hidden)),
    expanded: false
  };
}

/** One row for many files. */
export function fileGroupRow(
  files: readonly IFinding[],
  trans: TranslationBundle
): Pick<IRow, 'name' | 'content' | 'className'> {
  // Of kernels and of servers: no more precise word fits all.
  const title = trans._n('%1 file', '%1 files', files.length);
  const tag = trans.__('stale file');
  const ages = files.map(file => file.age_s ?? 0);
  const oldest = trans.__(
    'the oldest %1 old',
    duration(Math.max(...ages), trans)
  );
  const facts = [trans.__('nothing uses them'), oldest];
  return {
    className: 'jp-OwnedKernels-finding',
    name: [title, tag, ...facts].join(', '),
    content: (
      <span className="jp-OwnedKernels-lines">
        <span className="jp-OwnedKernels-line">
          <span className="jp-OwnedKernels-name">{title}</span>
          <Tag>{tag}</Tag>
        </span>
        <Facts facts={facts} />
      </span>
    )
  };
}
