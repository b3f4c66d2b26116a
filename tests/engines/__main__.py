"""
Execute generated runs in wasmtime, and again in V8 with the scripts of a page.

    python -m tests.engines --guests 10000 --runs 1000 --seed 1000

Of the guests, one in five is a WASI program. Each is a run of a real host, with the
sandbox of `in_process`; its log is given to Node.js. Prints each difference with the
seed that makes it. With ``--nans``, guests show the bits of NaNs, where engines differ.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from caxton_host.core import commands
from caxton_host.core.calls import Completed
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import outcome_of
from caxton_host.lib import codec
from tests.integration.evidence.engine import Case, Engine, running
from tests.integration.evidence.scene import Scene

from .core import Core
from .in_process import InProcess
from .told import Told
from .wasi import FILES, Command

LIMITS = Limits(memory=4 << 20, fuel=200_000_000, host_calls=400, wasi_calls=400)
_AGREES = {"identical", "ended"}

Maker: TypeAlias = Callable[[InProcess, int], Awaitable[Case]]


async def core(sandbox: InProcess, seed: int, *, nans: bool = False) -> Case:
    """Return the run of a core module."""
    wrong = Completed(is_error=True, message="no")
    scene = Scene(sandbox, look="clear", wrong=wrong)
    return await scene.run(Core(seed, nans=nans).module(), limits=LIMITS, input=seed)


async def wasi(sandbox: InProcess, seed: int) -> Case:
    """Return the run of a WASI program."""
    files = {path: codec.sha256(data) for path, data in FILES.items()}
    return await Scene(sandbox).run(
        Command(seed).module(),
        limits=LIMITS,
        input={"a": [1.0, seed]},
        command=commands.Command(args=("one",), env={"A": "b"}, files=files),
        files={codec.sha256(data): data for data in FILES.values()},
    )


async def told(sandbox: InProcess, seed: int) -> Case:
    """Return the run of an agent that calls tools, or a fork of it."""
    it = Told(seed)
    scene = Scene(sandbox, **it.tools)
    case = await scene.run(it.module, **it.given)
    if seed % 5:
        return case
    history, is_open, places = await scene.read(), 0, [1]
    for one in history:
        is_open += one.type == "ToolInvoked"
        is_open -= bool(one.event and outcome_of(one.event))
        places += [] if is_open else [one.seq]
    return await scene.fork(places[seed % len(places)])


async def compare(name: str, make: Maker, seeds: range, engine: Engine) -> int:
    """Print what both engines make of so many runs; return the differences."""
    began, sandbox = time.monotonic(), InProcess(LIMITS)
    ends, found, calls = Counter[str](), Counter[str](), 0
    for seed in seeds:
        case = await make(sandbox, seed)
        end = codec.decode_trusted(case.events[-1]["payload"])
        said = engine(case)
        ends[end.get("kind", "completed")] += 1
        found[said["verdict"]] += 1
        calls += said["calls"]
        if said["verdict"] not in _AGREES:
            _say(name, seed, said, end)
    took = time.monotonic() - began
    _say(f"{name}:", {**found}, {**ends}, f"{calls} calls, {took:.0f} s")
    return len(seeds) - sum(found[one] for one in _AGREES)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Compare the engines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--guests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nans", action="store_true")
    given = parser.parse_args()
    fifth, seed = given.guests // 5, given.seed
    makers: Mapping[str, tuple[Maker, int]] = {
        "core": (partial(core, nans=given.nans), given.guests - fifth),
        "wasi": (wasi, fifth),
        "told": (told, given.runs),
    }
    with running() as engine:
        wrong = [
            asyncio.run(compare(name, make, range(seed, seed + count), engine))
            for name, (make, count) in makers.items()
        ]
    return bool(sum(wrong))


if __name__ == "__main__":
    sys.exit(main())
