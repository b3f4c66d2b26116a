"""What a WASI program can do to the worker that it runs in: nothing (law 1)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.commands import MODULE
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.sandbox import wasi
from caxton_host.sandbox.interface import WASI_FUNCTIONS
from caxton_host.sandbox.session import CALL_FUEL, MAX_RANDOM
from caxton_host.sandbox.wasi_files import MOST_NODES, Errno, Folder

from .wasi_guest import (
    CREATE,
    DATA,
    EXCLUSIVE,
    FOLDER,
    MEMORY,
    OUT,
    PATH,
    READ,
    ROOT,
    TRUNCATE,
    WRITE,
    Caller,
    Stopped,
    WasiErrno,
    caller,
    checked,
    ended,
    types_of,
)

HOUR = 3600 * 10**9
OUTSIDE = "a host function was given a place outside memory"
FILES = {"data/a.txt": b"hello", "data/deep/b.txt": b"there", "c.txt": b""}


@pytest.fixture
def one() -> Any:  # noqa: ANN401 -- what a context manager yields
    with caller(args=["me"], files=FILES) as found:
        yield found


def _refused(errno: Errno, one: Caller, name: str, *given: int) -> None:
    assert Errno(one(name, *given)) is errno, name


def _output(one: Caller) -> Any:  # noqa: ANN401 -- JSON
    assert ended(one).kind == "returned"
    assert one.session.output is not None
    return codec.decode_trusted(one.session.output)


# -- all functions


def test_every_function_has_the_type_that_wasmtime_gives_it() -> None:
    engine = wasmtime.Engine()
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    for name, declared in WASI_FUNCTIONS.items():
        found: Any = linker.get(store, MODULE, name)
        types = found.type(store)
        shape = ", ".join(map(str, types.params)), ", ".join(map(str, types.results))
        assert declared == f"({shape[0]}) -> {shape[1] or '()'}", name
    assert len(WASI_FUNCTIONS) == 46


@pytest.mark.parametrize("name", sorted(wasi.UNSUPPORTED))
def test_what_no_program_can_do_is_not_supported(one: Caller, name: str) -> None:
    _refused(Errno.NOTSUP, one, name, *[2**40] * len(types_of(name)))


#: Functions, arguments, and those of them that are places.
PLACES = [
    ("args_sizes_get", [OUT, OUT], [0, 1]),
    ("args_get", [OUT, DATA], [0, 1]),
    ("environ_sizes_get", [OUT, OUT], [0, 1]),
    ("environ_get", [OUT, DATA], [0, 1]),
    ("clock_res_get", [0, OUT], [1]),
    ("clock_time_get", [0, 1, OUT], [2]),
    ("fd_fdstat_get", [1, OUT], [1]),
    ("fd_filestat_get", [ROOT, OUT], [1]),
    ("fd_prestat_get", [ROOT, OUT], [1]),
    ("fd_prestat_dir_name", [ROOT, OUT, 9], [1]),
    ("fd_read", [0, OUT, 1, OUT], [1, 3]),
    ("fd_write", [1, OUT, 1, OUT], [1, 3]),
    ("fd_pread", [4, OUT, 1, 0, OUT], [1, 4]),
    ("fd_pwrite", [4, OUT, 1, 0, OUT], [1, 4]),
    ("fd_readdir", [ROOT, DATA, 4096, 0, OUT], [1, 4]),
    ("fd_seek", [4, 0, 0, OUT], [3]),
    ("fd_tell", [4, OUT], [1]),
    ("path_create_directory", [ROOT, PATH, 4], [1]),
    ("path_filestat_get", [ROOT, 0, PATH, 4, OUT], [2, 4]),
    ("path_open", [ROOT, 0, PATH, 4, 0, READ, 0, 0, OUT], [2, 8]),
    ("path_readlink", [ROOT, PATH, 4, OUT, 4, OUT], [1]),
    ("path_remove_directory", [ROOT, PATH, 4], [1]),
    ("path_rename", [ROOT, PATH, 4, ROOT, PATH, 4], [1, 4]),
    ("path_unlink_file", [ROOT, PATH, 4], [1]),
    ("poll_oneoff", [OUT, DATA, 2, OUT], [0, 1, 3]),
    ("random_get", [DATA, 16], [0]),
]


@pytest.mark.parametrize("place", [MEMORY, 2**31, 2**32 - 1])
@pytest.mark.parametrize(
    ("name", "given", "pointer"),
    [(name, given, at) for name, given, places in PLACES for at in places],
)
def test_a_place_outside_memory_is_a_trap(
    name: str, given: list[int], pointer: int, place: int
) -> None:
    with caller(args=["me"], env={"A": "b"}, files={"data": b"hello"}) as one:
        one.put(PATH, b"data")
        assert one.open("data") == 4
        one.put(OUT, struct.pack("<II", DATA, 4))
        given = [*given]
        given[pointer] = place
        with pytest.raises(Stopped):
            one(name, *given)
        assert one.session.stop is not None
        assert (one.session.stop.kind, one.session.stop.message) == ("trap", OUTSIDE)


_NUMBERS = st.one_of(
    st.integers(0, 8),
    st.sampled_from([OUT, DATA, PATH, 255, 256, 1024, 1025, 4096, 65536, MEMORY]),
    st.sampled_from([MEMORY - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 2**64 - 1),
)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(WASI_FUNCTIONS)),
        st.lists(_NUMBERS, min_size=9, max_size=9),
    ),
    max_size=40,
)
_BYTES = st.one_of(
    st.binary(max_size=64),
    st.sampled_from(
        [b"data/a.txt", b"tmp/x", b"../..", b"/etc/passwd", b"tmp\0", b"\xff"]
    ),
    st.lists(_NUMBERS, max_size=12).map(
        lambda numbers: b"".join(struct.pack("<Q", one) for one in numbers)
    ),
)


@given(steps=_STEPS, paths=_BYTES, out=_BYTES, data=_BYTES)
@settings(max_examples=60, deadline=None)
def test_whatever_a_program_passes_it_gets_a_number_or_ends(
    steps: list[tuple[str, list[int]]], paths: bytes, out: bytes, data: bytes
) -> None:
    with caller(args=["me"], env={"A": "b"}, files=FILES) as one:
        for place, content in ((PATH, paths), (OUT, out), (DATA, data)):
            one.put(place, content)
        for name, values in steps:
            try:
                number = one(name, *values)
            except Stopped:
                break
            assert number in {0, *Errno}
        stop = one.session.stop
        assert stop is None or stop.kind in {"trap", "limit", "returned"}
        assert ended(one).kind != "failed"
        # It may change what is its own; what it was given stays.
        assert not steps or _content(one.session._tree.root) == FILES


def _content(folder: Folder, above: str = "") -> dict[str, bytes]:
    """Return the files that cannot be changed."""
    found: dict[str, bytes] = {}
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            found |= _content(node, f"{above}{name}/")
        elif node.read_only:
            found[f"{above}{name}"] = bytes(node.data)
    return found


# -- what it is given


def test_arguments_and_environment_are_those_of_the_run() -> None:
    with caller(args=["me", "ü"], env={"A": "b"}) as one:
        checked(one("args_sizes_get", OUT, OUT + 4))
        assert (one.number(OUT), one.number(OUT + 4)) == (2, 6)
        checked(one("args_get", OUT, DATA))
        assert one.get(one.number(OUT + 4), 3) == b"\xc3\xbc\0"
        checked(one("environ_sizes_get", OUT, OUT + 4))
        assert (one.number(OUT), one.number(OUT + 4)) == (1, 4)
        checked(one("environ_get", OUT, DATA))
        assert one.get(DATA, 4) == b"A=b\0"


def test_a_program_without_a_command_has_no_arguments() -> None:
    with caller() as one:
        checked(one("args_sizes_get", OUT, OUT + 4))
        assert one.number(OUT) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, b""), ("a\n", b"a\n"), ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode())],
)
def test_standard_input_is_the_input(value: object, text: bytes) -> None:
    with caller(input=value) as one:
        assert one.read(0, 3) + one.read(0) == text
        assert one.read(0) == b""


def test_the_random_bytes_are_those_of_the_run() -> None:
    drawn = set()
    for _ in range(2):
        with caller() as one:
            checked(one("random_get", DATA, 64))
            drawn.add(one.get(DATA, 64))
            with pytest.raises(Stopped):
                one("random_get", DATA, MAX_RANDOM)
    assert len(drawn) == 1


# -- what it writes


@pytest.mark.parametrize(
    ("written", "output"),
    [
        ([b'{"a": ', b"1}\n"], {"a": 1}),
        ([b"4", b"2"], 42),
        ([b"hello\n"], "hello\n"),
        ([b'{"a": 1, "a": 2}'], '{"a": 1, "a": 2}'),
        ([b"NaN"], "NaN"),
        ([b"[" * 100], "[" * 100),
        ([b"\xff"], "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_standard_output_is_the_output(
    one: Caller, written: list[bytes], output: object
) -> None:
    for part in written:
        assert one.write(1, part) == len(part)
    assert _output(one) == output


def test_a_program_that_prints_nothing_has_no_output(one: Caller) -> None:
    assert one.write(1, b"") == 0
    assert ended(one).kind == "returned"
    assert one.session.output is None


def test_the_output_of_the_host_function_counts_more(one: Caller) -> None:
    one.write(1, b"printed")
    one.session.output = codec.encode("set")
    assert _output(one) == "set"


def test_output_is_bounded_as_it_is_written() -> None:
    with caller(Limits(output=10)) as one:
        one.write(1, b"12345678")
        with pytest.raises(Stopped):
            one.write(1, b"123")
        assert (ended(one).kind, ended(one).limit) == ("limit", "output")
    # A text that is not UTF-8 grows.
    with caller(Limits(output=10)) as one:
        one.write(1, b"\xff" * 4)
        assert (ended(one).kind, ended(one).limit) == ("limit", "output")


def test_standard_error_is_logged_in_whole_lines(one: Caller) -> None:
    for part in (
        b"o",
        b"",
        b"ne\ntwo\n\nth",
        "r\N{LATIN SMALL LETTER E}".encode(),
        b"e",
    ):
        assert one.write(2, part) == len(part)
    assert one.host.lines == [(2, b"one"), (2, b"two"), (2, b"")]
    ended(one)
    assert one.host.lines[3:] == [(2, b"three")]


def test_the_log_is_bounded_however_it_is_written() -> None:
    with caller(Limits(log=100)) as one:
        assert one.write(2, b"\n" * 1_000_000) == 1_000_000
        assert len(one.host.lines) == 7
    with caller(Limits(log=100)) as one:
        for _ in range(100):
            one.write(2, b"x" * 1000)
        one.write(2, b"\nmore\n")
        ended(one)
        assert one.host.lines == [(2, b"x" * 101)]


@pytest.mark.parametrize("code", [0, 3, 2**32 - 1])
def test_the_exit_code_is_kept(one: Caller, code: int) -> None:
    one.write(1, b"1")
    with pytest.raises(Stopped):
        one("proc_exit", code)
    end = ended(one)
    assert (end.kind, end.code & 0xFFFF_FFFF) == ("returned", code)
    assert end.message == (f"the program ended with exit code {code}" if code else "")


# -- time


def _timer(due: int, *, user: int = 7, absolute: bool = False, clock: int = 1) -> bytes:
    head = struct.pack("<QB7xI4x", user, 0, clock)
    return head + struct.pack("<QQH6x", due, 0, absolute)


def _poll(one: Caller, *asked: bytes) -> list[tuple[int, ...]]:
    count = len(asked)
    one.put(DATA, b"".join(asked))
    checked(one("poll_oneoff", DATA, DATA + 65536, count, OUT))
    events = one.get(DATA + 65536, 32 * one.number())
    return [*struct.iter_unpack("<QHB5xQH6x", events)]


def _time(one: Caller, clock: int = 0) -> int:
    checked(one("clock_time_get", clock, 1, OUT))
    return one.number(OUT, 8)


def test_the_time_is_that_of_the_run_and_moves_by_sleeping() -> None:
    with caller(now=1000) as one:
        assert {_time(one, clock) for clock in range(4)} == {1_000_000}
        assert _poll(one, _timer(HOUR, user=1), _timer(2 * HOUR)) == [(1, 0, 0, 0, 0)]
        assert _time(one) == 1_000_000 + HOUR
        _poll(one, _timer(HOUR, absolute=True))  # which is over
        assert _time(one) == 1_000_000 + HOUR
        _poll(one, _timer(2 * HOUR, absolute=True), _timer(3 * HOUR))
        assert _time(one) == 2 * HOUR
        one.session._now = 2000  # the time of a reply
        assert _time(one) == 2 * HOUR + 1_000_000
        checked(one("clock_res_get", 0, OUT))
        assert one.number(OUT, 8) == 1000
        _refused(Errno.INVAL, one, "clock_time_get", 4, 0, OUT)
        _refused(Errno.INVAL, one, "clock_res_get", 4, OUT)


def test_the_time_ends(one: Caller) -> None:
    for _ in range(3):
        assert _poll(one, _timer(2**64 - 1)) == [(7, 0, 0, 0, 0)]
    assert _time(one) == 2**63 - 1


def test_files_are_always_ready_and_nobody_sleeps_beside_them(one: Caller) -> None:
    fd = one.open("data/a.txt")
    read = [struct.pack("<QB7xI28x", n, 1, n) for n in (0, fd, ROOT, 99)]
    write = struct.pack("<QB7xI28x", 1, 2, 1)
    found = _poll(one, *read, write, _timer(HOUR), _timer(0, user=8))
    assert found == [
        (0, 0, 1, 0, 0),
        (fd, 0, 1, 5, 0),
        (ROOT, 0, 1, 0, 0),
        (99, Errno.BADF, 1, 0, 0),
        (1, 0, 2, 0, 0),
        (8, 0, 0, 0, 0),
    ]
    assert _time(one) == 5000


@pytest.mark.parametrize("count", [0, wasi.MOST_WAITS + 1, 10**6, 2**32 - 1])
def test_waits_are_bounded(one: Caller, count: int) -> None:
    _refused(Errno.INVAL, one, "poll_oneoff", DATA, DATA, count, OUT)


@pytest.mark.parametrize("asked", [struct.pack("<QB39x", 1, 3), _timer(1, clock=4)])
def test_nobody_waits_for_what_does_not_exist(one: Caller, asked: bytes) -> None:
    with pytest.raises(WasiErrno, match="INVAL"):
        _poll(one, asked)


# -- files that it was given


def test_files_are_read(one: Caller) -> None:
    fd = one.open("data/../data/./a.txt")
    assert one.read(fd, 2) + one.read(fd) == b"hello"
    checked(one("fd_seek", fd, -4 & 2**64 - 1, 2, OUT))
    assert one.number(OUT, 8) == 1
    checked(one("fd_seek", fd, 1, 1, OUT))
    assert one.read(fd) == b"llo"
    checked(one("fd_tell", fd, OUT))
    assert one.number(OUT, 8) == 5
    one.put(OUT, struct.pack("<IIII", DATA, 1, DATA + 8, 9))
    checked(one("fd_pread", fd, OUT, 2, 3, OUT + 16))
    assert (one.get(DATA, 1), one.get(DATA + 8, 1), one.number(OUT + 16)) == (
        b"l",
        b"o",
        2,
    )
    checked(one("fd_pread", fd, OUT, 2, 2**64 - 1, OUT + 16))
    assert one.number(OUT + 16) == 0


def test_files_say_what_they_are(one: Caller) -> None:
    fd = one.open("data/a.txt")
    checked(one("fd_filestat_get", fd, OUT))
    by_descriptor = one.get(OUT, 64)
    checked(one("path_filestat_get", ROOT, 0, *one.put(PATH, b"data/a.txt"), OUT))
    assert one.get(OUT, 64) == by_descriptor
    kind, size = by_descriptor[16], int.from_bytes(by_descriptor[32:40], "little")
    assert (kind, size) == (4, 5)
    kinds = []
    for number in (0, 1, ROOT, fd):
        checked(one("fd_fdstat_get", number, OUT))
        kinds.append(one.get(OUT, 1)[0])
    assert kinds == [0, 0, 3, 4]
    checked(one("fd_prestat_get", ROOT, OUT))
    assert one.get(OUT, 8) == struct.pack("<II", 0, 1)
    checked(one("fd_prestat_dir_name", ROOT, OUT, 1))
    assert one.get(OUT, 1) == b"/"
    _refused(Errno.NAMETOOLONG, one, "fd_prestat_dir_name", ROOT, OUT, 0)
    _refused(Errno.BADF, one, "fd_prestat_get", ROOT + 1, OUT)


@pytest.mark.parametrize(
    ("path", "errno"),
    [
        ("../etc/passwd", "NOTCAPABLE"),
        ("data/../../etc/passwd", "NOTCAPABLE"),
        ("..", "NOTCAPABLE"),
        ("/etc/passwd", "NOTCAPABLE"),
        ("//data/a.txt", "NOTCAPABLE"),
        ("/", "NOTCAPABLE"),
        ("", "NOENT"),
        ("data/none", "NOENT"),
        ("none/..", "NOENT"),
        ("none/a.txt", "NOENT"),
        ("data/a.txt/", "NOTDIR"),
        ("data/a.txt/.", "NOTDIR"),
        ("data/a.txt/..", "NOTDIR"),
        ("data/a.txt\0", "INVAL"),
        (b"data/\xff", "ILSEQ"),
        ("x" * 256, "NAMETOOLONG"),
        ("data/" * 1000, "NAMETOOLONG"),
        ("data/../" * 500 + "../x", "NOTCAPABLE"),
    ],
)
def test_a_path_stays_inside(one: Caller, path: str | bytes, errno: str) -> None:
    with pytest.raises(WasiErrno, match=errno):
        one.open(path)
    with pytest.raises(WasiErrno):
        one.open(path, CREATE | EXCLUSIVE, WRITE)


def test_a_path_stays_inside_the_folder_that_is_open(one: Caller) -> None:
    deep = one.open("data/deep", FOLDER)
    assert one.read(one.open("b.txt", base=deep)) == b"there"
    with pytest.raises(WasiErrno, match="NOTCAPABLE"):
        one.open("../a.txt", base=deep)
    assert one.names(one.open(".", base=deep)) == [".", "..", "b.txt"]


def test_what_it_was_given_cannot_be_changed(one: Caller) -> None:
    fd = one.open("data/a.txt")
    with pytest.raises(WasiErrno, match="BADF"):
        one.write(fd, b"x")
    _refused(Errno.INVAL, one, "fd_filestat_set_size", fd, 0)
    for how, rights in ((0, WRITE), (TRUNCATE, READ), (CREATE, WRITE)):
        with pytest.raises(WasiErrno, match="ROFS"):
            one.open("data/a.txt", how, rights)
    for function, path in (
        ("path_unlink_file", "c.txt"),
        ("path_unlink_file", "data/a.txt"),
        ("path_remove_directory", "data/deep"),
        ("path_create_directory", "data/new"),
    ):
        with pytest.raises(WasiErrno, match="ROFS"):
            one.path(function, path)
    with pytest.raises(WasiErrno, match="ROFS"):
        one.open("data/new", CREATE, WRITE)
    mine = one.open("tmp/mine", CREATE, WRITE)
    assert mine
    for old, new in (
        ("data", "tmp/data"),
        ("c.txt", "tmp/c"),
        ("tmp/mine", "c.txt"),
        ("tmp/mine", "data/x"),
    ):
        with pytest.raises(WasiErrno, match="ROFS"):
            _rename(one, old, new)


def test_streams_are_not_files(one: Caller) -> None:
    for name, *rest in (
        ("fd_seek", 0, 0, OUT),
        ("fd_tell", OUT),
        ("fd_pread", OUT, 0, 0, OUT),
        ("fd_pwrite", OUT, 0, 0, OUT),
        ("fd_advise", 0, 0, 0),
        ("fd_filestat_set_size", 0),
    ):
        _refused(Errno.SPIPE, one, name, 1, *rest)
        _refused(Errno.ISDIR, one, name, ROOT, *rest)
    with pytest.raises(WasiErrno, match="BADF"):
        one.read(1)
    with pytest.raises(WasiErrno, match="BADF"):
        one.write(0, b"x")
    with pytest.raises(WasiErrno, match="ISDIR"):
        one.read(ROOT)
    with pytest.raises(WasiErrno, match="NOTDIR"):
        one.names(1)
    _refused(Errno.NOTDIR, one, "path_open", 1, 0, PATH, 1, 0, 0, 0, 0, OUT)
    _refused(Errno.BADF, one, "fd_read", 2**32 - 1, OUT, 0, OUT)


def test_a_link_is_never_found(one: Caller) -> None:
    place = one.put(PATH, b"data")
    _refused(Errno.INVAL, one, "path_readlink", ROOT, *place, DATA, 9, OUT)


# -- its scratch


def _rename(one: Caller, old: str, new: str) -> None:
    place = one.put(PATH, old.encode())
    other = one.put(DATA, new.encode())
    checked(one("path_rename", ROOT, *place, ROOT, *other))


def _mkdir(one: Caller, path: str) -> None:
    one.path("path_create_directory", path)


def _save(one: Caller, path: str, data: bytes, how: int = CREATE) -> int:
    fd = one.open(path, how, READ | WRITE)
    one.write(fd, data)
    return fd


def _load(one: Caller, path: str) -> bytes:
    fd = one.open(path)
    found = one.read(fd)
    checked(one("fd_close", fd))
    return found


def test_a_program_writes_and_reads_files_of_its_own(one: Caller) -> None:
    fd = _save(one, "tmp/x", b"hello")
    checked(one("fd_seek", fd, 1, 0, OUT))
    one.write(fd, b"EL")
    one.put(OUT, struct.pack("<II", *one.put(DATA, b"!")))
    checked(one("fd_pwrite", fd, OUT, 1, 7, OUT + 8))
    assert _load(one, "tmp/x") == b"hELlo\0\0!"
    checked(one("fd_filestat_set_size", fd, 2))
    checked(one("fd_filestat_set_size", fd, 3))
    assert _load(one, "tmp/x") == b"hE\0"
    more = one.open("tmp/x", 0, WRITE, flags=1)
    one.write(more, b"+")
    checked(one("fd_fdstat_get", more, OUT))
    assert one.get(OUT + 2, 1) == b"\1"
    checked(one("fd_fdstat_set_flags", more, 0))
    one.write(more, b"+")
    checked(one("fd_fdstat_set_flags", fd, 1))
    one.write(fd, b"+")
    assert _load(one, "tmp/x") == b"hE\0+++"
    one.open("tmp/x", TRUNCATE, WRITE)
    assert _load(one, "tmp/x") == b""
    for name in ("fd_sync", "fd_datasync"):
        checked(one(name, fd))
    checked(one("fd_advise", fd, 0, 0, 0))
    assert one("sched_yield") == 0


@pytest.mark.parametrize(
    ("offset", "whence"), [(-1 & 2**64 - 1, 0), (2**63 - 1, 1), (0, 3), (2**63, 1)]
)
def test_a_file_is_not_sought_before_its_start_or_beyond_all_numbers(
    one: Caller, offset: int, whence: int
) -> None:
    fd = one.open("data/a.txt")
    one.read(fd, 1)
    _refused(Errno.INVAL, one, "fd_seek", fd, offset, whence, OUT)


def test_files_and_folders_are_moved_and_removed(one: Caller) -> None:
    _mkdir(one, "tmp/a")
    _mkdir(one, "tmp/a/b/")
    _save(one, "tmp/a/b/x", b"1")
    _rename(one, "tmp/a/b", "tmp/c")
    assert one.names(one.open("tmp/c")) == [".", "..", "x"]
    _save(one, "tmp/y", b"2")
    _rename(one, "tmp/y", "tmp/c/x")
    _rename(one, "tmp/c/x", "tmp/c/x")
    assert _load(one, "tmp/c/x") == b"2"
    _rename(one, "tmp/c", "tmp/a")  # which is empty now
    one.path("path_unlink_file", "tmp/a/x")
    one.path("path_remove_directory", "tmp/a")
    assert one.names(one.open("tmp")) == [".", ".."]


@pytest.mark.parametrize(
    ("old", "new", "errno"),
    [
        ("none", "tmp/x", "NOENT"),
        ("tmp/f", "none/x", "NOENT"),
        ("tmp/f", "tmp/g/", "NOTDIR"),
        ("tmp/f", "tmp/d", "ISDIR"),
        ("tmp/d", "tmp/f", "NOTDIR"),
        ("tmp/d", "tmp/d/inner/d", "INVAL"),
        ("tmp/d", "tmp/d/new", "INVAL"),
        ("tmp/e", "tmp/d", "NOTEMPTY"),
        (".", "tmp/x", "INVAL"),
        ("tmp/f", ".", "INVAL"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(
    one: Caller, old: str, new: str, errno: str
) -> None:
    _save(one, "tmp/f", b"1")
    for path in ("tmp/d", "tmp/d/inner", "tmp/e"):
        _mkdir(one, path)
    with pytest.raises(WasiErrno, match=errno):
        _rename(one, old, new)


@pytest.mark.parametrize(
    ("function", "path", "errno"),
    [
        ("path_create_directory", "tmp", "EXIST"),
        ("path_create_directory", ".", "EXIST"),
        ("path_unlink_file", "tmp", "ISDIR"),
        ("path_unlink_file", "tmp/none", "NOENT"),
        ("path_remove_directory", "tmp/f", "NOTDIR"),
        ("path_remove_directory", "tmp", "NOTEMPTY"),
        ("path_remove_directory", ".", "INVAL"),
    ],
)
def test_what_cannot_be_made_or_removed_is_refused(
    one: Caller, function: str, path: str, errno: str
) -> None:
    _save(one, "tmp/f", b"1")
    with pytest.raises(WasiErrno, match=errno):
        one.path(function, path)


@pytest.mark.parametrize(
    ("path", "how", "errno"),
    [
        ("tmp", CREATE | EXCLUSIVE, "EXIST"),
        ("tmp", TRUNCATE, "ISDIR"),
        ("tmp/f", FOLDER, "NOTDIR"),
        ("tmp/x", CREATE | FOLDER, "INVAL"),
        ("tmp/x/", CREATE, "INVAL"),
    ],
)
def test_what_cannot_be_opened_so_is_refused(
    one: Caller, path: str, how: int, errno: str
) -> None:
    _save(one, "tmp/f", b"1")
    with pytest.raises(WasiErrno, match=errno):
        one.open(path, how, WRITE)


def test_a_removed_folder_takes_no_files(one: Caller) -> None:
    _mkdir(one, "tmp/d")
    gone = one.open("tmp/d")
    one.path("path_remove_directory", "tmp/d")
    with pytest.raises(WasiErrno, match="NOENT"):
        one.open("x", CREATE, WRITE, base=gone)


def test_scratch_is_bounded_and_given_back() -> None:
    with caller(Limits(scratch=10)) as one:
        fd = _save(one, "tmp/x", b"12345678")
        with pytest.raises(WasiErrno, match="NOSPC"):
            one.write(fd, b"123")
        for size in (11, 2**40, 2**64 - 1):
            _refused(Errno.NOSPC, one, "fd_filestat_set_size", fd, size)
        one.put(OUT, struct.pack("<II", *one.put(DATA, b"!")))
        for place in (10, 2**40, 2**64 - 1):
            _refused(Errno.NOSPC, one, "fd_pwrite", fd, OUT, 1, place, OUT + 8)
        one.path("path_unlink_file", "tmp/x")
        other = one.open("tmp/y", CREATE, WRITE)
        # Its name is gone, and it is still open.
        with pytest.raises(WasiErrno, match="NOSPC"):
            one.write(other, b"123")
        checked(one("fd_close", fd))
        assert one.write(other, b"1234567890") == 10
        _save(one, "tmp/z", b"")
        _rename(one, "tmp/z", "tmp/y")
        checked(one("fd_renumber", one.open("tmp"), other))
        _save(one, "tmp/z", b"1234567890")


def test_files_and_descriptors_are_bounded(one: Caller) -> None:
    opened = [one.open("data/a.txt") for _ in range(wasi.MOST_OPEN - 4)]
    assert opened == [*range(4, wasi.MOST_OPEN)]
    with pytest.raises(WasiErrno, match="MFILE"):
        one.open("tmp/x", CREATE, WRITE)
    checked(one("fd_close", 5))
    assert one.open("tmp/x", CREATE, WRITE) == 5
    for made in range(MOST_NODES - 2):  # beside these two: tmp, and x in it
        _mkdir(one, f"tmp/{made}")
    with pytest.raises(WasiErrno, match="NOSPC"):
        _mkdir(one, "tmp/more")
    one.path("path_remove_directory", "tmp/3")
    _mkdir(one, "tmp/again")


def test_vectors_are_bounded(one: Caller) -> None:
    for count in (wasi.MOST_VECTORS + 1, 2**32 - 1):
        _refused(Errno.INVAL, one, "fd_write", 2, DATA, count, OUT)
        _refused(Errno.INVAL, one, "fd_read", 0, DATA, count, OUT)
    # A thousand times all the memory: one call takes a part.
    one.put(OUT + 64, struct.pack("<II", 0, MEMORY) * wasi.MOST_VECTORS)
    checked(one("fd_write", 2, OUT + 64, wasi.MOST_VECTORS, OUT))
    assert one.number() == wasi.MOST_BYTES


@pytest.mark.parametrize("room", [24, 25, 60, 4096])
def test_a_folder_is_listed_in_parts(one: Caller, room: int) -> None:
    for n in range(9):
        _save(one, f"tmp/{n}", b"")
    wanted = [".", "..", *map(str, range(9))]
    assert one.names(one.open("tmp"), max(room, 30)) == wanted


def test_a_listing_ends_wherever_it_is_continued(one: Caller) -> None:
    for cookie in (4, 5, 2**63, 2**64 - 1):
        checked(one("fd_readdir", ROOT, DATA, 4096, cookie, OUT))
        assert one.number() <= 4 * 32
    checked(one("fd_readdir", ROOT, DATA, 10, 0, OUT))
    assert one.number() == 10
    checked(one("fd_readdir", ROOT, DATA, 0, 0, OUT))
    assert one.number() == 0


def test_a_descriptor_takes_the_number_of_another(one: Caller) -> None:
    fd = one.open("data/a.txt")
    checked(one("fd_renumber", fd, fd))
    checked(one("fd_renumber", fd, 1))
    assert one.read(1) == b"hello"
    _refused(Errno.BADF, one, "fd_renumber", fd, 1)
    _refused(Errno.BADF, one, "fd_renumber", 1, fd)
    checked(one("fd_close", 1))
    _refused(Errno.BADF, one, "fd_close", 1)
    assert one.open("data") == 1
    for number in (0, 1, 2, ROOT):
        checked(one("fd_close", number))
    _refused(Errno.BADF, one, "fd_prestat_get", ROOT, OUT)


# -- what calls cost


def test_calls_are_counted_apart_and_cost_fuel() -> None:
    with caller(Limits(wasi_calls=2, host_calls=1)) as one:
        fuel = one.session.burnt()
        one("sched_yield")
        assert one.session.burnt() - fuel >= CALL_FUEL
        one("sched_yield")
        with pytest.raises(Stopped):
            one("sched_yield")
        assert ended(one).limit == "wasi_calls"
