import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import React from 'react';

import type { IFinding } from './api';
import { asSentence, bytes, duration } from './format';
import { Message, Tag, ToneIcon } from './pieces';
import type { Selection } from './selection';
import { GROUP_FROM, sorted } from './strayrows';
import type { ICleaning, IOwnershipModel } from './tokens';
import {
  findingOrigin,
  findingPlan,
  findingTag,
  findingTitle,
  isDone,
  outcome
} from './words';

/**
 * Ask, clean, and show what became of each item.
 *
 * @param findings - all of the report; those without an action are counted only
 * @param selection - what is checked at first
 * @returns whether anything was tried
 */
export async function cleanUp(
  model: IOwnershipModel,
  findings: readonly IFinding[],
  selection: Selection,
  trans: TranslationBundle
): Promise<boolean> {
  if (isCleaning(model, trans)) {
    return false;
  }
  const choice = new ChoiceBody(findings, selection.copy(), trans);
  const asked = await showDialog({
    title: trans.__('Clean up strays and stale files?'),
    body: choice,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Clean Up') })
    ],
    // Enter in haste shall not end anything.
    defaultButton: 0
  });
  const ids = asked.value ?? [];
  if (!asked.button.accept || ids.length === 0) {
    return false;
  }
  // Another one may have begun while this one was asked for.
  if (isCleaning(model, trans)) {
    return false;
  }
  const cleaning = model.clean(ids);
  await showDialog({
    title: trans.__('Cleaning up'),
    body: new ResultBody(model, findings, trans),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
  if (model.cleaning?.running) {
    tellCleaning(cleaning, trans);
  }
  await cleaning;
  return true;
}

/** Whether a clean still runs; then this tells the reader why there is no other one. */
export function isCleaning(
  model: IOwnershipModel,
  trans: TranslationBundle
): boolean {
  const isRunning = model.cleaning?.running ?? false;
  if (isRunning) {
    Notification.info(
      trans.__('A clean is still running. Clean up again once it is done.')
    );
  }
  return isRunning;
}

/** For a clean that no dialog shows: a notification of its progress and its end. */
export function tellCleaning(
  cleaning: Promise<ICleaning>,
  trans: TranslationBundle
): void {
  const settled = cleaning.then(done => {
    const summary = cleaningSummary(done, trans);
    if (cleaningFailed(done)) {
      throw new Error(summary);
    }
    return summary;
  });
  Notification.promise(settled, {
    pending: { message: trans.__('Cleaning up…') },
    success: { message: summary => summary as string },
    error: {
      message: reason => (reason as Error).message,
      options: { autoClose: false }
    }
  });
  // The notification has told it.
  settled.catch(() => undefined);
}

/** Each item: what it is, what will happen, why it is safe. */
class ChoiceBody extends ReactWidget implements Dialog.IBodyWidget<string[]> {
  constructor(
    private _findings: readonly IFinding[],
    private _selection: Selection,
    private _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-OwnedKernels-dialog');
  }

  getValue(): string[] {
    return this._selection.ids(this._findings);
  }

  protected render(): React.ReactElement {
    const trans = this._trans;
    const items = sorted(this._findings).filter(({ action }) => action);
    const files = items.filter(({ kind }) => kind === 'stale_file');
    const grouped = files.length >= GROUP_FROM;
    const single = grouped
      ? items.filter(({ kind }) => kind !== 'stale_file')
      : items;
    const left = this._findings.length - items.length;
    const chosen = this.getValue().length;
    return (
      <>
        <p>
          {trans.__(
            'Each item is checked again right before it is ended or removed. Processes get SIGTERM, and SIGKILL when they do not end in time.'
          )}
        </p>
        <ul className="jp-OwnedKernels-items">
          {single.map(finding => (
            <Choice
              key={finding.id}
              checked={this._selection.has(finding)}
              onChange={checked => this._choose([finding], checked)}
            >
              <About finding={finding} trans={trans} />
            </Choice>
          ))}
          {grouped && (
            <Choice
              checked={this._selection.of(files)}
              onChange={checked => this._choose(files, checked)}
              details={<FileNames files={files} trans={trans} />}
            >
              <AboutFiles files={files} trans={trans} />
            </Choice>
          )}
        </ul>
        <p role="status">
          {trans.__('%1 of %2 chosen.', chosen, items.length)}{' '}
          {left > 0 &&
            trans._n(
              '%1 more is shown in the panel and never touched.',
              '%1 more are shown in the panel and never touched.',
              left
            )}
        </p>
      </>
    );
  }

  private _choose(findings: readonly IFinding[], checked: boolean): void {
    this._selection.set(findings, checked);
    this.update();
  }
}

function Choice(props: {
  checked: boolean | 'mixed';
  onChange: (checked: boolean) => void;
  children: React.ReactNode;
  details?: React.ReactNode;
}): React.ReactElement {
  return (
    <li>
      <label>
        <input
          type="checkbox"
          checked={props.checked === true}
          ref={input => {
            if (input) {
              input.indeterminate = props.checked === 'mixed';
            }
          }}
          onChange={event => props.onChange(event.target.checked)}
        />
        <span className="jp-OwnedKernels-what">{props.children}</span>
      </label>
      {props.details}
    </li>
  );
}

function About(props: {
  finding: IFinding;
  trans: TranslationBundle;
}): React.ReactElement {
  const { finding, trans } = props;
  const facts = [
    findingOrigin(finding, trans),
    finding.age_s === null
      ? ''
      : trans.__('%1 old', duration(finding.age_s, trans)),
    finding.rss_bytes === null ? '' : bytes(finding.rss_bytes)
  ];
  return (
    <>
      <span>
        {findingPlan(finding, trans)}
        {': '}
        {findingTitle(finding, trans)} <Tag>{findingTag(finding, trans)}</Tag>
      </span>
      <span className="jp-OwnedKernels-why">
        {facts.filter(Boolean).join(' · ')}
      </span>
      {finding.proofs.length > 0 && (
        <span className="jp-OwnedKernels-why">
          {trans.__('Why: %1', finding.proofs.join('; '))}
        </span>
      )}
    </>
  );
}

function AboutFiles(props: {
  files: readonly IFinding[];
  trans: TranslationBundle;
}): React.ReactElement {
  const { files, trans } = props;
  const oldest = Math.max(...files.map(({ age_s }) => age_s ?? 0));
  return (
    <>
      <span>
        {trans._n('Remove %1 file', 'Remove %1 files', files.length)}{' '}
        <Tag>{trans.__('stale file')}</Tag>
      </span>
      <span className="jp-OwnedKernels-why">
        {trans.__(
          'nothing uses them · the oldest is %1 old',
          duration(oldest, trans)
        )}
      </span>
    </>
  );
}

function FileNames(props: {
  files: readonly IFinding[];
  trans: TranslationBundle;
}): React.ReactElement {
  return (
    <details className="jp-OwnedKernels-files">
      <summary>{props.trans.__('Show the files')}</summary>
      <ul>
        {props.files.map(file => (
          <li key={file.id}>
            {file.path}
            <span className="jp-OwnedKernels-why">
              {file.proofs.join('; ')}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The progress, then the outcome of each item. */
class ResultBody extends ReactWidget {
  constructor(
    private _model: IOwnershipModel,
    private _findings: readonly IFinding[],
    private _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-OwnedKernels-dialog');
  }

  protected render(): React.ReactElement {
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <Results
            cleaning={this._model.cleaning!}
            findings={this._findings}
            trans={this._trans}
          />
        )}
      </UseSignal>
    );
  }
}

function Results(props: {
  cleaning: ICleaning;
  findings: readonly IFinding[];
  trans: TranslationBundle;
}): React.ReactElement {
  const { cleaning, trans } = props;
  const titles = new Map(
    props.findings.map(finding => [finding.id, findingTitle(finding, trans)])
  );
  return (
    <>
      <div role="status">
        <Message
          tone={
            cleaning.running
              ? 'neutral'
              : cleaningFailed(cleaning)
                ? 'warning'
                : 'good'
          }
        >
          {cleaningSummary(cleaning, trans)}
        </Message>
      </div>
      {cleaning.running && (
        <progress
          max={cleaning.ids.length}
          value={cleaning.results.size || undefined}
          aria-label={trans.__('Progress of the clean')}
        />
      )}
      <ul className="jp-OwnedKernels-items">
        {cleaning.ids.map(id => {
          const result = cleaning.results.get(id);
          const done = result && isDone(result);
          return (
            <li key={id} className="jp-OwnedKernels-result">
              <ToneIcon tone={done ? 'good' : result ? 'warning' : 'neutral'} />
              <span className="jp-OwnedKernels-what">
                <span>{titles.get(id)}</span>
                <span className="jp-OwnedKernels-why">
                  {result
                    ? outcome(result, trans)
                    : cleaning.running
                      ? trans.__('Waiting…')
                      : trans.__('No answer: scan again to see what is left.')}
                </span>
              </span>
            </li>
          );
        })}
      </ul>
    </>
  );
}

/** Whether an item was not done, or the server did not answer. */
export function cleaningFailed(cleaning: ICleaning): boolean {
  return cleaning.error !== '' || ![...cleaning.results.values()].every(isDone);
}

/** A clean in one sentence. */
export function cleaningSummary(
  cleaning: ICleaning,
  trans: TranslationBundle
): string {
  const total = cleaning.ids.length;
  if (cleaning.running) {
    return trans._n('Cleaning up %1 item…', 'Cleaning up %1 items…', total);
  }
  const done = [...cleaning.results.values()].filter(isDone).length;
  if (cleaning.error) {
    return trans.__(
      'The server did not answer: %1 %2 of %3 items are done. Scan again to see what is left.',
      asSentence(cleaning.error),
      done,
      total
    );
  }
  return done === total
    ? trans._n('%1 item cleaned up.', '%1 items cleaned up.', total)
    : trans.__('%1 of %2 items cleaned up.', done, total);
}
