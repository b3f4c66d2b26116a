"""Programs of WASI preview 1 in several languages, as runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.commands import Command
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import LogWritten, Recorded, RunStarted, to_payload
from caxton_host.lib import codec
from caxton_host.runs.host import Host
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import ForkRequest, RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.integration.evidence.engine import Case, Engine
from tests.scene import rule

from .conftest import LANGUAGES

#: Go's library is compiled first, twice, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
FILE = b"from a file"
DIGEST = codec.sha256(FILE)
NOTHING = Grant()
GRANT = Grant(allow=(rule("demo/echo"),))
FOUND = {
    "input": {"a": 1},
    "args": ["teller", "one", "two"],
    "mode": "fast",
    "data": FILE.decode(),
    "written": False,
    "outside": False,
    "two": "12",
    "root": ["data", "tmp"],
    "tmp": ["two"],
}

Build = Callable[[str], bytes]


class _Ticking(FakeClock):
    """A clock that moves whenever it is read."""

    def now(self) -> int:
        self.time += 1
        return self.time


class Scene:
    """A host with one tool, and a log."""

    def __init__(self, sandbox: WasmSandbox) -> None:
        self.sandbox = sandbox
        clock = _Ticking()
        self.store = MemoryStore(clock=clock, entropy=FakeEntropy())
        self.tools = FakeTools({("demo", "echo"): "hello back"})
        self.host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=sandbox,
            clock=clock,
            entropy=FakeEntropy(),
            telemetry=NoTelemetry(),
            servers=["demo"],
        )

    async def run(
        self,
        module: bytes,
        **given: Any,  # noqa: ANN401 -- by name
    ) -> tuple[str, list[Recorded]]:
        """Run a program to its end, and return its id and its events."""
        request = RunRequest(agent="teller", module=module, actor=ANN, **given)
        run_id = await self.host.start(request)
        return run_id, await self.read(run_id)

    async def read(self, run_id: str) -> list[Recorded]:
        """Return the events of a run."""
        return await self.store.reader.read(f"run/{run_id}")

    async def resumed(
        self,
        run_id: str,
        before: list[Recorded],
        other: Scene,
        grant: Grant = NOTHING,
    ) -> list[Recorded]:
        """Resume a run of another host, whose log ends after *before*."""
        log = self.store.create(f"run/{run_id}")
        for one in before:
            assert one.event is not None
            await log.append(one.event, blobs=other.store.blobs)
        await self.host.resume(run_id, actor=ANN, grant=grant)
        return await self.read(run_id)

    async def replayed(self, run_id: str) -> Any:  # noqa: ANN401 -- None is the point
        """Return where a replay differs: fuel is compared too."""
        found = await replay(
            run_id,
            store=self.store.reader,
            sandbox=self.sandbox,
            telemetry=NoTelemetry(),
        )
        return found.divergence

    def executed(self, history: list[Recorded], browser: Engine) -> str:
        """Return what a browser finds when it executes a run again."""
        found = browser(Case.of(history, self.store.blobs))
        return str(found["verdict"] if found["verdict"] == "identical" else found)


@pytest.fixture
def scene(sandbox: WasmSandbox) -> Scene:
    return Scene(sandbox)


def payload(recorded: Recorded) -> dict[str, JSON]:
    """Return what an event holds."""
    assert recorded.event is not None
    return to_payload(recorded.event)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_program_gets_what_is_recorded_and_replays_to_the_fuel(
    scene: Scene, program: Build, language: str, browser: Engine
) -> None:
    files = {"data/deep/a.txt": DIGEST}
    command = Command(args=("one", "two"), env={"MODE": "fast"}, files=files)
    run_id, history = await scene.run(
        program(language), input={"a": 1}, command=command, files={DIGEST: FILE}
    )
    started, line, end = history
    assert payload(end)["output"] == FOUND
    assert payload(line) | {"n": 1} == {
        "n": 1,
        "level": "warning",
        "text": "slept for 1h0m0s",
    }
    first = payload(started)
    assert (first["abi"], first["entry"]) == ("wasi/1", "_start")
    assert first["command"] == {
        "args": ["teller", "one", "two"],
        "env": {"MODE": "fast"},
        "files": files,
    }
    assert scene.store.blobs[DIGEST] == FILE
    assert await scene.replayed(run_id) is None
    assert scene.executed(history, browser) == "identical"

    # A fork has the same files, from the log.
    fork = ForkRequest(run_id=run_id, seq=1, actor=ANN, grant=Grant())
    forked = await scene.read(await scene.host.fork(fork))
    assert payload(forked[0])["command"] == first["command"]
    assert payload(forked[-1])["output"] == FOUND


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_exit_code_fails_the_run_and_half_a_line_is_logged(
    scene: Scene, program: Build, language: str, browser: Engine
) -> None:
    run_id, history = await scene.run(program(language), input="fail")
    assert isinstance(history[1].event, LogWritten)
    assert history[1].event.text == "half a line"
    end = payload(history[-1])
    assert (end["kind"], end["message"]) == (
        "agent_error",
        "the program ended with exit code 3",
    )
    assert await scene.replayed(run_id) is None
    assert scene.executed(history, browser) == "identical"


@pytest.mark.long
async def test_a_program_of_zigs_own_library_reads_its_files(
    scene: Scene, program: Build, browser: Engine
) -> None:
    command = Command(files={"data/deep/a.txt": DIGEST})
    run_id, history = await scene.run(
        program("zig"), command=command, files={DIGEST: FILE}
    )
    assert payload(history[-1])["output"] == {"data": FILE.decode()}
    assert await scene.replayed(run_id) is None
    assert scene.executed(history, browser) == "identical"


async def test_a_program_calls_tools_and_its_clock_moves_with_their_answers(
    scene: Scene, program: Build, browser: Engine
) -> None:
    run_id, history = await scene.run(
        program("c"), grant=GRANT, names={"echo": ("demo", "echo")}
    )
    assert [one.type for one in history] == [
        "RunStarted",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    assert payload(history[-1])["output"] == "hello back"
    assert isinstance(history[0].event, RunStarted)
    assert await scene.replayed(run_id) is None
    assert scene.executed(history, browser) == "identical"


@pytest.mark.parametrize("after", [1, 2])
async def test_a_program_that_was_killed_goes_on_with_what_its_log_holds(  # law 7
    scene: Scene, program: Build, after: int
) -> None:
    command = Command(args=("one", "two"), files={"data/deep/a.txt": DIGEST})
    run_id, whole = await scene.run(
        program("go"), input={"a": 1}, command=command, files={DIGEST: FILE}
    )

    history = await Scene(scene.sandbox).resumed(run_id, whole[:after], scene)

    assert history.pop(after).type == "RunResumed"
    assert [*map(payload, history)] == [*map(payload, whole)]


async def test_a_program_that_was_killed_does_not_repeat_its_calls(  # law 7
    scene: Scene, program: Build
) -> None:
    run_id, whole = await scene.run(
        program("c"), grant=GRANT, names={"echo": ("demo", "echo")}
    )
    again = Scene(scene.sandbox)

    history = await again.resumed(run_id, whole[:3], scene, GRANT)

    assert history.pop(3).type == "RunResumed"
    assert [*map(payload, history)] == [*map(payload, whole)]
    assert again.tools.asked == []
    assert await again.replayed(run_id) is None
