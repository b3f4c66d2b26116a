"""Events keep their meaning between this version and every other."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed, Denied, Failed
from caxton_host.core.log.events import (
    EVENT_TYPES,
    UPCASTERS,
    Event,
    LogWritten,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolInvoked,
    ToolProgress,
    from_payload,
    outcome_of,
    settled,
    to_payload,
)
from caxton_host.core.log.runs import ENDS
from caxton_host.errors import LogBrokenError
from caxton_host.lib import codec
from tests.scene import JSON_VALUES
from tests.unit.store.fakes import run_started

OBJECTS = st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4)
BY_HINT: dict[object, st.SearchStrategy[object]] = {
    str: st.text(max_size=20),
    str | None: st.none() | st.text(max_size=20),
    int: st.integers(0, 2**63),
    int | None: st.none() | st.integers(0, 2**63),
    bool: st.booleans(),
    float | None: st.none() | st.floats(allow_nan=False),
}


def value_of(hint: object) -> st.SearchStrategy[object]:
    if hint in BY_HINT:
        return BY_HINT[hint]
    text = str(hint)
    if text.startswith("tuple["):
        return st.lists(JSON_VALUES, max_size=3).map(tuple)
    if text.startswith("dict["):
        return OBJECTS
    return JSON_VALUES if text == str(JSON) else st.none() | OBJECTS


def any_event(cls: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{f.name: value_of(hints[f.name]) for f in fields(cls)})


@given(
    st.sampled_from(sorted(EVENT_TYPES)).flatmap(lambda n: any_event(EVENT_TYPES[n]))
)
def test_event_is_the_same_after_it_was_stored(event: Event) -> None:
    stored = codec.decode_trusted(codec.encode(to_payload(event)))
    again = from_payload(type(event).__name__, event.schema, stored)

    assert again == event
    assert codec.encode(to_payload(again)) == codec.encode(to_payload(event))


def test_a_number_is_kept_that_equals_false() -> None:
    started = replace(run_started(), called_by=0)

    assert from_payload("RunStarted", started.schema, to_payload(started)) == started


def test_every_event_of_the_design_is_there() -> None:
    names = [
        "RunQueued",
        "RunStarted",
        "ToolInvoked",
        "ToolRetried",
        "ToolCompleted",
        "ToolDenied",
        "ToolFailed",
        "ToolProgress",
        "QuestionAsked",
        "QuestionAnswered",
        "LogRestored",
        "LogWritten",
        "AuditFailed",
        "ApprovalRequested",
        "ApprovalDecided",
        "CallResolved",
        "RunSuspended",
        "RunResumed",
        "RunCompleted",
        "RunFailed",
        "RunCancelled",
        "HostStarted",
        "ConfigLoaded",
        "ServerConnected",
        "ServerFailed",
        "ServerLost",
        "ServerRestarted",
        "ServerDisabled",
        "EgressAllowed",
        "EgressRefused",
        "BreakerOpened",
        "BreakerClosed",
        "ToolsChanged",
        "GrantChanged",
        "KeyRotated",
        "RunErased",
        "TokenCreated",
        "TokenRevoked",
        "RunRead",
        "Frozen",
        "Thawed",
        "RunHeld",
        "RunReleased",
    ]

    assert sorted(EVENT_TYPES) == sorted(names)
    assert ENDS.keys() < EVENT_TYPES.keys()


@pytest.mark.parametrize(
    ("cls", "keys"),
    [
        (
            RunStarted,
            """agent actor module_sha256 abi entry input context limits seed grants
            grants_sha256 catalogue servers host engine parent forked_from
                resources unlisted program command bounds vouched called_by callers
                carried task_ttl signatures""",
        ),
        (
            ToolInvoked,
            """call name server tool params params_sha256 effect rule
            idempotency_key fuel spends sources""",
        ),
        (
            ToolCompleted,
            """call is_error message data blobs duration_us attempts bytes cut cached
            withheld settles reached""",
        ),
        (LogWritten, "n level text"),
    ],
)
def test_payload_has_the_keys_of_the_design(cls: type[Event], keys: str) -> None:
    assert [f.name for f in fields(cls)] == keys.split()


def test_key_of_a_later_version_is_ignored() -> None:
    event = from_payload("RunSuspended", 1, {"reason": "x", "call": 2, "mood": "good"})

    assert event == RunSuspended(reason="x", call=2)


def test_missing_key_has_its_default() -> None:
    assert from_payload("ToolProgress", 1, {"call": 1, "message": "half"}) == (
        ToolProgress(call=1, message="half", progress=None, total=None)
    )


def test_old_version_is_upcast_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(payload: dict[str, JSON]) -> dict[str, JSON]:
        return {"reason": payload["why"], "number": payload["call"]}

    def second(payload: dict[str, JSON]) -> dict[str, JSON]:
        return {"reason": payload["reason"], "call": payload["number"]}

    monkeypatch.setitem(UPCASTERS, ("RunSuspended", 0), second)
    monkeypatch.setitem(UPCASTERS, ("RunSuspended", -1), first)

    assert from_payload("RunSuspended", -1, {"why": "approval", "call": 3}) == (
        RunSuspended(reason="approval", call=3)
    )


def test_unknown_type_is_a_broken_log() -> None:
    with pytest.raises(LogBrokenError, match="unknown event type 'RunDreamt'") as found:
        from_payload("RunDreamt", 1, {})
    assert "later version" in found.value.fix


@pytest.mark.parametrize("version", [0, 2])
def test_event_of_another_schema_version_is_not_read_as_one_of_this(
    version: int,
) -> None:
    with pytest.raises(
        LogBrokenError, match=f"schema version {version} of RunSuspended"
    ) as found:
        from_payload("RunSuspended", version, {"reason": "x"})
    assert "later version" in found.value.fix


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_missing_key_without_a_default_is_a_broken_log(name: str) -> None:
    assert any(f.default is MISSING for f in fields(EVENT_TYPES[name]))
    with pytest.raises(LogBrokenError, match=f"{name} does not fit version 1"):
        from_payload(name, 1, {})


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(
            is_error=True,
            message="m",
            data=[1],
            blobs=({"sha256": "a", "bytes": 1, "media_type": "image/png"},),
            duration_us=5,
            attempts=2,
            bytes=9,
        ),
        Failed(kind="timeout", sent="unknown", message="late"),
        Denied(code="budget", rule="allow[1]", message="spent"),
    ],
)
def test_outcome_is_read_back_as_it_was_recorded(
    outcome: Completed | Failed | Denied,
) -> None:  # law 5
    assert outcome_of(settled(7, outcome)) == (7, outcome)


def test_other_events_close_no_call() -> None:
    assert outcome_of(LogWritten(n=1, level="info", text="hi")) is None
