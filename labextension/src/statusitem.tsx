import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import React from 'react';

import { ownershipIcon } from './icons';
import type { IOwnershipModel } from './tokens';
import { strayCount } from './words';

/** "2 strays" in the status bar; a click shows them. */
export class StatusItem extends ReactWidget {
  constructor(
    private _model: IOwnershipModel,
    private _trans: TranslationBundle,
    private _show: () => void
  ) {
    super();
    this.addClass('jp-OwnedKernels-statusItem');
    this.addClass('jp-mod-highlighted');
  }

  protected render(): React.ReactElement {
    return (
      <UseSignal signal={this._model.changed}>
        {() => {
          const count = strayCount(this._model);
          return (
            <button
              title={this._trans.__(
                'Show the strays: processes whose owner is gone'
              )}
              onClick={this._show}
            >
              <ownershipIcon.react tag="span" stylesheet="statusBar" />
              {this._trans._n('%1 stray', '%1 strays', count)}
            </button>
          );
        }}
      </UseSignal>
    );
  }
}
