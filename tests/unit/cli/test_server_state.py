"""How a server did is what the newest host recorded that had to do with it."""

from __future__ import annotations

from caxton_host.core.log.events import (
    BreakerClosed,
    BreakerOpened,
    Event,
    Recorded,
    ServerConnected,
    ServerDisabled,
    ServerFailed,
    ServerLost,
    ServerRestarted,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolsChanged,
)
from caxton_host.core.log.server_history import ServerRecord, failures, server_records

UP = ServerConnected(
    server="crm", name="crm", version="1", protocol="2025-06-18", tools=1
)


def newest_first(stream: str, *events: Event | None) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream=stream,
            seq=seq,
            type="",
            schema_version=1,
            recorded_at=seq,
            trace_id=None,
            span_id=None,
            hash=bytes(32),
            event=event,
        )
        for seq, event in enumerate(events, 1)
    ][::-1]


def of(*events: Event | None) -> ServerRecord:
    return server_records(["crm"], newest_first("host/2", *events), [])["crm"]


def invoked(call: int, server: str | None = "crm") -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="x",
        server=server,
        tool="x",
        params=None,
        params_sha256="",
        effect="read",
        rule=None,
        idempotency_key="",
        fuel=0,
    )


def completed(call: int, took: int) -> ToolCompleted:
    return ToolCompleted(
        call=call, is_error=False, message="", data=None, duration_us=took
    )


def test_a_server_of_which_nothing_is_known_has_no_figures() -> None:
    document = of().document()
    assert set(document.values()) == {None}


def test_what_was_recorded_last_is_what_is_shown() -> None:
    assert of(UP).document() == {
        "host": "host/2",
        "live": False,
        "as_of": 1,
        "state": "connected",
        "problem": None,
        "protocol": "2025-06-18",
        "latency_ms": None,
        "restarts": 0,
        "breaker": "closed",
        "generation": 1,
    }
    lost = ServerLost(server="crm", reason="x")
    again = ServerRestarted(server="crm", attempt=1)
    failed = ServerFailed(server="crm", reason="there is no such program")
    assert (of(failed).host, of(failed).state) == ("host/2", "failed")
    assert of(failed).problem == "there is no such program"
    assert of(failed, UP).problem is None
    assert (of(UP, lost).state, of(UP, lost).problem) == ("lost", "x")
    back = of(UP, lost, again, UP, ToolsChanged(server="crm"))
    assert (back.state, back.restarts, back.generation) == ("connected", 1, 2)
    given_up = of(UP, lost, again, ServerDisabled(server="crm", reason="x"))
    assert given_up.state == "disabled"
    opened = BreakerOpened(server="crm", failures=5)
    assert of(UP, opened).breaker == "open"
    assert of(UP, opened, BreakerClosed(server="crm")).breaker == "closed"


def test_what_a_person_accepts_is_no_new_list_and_erased_events_are_none() -> None:
    accepted = ToolsChanged(server="crm", changed=("x",), actor={"id": "me"})
    assert of(UP, accepted, None).generation == 1


def test_an_older_host_says_nothing_if_a_newer_one_does() -> None:
    older = newest_first("host/1", UP, BreakerOpened(server="crm", failures=5))
    other = ServerLost(server="other", reason="x")
    newer = newest_first("host/2", UP, other)
    found = server_records(["crm"], newer + older, [])
    assert (found["crm"].host, found["crm"].breaker) == ("host/2", "closed")
    assert server_records(["crm"], older, [])["crm"].breaker == "open"


def test_a_host_that_is_up_says_what_is_so_now() -> None:
    older = newest_first("host/1", UP, BreakerOpened(server="crm", failures=5))
    newer = newest_first("host/2", UP, ServerLost(server="crm", reason="x"))
    [now] = server_records(["crm"], newer + older, [], ["host/1"]).values()
    assert (now.host, now.live, now.state) == ("host/1", True, "connected")
    [both] = server_records(["crm"], newer + older, [], ["host/1", "host/2"]).values()
    assert (both.host, both.live, both.as_of) == ("host/2", True, 2)


def test_the_latency_is_the_median_of_the_calls_that_were_answered() -> None:
    calls = [
        *(invoked(1), completed(1, 1000)),
        *(invoked(2), completed(2, 9000)),
        *(invoked(3), invoked(4), completed(4, 2000)),
        *(invoked(5, "other"), completed(5, 1), invoked(6, None), None),
    ]
    found = server_records(["crm"], [], newest_first("run/1", *calls))
    assert found["crm"].latency_ms == 2.0


def test_what_failed_last_at_a_server_comes_first_and_others_are_left_out() -> None:
    hosts = newest_first(
        "host/2",
        ServerFailed(server="crm", reason="no such program"),
        UP,
        ServerLost(server="other", reason="x"),
        BreakerOpened(server="crm", failures=5),
        ServerDisabled(server="crm", reason="it failed 5 times"),
    )
    late = ToolFailed(call=1, kind="timeout", sent="unknown", message="no answer")
    other = ToolFailed(call=2, kind="timeout", sent="unknown", message="no answer")
    runs = newest_first("run/1", invoked(1), late, invoked(2, "other"), other)

    found = failures("crm", hosts, runs)
    assert [(one["stream"], one["seq"], one["reason"]) for one in found] == [
        ("host/2", None, "it failed 5 times"),
        ("host/2", None, "5 calls in a row had no answer"),
        ("run/1", 1, "timeout: no answer"),
        ("host/2", None, "no such program"),
    ]
    many = newest_first("host/2", *[hosts[-1].event] * 100)
    assert len(failures("crm", many, [])) == 20
