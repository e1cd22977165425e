"""The line format: whatever happens to a file, what is whole in it is read back."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import elsewhere

from jupyter_ownedkernels.runtime import records

# Texts with what could be taken for a border of a record, of a field or of a text.
texts = st.text(max_size=12) | st.sampled_from(
    ["\n", "\r\n", '","c":"00000000"}\n{"v":1,', '{"v":1', "\udcff", "\x00", "\u2028", '\\"', "}"]
)
# Hypothesis reads the constants of the code under test, and tries them.
REFUSED = {"v", "c", "key", "token", "password", "env", "environ", "environment"}
names = texts.filter(lambda name: name not in REFUSED)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(names, values, max_size=4).map(lambda fields: {"event": "x", **fields})
files = st.lists(mappings, max_size=6)


def as_read(mapping: dict[str, Any]) -> dict[str, Any]:
    return {"v": 1, **mapping}


def contents(mappings: list[dict[str, Any]]) -> bytes:
    return b"".join(records.encode(mapping) for mapping in mappings)


@given(files)
def test_what_is_written_is_read(mappings: list[dict[str, Any]]) -> None:
    data = contents(mappings)
    assert data.count(b"\n") == len(mappings)
    assert data.isascii()
    assert records.parse(data) == ([as_read(one) for one in mappings], 0)
    assert not records.is_torn(data)


@given(files.filter(bool), st.data())
def test_any_prefix_keeps_every_record_that_is_whole(
    mappings: list[dict[str, Any]], data: st.DataObject
) -> None:
    whole = contents(mappings)
    cut = data.draw(st.integers(0, len(whole)))
    lengths = [len(records.encode(one)) for one in mappings]
    # Without its newline a record is still whole.
    expected = [
        as_read(one) for index, one in enumerate(mappings) if sum(lengths[: index + 1]) - 1 <= cut
    ]
    found, damaged = records.parse(whole[:cut])
    assert found == expected
    torn = records.is_torn(whole[:cut])
    assert damaged == torn
    assert torn == (cut not in {sum(lengths[:n]) - less for n in range(7) for less in (0, 1)} | {0})


@settings(max_examples=300)
@given(files.filter(bool), st.data())
def test_any_corrupted_byte_costs_at_most_its_own_record(
    mappings: list[dict[str, Any]], data: st.DataObject
) -> None:
    whole = bytearray(contents(mappings))
    where = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[where]))
    hit = whole[:where].count(b"\n")
    border = whole[where : where + 1] == b"\n"
    whole[where] = byte
    found, damaged = records.parse(bytes(whole))
    others = [as_read(one) for index, one in enumerate(mappings) if index != hit]
    if border:
        # The record itself is untouched: it is found in the line that it shares now.
        assert found == [as_read(one) for one in mappings]
        assert damaged == 1
    else:
        assert found == others
        assert damaged >= 1


@given(files, st.binary(max_size=60), files)
@example([{"event": "a"}], b'{"v":1,"event":"torn', [{"event": "b"}])
@example([{"event": "a"}], b"[" * 50, [{"event": "b"}])
def test_garbage_between_records_costs_none_of_them(
    before: list[dict[str, Any]], garbage: bytes, after: list[dict[str, Any]]
) -> None:
    found, _ = records.parse(contents(before) + garbage + contents(after))
    assert found == [as_read(one) for one in before + after]


@given(st.binary())
def test_no_bytes_raise(data: bytes) -> None:
    found, damaged = records.parse(data)
    assert found == []
    assert damaged == len([line for line in data.split(b"\n") if line])


def checked(body: str) -> bytes:
    """A line whose checksum is right, whatever it says."""
    import binascii

    raw = body.encode()
    return raw[:-1] + b',"c":"%08x"}\n' % binascii.crc32(raw)


@pytest.mark.parametrize("body", ['{"a":' + "[" * 100_000 + "}", '{"v":1,}', "[1}", '{"a":"\xe9"}'])
def test_a_right_checksum_does_not_make_a_record(body: str) -> None:
    assert records.parse(checked(body)) == ([], 1)


def test_a_line_without_checksum_is_damage() -> None:
    assert records.parse(b'{"v":1,"event":"x"}\n') == ([], 1)


def test_records_of_other_versions_are_handed_on() -> None:
    line = records.encode({"v": 7, "event": "from the future"})
    assert records.parse(line) == ([{"v": 7, "event": "from the future"}], 0)


@pytest.mark.parametrize(
    "mapping",
    [
        {"key": "x"},
        {"exit": {"env": {}}},
        {"list": [{"a": [{"token": "x"}]}]},
        {"environ": {}},
        {"password": ""},
        {"c": "00000000"},
        {"x": float("nan")},
        {"x": "y" * records.MAX_LINE},
    ],
)
def test_what_must_not_be_written_is_refused(mapping: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        records.encode(mapping)


def test_a_line_beyond_the_bound_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = records.encode({"x": "y" * 500}), records.encode({"x": "z"})
    monkeypatch.setattr(records, "MAX_LINE", 400)
    assert records.parse(long + short) == ([{"v": 1, "x": "z"}], 1)


# -- appending ---------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "a journal\nwith a newline"
    file.touch(0o600)
    return str(file)


def read(path: str) -> tuple[list[dict[str, Any]], int]:
    return records.parse(Path(path).read_bytes())


def test_by_path_and_by_descriptor(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    sizes = [records.append(fd, {"event": "a"}), records.append(path, {"event": "b"})]
    assert sum(sizes) == os.fstat(fd).st_size
    os.close(fd)
    assert read(path) == ([{"v": 1, "event": "a"}, {"v": 1, "event": "b"}], 0)


def test_another_record_between_the_look_and_the_write(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def overtaken(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", real)
        records.append(path, {"event": "first"})
        return real(fd, data)

    monkeypatch.setattr(os, "write", overtaken)
    records.append(path, {"event": "second"})
    assert read(path) == ([{"v": 1, "event": "first"}, {"v": 1, "event": "second"}], 0)


def test_a_write_that_was_cut_once_is_made_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def cut(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", real)
        return real(fd, data[:20])

    monkeypatch.setattr(os, "write", cut)
    written = records.append(path, {"event": "a"})
    assert written == os.path.getsize(path)
    line = records.encode({"event": "a"})
    assert Path(path).read_bytes() == line[:20] + b"\n" + line
    records.append(path, {"event": "b"})
    assert read(path) == ([{"v": 1, "event": "a"}, {"v": 1, "event": "b"}], 1)


def test_one_write_per_record(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    real = os.write

    def noted(fd: int, data: bytes) -> int:
        written.append(data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", noted)
    records.append(path, {"event": "a" * 10_000})
    assert written == [records.encode({"event": "a" * 10_000})]


@pytest.mark.parametrize("tail", [b"{", b'{"v":1,"event":"tor', b"x" * 5000])
def test_a_torn_record_never_merges_with_the_next(path: str, tail: bytes) -> None:
    records.append(path, {"event": "a"})
    with open(path, "ab") as stream:
        stream.write(tail)
    records.append(path, {"event": "b"})
    records.append(path, {"event": "c"})
    assert read(path) == ([{"v": 1, "event": one} for one in "abc"], 1)
    assert Path(path).read_bytes().split(b"\n")[1] == tail


def test_no_file_is_made_and_no_link_is_followed(path: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        records.append(str(tmp_path / "none"), {"event": "a"})
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        records.append(str(link), {"event": "a"})
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="regular"):
        records.append(str(fifo), {"event": "a"})
    with pytest.raises(OSError, match="directory"):
        records.append(str(tmp_path), {"event": "a"})
    assert Path(path).read_bytes() == b""


def test_a_file_replaced_under_the_writer_gets_the_record_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def replaced_before_the_write(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", real)
        Path(path + ".new").write_bytes(records.encode({"event": "compacted"}))
        os.replace(path + ".new", path)
        return real(fd, data)

    monkeypatch.setattr(os, "write", replaced_before_the_write)
    records.append(path, {"event": "late"})
    assert read(path) == ([{"v": 1, "event": "compacted"}, {"v": 1, "event": "late"}], 0)


def test_a_file_removed_under_the_writer_is_told(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def removed_before_the_write(fd: int, data: bytes) -> int:
        os.unlink(path)
        return real(fd, data)

    monkeypatch.setattr(os, "write", removed_before_the_write)
    with pytest.raises(FileNotFoundError):
        records.append(path, {"event": "late"})
    assert not os.path.exists(path)


def test_a_short_write_is_an_error_and_harms_no_neighbour(path: str) -> None:
    """A limit on the size of files makes real short writes; a full disk does the same."""
    script = """
import resource, signal, sys
from jupyter_ownedkernels.runtime import records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
records.append(sys.argv[1], {"event": "a"})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        records.append(sys.argv[1], {"event": "b" * 200})
    except OSError as error:
        print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
records.append(sys.argv[1], {"event": "c"})
"""
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.split()) == 2
    found, damaged = read(path)
    assert found == [{"v": 1, "event": "a"}, {"v": 1, "event": "c"}]
    assert damaged >= 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@elsewhere.needs_root
def test_a_full_disk_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    errors, events, damaged = elsewhere.run(
        """
        mount("-t", "tmpfs", "-o", "size=64k", "none", sys.argv[1])
        path, filler = sys.argv[1] + "/journal", sys.argv[1] + "/filler"
        open(path, "x").close()
        records.append(path, {"event": "a"})
        fd = os.open(filler, os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(fd, b"x" * 512)
        except OSError:
            pass
        errors = []
        for _ in range(30):
            try:
                records.append(path, {"event": "b", "text": "x" * 300})
            except OSError as error:
                errors.append(error.errno)
        os.close(fd)
        os.unlink(filler)
        records.append(path, {"event": "c"})
        found, damaged = records.parse(open(path, "rb").read())
        answer([errors, [one["event"] for one in found], damaged])
        """,
        tmp_path,
        unshare=["--mount"],
    )
    assert errors
    assert set(errors) == {28}
    assert events == ["a", *"b" * (30 - len(errors)), "c"]
    assert damaged <= 2


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
import records
me = int(sys.argv[2])
print(flush=True)
sys.stdin.readline()
for number in range(300):
    pad = "p" * (number % 900)
    records.append(sys.argv[1], {"event": "x", "writer": me, "number": number, "pad": pad})
"""


def test_writers_of_several_processes_lose_nothing(path: str) -> None:
    """Keepers of a dead owner finish its journal at the same moment."""
    folder = str(Path(records.__file__).parent)
    writers = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WRITER, path, str(number), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        writer.communicate(b"\n", timeout=60)
        assert writer.returncode == 0
    found, damaged = read(path)
    assert damaged == 0
    for number in range(4):
        mine = [one["number"] for one in found if one["writer"] == number]
        assert mine == list(range(300))


def test_a_line_is_json_for_other_tools(path: str) -> None:
    records.append(path, {"event": "a", "name": "two\nlines \udcff"})
    line = Path(path).read_text("ascii").splitlines()[0]
    assert json.loads(line)["name"] == "two\nlines \udcff"
    assert line.startswith('{"v":1,')
