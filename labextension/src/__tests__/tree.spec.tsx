import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import { StraysSection } from '../sections';
import { TRANSLATION_DOMAIN } from '../tokens';
import { Tree, type IRow } from '../tree';
import { attach, FakeModel, rows } from './support/fakes';
import { finding } from './support/samples';

async function show(all: readonly IRow[]): Promise<Element> {
  const tree = <Tree label="tree" rows={all} onHold={() => undefined} />;
  return (await attach(ReactWidget.create(tree))).node;
}

describe('a tree', () => {
  it('says of each row which one it is among those of its parent', async () => {
    const node = await show(
      [1, 2, 3, 3, 2, 1, 2].map((level, at) => ({
        key: String(at),
        level,
        name: '',
        content: ''
      }))
    );
    const places = rows(node).map(row =>
      ['posinset', 'setsize']
        .map(name => row.getAttribute(`aria-${name}`))
        .join(' of ')
    );
    expect(places).toEqual([
      '1 of 2',
      '1 of 2',
      '1 of 2',
      '2 of 2',
      '2 of 2',
      '2 of 2',
      '1 of 1'
    ]);
  });

  it('looks at each row a few times only, however many there are', async () => {
    let looks = 0;
    const row = (key: string): IRow => ({
      key,
      get level() {
        looks += 1;
        return 1;
      },
      name: '',
      content: ''
    });
    const count = 300;
    const all = Array.from({ length: count }, (_, at) => row(String(at)));
    expect(rows(await show(all))).toHaveLength(count);
    expect(looks).toBeLessThan(10 * count);
  });

  it('leaves the keyboard in its section when it goes away', async () => {
    const model = new FakeModel().found(finding('k'));
    const section = new StraysSection(
      model,
      nullTranslator.load(TRANSLATION_DOMAIN),
      () => undefined
    );
    const { node } = await attach(section);
    rows(node)[0].focus();
    await model.found().tell();
    expect(rows(node)).toHaveLength(0);
    expect(document.activeElement).toBe(node);
    node.blur();
    expect(node.hasAttribute('tabindex')).toBe(false);
    await model.found(finding('k')).tell();
    await model.found().tell();
    expect(document.activeElement).toBe(document.body);
  });
});
