"""What is said on spans, of servers and of errors."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from caxton_host.core.calls import JSON, Failed, Route
from caxton_host.core.grants.approvals import Unapproved
from caxton_host.core.grants.freezes import Halted
from caxton_host.core.log.events import ToolCompleted, ToolInvoked
from caxton_host.errors import (
    Divergence,
    LeaseLost,
    NondeterminismError,
    RunStopped,
    StoreError,
    Suspend,
    ToolError,
)
from caxton_host.ports.watch import Execution
from caxton_host.telemetry.attributes import (
    attempt_fields,
    attempt_name,
    outcome_fields,
    raised_fields,
    result,
    server_fields,
)
from caxton_host.telemetry.spans import Spans, derived


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, {}),
        ({"transport": "fake"}, {}),
        ({"transport": "stdio", "address": "sha256:00"}, {"network.transport": "pipe"}),
        ({"address": "https://crm.test/mcp", "protocol": "2025-11-25"}, 443),
        ({"address": "http://crm.test"}, 80),
        ({"address": "http://crm.test:8080/mcp?x=***"}, 8080),
        ({"address": "https://[::1]:9/"}, 9),
        ({"transport": "webhook", "address": "https://a.test https://b.test"}, {}),
        ({"address": "https://user@crm.test"}, {}),
    ],
)
def test_of_a_server_is_said_how_and_where_it_is_reached(
    known: dict[str, JSON], said: object
) -> None:
    fields = server_fields(known)
    if isinstance(said, int):
        assert fields.pop("server.port") == said
        assert fields["network.transport"] == "tcp"
        assert fields.pop("mcp.protocol.version", None) == known.get("protocol")
        assert str(fields["server.address"]) in str(known["address"])
    else:
        assert fields == said


@pytest.mark.parametrize(
    ("raised", "error", "outcome"),
    [
        (Unapproved(1), None, "waits"),
        (Halted(1, ("agent", "a")), None, "frozen"),
        (Suspend(1, "secret"), "in_doubt", "in_doubt"),
        (LeaseLost("secret"), "lease_lost", "in_doubt"),
        (StoreError("secret"), "store", None),
        (RunStopped("wall", "secret"), "limit", None),
        (NondeterminismError(Divergence(1, "$", "secret", 1)), "diverged", None),
        (ToolError("timeout", "unknown", "secret"), "timeout", None),
        (asyncio.CancelledError("secret"), "cancelled", None),
        (ValueError("secret"), "ValueError", None),
    ],
)
def test_error_is_said_by_its_name_alone(
    raised: BaseException, error: str | None, outcome: str | None
) -> None:  # law 8
    fields = raised_fields(raised)
    assert fields.get("error.type") == error
    assert fields.get("caxton.call.outcome") == outcome
    assert "secret" not in str(fields)


def test_a_failed_call_says_whether_the_server_may_have_acted() -> None:
    failed = Failed(kind="timeout", sent="unknown", message="secret")
    assert outcome_fields(failed, Route(server="s", tool="t", effect="read")) == {
        "caxton.call.outcome": "failed",
        "caxton.call.sent": "unknown",
        "error.type": "timeout",
        "caxton.server.name": "s",
        "caxton.tool.name": "t",
        "caxton.call.effect": "read",
    }


def test_webhook_is_not_called_by_mcp() -> None:
    hook = attempt_fields("webhook", "forecast", 2)
    assert hook["http.request.resend_count"] == 1
    assert "mcp.method.name" not in hook
    assert attempt_name(hook) == "HTTP"
    assert attempt_name(attempt_fields("crm", "find", 1)) == "tools/call find"
    assert attempt_name(attempt_fields("crm", "resources/read", 1)) == "resources/read"


def test_long_answer_is_cut() -> None:
    done = ToolCompleted(call=1, is_error=False, message="x" * 100_000, data=None)
    assert len(str(result(done)["gen_ai.tool.call.result"])) == 16 * 1024


def test_events_of_a_call_name_its_span_and_others_that_of_the_run() -> None:
    invoked = ToolInvoked(
        call=3,
        name="weather",
        server="demo",
        tool="get_weather",
        params={},
        params_sha256="",
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
    )
    spans = Spans(lambda _: None, ALWAYS_ON, Resource({}), clock=lambda: 5)
    run = spans.open_run(
        Execution(run_id="r", agent="a", mode="live", module_sha256=""),
        trace_id=0xAB,
        span_id=7,
    )

    ids = run.take(4, [invoked])

    assert ids == [(f"{0xAB:032x}", f"{derived(7, 3):016x}")]
    assert run.fields["caxton.event.seq"] == 4
    assert run.note(3).fields["caxton.event.seq"] == 4
    assert run.note(3).at_ns == 5
