"""The lines of a journal: how they are written, appended and read back.

Rules of the format

- One record is one JSON object on one line, ASCII only, so that a newline or an odd
  byte in a kernel's name can never look like the end of a record.
- ``v`` (version) is the first field and ``c`` (checksum of all that stands before it)
  the last. Without a checksum one flipped bit can turn a process number into another
  one and still be good JSON; with it a damaged line is seen, and whole records can be
  picked out of a line that lost its end.
- One record is one ``write`` to a file opened for appending. A record that could not
  be written whole is never completed later: the next one starts on a line of its own.
- A record carries no key, token or environment. :func:`encode` refuses the field names.

Written by the owner, by keepers after the owner's death, and by recovery and doctor.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

VERSION = 1
MAX_LINE = 1 << 20
"""Bytes. About 14,000 survivors of one kernel; a longer line is damage, not a record."""

_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_START = b'{"v":'
_TAIL = re.compile(rb',"c":"([0-9a-f]{8})"\}')
_TAIL_LENGTH = len(b',"c":"00000000"}')
# Quotes inside a text are escaped, so this finds names of fields only, at any depth.
_SECRET = re.compile(r'"(?:key|token|password|env|environ|environment)":')
_ATTEMPTS = 8


def encode(mapping: Mapping[str, Any]) -> bytes:
    """One record as one line. ValueError or TypeError for what must not be written."""
    if "c" in mapping:
        raise ValueError("the field 'c' is the checksum's")
    text = json.dumps(
        {"v": VERSION, **mapping}, ensure_ascii=True, allow_nan=False, separators=(",", ":")
    )
    secret = _SECRET.search(text)
    if secret is not None:
        raise ValueError(f"a record must not carry the field {secret.group()}")
    body = text.encode("ascii")
    line = body[:-1] + b',"c":"%08x"}\n' % binascii.crc32(body)
    if len(line) > MAX_LINE:
        raise ValueError(f"a record of {len(line)} bytes is too long")
    return line


def append(target: str | int, mapping: Mapping[str, Any]) -> int:
    """Add one record to a journal that exists; the bytes written. OSError when it cannot.

    By descriptor: the caller holds the file, opened for reading and appending. By path:
    for keepers and other processes that do not hold it. The file is never created, a
    link is never followed, and a file that was replaced in the meantime (compaction
    renames a new one over it) gets the record again: written twice is harmless, lost
    is not. FileNotFoundError means that the journal was removed: all in it had ended.
    """
    line = encode(mapping)
    if isinstance(target, int):
        return _write(target, line)
    for _ in range(_ATTEMPTS):
        fd = os.open(target, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", target)
            written = _write(fd, line)
            if is_at(fd, target):
                return written
        finally:
            os.close(fd)
    raise OSError(errno.EAGAIN, "the journal is replaced again and again", target)


def is_at(fd: int, path: str) -> bool:
    """Whether the open file is still the one that the path names."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    held = os.fstat(fd)
    return held.st_nlink > 0 and (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def _write(fd: int, line: bytes) -> int:
    data = line
    if os.lseek(fd, 0, os.SEEK_END) > 0:
        os.lseek(fd, -1, os.SEEK_END)
        if os.read(fd, 1) != b"\n":
            data = b"\n" + line
    written = os.write(fd, data)
    if written == len(data):
        return written
    # Torn: the disk is full, or a limit was met. Another writer may have come between,
    # so the rest alone would be useless. A second try says for certain.
    data = b"\n" + line
    again = os.write(fd, data)
    if again < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written + again


def parse(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """All whole records in order, and the number of damaged lines.

    Never raises. A damaged line is counted, and what is whole inside it is kept. Records
    of an unknown version or event are records: the reader decides what they mean. A
    torn last line counts as damaged; :func:`is_torn` tells that case apart.
    """
    found: list[dict[str, Any]] = []
    damaged = 0
    for line in data.split(b"\n"):
        if not line:
            continue
        record = _decode(line)
        if record is not None:
            found.append(record)
            continue
        damaged += 1
        found.extend(_salvage(line))
    return found, damaged


def is_torn(data: bytes) -> bool:
    """Whether the last line is not whole: the usual trace of a crash while writing."""
    tail = data[data.rfind(b"\n") + 1 :]
    return bool(tail) and _decode(tail) is None


def _decode(line: bytes) -> dict[str, Any] | None:
    tail = _TAIL.fullmatch(line[-_TAIL_LENGTH:])
    if tail is None or len(line) > MAX_LINE:
        return None
    body = line[:-_TAIL_LENGTH] + b"}"
    if binascii.crc32(body) != int(tail.group(1), 16):
        return None
    try:
        record = json.loads(body.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _salvage(line: bytes) -> Iterator[dict[str, Any]]:
    # Quotes inside a text are escaped, so the start mark stands only where a record starts.
    begin = 0
    for tail in _TAIL.finditer(line):
        start = line.rfind(_START, begin, tail.start())
        record = _decode(line[start : tail.end()]) if start >= 0 else None
        if record is not None:
            begin = tail.end()
            yield record
