import type { TranslationBundle } from '@jupyterlab/translation';
import { checkIcon, errorIcon } from '@jupyterlab/ui-components';
import React from 'react';

import { bytes, exactBytes } from './format';

/** How much attention something asks for; shown as an icon, never by colour alone. */
export type Tone = 'good' | 'warning' | 'neutral';

export function ToneIcon(props: { tone: Tone }): React.ReactElement | null {
  if (props.tone === 'neutral') {
    return null;
  }
  const Icon = props.tone === 'good' ? checkIcon : errorIcon;
  return (
    <span className="jp-OwnedKernels-tone" data-tone={props.tone}>
      <Icon.react tag={null} />
    </span>
  );
}

/** A sentence with its icon. */
export function Message(props: {
  tone: Tone;
  children: React.ReactNode;
}): React.ReactElement {
  return (
    <p className="jp-OwnedKernels-message" data-tone={props.tone}>
      <ToneIcon tone={props.tone} />
      <span>{props.children}</span>
    </p>
  );
}

/** A size; the exact one on hover. With a share, a bar beside it. */
export function Size(props: {
  value: number | null;
  share?: number;
  trans: TranslationBundle;
}): React.ReactElement {
  const { value, share, trans } = props;
  if (value === null) {
    return <span className="jp-OwnedKernels-size" />;
  }
  return (
    <span className="jp-OwnedKernels-size" title={exactBytes(value, trans)}>
      {share !== undefined && (
        <span className="jp-OwnedKernels-bar">
          <span style={{ width: `${Math.max(2, Math.round(100 * share))}%` }} />
        </span>
      )}
      <span className="jp-OwnedKernels-number">{bytes(value)}</span>
    </span>
  );
}

export function Tag(props: { children: React.ReactNode }): React.ReactElement {
  return <span className="jp-OwnedKernels-tag">{props.children}</span>;
}

/** The facts of a second line: those that have no room are left out, the last ones first. */
export function Facts(props: {
  facts: readonly (React.ReactNode | null)[];
}): React.ReactElement {
  return (
    <span className="jp-OwnedKernels-facts">
      {props.facts
        .filter(fact => fact !== null && fact !== '')
        .map((fact, index) => (
          <span key={index}>{fact}</span>
        ))}
    </span>
  );
}
