"""``doctor`` and ``clean``: show what the doctor finds, and have it cleaned."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from .. import doctor
from ..doctor.cleaning import clean
from ..doctor.examination import Scope
from ..errors import BadRequest, OwnedKernelsError
from ..models import FindingKind
from .output import (
    Progress,
    complain,
    count,
    duration,
    memory,
    printable,
    say_json,
    table,
    takes_control_codes,
)

FOUND, CLEAN = 1, 0
_DONE = frozenset({"terminated", "killed", "removed", "already-gone"})
_MOST_FILES = 20
_DEFAULT: tuple[FindingKind, ...] = ("stray_kernel", "stray_process", "stale_file")
_NUMBERS = re.compile(r"p\d+(?:-\d+)?")
_NUMBER = re.compile(r"p\d+")
_SOMETHING = re.compile(r"^p\d|^[fo]-[0-9a-f]")
_TITLES = {
    "stray_kernel": "stray kernel",
    "stray_process": "stray process",
    "detached": "detached",
    "stale_file": "stale file",
    "foreign": "foreign",
    "unknown": "unknown",
}
_STYLES = {"stray_kernel": "bold", "stray_process": "bold", "foreign": "dim", "unknown": "dim"}

Finding = dict[str, Any]


def scope_of(args: argparse.Namespace) -> Scope:
    """The folders and rules that the options name."""
    return doctor.default_scope(
        runtime_dir=args.runtime_dir,
        journal_dir=args.journal_dir,
        stale_file_age=args.stale_file_age,
    )


# -- doctor --------------------------------------------------------------------------


def run_doctor(args: argparse.Namespace) -> int:
    """Body of ``doctor``. 0: nothing to do is left; 1: something is."""
    status = CLEAN
    try:
        while True:
            if args.watch is not None and _clears(args):
                print("\033[H\033[2J", end="")
            status = _round(args)
            if args.watch is None:
                return status
            sys.stdout.flush()
            time.sleep(args.watch)
    except KeyboardInterrupt:
        if args.watch is None:
            raise
        return status


def _clears(args: argparse.Namespace) -> bool:
    return not args.json and takes_control_codes(sys.stdout)


def _round(args: argparse.Namespace) -> int:
    kinds: tuple[FindingKind, ...] = (*_DEFAULT, "detached") if args.detached else _DEFAULT
    parts = _everybody(args, kinds) if args.all_users else [_own(args, kinds)]
    if args.json:
        say_json({"users": parts} if args.all_users else _single(parts[0], args.fix))
    else:
        for part in parts:
            _show(part, args)
    if any("error" in part for part in parts):
        return 2
    left = [one for part in parts for one in part["report"]["findings"] if _counts(one, args)]
    undone = [one for part in parts for one in part["results"] if not _is_done(one)]
    return FOUND if left or undone else CLEAN


def _counts(finding: Finding, args: argparse.Namespace) -> bool:
    """Whether it makes the doctor say 1: what is left on purpose, or only shown, does not."""
    return bool(finding["by_default"]) or (args.detached and finding["kind"] == "detached")


def _is_done(result: dict[str, Any]) -> bool:
    """Whether nothing is left of it: a process whose number is another's now has ended, too."""
    changed = result["outcome"] == "identity-changed" and result["pid"] is not None
    return changed or result["outcome"] in _DONE


def _single(part: dict[str, Any], fix: bool) -> dict[str, Any]:
    report: dict[str, Any] = part["report"]
    return {"report": report, "results": part["results"]} if fix else report


def _own(args: argparse.Namespace, kinds: Sequence[FindingKind]) -> dict[str, Any]:
    with Progress(not args.json) as progress:
        return _examine(scope_of(args), args, kinds, progress)


def _examine(
    scope: Scope, args: argparse.Namespace, kinds: Sequence[FindingKind], progress: Any = None
) -> dict[str, Any]:
    results = []
    if args.fix:
        results = clean(
            kinds=kinds, dry_run=False, scope=scope, grace=args.grace, progress=progress
        )
    report = doctor.scan(scope, progress)
    return {"report": report.to_json(), "results": [one.to_json() for one in results]}


def _everybody(args: argparse.Namespace, kinds: Sequence[FindingKind]) -> list[dict[str, Any]]:
    # Not on systems without a list of users, where nothing else here needs it either.
    from ..doctor import users as doctor_users

    with Progress(not args.json) as progress:
        answers = doctor_users.for_everybody(
            lambda scope: _examine(scope, args, kinds),
            stale_file_age=args.stale_file_age,
            fresh=args.fix,
            progress=progress,
        )
    return [{"user": user.name, "uid": user.uid, **answer} for user, answer in answers]


def _show(part: dict[str, Any], args: argparse.Namespace) -> None:
    if "user" in part:
        print(f"User {part['user']}")
    if "error" in part:
        complain(part["error"])
        return
    if part["results"]:
        show_results(part["results"])
    report = part["report"]
    findings = report["findings"]
    if findings:
        shown = show_findings(findings, args.all)
        if args.verbose:
            _show_proofs(shown, short_ids([finding["id"] for finding in findings]))
    _show_verdict(report, args)


def show_findings(findings: Sequence[Finding], everything: bool = False) -> list[Finding]:
    """A table of findings, of the files among them at most 20 unless ``everything``.

    The answer is what was shown.
    """
    names = short_ids([finding["id"] for finding in findings])
    shown: list[Finding] = []
    files = 0
    for finding in findings:
        files += finding["kind"] == "stale_file"
        if everything or finding["kind"] != "stale_file" or files <= _MOST_FILES:
            shown.append(finding)
    rows = [
        (
            names[finding["id"]],
            _TITLES[finding["kind"]],
            duration(finding["age_s"]),
            memory(finding["rss_bytes"]),
            _what(finding),
        )
        for finding in shown
    ]
    columns = ("ID", "What", ("Age", "right"), ("Memory", "right"), ("Which", "rest"))
    table(columns, rows, [_STYLES.get(finding["kind"], "") for finding in shown])
    if len(shown) < len(findings):
        print(f"  and {count(len(findings) - len(shown), 'more stale file')} (--all shows each)")
    return shown


def _what(finding: Finding) -> str:
    if finding["kind"] in ("foreign", "unknown"):
        return "; ".join(finding["proofs"])
    if finding["cmdline"]:
        # What tells two of them apart comes first: the end is cut where a terminal is narrow.
        name = finding["kernel_name"] or os.path.basename(finding["path"] or "")
        return (f"{name}: " if name else "") + " ".join(finding["cmdline"])
    return finding["path"] or ""


def _show_proofs(findings: Sequence[Finding], names: dict[str, str]) -> None:
    for finding in findings:
        owner = finding["owner"] or {}
        of = f" of {owner['url'] or 'process ' + str(owner['pid'])}" if owner else ""
        print(f"{names[finding['id']]}{of}")
        if finding["cmdline"]:
            print(f"    {printable(' '.join(finding['cmdline']))}")
        if finding["path"]:
            print(f"    {printable(finding['path'])}")
        for proof in finding["proofs"]:
            print(f"    - {printable(proof)}")


def _show_verdict(report: dict[str, Any], args: argparse.Namespace) -> None:
    if not report["complete"]:
        print(f"Not everything could be looked at: {printable(report['incomplete_reason'])}.")
        print("No file is called stale for that reason.")
    counts = report["counts"]
    if not counts and not report["complete"]:
        print("Nothing was found in what could be looked at.")
        return
    if not counts:
        print("Nothing found: no stray kernels, no stray processes, no stale files.")
        return
    told = [
        count(counts[kind], one, many)
        for kind, one, many in (
            ("stray_kernel", "stray kernel", None),
            ("stray_process", "stray process", "stray processes"),
            ("detached", "detached process", "detached processes"),
            ("stale_file", "stale file", None),
            ("foreign", "foreign entry", "foreign entries"),
            ("unknown", "unknown", "unknown"),
        )
        if counts.get(kind)
    ]
    print(", ".join(told) + ("." if not args.fix else " left."))
    if not args.fix and any(_counts(one, args) for one in report["findings"]):
        print(f"To end and remove them: jupyter ownedkernels doctor --fix{_more(args)}")
    if counts.get("detached") and not args.detached:
        print("Detached processes left their kernel on purpose; --detached ends them as well.")


def _more(args: argparse.Namespace) -> str:
    """The options with which the same is found again."""
    words = []
    for name in ("detached", "all_users", "runtime_dir", "journal_dir", "stale_file_age", "grace"):
        value = getattr(args, name)
        if value != args.parser.get_default(name):
            words.append(f"--{name.replace('_', '-')}")
            if not isinstance(value, bool):
                words.append(f"{value:g}" if isinstance(value, float) else shlex.quote(value))
    return "".join(f" {word}" for word in words)


# -- clean ---------------------------------------------------------------------------


def run_clean(args: argparse.Namespace) -> int:
    """Body of ``clean``. 0: all done; 1: something is left."""
    scope = scope_of(args)
    with Progress(not args.json) as progress:
        known = [finding.id for finding in doctor.scan(scope, progress).findings]
        ids = _whole_ids(args.ids, known)
        results = [
            one.to_json()
            for one in clean(
                ids, dry_run=args.dry_run, scope=scope, grace=args.grace, progress=progress
            )
        ]
    if args.json:
        say_json({"results": results})
    else:
        show_results(results)
    done = all(_is_done(one) or (args.dry_run and one["kind"]) for one in results)
    return CLEAN if done else FOUND


def _whole_ids(texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """All of them, or none is cleaned: one that cannot be told may be mistyped."""
    try:
        return [_whole_id(text, known) for text in texts]
    except OwnedKernelsError as error:
        if len(texts) > 1:
            raise type(error)(f"{error}; none was cleaned") from None
        raise


def _whole_id(text: str, known: Sequence[str]) -> str:
    """An id that was typed: whole, or as much of it as is unique.

    Its numbers count whole: p471 is no beginning of p4711. A letter alone names nothing, as a
    script has it (``clean "p$pid"``) whose variable is empty.
    """
    if text in known:
        return text
    beginning = f"{text}-" if _NUMBERS.fullmatch(text) else text
    matching = [one for one in known if one.startswith(beginning)]
    if len(matching) > 1:
        raise OwnedKernelsError(f"{text} is not unique: {', '.join(matching[:3])} …")
    if matching and not _SOMETHING.search(text):
        raise BadRequest(f"not an id: {text!r}")
    if not matching and _NUMBER.fullmatch(text):
        # Without its start time nothing tells which process was meant, if it has ended.
        raise OwnedKernelsError(f"nothing that the doctor finds has the number {text[1:]} (now)")
    return matching[0] if matching else text


def show_results(results: Sequence[dict[str, Any]]) -> None:
    """A table of what a clean did."""
    names = short_ids([result["id"] for result in results])
    loud = [one for one in results if one["outcome"] != "removed" or one["reason"]]
    shown = results if len(results) - len(loud) <= _MOST_FILES else loud
    rows = [
        (
            names[result["id"]],
            _TITLES.get(result["kind"] or "", "-"),
            result["outcome"],
            result["reason"],
        )
        for result in shown
    ]
    if rows:
        styles = ["" if _is_done(one) else "bold" for one in shown]
        table(("ID", "What", "Outcome", ("Why", "text")), rows, styles)
    if len(shown) < len(results):
        print(f"{count(len(results) - len(shown), 'stale file')} removed.")


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The shortest beginnings that tell ids apart, as ``clean`` takes them."""
    short = {}
    ordered = sorted(set(ids))
    for place, one in enumerate(ordered):
        around = ordered[max(place - 1, 0) : place] + ordered[place + 1 : place + 2]
        shared = max((_shared(one, other) for other in around), default=0)
        # Of a process pid and start time, which prove that it is no other; six digits of a file.
        numbers = _NUMBERS.match(one)
        least = numbers.end() if numbers else 8
        short[one] = one if shared >= len(one) - 1 else one[: max(least, shared + 1)]
    return short


def _shared(one: str, other: str) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
