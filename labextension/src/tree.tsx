import {
  caretRightIcon,
  checkIcon,
  type LabIcon
} from '@jupyterlab/ui-components';
import React from 'react';

export interface IRowAction {
  id: string;
  icon: LabIcon;
  /** What it does and to what: the name of an icon without text. */
  label: string;
  enabled: boolean;
  execute: () => void;
}

export interface IRow {
  key: string;
  level: number;
  /** What a screen reader says: everything that the row shows. */
  name: string;
  content: React.ReactNode;
  className?: string;
  /** Undefined for a row without children. */
  expanded?: boolean;
  onExpand?: (expanded: boolean) => void;
  /** Undefined for a row that cannot be chosen. */
  checked?: boolean | 'mixed';
  onCheck?: (checked: boolean) => void;
  /** Enter and double click. */
  onOpen?: () => void;
  actions?: IRowAction[];
  /** For commands of the context menu. */
  data?: string;
}

export interface ITreeProps {
  label: string;
  rows: readonly IRow[];
  /** Whether the pointer is over the tree: then rows shall keep their places. */
  onHold: (held: boolean) => void;
  /** Take the focus there once the row is rendered, then call onFocused. */
  focusKey?: string | null;
  onFocused?: () => void;
}

/**
 * A tree of rows with the keys that the ARIA practices ask for.
 *
 * Arrows move, expand and collapse; Home and End; Enter opens; Space checks. Tab goes to
 * the actions of the current row. When the current row vanishes, the next one gets the
 * focus, so that a keyboard never falls out of the list.
 */
export function Tree(props: ITreeProps): React.ReactElement {
  const { rows, focusKey, onFocused, onHold } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const focused = React.useRef<Element | null>(null);
  // This renders again before whoever gave the key hears that it was taken.
  const taken = React.useRef<string | null>(null);
  const [active, setActive] = React.useState({ key: '', index: 0 });
  const found = rows.findIndex(row => row.key === active.key);
  const index = found >= 0 ? found : Math.min(active.index, rows.length - 1);
  const places = placesOf(rows);

  const focusRow = (target: number) => {
    const element = root.current?.children[target] as HTMLElement | undefined;
    element?.focus();
    element?.scrollIntoView?.({ block: 'nearest' });
  };

  React.useLayoutEffect(() => {
    if (!focusKey) {
      taken.current = null;
    } else if (taken.current !== focusKey) {
      const target = rows.findIndex(row => row.key === focusKey);
      if (target >= 0) {
        taken.current = focusKey;
        focusRow(target);
        onFocused?.();
        return;
      }
    }
    const lost = focused.current !== null && !focused.current.isConnected;
    if (lost && document.activeElement === document.body) {
      focused.current = null;
      (index >= 0
        ? (root.current?.children[index] as HTMLElement)
        : root.current
      )?.focus();
    }
  });

  // Nor does it when the tree goes with its last row: then its section has the focus.
  React.useLayoutEffect(() => {
    const tree = root.current;
    return () => {
      if (tree?.contains(document.activeElement)) {
        focusFor(tree.closest<HTMLElement>('.jp-OwnedKernels-section'));
      }
    };
  }, []);

  // No pointer leaves what is taken away from under it.
  React.useEffect(() => () => onHold(false), [onHold]);

  const onKeyDown = (event: React.KeyboardEvent) => {
    const row = rows[index];
    const onRow = event.target === root.current?.children[index];
    if (!row || !onRow || event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    switch (event.key) {
      case 'ArrowDown':
        focusRow(Math.min(index + 1, rows.length - 1));
        break;
      case 'ArrowUp':
        focusRow(Math.max(index - 1, 0));
        break;
      case 'Home':
        focusRow(0);
        break;
      case 'End':
        focusRow(rows.length - 1);
        break;
      case 'ArrowRight':
        if (row.expanded === false) {
          row.onExpand?.(true);
        } else if (rows[index + 1]?.level > row.level) {
          focusRow(index + 1);
        }
        break;
      case 'ArrowLeft':
        if (row.expanded) {
          row.onExpand?.(false);
        } else {
          focusRow(parentOf(rows, index));
        }
        break;
      case 'Enter':
        if (row.onOpen) {
          row.onOpen();
        } else {
          row.onExpand?.(!row.expanded);
        }
        break;
      case ' ':
        if (row.onCheck) {
          row.onCheck(row.checked !== true);
        } else {
          row.onExpand?.(!row.expanded);
        }
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div
      ref={root}
      className="jp-OwnedKernels-tree"
      role="tree"
      aria-label={props.label}
      tabIndex={-1}
      onKeyDown={onKeyDown}
      onFocus={event => {
        focused.current = event.target;
      }}
      onBlur={event => {
        if (event.relatedTarget !== null) {
          focused.current = null;
        }
      }}
      onPointerEnter={() => onHold(true)}
      onPointerLeave={() => onHold(false)}
    >
      {rows.map((row, at) => (
        <Row
          key={row.key}
          row={row}
          current={at === index}
          size={places[at].siblings.count}
          position={places[at].position}
          onFocus={() => setActive({ key: row.key, index: at })}
        />
      ))}
    </div>
  );
}

function Row(props: {
  row: IRow;
  current: boolean;
  size: number;
  position: number;
  onFocus: () => void;
}): React.ReactElement {
  const { row, current } = props;
  const toggle = row.onExpand && (() => row.onExpand?.(!row.expanded));
  const onClick = (event: React.MouseEvent) => {
    if ((event.target as Element).closest('button, a') === null) {
      (row.onCheck && row.expanded === undefined
        ? () => row.onCheck?.(row.checked !== true)
        : toggle)?.();
    }
  };
  return (
    <div
      role="treeitem"
      className={`jp-OwnedKernels-row ${row.className ?? ''}`}
      aria-level={row.level}
      aria-setsize={props.size}
      aria-posinset={props.position}
      aria-expanded={row.expanded}
      aria-checked={row.checked}
      aria-label={row.name}
      data-id={row.data}
      tabIndex={current ? 0 : -1}
      style={{ '--jp-private-level': row.level - 1 } as React.CSSProperties}
      onClick={onClick}
      onDoubleClick={row.onOpen}
      onFocus={props.onFocus}
    >
      <span className="jp-OwnedKernels-caret" data-expanded={row.expanded}>
        {row.expanded !== undefined && <caretRightIcon.react tag={null} />}
      </span>
      {row.checked !== undefined && (
        <span
          className="jp-OwnedKernels-check"
          data-checked={row.checked}
          onClick={event => {
            event.stopPropagation();
            row.onCheck?.(row.checked !== true);
          }}
        >
          {row.checked === true && <checkIcon.react tag={null} />}
        </span>
      )}
      {row.content}
      {row.actions && (
        <span className="jp-OwnedKernels-actions">
          {row.actions.map(action => (
            <button
              key={action.id}
              className="jp-OwnedKernels-action"
              title={action.label}
              aria-label={action.label}
              aria-disabled={!action.enabled}
              tabIndex={current ? 0 : -1}
              onClick={() => action.enabled && action.execute()}
              onDoubleClick={event => event.stopPropagation()}
            >
              <action.icon.react tag={null} />
            </button>
          ))}
        </span>
      )}
    </div>
  );
}

/** Give something the focus once that is no stop of Tab, and shall not become one. */
function focusFor(element: HTMLElement | null): void {
  if (element) {
    element.tabIndex = -1;
    element.addEventListener(
      'blur',
      () => element.removeAttribute('tabindex'),
      { once: true }
    );
    element.focus();
  }
}

/** The row above, one level up; the row itself when there is none. */
function parentOf(rows: readonly IRow[], index: number): number {
  for (let above = index - 1; above >= 0; above--) {
    if (rows[above].level < rows[index].level) {
      return above;
    }
  }
  return index;
}

/** Places among the rows of the same parent, for the screen reader's "2 of 5". */
function placesOf(
  rows: readonly IRow[]
): { siblings: { count: number }; position: number }[] {
  const open: { count: number }[] = [];
  return rows.map(({ level }) => {
    // A row closes the families below it.
    open.length = Math.min(open.length, level + 1);
    const siblings = (open[level] ??= { count: 0 });
    siblings.count += 1;
    return { siblings, position: siblings.count };
  });
}
