import { steady } from '../steady';

const keyOf = (item: { id: string }) => item.id;
const one = (id: string, value = 0) => ({ id, value });
const shownAs = (list: { item: { id: string }; gone: boolean }[]) =>
  list.map(({ item, gone }) => (gone ? `${item.id}†` : item.id)).join(' ');

describe('a list under the pointer', () => {
  const shown = steady([], [one('a'), one('b'), one('c')], false, keyOf);

  it('follows the server when nobody points at it', () => {
    const next = steady(shown, [one('n'), one('c')], false, keyOf);
    expect(shownAs(next)).toBe('n c');
  });

  it('keeps the places of what vanishes, and appends what is new', () => {
    const next = steady(shown, [one('n'), one('c'), one('a')], true, keyOf);
    expect(shownAs(next)).toBe('a b† c n');
  });

  it('shows the newest values', () => {
    const next = steady(shown, [one('a', 7)], true, keyOf);
    expect(next[0].item.value).toBe(7);
  });

  it('lets go of what has vanished once the pointer is away', () => {
    const held = steady(shown, [one('a')], true, keyOf);
    expect(shownAs(steady(held, [one('a')], false, keyOf))).toBe('a');
  });

  it('takes back what had vanished', () => {
    const held = steady(shown, [one('a')], true, keyOf);
    const next = steady(held, [one('a'), one('b')], true, keyOf);
    expect(shownAs(next)).toBe('a b c†');
  });
});
