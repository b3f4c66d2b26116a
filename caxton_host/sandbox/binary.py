"""
The parser of WebAssembly binaries: what the gate must know of a core module.

One pass over section headers and declarations, linear in the size of the module.
Code is measured, never interpreted. Every count is bounded before it is followed.
A module that passes here may still be invalid: wasmtime decides that, in a confined
process. See https://webassembly.github.io/spec/core/binary/modules.html.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, NoReturn

from ..core.commands import ABI, MODULE
from ..core.names import clean_name
from ..errors import ModuleRefused

#: Bytes of one name.
MAX_NAME = 1_000
#: Items in all parts of a binary together. An agent in Python has 40,000.
MAX_THINGS = 250_000


def bound(what: str, number: int, maximum: int) -> None:
    """Refuse a module in which *number* exceeds *maximum*."""
    if number > maximum:
        raise ModuleRefused(
            f"the module has too many {what}: {number:,}, at most {maximum:,}",
            fix="build it optimized for size (-Os), or split it into several agents",
        )


class Reader:
    """
    A cursor that never leaves its part of the module.

    Args:
        data: The module.

        start: Where the part begins.

        end: Where it ends.

        seen: How many items were counted so far, in all parts of the module.
    """

    __slots__ = ("_data", "_end", "_seen", "position")

    def __init__(
        self, data: bytes, start: int, end: int, seen: list[int] | None = None
    ) -> None:
        self._data = data
        self._end = end
        self._seen = seen or [0]
        self.position = start

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._end - self.position

    def fail(self, what: str) -> NoReturn:
        """Refuse the module: it is not well-formed at this position."""
        raise ModuleRefused(
            f"the module is not well-formed: {what} at byte {self.position}",
            fix="build it again: the file is damaged, or needs a newer WebAssembly",
        )

    def byte(self) -> int:
        """Return the next byte."""
        if not self.left:
            self.fail("cut off")
        self.position += 1
        return self._data[self.position - 1]

    def u32(self) -> int:
        """Return the next number (LEB128)."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 -- the continuation bit of LEB128
                break
        else:
            self.fail("a number of more than five bytes")
        if value >> 32:
            self.fail("a number over 32 bits")
        return value

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        if size > self.left:
            self.fail("cut off")
        self.position += size
        return self._data[self.position - size : self.position]

    def part(self, size: int) -> Reader:
        """Return a reader of the next *size* bytes, and step over them."""
        if size > self.left:
            self.fail("cut off")
        self.position += size
        return Reader(self._data, self.position - size, self.position, self._seen)

    def name(self) -> str:
        """Return the next name, escaped."""
        return clean_name(self.take(self.count("bytes in a name", MAX_NAME)), MAX_NAME)

    def count(self, what: str, maximum: int) -> int:
        """Return the next number; refuse the module if it exceeds *maximum*."""
        count = self.u32()
        bound(what, count, maximum)
        return count

    def items(self, what: str, maximum: int) -> int:
        """Return how many items follow, and count them as read."""
        count = self.count(what, maximum)
        self.saw(count)
        return count

    def saw(self, number: int) -> None:
        """Count items that are going to be read."""
        self._seen[0] += number
        bound("things to look at", self._seen[0], MAX_THINGS)


# Compile time grows with each of these, in places faster than linearly. The largest
# body of a real agent had 427 KB and 271 locals.
MAX_SECTIONS = 1_000
MAX_TYPES = 10_000
MAX_PARAMETERS = 1_000
MAX_IMPORTS = 1_000
MAX_FUNCTIONS = 10_000
MAX_EXPORTS = 1_000
MAX_TABLES = 100
MAX_MEMORIES = 100
MAX_GLOBALS = 10_000
MAX_SEGMENTS = 10_000
#: A small program in Go has 28,000.
MAX_DATA_SEGMENTS = 200_000
MAX_BODY = 1024 * 1024
MAX_LOCALS = 2_000
MAX_LOCAL_GROUPS = 100_000
MAX_BODY_TIMES_LOCALS = 100_000_000

HEADER = b"\0asm\1\0\0\0"

_PAGES = 65_536
_VALUES = {
    0x7F: "i32",
    0x7E: "i64",
    0x7D: "f32",
    0x7C: "f64",
    0x7B: "v128",
    0x70: "funcref",
    0x6F: "externref",
}
_VALUE_BYTES = bytes(_VALUES)
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = range(4)
_KINDS = ("function", "table", "memory", "global")
_CODE = 10
#: The order in which sections must come; the data count (12) came late.
_ORDER = {id_: at for at, id_ in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """
    How many of some things a module may have. In components, there are more.

    Attributes:
        types: Whether to read the types of its imports and exports.
    """

    imports: int = MAX_IMPORTS
    exports: int = MAX_EXPORTS
    functions: int = MAX_FUNCTIONS
    types: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """
    A size that a memory or a table declares.

    Attributes:
        minimum: In pages of 64 KiB, or in elements.

        maximum: The same, or ``None``.
    """

    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """
    An import of a module. Names are escaped.

    Attributes:
        module: Of a component, the interface.

        kind: ``function``, ``table``, ``memory`` or ``global``; of a component also
            ``instance`` and other sorts of things.

        type: ``(i32, i32) -> i64`` for a function of a core module, else empty.
    """

    module: str
    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export of a module. Fields as in `Import`."""

    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInfo:
    """
    What a module declares; a component, with all modules inside it.

    Attributes:
        kind: ``core`` or ``component``.

        size: In bytes.

        memories: Sizes in pages of 64 KiB.

        tables: Sizes in elements.

        functions: How many it defines.

        custom_sections: Their names, escaped.
    """

    kind: Literal["core", "component"] = "core"
    sha256: str
    size: int
    imports: tuple[Import, ...]
    exports: tuple[Export, ...]
    memories: tuple[Bounds, ...]
    tables: tuple[Bounds, ...]
    functions: int
    custom_sections: tuple[str, ...]

    @property
    def abi(self) -> str:
        """The name of its ABI in logs."""
        if any(wanted.module == MODULE for wanted in self.imports):
            return ABI
        return f"{self.kind}/1"

    def to_json(self) -> bytes:
        """Return it as JSON, for `from_json`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ModuleInfo:
        """Return what `to_json` wrote."""
        told = json.loads(text)
        for name, type_ in _PARTS.items():
            told[name] = tuple(type_(**part) for part in told[name])
        return cls(**told | {"custom_sections": tuple(told["custom_sections"])})


_PARTS = {"imports": Import, "exports": Export, "memories": Bounds, "tables": Bounds}


def parse_module(module: bytes) -> ModuleInfo:
    """
    Return what a core module declares.

    Args:
        module: It begins with `HEADER`.

    Raises:
        ModuleRefused: It is not well-formed, or is larger somewhere than any bound
            above.
    """
    parser = ModuleParser(Caps())
    parser.read(Reader(module, len(HEADER), len(module)))
    return ModuleInfo(
        sha256=hashlib.sha256(module).hexdigest(),
        size=len(module),
        imports=tuple(parser.imports),
        exports=tuple(parser.exports.values()),
        memories=tuple(parser.memories),
        tables=tuple(parser.tables),
        functions=parser.defined,
        custom_sections=tuple(parser.custom),
    )


class ModuleParser:
    """
    What has been declared so far. One method a section, found by its number.

    Args:
        caps: How many there may be of some things.
    """

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.types: list[tuple[bytes, bytes]] = []
        self.imports: list[Import] = []
        self.exports: dict[str, Export] = {}
        self.memories: list[Bounds] = []
        self.tables: list[Bounds] = []
        self.custom: list[str] = []
        #: The type of every function, the imported ones first.
        self.functions: list[int] = []
        self.defined = 0
        self.local_groups = 0
        self._sections: dict[int, Callable[[Reader], None]] = {
            1: self._types,
            2: self._imports,
            3: self._functions,
            4: self._tables,
            5: self._memories,
            6: _counted("globals", MAX_GLOBALS),
            7: self._exports,
            8: _start,
            9: _counted("element segments", MAX_SEGMENTS),
            _CODE: self._code,
            11: _counted("data segments", MAX_DATA_SEGMENTS),
            12: _data_count,
        }

    def read(self, reader: Reader) -> None:
        """Read all sections of a module."""
        last, coded = -1, False
        for _ in range(MAX_SECTIONS):
            if not reader.left:
                break
            reader.saw(1)
            number = reader.byte()
            section = reader.part(reader.u32())
            if number == 0:
                self.custom.append(section.name())
                continue
            if number not in _ORDER:
                section.fail("a section of an unknown kind")
            if _ORDER[number] <= last:
                section.fail("a section twice or out of order")
            last, coded = _ORDER[number], coded or number == _CODE
            self._sections[number](section)
            if section.left:
                section.fail("bytes left over in a section")
        if reader.left:
            bound("sections", MAX_SECTIONS + 1, MAX_SECTIONS)
        if self.defined and not coded:
            reader.fail("functions without code")

    def _types(self, reader: Reader) -> None:
        for _ in range(reader.items("types", MAX_TYPES)):
            if reader.byte() != 0x60:  # noqa: PLR2004 -- a function type
                reader.fail("a type that is not of a function")
            self.types.append((_values(reader), _values(reader)))

    def _imports(self, reader: Reader) -> None:
        for _ in range(reader.items("imports", self.caps.imports)):
            module, name = reader.name(), reader.name()
            number = reader.byte()
            signature = ""
            if number == _FUNCTION:
                signature = self._signature(self._function(reader))
            elif number == _TABLE:
                _table(reader)
            elif number == _MEMORY:
                _limits(reader)
            elif number == _GLOBAL:
                _values(reader, 1)
                reader.byte()
            else:
                reader.fail("an import of an unknown kind")
            self.imports.append(
                Import(module=module, name=name, kind=_KINDS[number], type=signature)
            )

    def _function(self, reader: Reader) -> int:
        index = reader.u32()
        if index >= len(self.types):
            reader.fail("a function of an undeclared type")
        self.functions.append(index)
        return index

    def _signature(self, index: int) -> str:
        if not self.caps.types:
            return ""
        parameters, results = (
            ", ".join(_VALUES[value] for value in values)
            for values in self.types[index]
        )
        return f"({parameters}) -> {results or '()'}"

    def _functions(self, reader: Reader) -> None:
        self.defined = reader.items("functions", self.caps.functions)
        for _ in range(self.defined):
            self._function(reader)

    def _tables(self, reader: Reader) -> None:
        count = reader.items("tables", MAX_TABLES)
        self.tables += [_table(reader) for _ in range(count)]

    def _memories(self, reader: Reader) -> None:
        count = reader.items("memories", MAX_MEMORIES)
        self.memories += [_limits(reader) for _ in range(count)]
        if any(memory.minimum > _PAGES for memory in self.memories):
            reader.fail("a memory of more than 4 GiB")

    def _exports(self, reader: Reader) -> None:
        for _ in range(reader.items("exports", self.caps.exports)):
            name, number, index = reader.name(), reader.byte(), reader.u32()
            if number >= len(_KINDS):
                reader.fail("an export of an unknown kind")
            if name in self.exports:
                reader.fail("an export twice")
            signature = ""
            if number == _FUNCTION:
                if index >= len(self.functions):
                    reader.fail("an export of an undeclared function")
                signature = self._signature(self.functions[index])
            self.exports[name] = Export(name=name, kind=_KINDS[number], type=signature)

    def _code(self, reader: Reader) -> None:
        if reader.u32() != self.defined:
            reader.fail("another number of bodies than of functions")
        imported = len(self.functions) - self.defined
        for index in self.functions[imported:]:
            size = reader.count("bytes in one function", MAX_BODY)
            declared = len(self.types[index][0]) + self._locals(reader.part(size))
            bound("local variables in one function", declared, MAX_LOCALS)
            bound(
                "bytes times local variables in one function",
                size * declared,
                MAX_BODY_TIMES_LOCALS,
            )

    def _locals(self, body: Reader) -> int:
        groups = body.items("groups of local variables", MAX_LOCAL_GROUPS)
        self.local_groups += groups
        bound("groups of local variables", self.local_groups, MAX_LOCAL_GROUPS)
        total = 0
        for _ in range(groups):
            total += body.u32()
            _values(body, 1)
        return total


def _values(reader: Reader, count: int | None = None) -> bytes:
    if count is None:
        count = reader.count("parameters or results of one function", MAX_PARAMETERS)
    values = reader.take(count)
    if values.strip(_VALUE_BYTES):
        reader.fail("a value of an unknown type")
    return values


def _limits(reader: Reader, *, what: str = "memory") -> Bounds:
    flags = reader.byte()
    if flags > 1:
        raise ModuleRefused(
            f"the module has a {what} that is shared, 64-bit or of custom pages",
            fix="build it without threads, memory64 and custom page sizes",
        )
    minimum = reader.u32()
    return Bounds(minimum=minimum, maximum=reader.u32() if flags else None)


def _table(reader: Reader) -> Bounds:
    if reader.byte() not in {0x70, 0x6F}:
        reader.fail("a table of something else than functions or references")
    return _limits(reader, what="table")


def _counted(what: str, maximum: int) -> Callable[[Reader], None]:
    """Return a section reader that counts, and leaves the contents to wasmtime."""

    def read(reader: Reader) -> None:
        reader.count(what, maximum)
        reader.part(reader.left)

    return read


def _start(reader: Reader) -> None:
    reader.u32()


def _data_count(reader: Reader) -> None:
    reader.count("data segments", MAX_DATA_SEGMENTS)
