"""What is frozen is the fold of one stream: the newest word about each counts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.grants.freezes import (
    FREEZES,
    KINDS,
    STOPPING,
    Freezes,
    Halted,
    frozen_in,
)
from caxton_host.core.log.events import Frozen, Recorded, RunSuspended, Thawed


def recorded(seq: int, event: Frozen | Thawed) -> Recorded:
    return Recorded(
        position=seq,
        stream=FREEZES,
        seq=seq,
        type=type(event).__name__,
        schema_version=1,
        recorded_at=seq,
        trace_id=None,
        span_id=None,
        hash=b"",
        event=event,
    )


WORDS = st.lists(
    st.builds(
        lambda cls, kind, name: cls(kind=kind, name=name, actor={}, reason=""),
        st.sampled_from([Frozen, Thawed]),
        st.sampled_from(KINDS),
        st.sampled_from(["a", "b"]),
    ),
    max_size=12,
).map(lambda events: [recorded(n, event) for n, event in enumerate(events, 1)])


def key(one: Recorded) -> tuple[str, str]:
    assert isinstance(one.event, (Frozen, Thawed))
    return one.event.kind, one.event.name


def fold(words: list[Recorded]) -> Freezes:
    found = Freezes()
    for word in words:
        found = found.after(word)
    return found


@given(WORDS)
def test_newest_word_about_each_counts_in_whatever_order_they_are_mixed(
    words: list[Recorded],
) -> None:
    newest = {key(word): word for word in words}
    expected = {k: w for k, w in newest.items() if isinstance(w.event, Frozen)}
    assert fold(words).standing == expected
    assert fold(sorted(words, key=key)).standing == expected


@given(WORDS)
def test_run_is_stopped_by_its_agent_its_token_or_the_server_of_its_call(
    words: list[Recorded],
) -> None:
    found = fold(words)
    token = {"kind": "token", "id": "a"}
    stops = {("agent", "b"), ("token", "a"), ("server", "b")} & found.standing.keys()
    assert (found.on("b", {**token}, "b") in stops) is bool(stops)
    assert found.on("c", {"kind": "local", "id": "a"}) is None


@given(WORDS)
def test_a_schedule_stops_its_runs_and_it_is_known_when_it_was_thawed(
    words: list[Recorded],
) -> None:
    found = fold(words)
    actor: dict[str, JSON] = {"kind": "schedule", "id": "a"}
    frozen = ("schedule", "a") in found.standing

    assert found.on("c", actor) == (("schedule", "a") if frozen else None)
    assert found.thawed == {
        key(word): word.recorded_at for word in words if isinstance(word.event, Thawed)
    }


def test_suspension_says_what_is_frozen() -> None:
    event = Halted(3, ("server", "bank"), [3]).recorded
    assert frozen_in(event) == ("server", "bank")
    assert (event.reason, event.call, event.unsent) == ("frozen", 3, (3,))
    assert frozen_in(RunSuspended(reason="approval", call=3)) is None


def test_a_host_that_hands_over_stops_each_run_whatever_is_thawed() -> None:
    # law 10: the next host goes on with it at once
    thawed = Thawed(kind="agent", name="a", actor={}, reason="")
    stopping = Freezes(stopping=True).after(recorded(1, thawed))

    assert stopping.on("b", {"kind": "local", "id": "me"}) == STOPPING
    assert Halted(3, STOPPING, [3]).recorded == RunSuspended(
        reason="host_stopped", unsent=(3,)
    )


def test_event_whose_payload_was_erased_changes_nothing() -> None:
    frozen = recorded(1, Frozen(kind="agent", name="a", actor={}, reason=""))
    erased = replace(frozen, seq=2, event=None)

    assert Freezes().after(frozen).after(erased).standing == {("agent", "a"): frozen}


def test_a_subject_is_frozen_in_its_tenant_and_not_in_others() -> None:
    frozen = Frozen(kind="token", name="@acme/oauth/ann", actor={}, reason="")
    found = fold([recorded(1, frozen)])
    ann: dict[str, JSON] = {"kind": "oauth", "id": "ann"}

    assert found.on("a", {**ann, "tenant": "acme"}) == ("token", "@acme/oauth/ann")
    assert found.on("a", {**ann, "tenant": "globex"}) is None
    assert found.on("a", ann) is None
