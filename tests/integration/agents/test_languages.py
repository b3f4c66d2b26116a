"""
The same agent in every language leaves the same log, but for digests and fuel.

So does the same file in Python or JavaScript, built to a module or run as a program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.commands import Command
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import is_component
from caxton_host.core.log.events import Recorded, RunCompleted, to_payload
from caxton_host.core.programs import Program, language_of, program_of
from caxton_host.errors import ToolError
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.host import Host
from caxton_host.runs.modules import read_manifest
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import rule

from .conftest import TRIP, WEATHER, Build

#: Every language that the example is written in, but the one of Debian's packages.
LANGUAGES = ("c", "python", "javascript")
VALUES: tuple[JSON, ...] = (None, {"location": "Oslo"}, {"location": ""})
#: A component is compiled twice, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

#: What is in an event and may differ: what was built or interpreted and how, how much
#: that costs, and how much it may have.
_OF_THE_BUILD = (
    *("module_sha256", "abi", "entry", "program", "command", "engine", "limits"),
    *("fuel", "duration_us"),
)
CITIES = ("Oslo", "Atlantis", "Zürich", "São Paulo 🌧")
KM = {"Oslo": 1401.125, "Zürich": 9603.5, "São Paulo 🌧": 10417.0625}


@dataclass(frozen=True, slots=True)
class Form:
    """What an agent is run as: a module, or a program that the module executes."""

    module: bytes
    program: Program | None = None
    command: Command = field(default_factory=Command)


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent is run with."""

    input: JSON
    tools: FakeTools
    grant: Grant


class _Travel(FakeTools):
    """Tools that answer what they are asked."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        await super().call_tool(request)
        params: dict[str, Any] = request.params
        if request.tool == "distance":
            return _structured("far", {"result": KM[params["start"]]})
        if request.tool == "order":
            return Completed(message=f"{params['count']} x {params['item']}")
        at = CITIES.index(params["location"])
        if at == 1:
            return Completed(is_error=True, message="no such city")
        hourly: list[JSON] = [n / 8 for n in range(2000)]  # more than fits at first
        told: dict[str, JSON] = {"sky": f"snow {at}", "celsius": -at - 0.5}
        return _structured("told", {**told, "hourly": hourly})


def _structured(message: str, content: dict[str, JSON]) -> Completed:
    return Completed(message=message, data={"structuredContent": content})


def weather(value: JSON) -> Task:
    tools = FakeTools(
        {
            ("demo", "get_weather"): "Oslo: 3 °C, snow",
            ("webhook", "forecast"): ToolError(
                "timeout", "unknown", "no answer in 5 s"
            ),
            ("demo", "echo"): "nobody",
        }
    )
    return Task(
        value, tools, Grant(allow=(rule("demo/get_weather"), rule("webhook/*")))
    )


def trip() -> Task:
    tools = _Travel(
        {("demo", "get_weather"): "", ("maps", "distance"): "", ("shop", "order"): ""}
    )
    allowed = rule("demo/*", "maps/*")
    orders = rule("shop/order", calls=2, name="allow[2]")
    # A number that a double does not have.
    value: JSON = {"cities": [*CITIES], "since": 2**53 + 1}
    return Task(value, tools, Grant(allow=(allowed, orders)))


async def _run(
    form: Form, task: Task, sandbox: WasmSandbox, store: MemoryStore
) -> tuple[str, list[Recorded]]:
    host = Host(
        store=store,
        tools=task.tools,
        sandbox=sandbox,
        clock=FakeClock(),
        entropy=FakeEntropy(),
        telemetry=NoTelemetry(),
        servers=sorted({server for server, _ in task.tools.answers}),
    )
    run_id = await host.start(
        RunRequest(
            agent="agent",
            module=form.module,
            program=form.program,
            command=form.command,
            actor={"kind": "local", "id": "ann", "authenticated": False},
            input=task.input,
            names={"weather": ("demo", "get_weather")},
            grant=task.grant,
        )
    )
    return run_id, await store.reader.read(f"run/{run_id}")


def _told(history: list[Recorded]) -> list[tuple[str, str]]:
    """Return the types and texts of events: 1 is not 1.0, and keys have an order."""
    told: list[tuple[str, str]] = []
    for one in history:
        assert one.event is not None
        payload = to_payload(one.event)
        for key in _OF_THE_BUILD:
            payload.pop(key, None)
        told.append((one.type, json.dumps(payload, ensure_ascii=False)))
    return told


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another folder for artifacts: compiling a component takes long."""
    return tmp_path_factory.mktemp("there")


@pytest.fixture(scope="session")
def runtimes(python_runtime: Path, javascript_runtime: Path) -> dict[str, bytes]:
    """Return what executes a file, by its suffix."""
    return {".py": python_runtime.read_bytes(), ".js": javascript_runtime.read_bytes()}


@pytest.fixture(scope="session")
def weathers(runtimes: dict[str, bytes], weather_in: Build) -> dict[str, Form]:
    """Return the example in each form, by name."""
    return forms({lang: weather_in(lang) for lang in LANGUAGES}, runtimes, WEATHER)


@pytest.fixture(scope="session")
def trips(runtimes: dict[str, bytes], trip_in: Build) -> dict[str, Form]:
    """Return the task of ten calls in each form, by name."""
    travels = forms({lang: trip_in(lang) for lang in LANGUAGES}, runtimes, TRIP)
    return travels | {"go": Form(trip_in("go"), command=Command(args=("trip",)))}


def forms(
    modules: Mapping[str, bytes], runtimes: Mapping[str, bytes], agent: Path
) -> dict[str, Form]:
    """Return an agent as modules, by language, and as programs, by their files."""
    made = {lang: Form(module) for lang, module in modules.items()}
    for suffix, runtime in runtimes.items():
        source = agent.with_suffix(suffix)
        language = language_of(source.name)
        assert language
        program = program_of(source.name, source.read_bytes(), language=language)
        made[source.name] = Form(runtime, program)
    return made


async def _replayed(run_id: str, store: MemoryStore, sandbox: WasmSandbox) -> None:
    """Check that a run replays exactly: fuel is compared too."""
    again = await replay(
        run_id, store=store.reader, sandbox=sandbox, telemetry=NoTelemetry()
    )
    assert again.divergence is None


async def _weathers(
    made: Mapping[str, Form], compiled_runtimes: Path, elsewhere: Path, value: JSON
) -> None:
    """Check that each form of the example leaves the log that it leaves in C."""
    told: dict[str, list[tuple[str, str]]] = {}
    for name, form in made.items():
        store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
        async with WasmSandbox(compiled_runtimes, bytes(32)) as sandbox:
            run_id, history = await _run(form, weather(value), sandbox, store)
        assert isinstance(history[-1].event, RunCompleted)
        told[name] = _told(history)
        # Other workers, and no artifact of those, but for what takes ten seconds to
        # compile: that two compilations execute alike, the other forms show.
        slow = form.program or is_component(form.module)
        there = compiled_runtimes if slow else elsewhere
        async with WasmSandbox(there, bytes(32)) as sandbox:
            await _replayed(run_id, store, sandbox)
    assert [type_ for type_, _ in told["c"]] == [
        "RunStarted",
        *["ToolInvoked", "ToolCompleted", "LogWritten"],
        *["ToolInvoked", "ToolFailed"],
        *["ToolInvoked", "ToolDenied"],
        "RunCompleted",
    ]
    for name, log in told.items():
        assert log == told["c"], name


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.long
async def test_all_languages_leave_the_same_log_and_replay_anywhere(
    weathers: dict[str, Form], compiled_runtimes: Path, elsewhere: Path, value: JSON
) -> None:
    assert {*weathers} == {*LANGUAGES, "weather.py", "weather.js"}
    await _weathers(weathers, compiled_runtimes, elsewhere, value)


@pytest.mark.debian
@pytest.mark.parametrize("value", VALUES)
async def test_rust_leaves_the_log_of_c_and_replays_anywhere(
    weather_in: Build, compiled_runtimes: Path, elsewhere: Path, value: JSON
) -> None:
    made = {lang: Form(weather_in(lang)) for lang in ("c", "rust")}
    await _weathers(made, compiled_runtimes, elsewhere, value)


async def _trips(travels: Mapping[str, Form], compiled_runtimes: Path) -> None:
    """Check that each form of the task leaves the log that it leaves in C."""
    told: dict[str, list[tuple[str, str]]] = {}
    outputs: list[JSON] = []
    async with WasmSandbox(compiled_runtimes, bytes(32)) as sandbox:
        for name, form in travels.items():
            store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
            run_id, history = await _run(form, trip(), sandbox, store)
            end = history[-1].event
            assert isinstance(end, RunCompleted), (name, end)
            outputs.append(end.output)
            told[name] = _told(history)
            await _replayed(run_id, store, sandbox)
    first = told["c"]
    assert [type_ for type_, _ in first] == [
        "RunStarted",
        *["ToolInvoked"] * 4,
        *["ToolCompleted"] * 4,
        *["LogWritten"] * 4,
        *["ToolInvoked", "ToolCompleted"] * 3,
        *["ToolInvoked"] * 3,
        "ToolDenied",
        *["ToolCompleted"] * 2,
        *["LogWritten"] * 3,
        "RunCompleted",
    ]
    for name, log in told.items():
        assert log == first, name
    assert outputs[0] == {
        "weather": {
            "Oslo": {"sky": "snow 0", "celsius": -0.5},
            "Atlantis": None,
            "Zürich": {"sky": "snow 2", "celsius": -2.5},
            "São Paulo 🌧": {"sky": "snow 3", "celsius": -3.5},
        },
        "km": sum(KM.values()),
        "orders": ["ok", "ok", "denied"],
        "refused": "budget",
    }


@pytest.mark.long
async def test_ten_calls_have_one_log_in_each_language_as_a_module_and_as_a_program(
    trips: dict[str, Form], compiled_runtimes: Path
) -> None:
    assert {*trips} == {*LANGUAGES, "go", "trip.py", "trip.js"}
    await _trips(trips, compiled_runtimes)


@pytest.mark.debian
async def test_ten_calls_have_the_log_of_c_in_rust(
    trip_in: Build, compiled_runtimes: Path
) -> None:
    travels = {lang: Form(trip_in(lang)) for lang in ("c", "rust")}
    await _trips(travels, compiled_runtimes)


def test_all_languages_carry_the_same_manifest(weathers: dict[str, Form]) -> None:
    first = read_manifest(weathers["c"].module)
    assert first is not None
    assert all(read_manifest(weathers[lang].module) == first for lang in LANGUAGES)


@pytest.mark.debian
def test_rust_carries_the_manifest_of_c(weather_in: Build) -> None:
    assert read_manifest(weather_in("rust")) == read_manifest(weather_in("c"))
