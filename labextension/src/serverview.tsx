import type { TranslationBundle } from '@jupyterlab/translation';
import {
  checkIcon,
  errorIcon,
  infoIcon,
  type LabIcon
} from '@jupyterlab/ui-components';
import React from 'react';

import { describe, type Tone } from './sentence';
import type { ServerState } from './tokens';

const ICONS: Record<Tone, LabIcon> = {
  good: checkIcon,
  warning: errorIcon,
  neutral: infoIcon
};

/** One sentence about this server, with an icon: never by colour alone. */
export function ServerView(props: {
  server: ServerState;
  trans: TranslationBundle;
}): React.ReactElement {
  const { tone, text } = describe(props.server, props.trans);
  const Icon = ICONS[tone];
  return (
    <p className="jp-OwnedKernels-status" data-tone={tone} aria-live="polite">
      <Icon.react tag="span" className="jp-OwnedKernels-statusIcon" />
      <span>{text}</span>
    </p>
  );
}
