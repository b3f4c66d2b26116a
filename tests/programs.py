"""
Programs in a sandbox, without a host: a runtime, a program, and scripted tools.

The fixture `python_programs` of ``tests/conftest.py`` builds and compiles the runtime
once for a test run. A test runs a source text, and looks at what came of it:

    def test_a_program_has_an_output(python_programs: Programs) -> None:
        assert python_programs("from caxton_agent import output; output(1)").output == 1
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from caxton_host.building.javascript import build_javascript_runtime, kept_runtime
from caxton_host.building.python import build_python_runtime
from caxton_host.core.calls import JSON, Completed, Denied, Outcome, reply
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending, Guest, Prepared
from caxton_host.sandbox import WasmSandbox
from tests.shared import once

NOW = 1_700_000_000_123_456
SECOND = 1_000_000
LIMITS = Limits(memory=256 * 1024 * 1024, module=64 * 1024 * 1024)

#: The outcome of a tool: of all its calls, or of its params.
Tool: TypeAlias = Outcome | Callable[[dict[str, Any]], Outcome]


def text(message: str, structured: JSON = None) -> Completed:
    """Return the answer of a tool."""
    data: dict[str, JSON] = {"content": [{"type": "text", "text": message}]}
    if structured is not None:
        data["structuredContent"] = structured
    return Completed(message=message, data=data)


@dataclass
class Tools:
    """A door with scripted tools. Each answer, and each batch, takes a second."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    #: The names of each call alone, and of each batch, in order.
    sent: list[list[str]] = field(default_factory=list[list[str]])
    params: list[JSON] = field(default_factory=list[JSON])
    logs: list[str] = field(default_factory=list[str])

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        del fuel
        self.sent.append([name.decode()])
        status, body = self._answer(name, params)
        return Answer(status, codec.encode(body), self._at())

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        del fuel
        items = codec.split_batch(batch)
        self.sent.append([(name or b"?").decode() for name, _ in items])
        bodies = [self._answer(name or b"?", params)[1] for name, params in items]
        return Answer(0, codec.encode(bodies), self._at())

    def log(self, level: int, text: bytes) -> None:
        self.logs.append(f"{level} {text.decode()}")

    def _at(self) -> int:
        return NOW + SECOND * len(self.sent)

    def _answer(self, name: bytes, packed: bytes) -> tuple[int, Mapping[str, JSON]]:
        params = codec.decode_map(packed, limit=1 << 20)
        self.params.append(params)
        tool = self.tools.get(
            name.decode(),
            Denied(code="not_granted", message="no rule allows it", rule=None),
        )
        return reply(tool(params) if callable(tool) else tool)


@dataclass(frozen=True)
class Ran:
    """
    What came of a program.

    Attributes:
        ending: How the guest ended.

        tools: What it called and logged.
    """

    ending: Ending
    tools: Tools

    @property
    def output(self) -> Any:  # noqa: ANN401 -- whatever the program says
        """Return the output of a program that completed."""
        assert (self.ending.kind, self.ending.message) == ("returned", "")
        assert self.ending.code == 0
        return self.last_output

    @property
    def last_output(self) -> Any:  # noqa: ANN401 -- as above
        """Return the output that was set last, however the program ended."""
        packed = self.ending.output
        return None if packed is None else codec.decode(packed, limit=1 << 26)

    @property
    def error(self) -> str:
        """Return the reason of a program that failed by itself."""
        assert self.ending.kind == "returned"
        assert self.ending.message
        return self.ending.message


class Programs:
    """A runtime in a sandbox. Call it with the source of a program."""

    def __init__(
        self,
        runner: asyncio.Runner,
        sandbox: WasmSandbox,
        prepared: Prepared,
        language: str,
        name: str,
    ) -> None:
        self._runner, self._sandbox, self._prepared = runner, sandbox, prepared
        self._language, self._name = language, name

    def __call__(  # noqa: PLR0913 -- by name
        self,
        source: str,
        tools: Mapping[str, Tool] | None = None,
        *,
        name: str | None = None,
        input: object = None,  # noqa: A002 -- the host's word
        catalogue: list[dict[str, JSON]] | None = None,
        packages: JSON = None,
        limits: Limits = LIMITS,
        seed: bytes = bytes(32),
    ) -> Ran:
        """Run a program to its end."""
        program = {
            "name": name or self._name,
            "language": self._language,
            "source": source,
            "packages": packages,
        }
        door = Tools(tools or {})
        guest = Guest(
            domain="programs",
            entry="run",
            limits=limits,
            input=codec.encode(input),
            tools=codec.encode(catalogue or []),
            program=codec.encode(program),
            seed=seed,
            now=NOW,
        )
        run = self._sandbox.run(self._prepared, guest, door)
        return Ran(self._runner.run(run), door)

    def speaking(self, language: str, name: str) -> Programs:
        """Return the same runtime for programs that are said to be of *language*."""
        runner, sandbox, prepared = self._runner, self._sandbox, self._prepared
        return Programs(runner, sandbox, prepared, language, name)


@contextmanager
def running(
    module: bytes, compiled: Path, language: str, name: str
) -> Iterator[Programs]:
    """Return the runtime *module* in a sandbox, compiled in the folder *compiled*."""
    with asyncio.Runner() as runner:
        sandbox = WasmSandbox(compiled, bytes(32))
        runner.run(sandbox.__aenter__())
        try:
            prepared = runner.run(sandbox.prepare(module, LIMITS, "run"))
            yield Programs(runner, sandbox, prepared, language, name)
        finally:
            runner.run(sandbox.__aexit__(None, None, None))


def compile_module(module: Path, compiled: Path) -> None:
    """Compile a module into the folder *compiled*, where a sandbox looks for it."""
    with running(module.read_bytes(), compiled, "none", "none"):
        pass


def build_python(
    factory: pytest.TempPathFactory, zig_cache: Path, compiled: Path
) -> Path:
    """Return the runtime for Python, built and compiled once for a test run."""

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir()
        (scratch / "cache").symlink_to(zig_cache)
        build_python_runtime(folder / "python.wasm", scratch)
        compile_module(folder / "python.wasm", compiled)

    return once(factory, "python-runtime", build) / "python.wasm"


def build_javascript(
    factory: pytest.TempPathFactory, zig_cache: Path, compiled: Path
) -> Path:
    """Return the runtime for JavaScript, built and compiled once for a test run."""

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir()
        (scratch / "cache").symlink_to(zig_cache)
        build_javascript_runtime(folder / "javascript.wasm", scratch, typescript=True)
        # Builds of agents take this one.
        shutil.copyfile(folder / "javascript.wasm", kept_runtime(zig_cache))
        compile_module(folder / "javascript.wasm", compiled)

    return once(factory, "javascript-runtime", build) / "javascript.wasm"
