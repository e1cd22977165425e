import type { IFinding } from './api';

/**
 * Which findings a reader has checked.
 *
 * What a clean of all would take is checked at first, the rest is not: detached
 * processes, and what nobody can prove to be left behind. A finding that nothing can be
 * done about cannot be checked.
 */
export class Selection {
  has(finding: IFinding): boolean {
    return (
      finding.action !== null &&
      (this._chosen.get(finding.id) ?? finding.by_default)
    );
  }

  set(findings: readonly IFinding[], checked: boolean): void {
    findings.forEach(({ id }) => this._chosen.set(id, checked));
  }

  /** Of a group: all, none, or some. */
  of(findings: readonly IFinding[]): boolean | 'mixed' {
    const count = findings.filter(one => this.has(one)).length;
    return count === 0 ? false : count === findings.length || 'mixed';
  }

  ids(findings: readonly IFinding[]): string[] {
    return findings.filter(one => this.has(one)).map(({ id }) => id);
  }

  copy(): Selection {
    const copy = new Selection();
    this._chosen.forEach((checked, id) => copy._chosen.set(id, checked));
    return copy;
  }

  private _chosen = new Map<string, boolean>();
}
