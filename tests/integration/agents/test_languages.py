"""The same agent in every language leaves the same log, but for digests and fuel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Recorded, RunCompleted, to_payload
from caxton_host.errors import ToolError
from caxton_host.runs.host import Host
from caxton_host.runs.modules import read_manifest
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import rule

from .conftest import LANGUAGES

#: A component is compiled twice, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

#: What is in an event and may differ: how it was built, how much that costs, and how
#: much a component may have.
_OF_THE_BUILD = ("module_sha256", "abi", "engine", "fuel", "duration_us", "limits")
ANSWERS: dict[tuple[str, str], Any] = {
    ("demo", "get_weather"): "Oslo: 3 °C, snow",
    ("webhook", "forecast"): ToolError("timeout", "unknown", "no answer in 5 s"),
    ("demo", "echo"): "nobody",
}


async def _run(
    module: bytes, value: JSON, sandbox: WasmSandbox, store: MemoryStore
) -> tuple[str, list[Recorded]]:
    host = Host(
        store=store,
        tools=FakeTools(ANSWERS),
        sandbox=sandbox,
        clock=FakeClock(),
        entropy=FakeEntropy(),
        telemetry=NoTelemetry(),
        servers=["demo", "webhook"],
    )
    run_id = await host.start(
        RunRequest(
            agent="weather",
            module=module,
            actor={"kind": "local", "id": "ann", "authenticated": False},
            input=value,
            names={"weather": ("demo", "get_weather")},
            grant=Grant(allow=(rule("demo/get_weather"), rule("webhook/*"))),
            limits=Limits(),
        )
    )
    return run_id, await store.reader.read(f"run/{run_id}")


def _told(history: list[Recorded]) -> list[tuple[str, dict[str, JSON]]]:
    told: list[tuple[str, dict[str, JSON]]] = []
    for one in history:
        assert one.event is not None
        payload = to_payload(one.event)
        for key in _OF_THE_BUILD:
            payload.pop(key, None)
        told.append((one.type, payload))
    return told


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two folders for artifacts: compiling a component takes long."""
    return tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")


@pytest.mark.parametrize("value", [None, {"location": "Oslo"}, {"location": ""}])
async def test_all_languages_leave_the_same_log_and_replay_anywhere(
    weathers: dict[str, bytes], value: JSON, elsewhere: tuple[Path, Path]
) -> None:
    told: dict[str, Any] = {}
    here, there = elsewhere
    for lang, module in weathers.items():
        store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
        async with WasmSandbox(here, bytes(32)) as sandbox:
            run_id, history = await _run(module, value, sandbox, store)
        assert isinstance(history[-1].event, RunCompleted)
        told[lang] = _told(history)
        # Other workers, and no artifact of those.
        async with WasmSandbox(there, bytes(32)) as sandbox:
            again = await replay(
                run_id, store=store.reader, sandbox=sandbox, telemetry=NoTelemetry()
            )
        assert again.divergence is None
    assert [type_ for type_, _ in told["c"]] == [
        "RunStarted",
        *["ToolInvoked", "ToolCompleted", "LogWritten"],
        *["ToolInvoked", "ToolFailed"],
        *["ToolInvoked", "ToolDenied"],
        "RunCompleted",
    ]
    for lang in LANGUAGES:
        assert told[lang] == told["c"], lang


def test_all_languages_carry_the_same_manifest(weathers: dict[str, bytes]) -> None:
    first = read_manifest(weathers["c"])
    assert first is not None
    assert all(read_manifest(module) == first for module in weathers.values())
