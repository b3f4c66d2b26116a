"""
The files of a WASI program: a read-only tree, and what it writes itself, in memory.

Paths are resolved here, from an open folder down; the machine never sees one. Every
number and name comes from the program. There are no links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import NoReturn, TypeAlias

#: Files and folders that a program may make.
MOST_NODES = 4096
# Bytes.
LONGEST_PATH, _LONGEST_NAME = 4096, 255


class Errno(IntEnum):
    """The errors of preview 1 that a program can get."""

    BADF = 8
    EXIST = 20
    ILSEQ = 25
    INVAL = 28
    ISDIR = 31
    MFILE = 33
    NAMETOOLONG = 37
    NOENT = 44
    NOSPC = 51
    NOTDIR = 54
    NOTEMPTY = 55
    NOTSUP = 58
    ROFS = 69
    SPIPE = 70
    NOTCAPABLE = 76


class WasiError(Exception):
    """A function of WASI returns an error number."""

    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.name)
        self.errno = errno


class Kind(IntEnum):
    """The types of files, as preview 1 numbers them."""

    UNKNOWN = 0
    FOLDER = 3
    FILE = 4


@dataclass(slots=True, eq=False)
class Stream:
    """
    Standard input, output or error.

    Attributes:
        data: What can be read.

        sink: Takes what is written, or ``None`` if nothing can be.
    """

    data: bytes = b""
    sink: Callable[[bytes], None] | None = None
    number: int = 0
    at: int = 0
    kind = Kind.UNKNOWN


@dataclass(slots=True, eq=False)
class File:
    """
    A file.

    Attributes:
        linked: Whether it has a name.

        opened: How many descriptors it has. Without both, it is gone.
    """

    number: int
    at: int
    data: bytes | bytearray
    read_only: bool = False
    linked: bool = True
    opened: int = 0
    kind = Kind.FILE


@dataclass(slots=True, eq=False)
class Folder:
    """A folder; `above` is ``None`` if it is the root, or was removed."""

    number: int
    at: int
    above: Folder | None = None
    read_only: bool = False
    linked: bool = True
    entries: dict[str, Node] = field(default_factory=dict[str, "Node"])
    kind = Kind.FOLDER


Node: TypeAlias = File | Folder


@dataclass(slots=True, eq=False)
class Open:
    """
    An open file, folder or stream.

    Attributes:
        at: Where the next byte is read or written.

        appends: Whether it writes at the end only.

        listing: The names of a folder, as they were when the first one was read.
    """

    node: Node | Stream
    reads: bool = True
    writes: bool = False
    appends: bool = False
    at: int = 0
    listing: list[tuple[str, int, Kind]] = field(
        default_factory=list[tuple[str, int, Kind]]
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path leads: *name* is empty if it is *node* itself that was open."""

    folder: Folder
    name: str
    node: Node | None
    is_folder: bool

    def taken(self) -> Node:
        """Return what is there."""
        if self.node is None:
            refuse(Errno.NOENT)
        if self.is_folder and self.node.kind is not Kind.FOLDER:
            refuse(Errno.NOTDIR)
        return self.node

    def changeable(self) -> None:
        """Check that a name of the folder may be set or removed."""
        if not self.name:
            refuse(Errno.INVAL)
        if self.folder.read_only or (self.node and self.node.read_only):
            refuse(Errno.ROFS)
        if not self.folder.linked:
            refuse(Errno.NOENT)


class Tree:
    """
    The tree of one run.

    Args:
        files: Path to bytes, of what the program can only read.

        room: How many bytes it may write.

        now: Returns the time, in nanoseconds.
    """

    def __init__(
        self, files: Mapping[str, bytes], room: int, now: Callable[[], int]
    ) -> None:
        self.room = room
        self._nodes = MOST_NODES
        self._numbers = count(1)
        self._now = now
        self.root = Folder(next(self._numbers), now())
        for path, data in files.items():
            *folders, name = path.split("/")
            here = self.root
            for step in folders:
                inner = here.entries.get(step)
                if not isinstance(inner, Folder):
                    inner = Folder(next(self._numbers), now(), here, read_only=True)
                    here.entries[step] = inner
                here = inner
            here.entries[name] = File(next(self._numbers), now(), data, read_only=True)
        if "tmp" not in self.root.entries:
            self.make_folder(self.root, b"tmp")

    # -- by path

    def find(self, base: Folder, path: bytes) -> Node:
        """Return what a path leads to."""
        return _place(base, path).taken()

    def open(  # noqa: PLR0913 -- each is a bit of the request
        self,
        base: Folder,
        path: bytes,
        *,
        create: bool,
        exclusive: bool,
        folder: bool,
        truncate: bool,
        writes: bool,
    ) -> Node:
        """Return what a path leads to, made or emptied if that was asked for."""
        place = _place(base, path)
        if place.node is None and create:
            if folder or place.is_folder:
                refuse(Errno.INVAL)
            place.changeable()
            made = File(self._number(), self._now(), bytearray())
            place.folder.entries[place.name] = made
            return made
        node = place.taken()
        if create and exclusive:
            refuse(Errno.EXIST)
        if isinstance(node, Folder):
            if truncate:
                refuse(Errno.ISDIR)
            return node
        if folder:
            refuse(Errno.NOTDIR)
        if node.read_only and (writes or truncate):
            refuse(Errno.ROFS)
        if truncate:
            self.resize(node, 0)
        return node

    def make_folder(self, base: Folder, path: bytes) -> None:
        """Make a folder."""
        place = _place(base, path)
        if place.node:
            refuse(Errno.EXIST)
        place.changeable()
        made = Folder(self._number(), self._now(), place.folder)
        place.folder.entries[place.name] = made

    def remove(self, base: Folder, path: bytes, kind: Kind) -> None:
        """Remove a file, or an empty folder."""
        place = _place(base, path)
        node = place.taken()
        place.changeable()
        if node.kind is not kind:
            refuse(Errno.NOTDIR if kind is Kind.FOLDER else Errno.ISDIR)
        self._remove(place.folder, place.name, node)

    def rename(self, base: Folder, path: bytes, to: Folder, new: bytes) -> None:
        """Move a file or folder; what is there is replaced."""
        source, target = _place(base, path), _place(to, new)
        node = source.taken()
        source.changeable()
        target.changeable()
        if target.node is node:
            return
        if isinstance(node, Folder):
            above: Folder | None = target.folder
            while above:
                if above is node:
                    refuse(Errno.INVAL)
                above = above.above
        elif target.is_folder:
            refuse(Errno.NOTDIR)
        if target.node:
            if target.node.kind is not node.kind:
                refuse(Errno.ISDIR if node.kind is Kind.FILE else Errno.NOTDIR)
            self._remove(target.folder, target.name, target.node)
        del source.folder.entries[source.name]
        target.folder.entries[target.name] = node
        if isinstance(node, Folder):
            node.above = target.folder

    def _number(self) -> int:
        if not self._nodes:
            refuse(Errno.NOSPC)
        self._nodes -= 1
        return next(self._numbers)

    def _remove(self, folder: Folder, name: str, node: Node) -> None:
        if isinstance(node, Folder) and node.entries:
            refuse(Errno.NOTEMPTY)
        del folder.entries[name]
        node.linked = False
        self._nodes += 1
        if isinstance(node, File):
            self._drop(node)

    # -- by file

    def opened(self, node: Node | Stream) -> None:
        """Note a new descriptor of *node*."""
        if isinstance(node, File):
            node.opened += 1

    def closed(self, node: Node | Stream) -> None:
        """Note that a descriptor of *node* was closed."""
        if isinstance(node, File):
            node.opened -= 1
            self._drop(node)

    def write(self, file: File, start: int, data: bytes) -> None:
        """Write bytes, from *start* on."""
        if start > len(file.data):
            self.resize(file, start + len(data))
        content = self._writable(file, start + len(data) - len(file.data))
        content[start : start + len(data)] = data

    def resize(self, file: File, size: int) -> None:
        """Cut a file, or fill it up with zeros."""
        content = self._writable(file, size - len(file.data))
        if size < len(content):
            self.room += len(content) - size
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def _writable(self, file: File, more: int) -> bytearray:
        """Return the content of a file that grows by *more* bytes, if there is room."""
        if not isinstance(file.data, bytearray):
            refuse(Errno.ROFS)
        if more > self.room:
            refuse(Errno.NOSPC)
        self.room -= max(more, 0)
        file.at = self._now()
        return file.data

    def _drop(self, file: File) -> None:
        if not file.linked and not file.opened and isinstance(file.data, bytearray):
            self.room += len(file.data)
            file.data = bytearray()


def refuse(errno: Errno) -> NoReturn:
    """Raise an error number."""
    raise WasiError(errno)


def listing(folder: Folder) -> Iterator[tuple[str, int, Kind]]:
    """Yield name, number and kind of all that is in a folder, itself first."""
    yield ".", folder.number, Kind.FOLDER
    yield "..", (folder.above or folder).number, Kind.FOLDER
    for name, node in folder.entries.items():
        yield name, node.number, node.kind


def _steps(path: bytes) -> list[str]:
    """Return the names in a path."""
    if len(path) > LONGEST_PATH:
        refuse(Errno.NAMETOOLONG)
    try:
        text = path.decode()
    except UnicodeDecodeError:
        refuse(Errno.ILSEQ)
    if not text:
        refuse(Errno.NOENT)
    if "\0" in text:
        refuse(Errno.INVAL)
    if text.startswith("/"):
        refuse(Errno.NOTCAPABLE)
    steps = text.split("/")
    if any(len(step.encode()) > _LONGEST_NAME for step in steps):
        refuse(Errno.NAMETOOLONG)
    return steps


def _place(base: Folder, path: bytes) -> _Place:
    """Resolve a path. It cannot leave *base*."""
    steps = _steps(path)
    is_folder = steps[-1] in {"", ".", ".."}
    walked: list[tuple[Folder, str]] = []
    here: Node | None = base
    for step in steps:
        if step in {"", "."}:
            continue
        if here is None:
            refuse(Errno.NOENT)
        if isinstance(here, File):
            refuse(Errno.NOTDIR)
        if step != "..":
            walked.append((here, step))
            here = here.entries.get(step)
        elif walked:
            here, _ = walked.pop()
        else:
            refuse(Errno.NOTCAPABLE)
    folder, name = walked[-1] if walked else (base, "")
    return _Place(folder, name, here, is_folder)
