import { nullTranslator } from '@jupyterlab/translation';

import * as format from '../format';

const trans = nullTranslator.load('jupyter_ownedkernels');
const KB = 1000;

describe('sizes', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.0 kB'],
    [9949, '9.9 kB'],
    [9950, '10 kB'],
    [52 * KB, '52 kB'],
    [4 * KB ** 2, '4.0 MB'],
    [310.4 * KB ** 2, '310 MB'],
    [352_000_000, '352 MB'],
    [1.234 * KB ** 3, '1.2 GB'],
    [11.8 * KB ** 3, '11.8 GB'],
    [3 * KB ** 4, '3.0 TB'],
    [5000 * KB ** 4, '5000.0 TB']
  ])('%d bytes are %s', (value, text) => {
    expect(format.bytes(value)).toBe(text);
  });

  it('are exact on demand', () => {
    expect(format.exactBytes(1, trans)).toBe('1 byte');
    expect(format.exactBytes(1234567, trans)).toBe(
      `${(1234567).toLocaleString()} bytes`
    );
  });
});

describe('spans of time', () => {
  it.each([
    [-3, '0 s'],
    [40.4, '40 s'],
    [60, '1 min'],
    [3599, '59 min'],
    [3600, '1 h'],
    [8040, '2 h 14 min'],
    [11 * 3600 + 60, '11 h'],
    [47 * 3600, '47 h'],
    [49 * 3600, '2 d'],
    [41 * 86_400, '41 d']
  ])('%d seconds are %s', (seconds, text) => {
    expect(format.duration(seconds, trans)).toBe(text);
  });

  it('are rounded to "just now" at the start', () => {
    expect(format.ago(2, trans)).toBe('just now');
    expect(format.ago(125, trans)).toBe('2 min ago');
  });
});

describe('names', () => {
  it('of files and commands have no folder', () => {
    expect(format.fileName('/a/b/c.ipynb')).toBe('c.ipynb');
    expect(format.fileName('c')).toBe('c');
    expect(format.command(['/usr/bin/python', '-m', '/x/y'])).toBe(
      'python -m /x/y'
    );
    expect(format.command([])).toBe('');
    expect(format.command(null)).toBe('');
  });

  it('of ids are short', () => {
    expect(format.shortId('12345678-abcd')).toBe('12345678');
  });

  it('of reasons end like sentences', () => {
    expect(format.asSentence('no space left')).toBe('no space left.');
    expect(format.asSentence('No space left. ')).toBe('No space left.');
    expect(format.asSentence(null)).toBe('');
  });
});
