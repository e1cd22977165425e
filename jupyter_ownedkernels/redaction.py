"""Command lines without the secrets that people put on them.

The arguments of a process are shown to whoever may use the server, who could read them
in ``ps`` too; but they also travel into logs, screenshots and bug reports. Known secrets
of the server are taken out for certain, others by the names of options and variables.
Where it cannot be told where a secret ends, the rest of the argument is masked with it.
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
# An argument that is nothing else: its value needs no quotes, and may hold any character.
_ASSIGNMENT = re.compile(
    rf"((-{{1,2}})?[\w.-]{{0,64}}{_NAME}[\w.-]{{0,64}}=).+", re.IGNORECASE | re.DOTALL
)
_SHELL = re.compile(r"-\w{0,8}c")
# Each of these consumes what it has looked at, or fails within a bound, so that no argument
# takes longer than its length.
_NAMED = re.compile(
    rf"({_NAME}[\w.-]{{0,64}})(?:"
    # "password": "x" of JSON, and of Python
    r"(?P<json>[\"']\s{0,8}:\s{0,8})(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')(?=\s{0,8}[,}\]])"
    # the same inside other quotes: who knows where it ends
    r"|(?P<quoted>\\{0,8}[\"']\s{0,8}[=:]\s{0,8}).+"
    # TOKEN=x, ?token=x&, PASSWORD='x y'"z", in a shell's words
    r"|(?P<plain>\s{0,8}[=:]\s{0,8})"
    r"(?:(?:\"[^\"\\]*\"|'[^'\\]*'|[^\s\"'&\\])+(?=[\s&]|\Z)|[^\s&].*))",
    re.IGNORECASE | re.DOTALL,
)
_AUTHORIZATION = re.compile(
    r"(authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?\w{1,32}\s{1,8})[^\s\"']+", re.IGNORECASE
)
_WORD = re.compile(r"\S+")
_AFTER_USER = re.compile(r"[:/?#]")


def redact(argv: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """The arguments, bounded in number and length, with what looks secret masked.

    ``secrets`` are masked wherever they stand.
    """
    known = [one for one in secrets if len(one) >= _SHORTEST_SECRET]
    found: list[str] = []
    before = ""
    for argument in argv[:_MOST_ARGUMENTS]:
        if _OPTION.fullmatch(before):
            found.append(MASK)
        else:
            in_shell = _SHELL.fullmatch(before) is not None
            found.append(_redacted(argument, known, in_shell)[:_LONGEST_ARGUMENT])
        before = argument
    if len(argv) > _MOST_ARGUMENTS:
        found.append("…")
    return found


def _redacted(argument: str, known: list[str], in_shell: bool) -> str:
    text = argument[:_LONGEST_ARGUMENT]
    for secret in known:
        text = text.replace(secret, MASK)
    # What has this length may have been cut by an earlier look, too.
    if len(argument) >= _LONGEST_ARGUMENT:
        text = _without_beginnings(text, known)
        rest = _WORD.match(argument, _LONGEST_ARGUMENT)
        if rest is not None and "@" in rest[0]:
            # The end of a user and password that begin in what is shown.
            text += "@"
    alone = _ASSIGNMENT.fullmatch(text)
    if alone is not None and (alone[2] or not in_shell):
        text = alone[1] + MASK
    else:
        text = _NAMED.sub(_mask, text)
        text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
        text = _WORD.sub(lambda word: _without_users(word[0]), text)
    # A name of a file or an argument may hold any byte; JSON may not.
    return text.encode("utf-8", "replace").decode("utf-8")


def _without_beginnings(text: str, known: list[str]) -> str:
    """A text that was cut, without the beginning of a known secret at its end."""
    shown = len(text)
    for secret in known:
        place = text.find(secret[:_SHORTEST_SECRET], max(0, len(text) - len(secret)))
        while place >= 0:
            if secret.startswith(text[place:]):
                shown = min(shown, place)
                break
            place = text.find(secret[:_SHORTEST_SECRET], place + 1)
    return text if shown == len(text) else text[:shown] + MASK


def _mask(match: re.Match[str]) -> str:
    if match["json"] is not None:
        return f'{match[1]}{match["json"]}"{MASK}"'
    return f"{match[1]}{match['quoted'] or match['plain']}{MASK}"


def _without_users(word: str) -> str:
    """``scheme://user:password@host``. A password is masked up to the last @ there is.

    People forget that @ and / in it are to be quoted. Without a colon the user's name ends
    where the path begins.
    """
    shown: list[str] = []
    begin, last = 0, word.rfind("@")
    place = word.find("://")
    while 0 <= place < last:
        user = place + 3
        after = _AFTER_USER.search(word, user)
        named = after is None or after[0] == ":"
        end = last if named else word.rfind("@", user, after.start() if after else None)
        if end > user:
            shown += (word[begin:user], MASK)
            begin = end
        place = word.find("://", max(user, begin))
    return "".join(shown) + word[begin:]
