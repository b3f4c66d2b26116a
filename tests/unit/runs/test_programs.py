"""Runs of programs: the log holds them, and gives them back. Laws 1, 2 and 6."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config import Agent
from caxton_host.config.model import CALLER
from caxton_host.core.log.events import RunStarted, blobs_of
from caxton_host.core.programs import CODE_SCHEMA, Program, Runtime, program_of
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import UsageError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.modules import Library
from caxton_host.runs.replay import Options, Replayed, replay
from caxton_host.runs.run_request import ForkRequest
from caxton_host.telemetry import NoTelemetry
from tests.scene import DEMO, Scene, calling, ended

PROGRAM = program_of("report.py", b"print(1)", language="python")
OTHER = program_of("report.py", b"print(2)", language="python")


async def runtime(door: Door, guest: Guest) -> Ending:
    """Execute a program, as a runtime does: its output is its source."""
    await door.call(b"weather", codec.encode({}), 1)
    program = codec.decode(guest.program, limit=1 << 20)
    return ended(program["source"] if isinstance(program, dict) else program)


async def recorded(program: Program | None = PROGRAM) -> Scene:
    scene = Scene(runtime)
    scene.request = replace(scene.request, program=program)
    await scene.run()
    return scene


def started(scene: Scene) -> RunStarted:
    event = scene.store.streams[f"run/{scene.run_id}"][0].event
    assert isinstance(event, RunStarted)
    return event


async def test_start_names_the_program_and_the_log_keeps_it() -> None:
    scene = await recorded()

    assert started(scene).program == PROGRAM.to_payload()
    for digest, part in PROGRAM.blobs.items():
        assert digest in blobs_of(started(scene))
        assert await scene.store.reader.blob(digest) == part


async def test_start_of_an_agent_without_a_program_says_nothing_of_one() -> None:
    assert started(await recorded(None)).program is None


async def test_replay_gives_the_runtime_the_recorded_program() -> None:
    scene = await recorded()

    assert (await scene.replay()).verdict == "identical"


async def replayed(scene: Scene, options: Options) -> Replayed:
    return await replay(
        scene.run_id,
        store=scene.store.reader,
        sandbox=scene.sandbox,
        telemetry=NoTelemetry(),
        options=options,
    )


async def test_replay_of_another_program_shows_where_it_differs() -> None:
    found = await replayed(await recorded(), Options(program=OTHER))

    assert found.divergence is not None
    assert found.divergence.path == "$.output"


async def fork(scene: Scene, **changes: object) -> tuple[RunStarted, object]:
    asked = ForkRequest(
        run_id=scene.run_id, seq=3, actor=scene.request.actor, grant=DEMO
    )
    scene.run_id = await scene.host.fork(replace(asked, **changes))  # type: ignore[arg-type]
    events = await scene.events()
    return started(scene), getattr(events[-1], "output", None)


async def test_fork_has_the_program_of_its_parent() -> None:
    start, output = await fork(await recorded())

    assert (start.program, output) == (PROGRAM.to_payload(), "print(1)")


async def test_fork_may_have_another_program() -> None:
    scene = await recorded()

    start, output = await fork(scene, program=OTHER)

    assert (start.program, output) == (OTHER.to_payload(), "print(2)")
    assert (await scene.replay()).verdict == "identical"


async def test_fork_with_another_module_has_no_program() -> None:
    start, output = await fork(await recorded(), module=b"\0asm other")

    assert (start.program, output) == (None, None)


async def test_program_that_holds_a_secret_is_refused_before_anything_is_written() -> (
    None
):
    scene = Scene(calling(), redact=Redactor(frozenset({"hunter2hunter2"})))
    program = program_of("a.py", b"key = 'hunter2hunter2'", language="python")
    scene.request = replace(scene.request, program=program)

    with pytest.raises(UsageError, match=r"a\.py holds a secret"):
        await scene.run()
    assert not scene.store.streams


# -- files ---------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path) -> Library:
    def find(name: Runtime) -> Path:
        path = tmp_path / f"{name}.wasm"
        path.write_bytes(name.encode())
        return path

    return Library(runtimes=find)


def test_program_of_an_agent_is_read_anew_each_time(
    library: Library, tmp_path: Path
) -> None:
    file = tmp_path / "report.ts"
    agent = Agent(name="a", program=file)
    for text in ("one", "two"):
        file.write_text(text, "utf-8")

        code = library.code(agent, 5)

        assert code.program is not None
        assert (code.program.source, code.input) == (text.encode(), 5)
        assert code.module == b"javascript"


def test_caller_brings_the_program(library: Library) -> None:
    agent = Agent(name="a", program=CALLER, runtime="python")

    code = library.code(agent, {"code": "x", "input": 5})

    assert code.program is not None
    assert (code.program.name, code.input, code.module) == ("code.py", 5, b"python")


def test_caller_may_name_the_only_tools_of_the_program(library: Library) -> None:
    agent = Agent(name="a", program=CALLER, runtime="python")

    code = library.code(agent, {"code": "x", "narrow": ["crm/find_*"]})

    assert code.narrow == {"allow": [{"tools": ["crm/find_*"]}]}
    assert library.code(agent, {"code": "x"}).narrow is None


def test_description_of_an_agent_for_programs_says_what_it_takes(
    library: Library, tmp_path: Path
) -> None:
    agent = Agent(name="a", program=CALLER, runtime="python", description="Runs code.")
    assert library.card(agent).input_schema == CODE_SCHEMA
    assert library.card(agent).description == "Runs code."
    (tmp_path / "a.py").write_text("1", "utf-8")
    assert library.card(Agent(name="a", program=tmp_path / "a.py")).input_schema is None


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (Agent(name="a", program=Path("none.py")), "cannot read the program none.py"),
        (Agent(name="a"), "names no module and no program"),
    ],
)
def test_agent_whose_file_is_missing_is_refused(
    library: Library, agent: Agent, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        library.check(agent)


def test_agent_with_a_module_is_checked_by_its_module(
    library: Library, tmp_path: Path
) -> None:
    (tmp_path / "a.wasm").write_bytes(b"\0asm")
    library.check(Agent(name="a", module=tmp_path / "a.wasm"))


def test_runtime_that_is_not_installed_is_named_with_its_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.js").write_text("1", "utf-8")
    with pytest.raises(UsageError, match="the javascript runtime") as caught:
        Library().check(Agent(name="a", program=tmp_path / "a.js"))
    assert caught.value.fix == "caxton runtime install javascript"


DEPENDENT = """\
# /// script
# dependencies = ["attrs"]
# ///
import attr
"""


def test_program_whose_dependencies_are_not_locked_is_refused(
    library: Library, tmp_path: Path
) -> None:
    file = tmp_path / "a.py"
    file.write_text(DEPENDENT, "utf-8")

    with pytest.raises(UsageError, match=r"a\.py\.lock does not exist") as caught:
        library.check(Agent(name="a", program=file))
    assert caught.value.fix == f"caxton program lock {file}"
