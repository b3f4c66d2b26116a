"""
The host functions of WASI preview 1, for core modules that import them.

What they answer comes from the start of the run and its replies, never from the
machine: no file, clock or random number of it. So a replay gets the same answers. A
place outside memory is a trap, as in `abi`; everything else that is wrong is an error
number. What no program here can do answers ``ENOTSUP``.

A function does work in proportion to what its caller pays for: vectors, subscriptions,
and bytes of one call are bounded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import wasmtime

from ..core.commands import MODULE
from ..errors import BadBytes
from ..lib import codec
from . import abi, wire
from .interface import WASI_FUNCTIONS
from .session import Ended, Host
from .wasi_files import (
    LONGEST_PATH,
    Errno,
    File,
    Folder,
    Kind,
    Node,
    Open,
    Stream,
    Tree,
    WasiError,
    listing,
    refuse,
)
from .wire import End, Start

#: Descriptors that are open at a time.
MOST_OPEN = 256
#: Vectors of one read or write, and subscriptions of one wait.
MOST_VECTORS, MOST_WAITS = 1024, 1024
#: Bytes that one call reads or writes; a program then calls again.
MOST_BYTES = 16 * 1024 * 1024

_ROOT = b"/"
_ROOT_NUMBER = 3
_WARNING = 2
_LAST = 2**63 - 1
_READ, _WRITE = 1 << 1, 1 << 6
#: All rights there are: what a descriptor may do is decided when it is used.
_RIGHTS = (1 << 30) - 1
_CREATE, _DIRECTORY, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8
_APPEND = 1
_ABSOLUTE = 1
_CLOCKS = 4
#: Ends after which its worker still listens to the guest.
_OWN_ENDS = frozenset({"returned", "trap", "limit"})

_PAIR = Struct("<II")
_PRESTAT = Struct("<B3xI")
_FDSTAT = Struct("<BxH4xQQ")
_FILESTAT = Struct("<QQB7xQQQQQ")
_DIRENT = Struct("<QQIB3x")
_SUBSCRIPTION = Struct("<QB7xI4xQQH6x")
_EVENT = Struct("<QHB5xQH6x")
_AT_CLOCK, _AT_READ, _AT_WRITE = 0, 1, 2


class Session(abi.Session):
    """The host functions of one core module, with those of WASI."""

    _tree: Tree

    def __init__(self, start: Start, host: Host) -> None:
        super().__init__(start, host)
        # Descriptors, and calls that are left: of a program that has called once.
        self._open: dict[int, Open] = {}
        self._left = 0
        self._begun = False
        # Nanoseconds that it has slept.
        self._slept = 0
        self._printed, self._line = bytearray(), bytearray()

    def enter_wasi(self, caller: int) -> None:
        """Charge for a call of WASI, and find the guest's memory."""
        if not self._begun:
            self._begin()
        self._left -= 1
        if self._left < 0:
            self._over("wasi_calls", "more calls of WASI than the limit allows")
        self.burn()
        self._reach(caller)

    def finished(self, end: End) -> End:
        """Log the last line, and return the end with what was printed as the output."""
        if end.kind in _OWN_ENDS and self._line:
            self._tell(b"\n")
        if end.kind != "returned" or self.output is not None or not self._printed:
            return end
        most, text = self.limits.output, bytes(self._printed)
        try:
            output = codec.from_json(text, most, codec.RESULT_NODES)
        except BadBytes:
            output = codec.encode(text.decode(errors="replace"))
        if len(output) > most:
            message = f"{len(output)} bytes, of {most} allowed"
            return End(kind="limit", limit="output", message=message)
        self.output = output
        return end

    def _begin(self) -> None:
        limits = self.limits.of_command()
        given: dict[str, Any] = codec.decode_trusted(self.start.command) or {}
        value = codec.decode_trusted(self.start.input)
        if isinstance(value, str):
            text = value.encode()
        else:
            text = b"" if value is None else codec.to_json(self.start.input)
        self._begun, self._left = True, limits.wasi_calls or 0
        self._args = [f"{one}\0".encode() for one in given.get("args", ())]
        env: dict[str, str] = given.get("env", {})
        self._env = [f"{name}={value}\0".encode() for name, value in env.items()]
        self._tree = Tree(given.get("files", {}), limits.scratch or 0, self._time)
        self._open |= {
            0: Open(Stream(text)),
            1: Open(Stream(sink=self._print), reads=False, writes=True),
            2: Open(Stream(sink=self._tell), reads=False, writes=True),
            _ROOT_NUMBER: Open(self._tree.root),
        }

    # One method a function of WASI: unsigned arguments. An error number is raised.

    def args_get(self, pointers: int, buffer: int) -> None:
        """Write the arguments."""
        self._texts(self._args, pointers, buffer)

    def args_sizes_get(self, count: int, size: int) -> None:
        """Write how many arguments there are, and their bytes."""
        self._sizes(self._args, count, size)

    def environ_get(self, pointers: int, buffer: int) -> None:
        """Write the environment."""
        self._texts(self._env, pointers, buffer)

    def environ_sizes_get(self, count: int, size: int) -> None:
        """Write how many variables there are, and their bytes."""
        self._sizes(self._env, count, size)

    def clock_res_get(self, clock: int, out: int) -> None:
        """Write the resolution of a clock."""
        if clock >= _CLOCKS:
            refuse(Errno.INVAL)
        self._put(out, (1000).to_bytes(8, "little"))

    def clock_time_get(self, clock: int, _precision: int, out: int) -> None:
        """Write the time: that of `now`, and what the program has slept."""
        if clock >= _CLOCKS:
            refuse(Errno.INVAL)
        self._put(out, self._time().to_bytes(8, "little"))

    def fd_advise(self, number: int, _offset: int, _size: int, _advice: int) -> None:
        """Take advice, which changes nothing."""
        self._file(number)

    def fd_sync(self, number: int) -> None:
        """Return: files are in memory."""
        self._of(number)

    def fd_close(self, number: int) -> None:
        """Close a descriptor."""
        self._tree.closed(self._of(number).node)
        del self._open[number]

    def fd_renumber(self, number: int, to: int) -> None:
        """Move a descriptor to the number of another, which is closed."""
        one, other = self._of(number), self._of(to)
        if one is not other:
            self._tree.closed(other.node)
            self._open[to] = self._open.pop(number)

    def fd_fdstat_get(self, number: int, out: int) -> None:
        """Write the kind of a descriptor, and what it may do."""
        one = self._of(number)
        base = _RIGHTS
        if isinstance(one.node, Stream):
            base = _READ * one.reads | _WRITE * one.writes
        flags = _APPEND * one.appends
        self._put(out, _FDSTAT.pack(one.node.kind, flags, base, _RIGHTS))

    def fd_fdstat_set_flags(self, number: int, flags: int) -> None:
        """Set whether a descriptor writes at the end only."""
        self._of(number).appends = bool(flags & _APPEND)

    def fd_filestat_get(self, number: int, out: int) -> None:
        """Write the properties of an open file."""
        self._filestat(self._of(number).node, out)

    def fd_filestat_set_size(self, number: int, size: int) -> None:
        """Cut an open file, or fill it up."""
        one, file = self._file(number)
        if not one.writes:
            refuse(Errno.INVAL)
        self._tree.resize(file, size)

    def fd_prestat_get(self, number: int, out: int) -> None:
        """Write the length of the name of the folder that is open from the start."""
        self._root(number)
        self._put(out, _PRESTAT.pack(0, len(_ROOT)))

    def fd_prestat_dir_name(self, number: int, out: int, length: int) -> None:
        """Write that name."""
        self._root(number)
        if length < len(_ROOT):
            refuse(Errno.NAMETOOLONG)
        self._put(out, _ROOT)

    def fd_read(self, number: int, vectors: int, count: int, out: int) -> None:
        """Read on."""
        one = self._of(number)
        one.at += self._into(one, one.at, vectors, count, out)

    def fd_pread(
        self, number: int, vectors: int, count: int, offset: int, out: int
    ) -> None:
        """Read at a place."""
        one, _ = self._file(number)
        self._into(one, offset, vectors, count, out)

    def fd_write(self, number: int, vectors: int, count: int, out: int) -> None:
        """Write on."""
        one = self._of(number)
        if one.appends and isinstance(one.node, File):
            one.at = len(one.node.data)
        one.at += self._from(one, one.at, vectors, count, out)

    def fd_pwrite(
        self, number: int, vectors: int, count: int, offset: int, out: int
    ) -> None:
        """Write at a place."""
        one, _ = self._file(number)
        self._from(one, offset, vectors, count, out)

    def fd_seek(self, number: int, offset: int, whence: int, out: int) -> None:
        """Set where to read on, and write it."""
        one, file = self._file(number)
        if whence >= len(_WHENCE):
            refuse(Errno.INVAL)
        moved = offset - (offset >> 63 << 64)
        place = moved + _WHENCE[whence](one, file)
        if not 0 <= place <= _LAST:
            refuse(Errno.INVAL)
        self._put(out, place.to_bytes(8, "little"))
        one.at = place

    def fd_tell(self, number: int, out: int) -> None:
        """Write where it would read on."""
        one, _ = self._file(number)
        self._put(out, one.at.to_bytes(8, "little"))

    def fd_readdir(
        self, number: int, buffer: int, length: int, cookie: int, out: int
    ) -> None:
        """Write the names of a folder, from a place on."""
        one, folder = self._folder(number)
        self._check(buffer, length)
        if not cookie or not one.listing:
            one.listing = [*listing(folder)]
        data = bytearray()
        for place, (name, inode, kind) in enumerate(one.listing[cookie:], cookie + 1):
            encoded = name.encode()
            data += _DIRENT.pack(place, inode, len(encoded), kind) + encoded
            if len(data) >= length:
                break
        self._put(out, min(len(data), length).to_bytes(4, "little"))
        self._put(buffer, bytes(data[:length]))

    def path_create_directory(self, number: int, path: int, length: int) -> None:
        """Make a folder."""
        self._tree.make_folder(*self._path(number, path, length))

    def path_filestat_get(
        self, number: int, _flags: int, path: int, length: int, out: int
    ) -> None:
        """Write the properties of a file."""
        self._filestat(self._tree.find(*self._path(number, path, length)), out)

    def path_open(  # noqa: PLR0913, PLR0917 -- the shape of the function
        self,
        number: int,
        _lookup: int,
        path: int,
        length: int,
        how: int,
        rights: int,
        _inherited: int,
        flags: int,
        out: int,
    ) -> None:
        """Open a file or folder, and write its descriptor."""
        base, name = self._path(number, path, length)
        self._check(out, 4)
        free = next((n for n in range(MOST_OPEN) if n not in self._open), None)
        if free is None:
            refuse(Errno.MFILE)
        node = self._tree.open(
            base,
            name,
            create=bool(how & _CREATE),
            exclusive=bool(how & _EXCLUSIVE),
            folder=bool(how & _DIRECTORY),
            truncate=bool(how & _TRUNCATE),
            writes=bool(rights & _WRITE),
        )
        is_file = isinstance(node, File)
        self._tree.opened(node)
        self._open[free] = Open(
            node,
            reads=bool(rights & _READ) or not is_file,
            writes=bool(rights & _WRITE) and is_file,
            appends=bool(flags & _APPEND),
        )
        self._put(out, free.to_bytes(4, "little"))

    def path_readlink(
        self, number: int, path: int, length: int, _out: int, _cap: int, _used: int
    ) -> None:
        """Refuse: no file is a link."""
        self._tree.find(*self._path(number, path, length))
        refuse(Errno.INVAL)

    def path_remove_directory(self, number: int, path: int, length: int) -> None:
        """Remove an empty folder."""
        self._tree.remove(*self._path(number, path, length), Kind.FOLDER)

    def path_rename(  # noqa: PLR0913, PLR0917 -- the shape of the function
        self, number: int, path: int, length: int, to: int, new: int, new_length: int
    ) -> None:
        """Move a file or folder."""
        source = self._path(number, path, length)
        self._tree.rename(*source, *self._path(to, new, new_length))

    def path_unlink_file(self, number: int, path: int, length: int) -> None:
        """Remove a file."""
        self._tree.remove(*self._path(number, path, length), Kind.FILE)

    def poll_oneoff(self, asked: int, events: int, count: int, out: int) -> None:
        """
        Write which of the things that are waited for have happened.

        Files are always ready. If only clocks are waited for, the time moves to the
        first of them.
        """
        if not 0 < count <= MOST_WAITS:
            refuse(Errno.INVAL)
        self._check(asked, count * _SUBSCRIPTION.size)
        self._check(events, count * _EVENT.size)
        self._check(out, 4)
        now = self._time()
        happened: list[tuple[int, int, int, int, int]] = []
        timers: list[tuple[int, int]] = []
        wanted = self._read(asked, count * _SUBSCRIPTION.size)
        for user, tag, what, timeout, _, flags in _SUBSCRIPTION.iter_unpack(wanted):
            if tag in {_AT_READ, _AT_WRITE}:
                happened.append((user, *self._readiness(what, tag)))
            elif tag != _AT_CLOCK or what >= _CLOCKS:
                refuse(Errno.INVAL)
            else:
                due = timeout if flags & _ABSOLUTE else now + timeout
                timers.append((min(due, _LAST), user))
        if not happened:
            self._slept += max(0, min(due for due, _ in timers) - now)
            now = self._time()
        happened += [(user, 0, _AT_CLOCK, 0, 0) for due, user in timers if due <= now]
        self._put(out, len(happened).to_bytes(4, "little"))
        self._put(events, b"".join(_EVENT.pack(*one) for one in happened))

    def proc_exit(self, code: int) -> None:
        """End the program."""
        message = f"the program ended with exit code {code}" if code else ""
        signed = code - (code >> 31 << 32)
        self.end(End(kind="returned", code=signed, message=message))
        raise Ended

    def random_get(self, pointer: int, length: int) -> None:
        """Write the next bytes of the random stream."""
        self.random(pointer, length)

    def sched_yield(self) -> None:
        """Return: there are no threads."""

    def unsupported(self, *_: int) -> None:
        """Refuse what no program here can do."""
        refuse(Errno.NOTSUP)

    # -- memory

    def _put(self, pointer: int, data: bytes) -> None:
        self._check(pointer, len(data))
        ctypes.memmove(self._base + pointer, data, len(data))

    def _sizes(self, texts: Sequence[bytes], count: int, size: int) -> None:
        self._put(count, len(texts).to_bytes(4, "little"))
        self._put(size, sum(map(len, texts)).to_bytes(4, "little"))

    def _texts(self, texts: Sequence[bytes], pointers: int, buffer: int) -> None:
        for text in texts:
            self._put(pointers, buffer.to_bytes(4, "little"))
            self._put(buffer, text)
            pointers, buffer = pointers + 4, buffer + len(text)

    def _vectors(self, vectors: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield the places of a read or write, of so many bytes as one call moves."""
        if count > MOST_VECTORS:
            refuse(Errno.INVAL)
        self._check(vectors, count * _PAIR.size)
        left = MOST_BYTES
        for place, length in _PAIR.iter_unpack(self._read(vectors, count * _PAIR.size)):
            self._check(place, length)
            yield place, min(length, left)
            left -= min(length, left)

    # -- files

    def _of(self, number: int) -> Open:
        one = self._open.get(number)
        if one is None:
            refuse(Errno.BADF)
        return one

    def _file(self, number: int) -> tuple[Open, File]:
        one = self._of(number)
        if not isinstance(one.node, File):
            refuse(Errno.ISDIR if isinstance(one.node, Folder) else Errno.SPIPE)
        return one, one.node

    def _folder(self, number: int) -> tuple[Open, Folder]:
        one = self._of(number)
        if not isinstance(one.node, Folder):
            refuse(Errno.NOTDIR)
        return one, one.node

    def _root(self, number: int) -> None:
        if number != _ROOT_NUMBER or self._of(number).node is not self._tree.root:
            refuse(Errno.BADF)

    def _path(self, number: int, path: int, length: int) -> tuple[Folder, bytes]:
        _, folder = self._folder(number)
        self._check(path, length)
        return folder, self._read(path, min(length, LONGEST_PATH + 1))

    def _filestat(self, node: Node | Stream, out: int) -> None:
        size = 0 if isinstance(node, Folder) else len(node.data)
        times = (node.at,) * 3
        packed = _FILESTAT.pack(0, node.number, node.kind, 1, size, *times)
        self._put(out, packed)

    def _into(self, one: Open, start: int, vectors: int, count: int, out: int) -> int:
        """Read from a place, and return how many bytes."""
        self._check(out, 4)
        places = [*self._vectors(vectors, count)]
        if isinstance(one.node, Folder):
            refuse(Errno.ISDIR)
        if not one.reads:
            refuse(Errno.BADF)
        moved = 0
        for place, length in places:
            data = bytes(one.node.data[start + moved : start + moved + length])
            self._put(place, data)
            moved += len(data)
        self._put(out, moved.to_bytes(4, "little"))
        return moved

    def _from(self, one: Open, start: int, vectors: int, count: int, out: int) -> int:
        """Write to a place, and return how many bytes."""
        self._check(out, 4)
        places = self._vectors(vectors, count)
        data = b"".join(self._read(place, length) for place, length in places)
        if not one.writes:
            refuse(Errno.BADF)
        if isinstance(one.node, Stream) and one.node.sink:
            one.node.sink(data)
        elif isinstance(one.node, File):
            self._tree.write(one.node, start, data)
        self._put(out, len(data).to_bytes(4, "little"))
        return len(data)

    def _readiness(self, number: int, tag: int) -> tuple[int, int, int, int]:
        one = self._open.get(number)
        if one is None:
            return Errno.BADF, tag, 0, 0
        left = 0
        if tag == _AT_READ and not isinstance(one.node, Folder):
            left = max(0, len(one.node.data) - one.at)
        return 0, tag, left, 0

    # -- the run

    def _time(self) -> int:
        """Return nanoseconds since 1970."""
        return min(self._now * 1000 + self._slept, _LAST)

    def _print(self, data: bytes) -> None:
        size = len(self._printed) + len(data)
        if size > self.limits.output:
            self._over("output", f"{size} bytes, of {self.limits.output} allowed")
        self._printed += data

    def _tell(self, data: bytes) -> None:
        """Log whole lines, until the run is over its limit by one."""
        most, start = wire.log_cap(self.limits), 0
        while self._logged <= self.limits.log:
            end = data.find(b"\n", start)
            if end < 0:
                self._line += data[start : start + most - len(self._line)]
                return
            line = self._line + data[start : min(end, start + most)]
            self._say(_WARNING, bytes(line[:most]))
            self._line.clear()
            start = end + 1


_WHENCE: tuple[Callable[[Open, File], int], ...] = (
    lambda _one, _file: 0,
    lambda one, _file: one.at,
    lambda _one, file: len(file.data),
)

#: Functions whose answer is always ``ENOTSUP``.
UNSUPPORTED = frozenset(
    {
        "fd_allocate",
        "fd_fdstat_set_rights",
        "fd_filestat_set_times",
        "path_filestat_set_times",
        "path_link",
        "path_symlink",
        "proc_raise",
        "sock_accept",
        "sock_recv",
        "sock_send",
        "sock_shutdown",
    }
)


def _answering(name: str) -> Callable[..., int]:
    """Return a function of WASI that returns its error number."""
    known = {"fd_datasync": "fd_sync", **dict.fromkeys(UNSUPPORTED, "unsupported")}
    method: Callable[..., None] = getattr(Session, known.get(name, name))

    def answer(session: Session, *given: int) -> int:
        try:
            method(session, *given)
        except WasiError as exc:
            return exc.errno
        return 0

    return answer


_CALLED = abi.callback(
    WASI_FUNCTIONS,
    {name: _answering(name) for name in WASI_FUNCTIONS},
    Session.enter_wasi,
)


@dataclass(frozen=True, slots=True)
class ModuleCode(abi.ModuleCode):
    """A core module ready to run, which may be a WASI program."""

    session = Session


def load(
    built: wasmtime.Engine, linker: wasmtime.Linker, most: int, artifact: bytes | str
) -> ModuleCode:
    """Return the module in *artifact*, ready to run; see `abi.deserialize`."""
    module = abi.deserialize(built, artifact)
    return ModuleCode(built, linker.instantiate_pre(module), most)


def link(built: wasmtime.Engine) -> wasmtime.Linker:
    """Return a linker with all host functions, for modules of that engine."""
    linker = abi.link(built)
    abi.define(linker, MODULE, WASI_FUNCTIONS, _CALLED)
    return linker
