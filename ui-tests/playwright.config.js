const fs = require('fs');
const path = require('path');
const base = require('@jupyterlab/galata/lib/playwright-config');

// The server of the tests keeps everything it writes in this folder, away from
// the configuration, the kernels and the journals of whoever runs the tests.
const home = path.join(__dirname, '.jupyter');
const folders = ['config', 'data', 'runtime', 'tmp'].map(name =>
  path.join(home, name)
);
folders.forEach(folder =>
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
);
const [config, data, runtime, tmp] = folders;

const port = process.env.UI_TEST_PORT ?? '8888';
const url = `http://localhost:${port}`;

// Where Playwright may not download its own browser: the path of a Chromium.
const executablePath = process.env.CHROMIUM_PATH || undefined;

module.exports = {
  ...base,
  testDir: 'tests',
  forbidOnly: !!process.env.CI,
  reporter: [['list']],
  retries: 0,
  workers: 1,
  outputDir: 'test-results',
  expect: {
    // Fonts differ from machine to machine. Layout, icons and colours do not.
    toHaveScreenshot: {
      animations: 'disabled',
      caret: 'hide',
      maxDiffPixelRatio: 0.08,
      threshold: 0.3
    }
  },
  projects: [
    {
      name: 'panel',
      testIgnore: '**/readme.spec.ts',
      snapshotPathTemplate: '{testDir}/screenshots/{arg}{ext}'
    },
    {
      name: 'readme',
      testMatch: '**/readme.spec.ts',
      snapshotPathTemplate: '{testDir}/../../docs/images/{arg}{ext}'
    }
  ],
  use: {
    ...base.use,
    baseURL: url,
    // Recording needs Playwright's own ffmpeg.
    video: 'off',
    trace: 'retain-on-failure',
    launchOptions: {
      executablePath,
      args: [
        '--no-sandbox',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync'
      ]
    }
  },
  webServer: {
    command: 'jlpm start',
    url: `${url}/lab`,
    timeout: 120 * 1000,
    reuseExistingServer: false,
    gracefulShutdown: { signal: 'SIGTERM', timeout: 10 * 1000 },
    env: {
      JUPYTER_CONFIG_DIR: config,
      JUPYTER_DATA_DIR: data,
      JUPYTER_RUNTIME_DIR: runtime,
      TMPDIR: tmp,
      UI_TEST_PORT: port
    }
  }
};
