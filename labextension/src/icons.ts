import { LabIcon } from '@jupyterlab/ui-components';

import ownershipSvg from '../style/icons/ownership.svg';
import { NAMESPACE } from './tokens';

/** A kernel held by its owner. */
export const ownershipIcon = new LabIcon({
  name: `${NAMESPACE}:ownership`,
  svgstr: ownershipSvg
});
