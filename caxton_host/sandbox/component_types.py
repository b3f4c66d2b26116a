"""
Whether a component means by its imports, and its entry point, what the host does.

wasmtime takes a host function of any type for an import of any type, and finds out
when it is called. For the compile child: a component's types are its author's.
"""

from __future__ import annotations

import wasmtime
from wasmtime import component as c

from .interface import ENTRY_TYPE, FUNCTIONS, INTERFACE

#: Those that the host has; others go by what wasmtime calls them.
_SIMPLE: dict[type[c.ValType], str] = {
    c.S64: "s64",
    c.U64: "u64",
    c.U32: "u32",
    c.String: "string",
}


def mismatch(engine: wasmtime.Engine, component: c.Component, entry: str) -> str:
    """Return what is declared otherwise than the host declares it, or nothing."""
    type_ = component.type
    for name, extern in type_.imports(engine).items():
        item = extern.ty
        if name != INTERFACE or not isinstance(item, c.ComponentInstanceType):
            return f'the component imports "{name}", which does not exist'
        for function, each in item.exports(engine).items():
            found = each.ty
            if isinstance(found, c.ValType):  # the name of a type
                continue
            if _shown(found) != FUNCTIONS.get(function):
                return (
                    f'the component imports "{function}" as {_shown(found)}; '
                    f"it is {FUNCTIONS.get(function, 'unknown')}"
                )
    run = type_.exports(engine).get(entry)
    if run is None or _shown(run.ty) != ENTRY_TYPE:
        return f'the entry point "{entry}" is no function {ENTRY_TYPE}'
    return ""


def _shown(item: object) -> str:
    if not isinstance(item, c.FuncType):
        return type(item).__name__
    parameters = ", ".join(_type(type_) for _, type_ in item.params)
    result = item.result
    return f"({parameters})" + (f" -> {_type(result)}" if result else "")


def _type(type_: c.ValType | None) -> str:
    if type_ is None:
        return "_"
    if isinstance(type_, c.OptionType):
        return f"option<{_type(type_.payload)}>"
    if isinstance(type_, c.ResultType):
        return f"result<{_type(type_.ok)}, {_type(type_.err)}>"
    if isinstance(type_, c.EnumType):
        names = (str(type_.name(number)) for number in range(type_.names_count))
        return f"enum {{{', '.join(names)}}}"
    return _SIMPLE.get(type(type_), type(type_).__name__)
