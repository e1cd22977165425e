/*
 * Runs the browser tests, then looks for processes that they have left: every process of
 * the tests, and of the kernels that they start, has the test's runtime folder in its
 * environment. One that is still there a moment later is a failure, and is ended.
 */
const { spawnSync } = require('child_process');
const fs = require('fs');
const path = require('path');

const MARK = `JUPYTER_RUNTIME_DIR=${path.join(__dirname, '.jupyter', 'runtime')}`;
const PATIENCE_MS = 5000;

function read(pid, name) {
  try {
    return fs.readFileSync(`/proc/${pid}/${name}`, 'utf8').split('\0');
  } catch {
    // It has ended, or is another user's.
    return [];
  }
}

function left() {
  if (!fs.existsSync('/proc/self/environ')) {
    return [];
  }
  return fs
    .readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => read(pid, 'environ').includes(MARK));
}

const cli = require.resolve('@playwright/test/cli');
const { status } = spawnSync(
  process.execPath,
  [cli, 'test', ...process.argv.slice(2)],
  { stdio: 'inherit', cwd: __dirname }
);

const deadline = Date.now() + PATIENCE_MS;
let processes = left();
while (processes.length > 0 && Date.now() < deadline) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  processes = left();
}
for (const pid of processes) {
  console.error(`left behind: ${pid} ${read(pid, 'cmdline').join(' ')}`);
  process.kill(Number(pid), 'SIGKILL');
}
process.exit(status !== 0 ? (status ?? 1) : processes.length > 0 ? 1 : 0);
