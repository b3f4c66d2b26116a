"""Ended calls as OCSF, against the published schema of the class."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from caxton_host.core.log import ocsf
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    Recorded,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
)
from caxton_host.core.log.runs import ExportLine

ANSWER = "Ada's account is 4711"
ENDS: dict[str, Event] = {
    "ok": ToolCompleted(call=2, is_error=False, message=ANSWER, data={"a": ANSWER}),
    "tool_error": ToolCompleted(call=2, is_error=True, message=ANSWER, data=None),
    "denied": ToolDenied(call=2, code="params", rule="allow[1]", message="too long"),
    "failed": ToolFailed(call=2, kind="timeout", sent="unknown", message="x" * 9_999),
}
SCHEMA = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.VERSION)).get_class_schema(
    class_name="api_activity", profiles=["security_control"]
)
VALID = jsonschema_rs.validator_for(SCHEMA)


def line(outcome: str) -> ExportLine:
    event = ENDS[outcome]
    recorded = Recorded(
        stream="run/1",
        seq=7,
        type=type(event).__name__,
        schema_version=1,
        recorded_at=1_795_000_000_123_456,
        trace_id="ab" * 16,
        span_id=None,
        hash=bytes(32),
        event=event,
        position=9,
    )
    return ExportLine(
        recorded=recorded,
        run="1",
        agent="payer",
        actor={"kind": "token", "id": "ann", "authenticated": True},
        tool="bank/pay",
        outcome=outcome,
    )


@pytest.mark.parametrize("outcome", ENDS)
@pytest.mark.parametrize("lost", [(), ("tool",), ("actor", "agent")])
def test_every_end_of_a_call_is_valid_api_activity(
    outcome: str, lost: tuple[str, ...]
) -> None:
    less: Any = dict.fromkeys(lost)
    record = ocsf.api_activity(replace(line(outcome), **less), "0.3.0")
    VALID.validate(record)
    assert ANSWER not in json.dumps(record)  # law 8: answers stay in the log
    assert len(json.dumps(record)) < 4_000


def test_a_record_says_who_called_what_and_how_it_ended() -> None:
    record = ocsf.api_activity(line("denied"), "0.3.0")
    assert record
    assert record["metadata"]["uid"] == "00" * 32  # type: ignore[index,call-overload]
    assert record["time"] == 1_795_000_000_123
    assert record["actor"] == {
        "app_name": "payer",
        "user": {"name": "ann", "uid": "token/ann", "type": "token"},
    }
    assert record["api"] == {
        "operation": "pay",
        "service": {"name": "bank"},
        "request": {"uid": "1/2"},
    }
    assert (record["status"], record["severity"]) == ("Failure", "Medium")
    assert (record["action"], record["disposition"]) == ("Denied", "Blocked")
    assert (record["status_code"], record["status_detail"]) == ("params", "too long")
    assert record["unmapped"] == {"trace_id": "ab" * 16, "rule": "allow[1]"}


def test_other_events_are_no_activity() -> None:
    other = LogWritten(n=1, level="info", text="hi")
    recorded = replace(line("ok").recorded, event=other)
    one = replace(line("ok"), recorded=recorded, outcome=None)
    assert ocsf.api_activity(one, "0.3.0") is None
