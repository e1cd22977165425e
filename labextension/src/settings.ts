import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import { NAMESPACE } from './tokens';

/** The plugin whose schema has the settings of all plugins of this package. */
export const SETTINGS_ID = `${NAMESPACE}:plugin`;

/** What a user can set; the defaults are those of the schema. */
export interface ISettings {
  pollInterval: number;
  showInRunningPanel: boolean;
  showInStatusBar: boolean;
  notifyStrays: boolean;
  notifyDeaths: boolean;
}

export const DEFAULTS: ISettings = {
  pollInterval: 60,
  showInRunningPanel: true,
  showInStatusBar: true,
  notifyStrays: true,
  notifyDeaths: true
};

/** Apply the settings now and whenever they change; the defaults when there are none. */
export async function followSettings(
  registry: ISettingRegistry | null,
  apply: (settings: ISettings) => void
): Promise<void> {
  if (!registry) {
    apply(DEFAULTS);
    return;
  }
  try {
    const settings = await registry.load(SETTINGS_ID);
    const read = () =>
      apply({
        ...DEFAULTS,
        ...(settings.composite as unknown as Partial<ISettings>)
      });
    settings.changed.connect(read);
    read();
  } catch (error) {
    console.warn(`Settings of ${SETTINGS_ID} cannot be read`, error);
    apply(DEFAULTS);
  }
}
