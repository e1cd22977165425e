const jestJupyterLab = require('@jupyterlab/testutils/lib/jest-config');

const base = jestJupyterLab(__dirname);

// Packages that ship ECMAScript modules only; jest must transform them. The
// list of the base configuration lacks JupyterLab's own packages.
const esModules = [
  '@codemirror',
  '@jupyter/',
  '@jupyterlab/',
  '@marijn',
  '@microsoft',
  'color',
  'exenv-es6',
  'lib0',
  'marked',
  'nanoid',
  'vscode-ws-jsonrpc',
  'y-protocols',
  'y-websocket',
  'yjs'
];

module.exports = {
  ...base,
  collectCoverageFrom: [
    'src/**/*.{ts,tsx}',
    '!src/**/*.d.ts',
    '!src/**/__tests__/**'
  ],
  coverageReporters: ['lcov', 'text'],
  coverageThreshold: { global: { branches: 90, lines: 95, statements: 90 } },
  reporters: ['default'],
  testRegex: 'src/.*\\.spec\\.tsx?$',
  transformIgnorePatterns: [`/node_modules/(?!${esModules.join('|')}).+`]
};
