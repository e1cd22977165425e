import type { TranslationBundle } from '@jupyterlab/translation';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

/** A size for people, "1.2 GB", "310 MB": in the units and digits of the server's own texts. */
export function bytes(value: number): string {
  let unit = 0;
  let size = value;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const digits = unit > 2 || (unit > 0 && size < 9.95) ? 1 : 0;
  return `${size.toFixed(digits)} ${UNITS[unit]}`;
}

/** The same size, exactly. */
export function exactBytes(value: number, trans: TranslationBundle): string {
  return trans._n('%2 byte', '%2 bytes', value, value.toLocaleString());
}

/** A span of time for people: "40 s", "3 min", "2 h 14 min", "3 d". */
export function duration(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) {
    return trans.__('%1 s', whole);
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return trans.__('%1 min', minutes);
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 10 && minutes % 60 > 0) {
    return trans.__('%1 h %2 min', hours, minutes % 60);
  }
  if (hours < 48) {
    return trans.__('%1 h', hours);
  }
  return trans.__('%1 d', Math.floor(hours / 24));
}

/** How long ago; "just now" for the last seconds, so that the text does not flicker. */
export function ago(seconds: number, trans: TranslationBundle): string {
  return seconds < 5
    ? trans.__('just now')
    : trans.__('%1 ago', duration(seconds, trans));
}

/** A moment, exactly, in the reader's own way. */
export function moment(secondsSince1970: number): string {
  return new Date(secondsSince1970 * 1000).toLocaleString();
}

/** The part of an id that a person can compare. */
export function shortId(id: string): string {
  return id.slice(0, 8);
}

/** The last part of a path. */
export function fileName(path: string): string {
  return path.split('/').pop() || path;
}

/** A command line that fits a row: the program without its folder, then its arguments. */
export function command(argv: readonly string[] | null): string {
  if (!argv || argv.length === 0) {
    return '';
  }
  return [fileName(argv[0]), ...argv.slice(1)].join(' ');
}

/** A reason of the server with a full stop, so that another sentence can follow. */
export function asSentence(reason: string | null): string {
  return reason ? reason.replace(/[.\s]*$/, '.') : '';
}
