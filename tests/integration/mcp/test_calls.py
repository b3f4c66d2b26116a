"""What becomes of a call between the gateway and a real server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from caxton_host import codec
from caxton_host.core.calls import JSON, Completed, Effect, Failed, ToolCall
from caxton_host.core.catalogue import catalogue_for
from caxton_host.core.events import Event, ToolRetried
from caxton_host.core.grants import Grant
from caxton_host.core.journal import Journal
from caxton_host.core.redact import Redactor
from caxton_host.core.servers import ToolOptions
from caxton_host.gateway import Gateway
from caxton_host.mcp import McpTools
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.scene import rule

from .conftest import SECRET, Faulty, noted


def tool_call(tool: str = "act", **params: JSON) -> ToolCall:
    return ToolCall(
        number=1,
        name=f"mcp__faulty__{tool}",
        params=params,
        digest=codec.sha256(codec.encode(params)),
    )


async def gate_to(tools: McpTools) -> tuple[Gateway, MemoryLog]:
    """Return a gateway that allows every tool of the server, and its log."""
    grant = Grant(allow=(rule("faulty/*"),))
    offered = await tools.offered(["faulty"])
    catalogue = catalogue_for(grant, {}, offered.offers, offered.options)
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    log = store.create("run/1")
    gateway = Gateway(
        run_id="1",
        grant=grant,
        routes=catalogue.routes,
        journal=Journal(),
        log=log,
        tools=tools,
        redact=Redactor([SECRET]),
    )
    return gateway, log


def types(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def act(**options: object) -> dict[str, ToolOptions]:
    return {"act": ToolOptions(**options)}  # type: ignore[arg-type]  # of any kind


# -- sent again ----------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent", "keyed"])
async def test_a_call_that_a_server_died_of_is_sent_again_and_recorded(
    faulty: Faulty, state: Path, effect: Effect
) -> None:  # laws 2 and 7
    async with faulty("dies", tools=act(effect=effect)) as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Completed)
    assert (outcome.message, outcome.attempts) == ("fine", 2)
    assert types(log.events) == ["ToolInvoked", "ToolRetried", "ToolCompleted"]
    assert log.events[1] == ToolRetried(call=1, attempt=2, reason="transport")
    first, second = map(json.loads, noted(state, "call act "))
    key = "io.caxton/idempotency-key"
    assert first[key] == second[key]


async def test_a_call_that_may_have_happened_is_not_sent_again(
    faulty: Faulty, state: Path
) -> None:  # law 7
    async with faulty("dies") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.sent) == ("transport", "unknown")
    assert types(log.events) == ["ToolInvoked", "ToolFailed"]
    assert len(noted(state, "call act ")) == 1
