import { framePromise } from '@jupyterlab/testing';
import { DisposableDelegate } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { IFinding, IKernel, IOwnershipEvent } from '../../api';
import type {
  ICleaning,
  IOwnershipModel,
  ProcessState,
  ServerState,
  StrayState
} from '../../tokens';
import { health, report } from './samples';

/** A model without a server: a test sets what is known. */
export class FakeModel implements IOwnershipModel {
  server: ServerState = { kind: 'health', health: health() };
  kernels: IKernel[] | null = [];
  kernelsAt = Date.now();
  strays: StrayState = { kind: 'unknown' };
  scanning = false;
  cleaning: ICleaning | null = null;
  observers = 0;
  readonly changed = new Signal<this, void>(this);
  readonly happened = new Signal<this, IOwnershipEvent>(this);
  readonly known = new Map<string, ProcessState>();

  found(...findings: IFinding[]): this {
    this.strays = { kind: 'report', report: report(findings) };
    return this;
  }

  tell(): Promise<void> {
    this.changed.emit();
    return frames();
  }

  observe() {
    this.observers += 1;
    return new DisposableDelegate(() => {
      this.observers -= 1;
    });
  }

  processes(kernelId: string): ProcessState | undefined {
    return this.known.get(kernelId);
  }

  expand = jest.fn((kernelId: string, expanded: boolean) => {
    if (expanded) {
      this.known.set(kernelId, { kind: 'loading' });
    } else {
      this.known.delete(kernelId);
    }
    this.changed.emit();
  });
  refresh = jest.fn().mockResolvedValue(undefined);
  refreshStrays = jest.fn().mockResolvedValue(undefined);
  scan = jest.fn().mockResolvedValue(undefined);
  history = jest.fn().mockResolvedValue([]);
  clean = jest.fn((ids: readonly string[]): Promise<ICleaning> => {
    const results = new Map(
      ids.map(id => [
        id,
        { id, kind: null, outcome: 'terminated', reason: '', pid: null }
      ])
    );
    this.cleaning = { ids, results, running: false, error: '' };
    return Promise.resolve(this.cleaning);
  });
}

/** Long enough for Lumino and React to have rendered. */
export async function frames(count = 3): Promise<void> {
  for (let frame = 0; frame < count; frame++) {
    await framePromise();
  }
}

export async function until(condition: () => unknown): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    if (Date.now() > deadline) {
      throw new Error('the condition did not come true');
    }
    await framePromise();
  }
}

const attached: Widget[] = [];

/** Put a widget on the page until the test ends. */
export async function attach<T extends Widget>(widget: T): Promise<T> {
  Widget.attach(widget, document.body);
  attached.push(widget);
  await frames();
  return widget;
}

afterEach(() => {
  attached.splice(0).forEach(widget => widget.dispose());
});

/** The row whose accessible name has this text. */
export function row(node: Element, name: string): HTMLElement {
  const found = rows(node).find(one => nameOf(one).includes(name));
  if (!found) {
    throw new Error(
      `no row ${name} among: ${rows(node).map(nameOf).join('; ')}`
    );
  }
  return found;
}

export function rows(node: Element): HTMLElement[] {
  return [...node.querySelectorAll<HTMLElement>('[role=treeitem]')];
}

export function nameOf(node: Element): string {
  return node.getAttribute('aria-label') ?? '';
}

export async function press(key: string): Promise<void> {
  document.activeElement?.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })
  );
  await frames();
}

export async function click(node: Element | null | undefined): Promise<void> {
  if (!node) {
    throw new Error('nothing to click');
  }
  node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  await frames();
}

/** Move the pointer over a node, or away from it. */
export async function point(node: Element, over: boolean): Promise<void> {
  // React makes enter and leave of these.
  node.dispatchEvent(
    new MouseEvent(over ? 'pointerover' : 'pointerout', {
      bubbles: true,
      relatedTarget: document.body
    })
  );
  await frames();
}
