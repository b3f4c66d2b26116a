"""
The component that `caxton agent build` makes of the author's module.

Only the build imports this module, in the virtual machine in which componentize-py
imports everything once. Each run starts with the memory that this leaves.
`_still.install` has run before.
"""

from __future__ import annotations

import _strptime  # type: ignore[import-not-found]  # noqa: F401 -- strptime would import it during the run, which is impossible; so for the others
import encodings.ascii
import encodings.cp1252
import encodings.idna
import encodings.latin_1
import encodings.utf_8_sig
import encodings.utf_16
import encodings.utf_32  # noqa: F401 -- as above
import gc
import importlib
import linecache
import sys
from collections.abc import Callable

import componentize_py_types
import wit_world
from wit_world.imports import host as wit

from . import _still
from ._bridge import Level, use
from ._run import end

__all__ = ["load"]

_BUILDING = (
    "host functions are not available during the build, when the agent's modules are "
    "imported: call them in run()"
)
_LEVELS = {level.name.lower(): level for level in wit.Level}


class _Wire:
    """The functions of the WIT package."""

    mcp_call = staticmethod(wit.mcp_call)
    mcp_call_many = staticmethod(wit.mcp_call_many)
    tools = staticmethod(wit.tools)
    context = staticmethod(wit.context)
    input = staticmethod(wit.input)
    output = staticmethod(wit.output)
    now = staticmethod(wit.now)
    random = staticmethod(wit.random)

    def log(self, level: Level, text: str) -> None:
        wit.log(_LEVELS[level], text)


def load(name: str) -> type[wit_world.WitWorld]:
    """
    Import the author's module and return the exports of the component.

    Raises:
        TypeError: The module has no function ``run``.
    """
    use(None, nobody=_BUILDING)
    module = importlib.import_module(name)
    run = getattr(module, "run", None)
    if not callable(run):
        raise TypeError(f"{name}.py has no function run()")
    _still.install_late()
    _keep_sources()

    agent: Callable[[], object] = run

    class World(wit_world.WitWorld):
        def run(self) -> None:
            _run(agent)

    gc.collect()
    gc.freeze()
    return World


def _run(agent: Callable[[], object]) -> None:
    use(_Wire())
    _still.seal()
    reason = end(agent)
    _still.flush()
    if reason is not None:
        raise componentize_py_types.Err(reason)


def _keep_sources() -> None:
    """Keep the lines of the author's modules, for tracebacks."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith("/0/"):
            lines = linecache.getlines(file)
            linecache.cache[file] = (len(lines), None, lines, file)
