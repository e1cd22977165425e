import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

import type { IHealth, ILayer, ISpawner } from './api';
import { asSentence, duration } from './format';
import { Message, ToneIcon } from './pieces';
import { describe } from './sentence';
import type { ServerState } from './tokens';

/** What this server does for its kernels: a sentence, then one line for each means. */
export function ServerView(props: {
  server: ServerState;
  trans: TranslationBundle;
  onRendered?: () => void;
}): React.ReactElement {
  const { server, trans } = props;
  React.useLayoutEffect(() => props.onRendered?.());
  const { tone, text, advice } = describe(server, trans);
  return (
    <>
      <div role="status">
        <Message tone={tone}>
          {text}
          {advice && (
            <>
              {' '}
              <code>{advice}</code>
            </>
          )}
        </Message>
      </div>
      {server.kind === 'health' && (
        <dl className="jp-OwnedKernels-means">
          {linesOf(server.health, trans).map(line => (
            <React.Fragment key={line.label}>
              <dt>{line.label}</dt>
              <dd title={line.title}>
                {line.warning && <ToneIcon tone="warning" />}
                <span>{line.text}</span>
              </dd>
            </React.Fragment>
          ))}
        </dl>
      )}
    </>
  );
}

interface ILine {
  label: string;
  text: string;
  title?: string;
  warning?: boolean;
}

function linesOf(health: IHealth, trans: TranslationBundle): ILine[] {
  if (health.mode === 'inactive') {
    return [];
  }
  const lines: ILine[] = [];
  if (health.owner) {
    const age = Date.now() / 1000 - health.owner.started_at;
    lines.push({
      label: trans.__('Owner'),
      text: trans.__('pid %1, %2', health.owner.pid, duration(age, trans)),
      title: [health.owner.url, health.owner.host].filter(Boolean).join('\n')
    });
  }
  lines.push(layersLine(health, trans));
  lines.push(warmLine(health, trans));
  lines.push(spawnersLine(health, trans));
  if (health.journal) {
    const { path, writable, records, reason } = health.journal;
    lines.push({
      label: trans.__('Journal'),
      text: writable
        ? trans._n('%1 record', '%1 records', records)
        : trans.__(
            'Cannot be written: %1 Kernels are watched all the same.',
            asSentence(reason)
          ),
      title: [path, reason].filter(Boolean).join('\n'),
      warning: !writable
    });
  }
  return lines;
}

function layersLine(health: IHealth, trans: TranslationBundle): ILine {
  const names: Record<string, string> = {
    pidfd: trans.__('process handles'),
    subreaper: trans.__('adoption of orphans'),
    pdeathsig: trans.__('death signal'),
    proc: trans.__('list of processes'),
    spawner: trans.__('spawner')
  };
  const layers = Object.entries(health.layers).filter(([id]) => id !== 'warm');
  const missing = layers.filter(([, layer]) => !layer.active);
  return {
    label: trans.__('Layers'),
    text:
      missing.length === 0
        ? trans.__('all %1 act', layers.length)
        : trans.__(
            '%1 of %2 act. Missing: %3',
            layers.length - missing.length,
            layers.length,
            missing
              .map(([id, { why }]) => `${names[id] ?? id} (${why})`)
              .join(', ')
          ),
    title: layers
      .map(([id, { why }]) => `${names[id] ?? id}: ${why}`)
      .join('\n'),
    warning: missing.length > 0
  };
}

/** A warm spawner that cannot be had, for now or for good. */
function brokenSpawner(health: IHealth): ISpawner | undefined {
  return health.spawners.find(({ state }) => ['failed', 'off'].includes(state));
}

function warmLine(health: IHealth, trans: TranslationBundle): ILine {
  const layer: ILayer | undefined = health.layers.warm;
  return {
    label: trans.__('Warm starts'),
    text: layer?.active ? trans.__('on') : trans.__('off'),
    title: layer?.why,
    // A switch that somebody turned is no trouble; a start that failed is.
    warning: !!brokenSpawner(health)
  };
}

function spawnersLine(health: IHealth, trans: TranslationBundle): ILine {
  const { spawners } = health;
  const label = trans.__('Spawners');
  const broken = brokenSpawner(health);
  if (broken) {
    return {
      label,
      text: trans.__(
        'Fast starts failed for %1: %2 Kernels start the plain way.',
        broken.interpreter,
        asSentence(broken.reason)
      ),
      warning: true
    };
  }
  const launches = spawners.reduce((sum, one) => sum + one.launches, 0);
  return {
    label,
    text:
      spawners.length === 0
        ? trans.__('none yet')
        : trans.__(
            '%1, %2',
            spawners.map(({ kind }) => kind).join(' + '),
            trans._n('%1 launch', '%1 launches', launches)
          ),
    title: spawners
      .map(({ kind, pid, interpreter, state }) =>
        trans.__('%1, pid %2, %3: %4', kind, pid ?? '–', state, interpreter)
      )
      .join('\n')
  };
}
