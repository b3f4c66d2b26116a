"""
The compile child: one module in, one artifact out, and nothing else.

Run as ``python -I -m caxton_host.sandbox.compile_child PARENT``. It reads a line of
JSON and then the module, confines itself, writes ``!``, compiles, and writes ``+`` and
the artifact, or ``-`` and why wasmtime refuses the module, or ``?`` and what a
component declares otherwise than the host does.
"""

from __future__ import annotations

import json
import math
import os
import sys

import wasmtime
from wasmtime.component import Component

from .component_types import mismatch
from .confine import confine, die_with_parent
from .engine import build_engine
from .settings import EngineSettings


def main() -> None:
    """Compile what stdin holds."""
    die_with_parent(int(sys.argv[1]))
    order = json.loads(sys.stdin.buffer.readline())
    module = sys.stdin.buffer.read()
    settings = EngineSettings.from_json(order["settings"])
    engine = build_engine(settings)
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
    # What is left to end would end in a process that can do next to nothing.
    os._exit(0)


def _component(engine: wasmtime.Engine, data: bytes, entry: str) -> bytes:
    compiled = Component(engine, data)
    if fault := mismatch(engine, compiled, entry):
        return b"?" + fault.encode()
    return b"+" + compiled.serialize()


if __name__ == "__main__":
    main()
