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
import inspect
import linecache
import sys
from collections.abc import Callable

import componentize_py_types
import wit_world
from wit_world.imports import host as wit

from . import _still
from ._bridge import Level, use
from ._calls import BadRequest
from ._run import end

__all__ = ["load", "world"]

_BUILDING = (
    "host functions are not available during the build, when the agent's modules are "
    "imported: call them in run()"
)
_LOST = "the agent broke its own interpreter, which cannot tell the error"
#: Bytes of a text for the host.
_LARGEST = 2 * 1024 * 1024
_LEVELS = {level.name.lower(): level for level in wit.Level}


class _Wire:
    """The functions of the WIT package."""

    tools = staticmethod(wit.tools)
    context = staticmethod(wit.context)
    input = staticmethod(wit.input)
    output = staticmethod(wit.output)
    random = staticmethod(wit.random)
    program = staticmethod(wit.program)

    def __init__(self) -> None:
        self._now: int | None = None

    def mcp_call(self, name: str, params: str) -> str:
        self._now = None
        return wit.mcp_call(_bounded(name), _bounded(params))

    def mcp_call_many(self, batch: str) -> str:
        self._now = None
        return wit.mcp_call_many(_bounded(batch))

    def now(self) -> int:
        """Return the time, which only calls change: event loops often ask for it."""
        if self._now is None:
            self._now = wit.now()
        return self._now

    def log(self, level: Level, text: str) -> None:
        wit.log(_LEVELS[level], text)


def _bounded(text: str) -> str:
    """Return *text*; refuse one that would end the interpreter."""
    if len(text) * 4 > _LARGEST and (size := len(text.encode())) > _LARGEST:
        raise BadRequest("bad_request", f"{size:,} bytes, of {_LARGEST:,} allowed")
    return text


def load(name: str) -> type[wit_world.WitWorld]:
    """
    Import the author's module and return the exports of the component.

    Raises:
        TypeError: The module has no function ``run``.
    """
    use(None, nobody=_BUILDING)
    run = getattr(importlib.import_module(name), "run", None)
    if not callable(run):
        raise TypeError(f"{name}.py has no function run()")
    if inspect.iscoroutinefunction(run):
        importlib.import_module("asyncio")
    _keep_sources()
    return world(lambda: end(run))


def world(
    start: Callable[[], str | None], *finders: object
) -> type[wit_world.WitWorld]:
    """
    Return the exports of a component.

    Args:
        start: Runs it to its end, and returns the reason of its failure, if any.

        finders: As for `_still.seal`.
    """
    _still.install_late()
    # Bound here: a run may empty any namespace that it can reach.
    error, seal, flush, set_host = (
        componentize_py_types.Err,
        _still.seal,
        _still.flush,
        use,
    )

    class World(wit_world.WitWorld):
        def run(self) -> None:
            set_host(wire)
            seal(*finders)
            reason: str | None = None
            try:
                reason = start()
                flush()
            except:  # noqa: E722 -- also without builtins: a trap would give no reason
                reason = reason or _LOST
            if reason is not None:
                raise error(reason)

    wire = _Wire()
    gc.collect()
    gc.freeze()
    return World


def _keep_sources() -> None:
    """Keep the lines of the author's modules, for tracebacks."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith("/0/"):
            lines = linecache.getlines(file)
            linecache.cache[file] = (len(lines), None, lines, file)
