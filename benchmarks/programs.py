"""
Measure programs: source text in Python and JavaScript, executed by a runtime.

The runtimes are built in the scratch folder, by the first command that runs a program;
all else finds them there. A snippet is a short program; each is a run with a durable
log, in one host process, as those of an agent with ``program = "caller"`` are. A
waiting run is blocked in one call. Replays are of one run with many calls.

Of Extism, the peer with JavaScript, no package has its compiler for JavaScript, so it
is not here; section `agents` runs its SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from unittest import mock

from caxton_host.app.bootstrap import Running
from caxton_host.building import build_agent, new_agent
from caxton_host.building.runtimes import RuntimeFolder
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import RunCompleted
from caxton_host.core.programs import Language, Program, program_of
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Guest
from caxton_host.runs.host import Host
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.commit import Transactions

from . import scale
from .page import Figure, Section
from .profile import Timer, worker_time
from .start import caxton

_SUM: Mapping[Language, str] = {
    "python": "def run():\n    return sum(range(10))\n",
    "javascript": "export const run = () => [1, 2, 3].map((n) => n * n);\n",
}
_IMPORTS = """\
import asyncio, csv, dataclasses, datetime, json, re
from caxton_agent import aio

async def run():
    await aio.mcp_call("x")
"""
_ASK: Mapping[str, tuple[Language, str]] = {
    "Python": ("python", "from caxton_agent import mcp_call\nmcp_call('x')\n"),
    "Python, asyncio and imports": ("python", _IMPORTS),
    "JavaScript": ("javascript", "mcpCall('x');\n"),
}
_CALLS = """\
from caxton_agent import mcp_call

def run():
    for n in range({calls}):
        mcp_call("mcp__demo__echo", {{"text": str(n)}})
"""
_HELLO = 'from caxton_agent import output\n\noutput("hello")\n'
_HELLO_JS = 'output("hello");\n'
_HELLO_C = '#include "caxton.h"\nCX_RUN { return 0; }\n'
_CONFIG = (
    'version = 1\n[store]\nurl = "sqlite:///p.db"\n[agents.c]\nmodule = "c.wasm"\n'
)
_REPLY = codec.encode({"status": "ok", "message": "", "data": None})
_KEY, _SEED = b"k" * 32, b"s" * 32
#: Snippets a second.
_LEAST: Mapping[Language, float] = {"python": 200, "javascript": 1000}
_WAITING = 50
_STARTS = 50
_PROFILED = 200

#: Steps of a snippet: the owner and name of a function, and what it does.
_STEPS = {
    "start": (Host, "start", "host: admit, gather, redact; code between the steps"),
    "prepare": (WasmSandbox, "prepare", "prepare: the digest of the runtime"),
    "append": (Transactions, "commit", "append: two transactions"),
    "run": (WasmSandbox, "run", "guest: worker, sockets, wake-ups"),
}


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure programs in both languages."""
    (folder / "caxton.toml").write_text(_CONFIG, encoding="utf-8")
    figures = _commands(folder, options.rounds)
    runtimes = RuntimeFolder(folder / "caxton/runtimes")
    modules: dict[Language, bytes] = {
        "python": runtimes.build("python").read_bytes(),
        "javascript": runtimes.build("javascript").read_bytes(),
    }
    figures += asyncio.run(_starts(folder, modules, options.rounds))
    figures += asyncio.run(_memory(folder, modules))
    profiles: list[str] = []
    for language, least in _LEAST.items():
        rates, profile = asyncio.run(
            _snippets(folder, modules[language], language, options)
        )
        what = f"snippets per second, {language}"
        figures.append(Figure(what, rates, "", (least, True)))
        profiles.append(profile)
    figures.append(_subprocesses(options.rounds))
    figures.append(asyncio.run(_replays(folder, modules["python"], options)))
    return Section(
        "programs",
        "Programs",
        "Commands are new processes. Start: from the frame that starts a guest to the "
        f"first call of its program, in a warm worker; {_STARTS} per round. Memory: "
        f"what each of {_WAITING} waiting runs adds to the PSS of host and workers. "
        f"Snippets: {options.runs} runs per round, {scale.IN_FLIGHT} in flight; start "
        "and end of each are durable (SQLite, synchronous FULL). Replay: the seconds "
        "of a program's run over those of an agent built of the same code, with "
        f"{options.calls} calls each.",
        figures,
        profiles,
    )


# ---- Commands --------------------------------------------------------------------


def _commands(folder: Path, rounds: int) -> list[Figure]:
    (folder / "hello.py").write_text(_HELLO, encoding="utf-8")
    (folder / "hello.js").write_text(_HELLO_JS, encoding="utf-8")
    home = new_agent("c", "c", folder)
    (home / "agent.c").write_text(_HELLO_C, encoding="utf-8")
    built = build_agent(home, into=folder, cache=folder / "zig")
    built.path.rename(folder / "c.wasm")
    first, silent = _first(folder)
    _call(folder, "runtime", "install", "javascript")
    words = {"c": "C", "hello.py": "Python", "hello.js": "JavaScript"}
    for what in words:
        _timed(folder, what)
    took: dict[str, list[float]] = {what: [] for what in words}
    for _ in range(rounds):
        for what, seconds in took.items():
            seconds.append(_timed(folder, what))
    more = [a - b for a, b in zip(took["hello.py"], took["c"], strict=True)]
    return [
        Figure("first caxton run of a Python file", [first], "s", (60, False)),
        Figure("its longest silence, off a terminal", [silent], "s"),
        *(
            Figure(f"caxton run, {words[what]}", [1e3 * one for one in seconds], "ms")
            for what, seconds in took.items()
        ),
        Figure("Python less C", [1e3 * one for one in more], "ms", (200, False)),
        Figure("python -c", [1e3 * _bare() for _ in range(rounds)], "ms"),
    ]


def _environ(folder: Path) -> dict[str, str]:
    homes = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return os.environ | dict.fromkeys(homes, str(folder))


def _first(folder: Path) -> tuple[float, float]:
    """Return the seconds of the first run on a machine, and its longest silence."""
    began = last = time.perf_counter()
    silent = 0.0
    with subprocess.Popen(
        [caxton(), "run", "hello.py"],
        cwd=folder,
        env=_environ(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        for _ in process.stderr or ():
            now = time.perf_counter()
            silent, last = max(silent, now - last), now
    if process.returncode:
        sys.exit("Error: the first caxton run hello.py failed")
    return time.perf_counter() - began, silent


def _timed(folder: Path, what: str) -> float:
    began = time.perf_counter()
    _call(folder, "run", what, "--quiet")
    return time.perf_counter() - began


def _call(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [caxton(), *words],
        cwd=folder,
        env=_environ(folder),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"Error: {' '.join(words)}: {done.stderr.decode()}")


def _bare() -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "print(sum(range(10)))"], check=True, capture_output=True
    )
    return time.perf_counter() - began


def _subprocesses(rounds: int) -> Figure:
    async def one(left: list[None]) -> None:
        while left:
            left.pop()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "print(sum(range(10)))"),
                stdout=subprocess.DEVNULL,
            )
            await process.wait()

    async def rate() -> float:
        left = [None] * 50
        began = time.perf_counter()
        await asyncio.gather(*(one(left) for _ in range(os.cpu_count() or 1)))
        return 50 / (time.perf_counter() - began)

    rates = [asyncio.run(rate()) for _ in range(rounds)]
    return Figure("python -c per second, unconfined, no log", rates, "")


# ---- In a sandbox alone ----------------------------------------------------------


@dataclass(slots=True)
class _Door:
    """
    A stub of the gateway: notes when it is called, and answers once it is open.

    Attributes:
        called: When the last call came.

        asked: How many there were.
    """

    called: float = 0.0
    asked: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Answer with nothing."""
        del name, params, fuel
        self.called = time.perf_counter()
        self.asked += 1
        await self.open.wait()
        return Answer(0, _REPLY, 1)

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Refuse batches."""
        raise NotImplementedError

    def log(self, level: int, text: bytes) -> None:
        """Drop the line."""


def _guest(language: Language, source: str) -> Guest:
    program = program_of("program", source.encode(), language=language)
    return Guest(
        domain="bench",
        entry="run",
        limits=_limits(),
        input=codec.encode(None),
        program=codec.encode(program.to_guest()),
        seed=_SEED,
        now=1,
    )


def _limits() -> Limits:
    return Limits(memory=256 << 20, module=64 << 20)


async def _starts(
    folder: Path, modules: Mapping[Language, bytes], rounds: int
) -> list[Figure]:
    figures: list[Figure] = []
    async with WasmSandbox(folder / "compiled", _KEY) as sandbox:
        for what, most in (("Python", 5), ("JavaScript", 1)):
            language, source = _ASK[what]
            prepared = await sandbox.prepare(modules[language], _limits(), "run")
            took: list[float] = []
            door = _Door()
            door.open.set()
            guest = _guest(language, source)
            await sandbox.run(prepared, guest, door)
            for _ in range(rounds):
                each: list[float] = []
                for _ in range(_STARTS):
                    began = time.perf_counter()
                    ending = await sandbox.run(prepared, guest, door)
                    each.append(1e3 * (door.called - began))
                    if ending.kind != "returned" or ending.message:
                        sys.exit(f"Error: {ending}")
                took.append(median(each))
            figures.append(
                Figure(f"start to the first call, {what}", took, "ms", (most, False))
            )
    return figures


async def _memory(folder: Path, modules: Mapping[Language, bytes]) -> list[Figure]:
    figures: list[Figure] = []
    bounds = {"Python": 2, "Python, asyncio and imports": 6}
    for what, (language, source) in _ASK.items():
        async with WasmSandbox(folder / "compiled", _KEY) as sandbox:
            prepared = await sandbox.prepare(modules[language], _limits(), "run")
            door = _Door()
            guest = _guest(language, source)
            runs: list[asyncio.Task[object]] = []
            sizes: list[int] = []
            for count in (2, 2 + _WAITING):
                while len(runs) < count:
                    runs.append(asyncio.create_task(sandbox.run(prepared, guest, door)))
                while door.asked < count:  # noqa: ASYNC110 -- the runs wait there
                    await asyncio.sleep(0.01)
                sizes.append(sum(scale.memory()[0].values()))
            door.open.set()
            await asyncio.gather(*runs)
        each = (sizes[1] - sizes[0]) / _WAITING / 1e6
        bound = (bounds[what], False) if what in bounds else None
        figures.append(Figure(f"memory of a waiting run, {what}", [each], "MB", bound))
    return figures


# ---- In a host -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _up(folder: Path, name: str) -> AsyncGenerator[Running]:
    home = folder / name
    home.mkdir()
    async with scale.up(home) as live:
        yield live


def _request(
    live: Running, module: bytes, program: Program | None, *, calls: bool = False
) -> RunRequest:
    agent = live.tools.config.agents["echo"]
    return RunRequest(
        agent="echo",
        module=module,
        program=program,
        actor={"kind": "local", "id": "benchmark", "authenticated": False},
        grant=scale.only(agent.grant, "demo") if calls else Grant(),
        limits=Limits(module=64 << 20, total_calls=10**6, host_calls=10**7),
    )


async def _snippets(
    folder: Path, module: bytes, language: Language, options: argparse.Namespace
) -> tuple[list[float], str]:
    rates: list[float] = []
    program = program_of("snippet", _SUM[language].encode(), language=language)
    async with _up(folder, language) as live:
        request = _request(live, module, program)
        await live.host.start(request)
        for _ in range(options.rounds):
            left = iter(range(options.runs))
            began = time.perf_counter()
            await asyncio.gather(
                *(scale.drain(live, request, left) for _ in range(scale.IN_FLIGHT))
            )
            rates.append(options.runs / (time.perf_counter() - began))
        profile = await _profile(live, request)
        if await scale.completed(live) != options.rounds * options.runs + 1 + _PROFILED:
            sys.exit(f"Error: not each run of a snippet in {language} completed")
    return rates, f"Of a run of a snippet in {language}, alone: {profile}."


async def _profile(live: Running, request: RunRequest) -> str:
    timer = Timer()
    before, own = worker_time(live), time.process_time()
    with contextlib.ExitStack() as stack:
        for name, (owner, method, _) in _STEPS.items():
            timed = timer.around(name, getattr(owner, method))
            stack.enter_context(mock.patch.object(owner, method, timed))
        for _ in range(_PROFILED):
            await live.host.start(request)
    spent = {what: timer.spent[name] / 1e6 for name, (_, _, what) in _STEPS.items()}
    spent["processor time of the worker"] = 1e3 * (worker_time(live) - before)
    spent["processor time of the host"] = 1e3 * (time.process_time() - own)
    return "; ".join(
        f"{what} {total / _PROFILED:.2f} ms"
        for what, total in sorted(spent.items(), key=lambda item: -item[1])
    )


async def _replays(folder: Path, runtime: bytes, options: argparse.Namespace) -> Figure:
    source = _CALLS.format(calls=options.calls)
    home = new_agent("replayed", "python", folder)
    (home / "agent.py").write_text(source, encoding="utf-8")
    built = build_agent(home, into=folder, cache=folder / "zig").path.read_bytes()
    program = program_of("agent.py", source.encode(), language="python")
    async with _up(folder, "replays") as live:
        took: list[list[float]] = []
        for module, text in ((built, None), (runtime, program)):
            run_id = await live.host.start(_request(live, module, text, calls=True))
            (*_, end) = await live.store.reader.read(f"run/{run_id}")
            if not isinstance(end.event, RunCompleted):
                sys.exit(f"Error: {end.event}")
            took.append([])
            for _ in range(options.rounds + 1):
                began = time.perf_counter()
                found = await replay(
                    run_id,
                    store=live.store.reader,
                    sandbox=live.sandbox,
                    telemetry=live.telemetry,
                )
                took[-1].append(time.perf_counter() - began)
                if found.divergence or found.calls != options.calls:
                    sys.exit(f"Error: {found}")
    ratios = [b / a for a, b in zip(took[0][1:], took[1][1:], strict=True)]
    return Figure("replay of a program / of a built agent", ratios, "", (1.1, False))
