import * as fs from 'fs';
import * as path from 'path';
import { gzipSync } from 'zlib';

import { expect, test } from '@playwright/test';

const STATIC = path.join(
  __dirname,
  '../../jupyter_ownedkernels/labextension/static'
);

test('the bundle is small', () => {
  const scripts = fs.readdirSync(STATIC).filter(name => name.endsWith('.js'));
  expect(scripts.length).toBeGreaterThan(0);
  const sizes = scripts.map(
    name => gzipSync(fs.readFileSync(path.join(STATIC, name))).length
  );
  const total = sizes.reduce((sum, size) => sum + size, 0);
  expect(total).toBeLessThanOrEqual(60 * 1024);
});
