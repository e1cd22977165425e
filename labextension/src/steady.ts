/** An item of a list that a reader looks at. */
export interface ISteady<T> {
  item: T;
  /** It has vanished, but keeps its place while the pointer is over the list. */
  gone: boolean;
}

/**
 * What to show of a list that has changed.
 *
 * While it is held nothing moves: what has vanished keeps its place, what is new comes at
 * the end. What is the same is shown in its newest form.
 */
export function steady<T>(
  shown: readonly ISteady<T>[],
  next: readonly T[],
  held: boolean,
  keyOf: (item: T) => string
): ISteady<T>[] {
  if (!held) {
    return next.map(item => ({ item, gone: false }));
  }
  const byKey = new Map(next.map(item => [keyOf(item), item]));
  const kept = shown.map(({ item }) => {
    const key = keyOf(item);
    const now = byKey.get(key);
    byKey.delete(key);
    return now === undefined
      ? { item, gone: true }
      : { item: now, gone: false };
  });
  return [...kept, ...[...byKey.values()].map(item => ({ item, gone: false }))];
}
