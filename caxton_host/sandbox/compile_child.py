"""
The compile child: reads one module and writes one artifact.

Run as ``python -I -m caxton_host.sandbox.compile_child PARENT``. It reads a line of
JSON and then the module, confines itself, writes ``!``, compiles, and writes ``+`` and
the artifact, or ``-`` and why wasmtime refuses the module, or ``?`` and the import or
export of a component whose type is not the host's.
"""

from __future__ import annotations

import json
import math
import os
import sys

import wasmtime
from wasmtime import component as c
from wasmtime.component import Component

from .confine import confine, die_with_parent
from .engine import build_engine
from .interface import ENTRY_TYPE, FUNCTIONS, INTERFACE
from .settings import EngineSettings

#: Bytes of a module that is compiled by as many threads as there are processors.
_LARGE = 1024 * 1024

#: Types that the host uses; others are shown by their name in wasmtime.
_SIMPLE: dict[type[c.ValType], str] = {
    c.S64: "s64",
    c.U64: "u64",
    c.U32: "u32",
    c.String: "string",
}


# wasmtime accepts a host function of any type for an import of any type, and fails
# only when it is called.
def mismatch(engine: wasmtime.Engine, component: c.Component, entry: str) -> str:
    """Return how an import or the entry differs from the host's types, or ``""``."""
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
        return f'the entry point "{entry}" is not a function {ENTRY_TYPE}'
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


def main() -> None:
    """Compile what stdin holds."""
    die_with_parent(int(sys.argv[1]))
    order = json.loads(sys.stdin.buffer.readline())
    module = sys.stdin.buffer.read()
    settings = EngineSettings.from_json(order["settings"])
    engine = build_engine(settings, parallel=len(module) >= _LARGE)
    confine(address_space=order["memory"], cpu=math.ceil(order["cpu"]))
    sys.stdout.buffer.write(b"!")
    sys.stdout.buffer.flush()
    try:
        if settings.component:
            reply = _component(engine, module, order["entry"])
        else:
            reply = b"+" + wasmtime.Module(engine, module).serialize()
    except wasmtime.WasmtimeError as error:
        reply = b"-" + str(error).encode()
    sys.stdout.buffer.write(reply)
    sys.stdout.buffer.flush()
    # A confined process could not carry out what Python does at its exit.
    os._exit(0)


def _component(engine: wasmtime.Engine, data: bytes, entry: str) -> bytes:
    compiled = Component(engine, data)
    if fault := mismatch(engine, compiled, entry):
        return b"?" + fault.encode()
    return b"+" + compiled.serialize()


if __name__ == "__main__":
    main()
