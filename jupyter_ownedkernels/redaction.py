"""Command lines without the secrets that people put on them.

The arguments of a process are shown to whoever may use the server, who could read them
in ``ps`` too; but they also travel into logs, screenshots and bug reports. Known secrets
of the server are taken out for certain, others by the names of options and variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MASK = "***"
_SHORTEST_SECRET = 4
_MOST_ARGUMENTS = 200
_LONGEST_ARGUMENT = 4096

_NAME = (
    r"(?:token|passwd|password|passphrase|secret|credential|(?:session|api|access|private|auth)"
    r"[._-]?key)"
)
_OPTION = re.compile(rf"--?[\w.-]{{0,64}}{_NAME}s?", re.IGNORECASE)
# Every repetition has a bound, so that no argument takes longer than its length.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # --IdentityProvider.token=x, TOKEN=x, ?token=x, "password": "x"
    (
        re.compile(
            rf"({_NAME}[\w.-]{{0,64}}[\"']?\s{{0,8}}[=:]\s{{0,8}})[\"']?[^\s\"'&]+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            r"(authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?\w{1,32}\s{1,8})[^\s\"']+", re.IGNORECASE
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(://)[^/\s@]{1,512}@"), rf"\1{MASK}@"),
)


def redact(argv: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """The arguments, bounded in number and length, with what looks secret masked.

    ``secrets`` are masked wherever they stand.
    """
    known = [one for one in secrets if len(one) >= _SHORTEST_SECRET]
    found: list[str] = []
    mask_next = False
    for argument in argv[:_MOST_ARGUMENTS]:
        if mask_next and not argument.startswith("-"):
            found.append(MASK)
        else:
            found.append(_redacted(argument[:_LONGEST_ARGUMENT], known))
        mask_next = _OPTION.fullmatch(argument) is not None
    if len(argv) > _MOST_ARGUMENTS:
        found.append("…")
    return found


def _redacted(text: str, known: list[str]) -> str:
    for secret in known:
        text = text.replace(secret, MASK)
    for rule, replacement in _RULES:
        text = rule.sub(replacement, text)
    # A name of a file or an argument may hold any byte; JSON may not.
    return text.encode("utf-8", "replace").decode("utf-8")
