"""Variables of runs that clients give, or that come from the claims of their tokens."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from caxton_host.config.model import ContextVar
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunStarted
from caxton_host.core.provenance import Sources, Wanted
from caxton_host.lib import codec
from caxton_host.ports.tools import RunScope
from caxton_host.service.run_service import Submission
from caxton_host.testing import FakeTools
from caxton_host.web.mcp.agents import CONTEXT, RUN_ID
from tests.collector import collecting, connect
from tests.integration.serving.clients import Mode, meta, serving
from tests.office import ANN, BOB, BOSS, Office, asking_once
from tests.scene import ANSWERS, rule

pytestmark = pytest.mark.parametrize("mode", ["auto", "legacy"])

PIN = "pin-0123456789"
#: Whose token an authorization server issued.
EMMA = replace(ANN, kind="oauth", claims={"sub": "emma", "org": {"id": 7}, "pin": PIN})
KNOWN = {
    "city": ContextVar(required=True),
    "unit": ContextVar(default="km"),
    "tone": ContextVar(default="kind", caller=True),
    "pin": ContextVar(private=True, caller=True),
}


@dataclass(slots=True)
class Opened(FakeTools):
    """Tools that remember for which runs they were opened."""

    scopes: list[RunScope] = field(default_factory=list[RunScope])

    @asynccontextmanager
    async def open(  # type: ignore[override]  # it is a source all the same
        self, scope: RunScope
    ) -> AsyncGenerator[Opened]:
        self.scopes.append(scope)
        yield self


async def call(
    office: Office,
    mode: Mode,
    given: object = None,
    by: Principal = ANN,
    run_id: str | None = None,
) -> CallToolResult:
    said = meta(**{CONTEXT: given, RUN_ID: run_id})
    async with (
        serving(office.service, by) as url,
        Client(url, mode=mode) as served,
    ):
        return await served.call_tool("sky", {}, meta=said)


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def started(office: Office) -> RunStarted:
    (row,) = await office.scene.store.reader.runs(2)
    event = (await office.scene.store.reader.read(f"run/{row.run_id}"))[0].event
    assert isinstance(event, RunStarted)
    return event


async def test_a_client_gives_the_variables_that_it_may(
    tmp_path: Path, mode: Mode
) -> None:
    office = Office(tmp_path, context=KNOWN)

    result = await call(office, mode, {"city": "Oslo", "tone": "curt"})

    assert not result.is_error
    first = await started(office)
    assert first.context == {"city": "Oslo", "tone": "curt", "unit": "km"}
    # What a caller says is no source of values: the operator did not.
    assert first.vouched == {"input": ["$"], "context": ["unit"]}
    judged = {key: Wanted.parse([f"context.{key}"], None, ()) for key in first.context}
    sources = Sources(judged.values(), 1000)
    sources.apply(first)
    found = {key: sources.find(first.context[key], judged[key]).holds for key in judged}
    assert found == {"city": False, "tone": False, "unit": True}


async def test_a_run_without_a_variable_that_it_needs_is_not_started(
    tmp_path: Path, mode: Mode
) -> None:
    office = Office(tmp_path, context=KNOWN)
    result = await call(office, mode)

    assert result.is_error
    assert text(result) == (
        "The agent was not started: the run variable 'city' is required"
    )
    assert await office.scene.store.reader.runs(1) == []


def deep() -> JSON:
    found: JSON = "end"
    for _ in range(100):
        found = [found]
    return found


#: What a client may not give, and what it is told.
HOSTILE: list[tuple[JSON, str]] = [
    ([], "io.caxton/context is an object"),
    ("city", "io.caxton/context is an object"),
    ({f"v{n}": n for n in range(65)}, "cannot give the run variable 'v0'"),
    ({"x" * 257: 1}, f"cannot give the run variable {'x' * 64!r}"),
    ({"city": "x" * 300_000}, "over 262144 bytes"),
    ({"city": [0] * 20_000}, "over 262144 bytes"),
    ({"city": deep()}, "too deep"),
    ({"city": 2**70}, "no JSON"),
    ({"city": 1, "unit": PIN}, "cannot give the run variable 'unit'"),
    ({"city": 1, "town": PIN}, "cannot give the run variable 'town'"),
    ({"city": 1, "prompt": PIN}, "cannot give the run variable 'prompt'"),
    ({"city": 1, "who": PIN}, "cannot give the run variable 'who'"),
]


async def test_variables_that_a_client_may_not_give_start_nothing(
    tmp_path: Path, mode: Mode
) -> None:
    # law 9
    context = {**KNOWN, "who": ContextVar(claim="sub")}
    office = Office(tmp_path, context=context)
    async with (
        serving(office.service, EMMA, body=10**6) as url,
        Client(url, mode=mode) as served,
    ):
        for given, said in HOSTILE:
            result = await served.call_tool("sky", {}, meta=meta(**{CONTEXT: given}))
            assert result.is_error
            assert said in text(result)
            assert PIN not in text(result)

    assert await office.scene.store.reader.runs(1) == []


async def test_a_private_variable_reaches_servers_and_nothing_else(
    tmp_path: Path, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    # law 8
    tools = Opened(ANSWERS)
    office = Office(tmp_path, tools=tools, context=KNOWN)
    with collecting() as collector, caplog.at_level(logging.DEBUG, "caxton_host"):
        telemetry = connect(collector.url, {})
        office.service.host = replace(office.scene.host, telemetry=telemetry)
        result = await call(office, mode, {"city": "Oslo", "pin": PIN})
        telemetry.close()
        spans = repr(collector.spans)

    assert tools.scopes[0].context["pin"] == PIN
    assert tools.scopes[0].private == {"pin"}
    assert "weather" in spans
    events = repr(office.scene.store.events)
    assert "'city': 'Oslo'" in events
    guest = repr(office.scene.sandbox.guests)
    for place in (events, spans, caplog.text, guest, result.model_dump_json()):
        assert PIN not in place


async def test_a_claim_of_the_token_is_a_variable(tmp_path: Path, mode: Mode) -> None:
    tools = Opened(ANSWERS)
    office = Office(
        tmp_path,
        tools=tools,
        context={
            "customer_id": ContextVar(claim="sub", required=True),
            "org": ContextVar(claim="org"),
            "pin": ContextVar(claim="pin", private=True),
            "plan": ContextVar(claim="plan", default="free"),
        },
    )

    result = await call(office, mode, by=EMMA)

    assert not result.is_error
    first = await started(office)
    assert first.context == {
        "customer_id": "emma",
        "org": {"id": 7},
        "plan": "free",
    }
    # The operator has named the claim, and the issuer has signed it.
    assert first.vouched is None
    assert tools.scopes[0].context["pin"] == PIN
    assert PIN not in repr(office.scene.store.events)
    assert PIN not in repr(EMMA)


async def test_a_caller_without_the_claim_is_told_which(
    tmp_path: Path, mode: Mode
) -> None:
    needs = {"customer_id": ContextVar(claim="sub", required=True)}
    office = Office(tmp_path, context=needs)

    result = await call(office, mode, by=BOB)

    assert text(result).endswith(
        "the run variable 'customer_id' is required, as the claim 'sub'"
    )


async def test_a_private_variable_is_given_again_to_continue(
    tmp_path: Path, mode: Mode
) -> None:
    tools = Opened(ANSWERS)
    asks = Grant(allow=(replace(rule("demo/*"), approve=Approve()),))
    hidden = {"pin": ContextVar(private=True, required=True)}
    office = Office(tmp_path, tools=tools, grant=asks, context=hidden)
    result = await call(office, mode, {"pin": PIN})
    assert result.meta is not None
    run_id = str(result.meta[RUN_ID])
    await office.service.decide(BOSS, run_id, None, "approve", "")

    refused = await call(office, mode, run_id=run_id)
    resumed = await call(office, mode, {"pin": PIN}, run_id=run_id)

    assert "'pin' is required" in text(refused)
    assert not resumed.is_error
    assert tools.scopes[-1].context["pin"] == PIN
    assert PIN not in repr(office.scene.store.events)


async def test_nobody_continues_a_run_with_claims_of_their_own(
    tmp_path: Path, mode: Mode
) -> None:
    tools = Opened(ANSWERS)
    asks = Grant(allow=(replace(rule("demo/*"), approve=Approve()),))
    hidden = {"pin": ContextVar(private=True, claim="pin")}
    office = Office(tmp_path, tools=tools, grant=asks, context=hidden)
    result = await call(office, mode, by=EMMA)
    assert result.meta is not None
    run_id = str(result.meta[RUN_ID])
    await office.service.decide(BOSS, run_id, None, "approve", "")
    boss = replace(BOSS, claims={"pin": "another pin"})

    await office.service.resume(boss, run_id)
    await office.done(run_id)

    assert [one.context.get("pin") for one in tools.scopes] == [PIN, None]


async def test_over_the_control_api_an_operator_gives_every_variable(
    tmp_path: Path, mode: Mode
) -> None:
    del mode
    office = Office(tmp_path, script=asking_once, context=KNOWN)
    given: dict[str, JSON] = {"city": "Oslo", "unit": "mile"}
    run_id = await office.service.submit(
        BOSS, Submission(agent="weather", variables=given)
    )

    assert await office.done(run_id) == "completed"
    first = await started(office)
    assert first.context == {**given, "tone": "kind"}
    assert first.vouched is None
    assert codec.encode(first.context)
