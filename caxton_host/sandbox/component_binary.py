"""
The parser of WebAssembly components: what the gate must know of one.

One pass over the sections. Of the outermost component the types are read, as far as
it takes to know what is imported; of those inside only the core modules, and how many
there are of everything. A component that passes here may still be invalid: wasmtime
decides that, in a confined process. See
https://github.com/WebAssembly/component-model/blob/main/design/mvp/Binary.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ..core.limits import COMPONENT
from .binary import (
    HEADER,
    Bounds,
    Caps,
    Export,
    Import,
    ModuleInfo,
    ModuleParser,
    Reader,
    bound,
)

# An agent in Python has 41 modules, of which one has 10,625 functions and 1,857
# exports, and 900 items in 400 sections. One in JavaScript is nested 3 deep.
MAX_DEPTH = 32
MAX_SECTIONS = 10_000
MAX_ITEMS = 50_000
MAX_MODULES = 1_000
MAX_IMPORTS = 1_000
MAX_EXPORTS = 1_000
MAX_MEMORIES = 100
MAX_TABLES = 1_000
MAX_FUNCTIONS = 100_000
_INSIDE = Caps(imports=10_000, exports=10_000, functions=50_000, types=False)

_CUSTOM, _MODULE, _COMPONENT, _ALIAS, _TYPE, _IMPORT, _EXPORT = 0, 1, 4, 6, 7, 10, 11
_LAST = 12
_SORTS = ("core", "function", "value", "type", "component", "instance")
_CORE = 0
_CORE_MODULE = 0x11


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interface:
    """What an instance of some type exports: names, and of what sort each is."""

    exports: dict[str, str] = field(default_factory=dict[str, str])


def parse_component(data: bytes) -> ModuleInfo:
    """
    Return what a component declares.

    Args:
        data: It begins with `COMPONENT`.

    Raises:
        ModuleRefused: It is not well-formed, or is larger somewhere than any bound
            above.
    """
    parser = _Parser()
    parser.read(Reader(data, len(COMPONENT), len(data)), 0)
    return ModuleInfo(
        kind="component",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        imports=tuple(parser.imports),
        exports=tuple(parser.exports.values()),
        memories=tuple(parser.memories),
        tables=tuple(parser.tables),
        functions=parser.functions,
        custom_sections=tuple(parser.custom),
    )


class _Parser:
    """What has been declared so far."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.exports: dict[str, Export] = {}
        self.memories: list[Bounds] = []
        self.tables: list[Bounds] = []
        self.functions = 0
        self.custom: list[str] = []
        #: The outermost component's types; ``None`` for what is no interface.
        self._types: list[_Interface | None] = []
        self._sections = self._items = self._modules = 0

    def read(self, reader: Reader, depth: int) -> None:
        bound("components inside each other", depth, MAX_DEPTH)
        while reader.left:
            self._sections += 1
            bound("sections", self._sections, MAX_SECTIONS)
            number = reader.byte()
            section = reader.part(reader.u32())
            if number == _CUSTOM:
                if not depth:
                    self.custom.append(section.name())
            elif number == _MODULE:
                self._module(section)
            elif number == _COMPONENT:
                if section.take(len(COMPONENT)) != COMPONENT:
                    section.fail("a component inside without its first bytes")
                self.read(section, depth + 1)
            elif number <= _LAST:
                self._declared(number, section, outermost=not depth)
            else:
                section.fail("a section of an unknown kind")

    def _module(self, reader: Reader) -> None:
        if reader.take(len(HEADER)) != HEADER:
            reader.fail("a module inside without its first bytes")
        module = ModuleParser(_INSIDE)
        module.read(reader)
        self._modules += 1
        self.memories += module.memories
        self.tables += module.tables
        self.functions += module.defined
        bound("modules", self._modules, MAX_MODULES)
        bound("memories", len(self.memories), MAX_MEMORIES)
        bound("tables", len(self.tables), MAX_TABLES)
        bound("functions", self.functions, MAX_FUNCTIONS)

    def _declared(self, number: int, reader: Reader, *, outermost: bool) -> None:
        count = reader.items("items in one section", MAX_ITEMS)
        self._items += count
        bound("items", self._items, MAX_ITEMS)
        if outermost and number in {_TYPE, _ALIAS, _IMPORT, _EXPORT}:
            for _ in range(count):
                self._item(number, reader)
            if reader.left:
                reader.fail("bytes left over in a section")

    def _item(self, number: int, reader: Reader) -> None:
        if number == _TYPE:
            self._types.append(_type(reader, 0))
        elif number == _ALIAS:
            if _alias(reader) == "type":
                self._types.append(None)
        elif number == _IMPORT:
            self._import(_extern_name(reader), reader)
        else:
            self._export(_extern_name(reader), reader)

    def _import(self, name: str, reader: Reader) -> None:
        kind, index = _extern(reader)
        if kind == "type":
            self._types.append(None)
        found = self._types[index] if 0 <= index < len(self._types) else None
        functions = found.exports if kind == "instance" and found else {}
        self.imports += [
            Import(module=name, name=each, kind=sort, type="")
            for each, sort in functions.items()
            if sort != "type"
        ] or [Import(module=name, name="", kind=kind, type="")]
        bound("imports", len(self.imports), MAX_IMPORTS)

    def _export(self, name: str, reader: Reader) -> None:
        kind = _sort(reader)
        reader.u32()
        if reader.byte():
            _extern(reader)
        if kind == "type":
            self._types.append(None)
        if name in self.exports:
            reader.fail("an export twice")
        self.exports[name] = Export(name=name, kind=kind, type="")
        bound("exports", len(self.exports), MAX_EXPORTS)


def _sort(reader: Reader) -> str:
    number = reader.byte()
    if number >= len(_SORTS):
        reader.fail("an item of an unknown sort")
    if number == _CORE:
        return "core module" if reader.byte() == _CORE_MODULE else "core item"
    return _SORTS[number]


def _extern_name(reader: Reader) -> str:
    if reader.byte() > 1:
        reader.fail("a name of an unknown kind")
    return reader.name()


def _extern(reader: Reader) -> tuple[str, int]:
    """Return the sort of an import or export, and the index of its type, or -1."""
    kind = _sort(reader)
    if kind == "type" and reader.byte() == 1:  # a resource of its own
        return kind, -1
    if kind == "value" and reader.byte() == 1:
        _value(reader)
        return kind, -1
    return kind, reader.u32()


def _alias(reader: Reader) -> str:
    """Step over an alias, and return its sort."""
    kind = _sort(reader)
    target = reader.byte()
    reader.u32()
    if target == 2:  # noqa: PLR2004 -- of a component around this one
        reader.u32()
    elif target < 2:  # noqa: PLR2004 -- of an instance
        reader.name()
    else:
        reader.fail("an alias of an unknown kind")
    return kind


def _type(reader: Reader, depth: int) -> _Interface | None:
    """Step over a type; return its exports if it is the type of an instance."""
    bound("types inside each other", depth, MAX_DEPTH)
    form = reader.byte()
    if form in {0x40, 0x43}:
        _function(reader)
    elif form in {0x41, 0x42}:
        return _interface(reader, depth, component=form == 0x41)  # noqa: PLR2004 -- as above
    elif form == 0x3F:  # noqa: PLR2004 -- a resource
        reader.byte()
        _optional_index(reader)
    else:
        _defined(reader, form)
    return None


def _interface(reader: Reader, depth: int, *, component: bool) -> _Interface | None:
    exports: dict[str, str] = {}
    for _ in range(reader.items("items in one type", MAX_ITEMS)):
        match reader.byte():
            case 1:
                _type(reader, depth + 1)
            case 2:
                _alias(reader)
            case 3 if component:
                _extern_name(reader)
                _extern(reader)
            case 4:
                name = _extern_name(reader)
                exports[name] = _extern(reader)[0]
            case _:
                reader.fail("a type of an unknown form")
    return None if component else _Interface(exports=exports)


def _function(reader: Reader) -> None:
    for _ in range(reader.items("parameters of one function", MAX_ITEMS)):
        reader.name()
        _value(reader)
    if reader.byte() == 0:
        _value(reader)
    elif reader.byte():
        reader.fail("a function with named results")


def _defined(reader: Reader, form: int) -> None:
    if 0x73 <= form <= 0x7F or form == 0x64:  # noqa: PLR2004 -- numbers, text
        return
    if form not in _FORMS:
        reader.fail("a type of an unknown form")
    for step in _FORMS[form]:
        step(reader)


def _value(reader: Reader) -> None:
    # A number below 0 for a simple type, or the index of another.
    reader.u32()


def _optional(reader: Reader) -> None:
    if reader.byte():
        _value(reader)


def _optional_index(reader: Reader) -> None:
    if reader.byte():
        reader.u32()


def _fields(reader: Reader) -> None:
    for _ in range(reader.items("fields of one type", MAX_ITEMS)):
        reader.name()
        _value(reader)


def _cases(reader: Reader) -> None:
    for _ in range(reader.items("cases of one type", MAX_ITEMS)):
        reader.name()
        _optional(reader)
        _optional_index(reader)


def _values(reader: Reader) -> None:
    for _ in range(reader.items("values of one type", MAX_ITEMS)):
        _value(reader)


def _labels(reader: Reader) -> None:
    for _ in range(reader.items("labels of one type", MAX_ITEMS)):
        reader.name()


#: What follows the first byte of a type of values.
_FORMS = {
    0x72: (_fields,),
    0x71: (_cases,),
    0x70: (_value,),
    0x6F: (_values,),
    0x6E: (_labels,),
    0x6D: (_labels,),
    0x6B: (_value,),
    0x6A: (_optional, _optional),
    0x69: (_value,),
    0x68: (_value,),
    0x67: (_value, _value),
    0x66: (_optional,),
    0x65: (_optional,),
    0x63: (_value, _value),
}
