"""What people are told: once for one cause, and nothing that is secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from caxton_host.core.log.events import (
    ApprovalRequested,
    AuditFailed,
    Event,
    Frozen,
    QuestionAsked,
    Recorded,
    RunFailed,
    RunSuspended,
    ServerConnected,
    ServerDisabled,
    ServerFailed,
    ServerLost,
)
from caxton_host.core.log.notices import CAUSES, Notice, Windows, cause_of, signed

S = 1_000_000
WINDOW = 300 * S
RUN = "run/018bcfe5-6800-7000-8000-000000000000"
CALLED = "run/018bcfe5-6800-8eae-abab-abababababab"
CANARY = "canary-7d1f-secret"


def recorded(event: Event | None, at: int = 0, stream: str = RUN) -> Recorded:
    type_ = type(event).__name__ if event else "RunFailed"
    return Recorded(
        position=1,
        stream=stream,
        seq=1,
        type=type_,
        schema_version=1,
        recorded_at=at,
        trace_id=None,
        span_id=None,
        hash=hashlib.sha256(f"{event} {at} {stream}".encode()).digest(),
        event=event,
    )


def cause(event: Event, at: int = 0, stream: str = RUN, agent: str = "a") -> Notice:
    found = cause_of(recorded(event, at, stream), agent)
    assert found is not None
    return found


def failed(at: int, agent: str = "a") -> Notice:
    return cause(RunFailed(kind="trap", message=CANARY, fuel=1), at, agent=agent)


def lost(at: int, server: str = "crm", domain: str | None = None) -> Notice:
    gone = ServerLost(server=server, reason=CANARY, domain=domain)
    return cause(gone, at, "host/1")


def back(at: int, server: str = "crm", domain: str | None = None) -> Notice:
    connected = ServerConnected(
        server=server, name=CANARY, version="1", protocol="1", tools=1, domain=domain
    )
    return cause(connected, at, "host/1")


def windows(*types: str) -> Windows:
    return Windows(WINDOW, types or CAUSES)


def approval(tool: str = "pay") -> ApprovalRequested:
    return ApprovalRequested(
        call=3,
        name=CANARY,
        server="bank",
        tool=tool,
        params={"to": CANARY},
        params_sha256="00",
        rule=CANARY,
        fuel=1,
        by=(CANARY,),
        until=None,
    )


def question(to: str) -> QuestionAsked:
    return QuestionAsked(
        call=4,
        question=1,
        name=CANARY,
        server="bank",
        tool="pay",
        message=CANARY,
        form=None,
        to=to,
        by=(),
        until=1,
    )


#: Each cause, and the page that it leads to.
CASES = [
    (approval(), "approval", f"/ui/inbox?run={RUN[4:]}"),
    (question("people"), "question", f"/ui/inbox?run={RUN[4:]}"),
    (RunSuspended(reason="in_doubt", call=3), "in_doubt", f"/ui/runs/{RUN[4:]}"),
    (
        RunFailed(kind="trap", message=CANARY, fuel=1),
        "failed",
        f"/ui/runs/{RUN[4:]}",
    ),
    (ServerFailed(server="crm", reason=CANARY), "server_lost", "/ui/servers/crm"),
    (ServerDisabled(server="crm", reason=CANARY), "server_lost", "/ui/servers/crm"),
    (AuditFailed(what="verify", reason=CANARY), "audit", "/ui/evidence"),
    (Frozen(kind="token", name=CANARY, actor={}, reason=CANARY), "frozen", "/ui/runs"),
]


@pytest.mark.parametrize(("event", "type_", "path"), CASES)
def test_a_cause_is_told_with_a_link_and_without_what_is_secret(
    event: Event, type_: str, path: str
) -> None:
    # law 8
    found = cause(event, at=1_700_000_000 * S).to_document("https://console.test/")
    assert found["type"] == type_
    assert found["link"] == f"https://console.test{path}"
    assert found["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert CANARY not in json.dumps(found)


def test_without_the_url_of_the_console_there_is_no_link() -> None:
    assert failed(0).to_document(None)["link"] is None


@pytest.mark.parametrize(
    "nothing",
    [
        recorded(None),
        recorded(question("client")),
        recorded(RunSuspended(reason="approval", call=1)),
        recorded(RunFailed(kind="trap", message="", fuel=1), stream=CALLED),
    ],
)
def test_what_another_notice_says_or_nobody_can_say_is_no_cause(
    nothing: Recorded,
) -> None:
    assert cause_of(nothing, "a") is None


def test_a_name_of_others_steers_neither_a_chat_nor_a_terminal() -> None:
    # law 9
    hostile = "<!channel> [x](http://evil.test) @all\x1b[31m{agent}" + 500 * "x"
    found = cause(approval(hostile)).to_document("https://console.test")
    told = json.dumps(found)
    assert not {*"<@("} & {*told}
    assert "{agent}" not in told
    assert len(str(found["text"])) < 250


def test_the_first_is_told_at_once_and_a_storm_once_a_window() -> None:
    work = windows()
    first = failed(0)
    assert work.take(first) == [first]
    storm = [failed(n * S) for n in range(1, 100)]
    assert [told for one in storm for told in work.take(one)] == []
    assert work.due(WINDOW) == []  # One that is committed late may still come.
    (told,) = work.due(WINDOW + 2 * S)
    assert told.count == 99
    document = told.to_document("https://c.test")
    assert str(document["text"]).startswith("99 times: ")
    assert document["link"] == "https://c.test/ui/runs?state=failed&agent=a"
    assert work.due(2 * WINDOW + 2 * S) == []
    later = failed(3 * WINDOW)
    assert work.take(later) == [later]


def test_causes_of_different_agents_are_told_apart() -> None:
    work = windows()
    assert [len(work.take(failed(n, agent=a))) for n, a in enumerate("aabb")] == [
        *(1, 0, 1, 0)
    ]


def test_so_many_groups_are_counted_and_the_others_by_their_type() -> None:
    work = windows()
    told = [one for n in range(1000) for one in work.take(failed(n, agent=f"a{n}"))]
    assert len(told) == 201
    assert len(work.ends) == 201


def test_a_server_that_restarts_at_once_is_not_told_of() -> None:
    work = windows()
    assert work.take(lost(0)) == []
    assert work.take(back(2 * S)) == []
    assert work.due(60 * S) == []


def test_a_server_that_stays_away_is_told_of_once_and_so_is_its_return() -> None:
    work = windows()
    gone = lost(0)
    assert work.take(gone) == []
    assert work.take(lost(5 * S)) == []
    assert work.due(10 * S) == [gone]
    assert work.take(lost(20 * S)) == []
    returned = back(30 * S)
    assert work.take(returned) == [returned]
    assert work.take(back(31 * S)) == []


def test_processes_of_one_server_are_lost_one_by_one_and_told_of_together() -> None:
    work = windows()
    gone = lost(0, domain="clerk")
    assert work.take(gone) == work.take(lost(S, domain="@acme/clerk")) == []
    assert work.take(back(2 * S, domain="payer")) == []
    assert work.due(11 * S) == [gone]
    assert gone.facts == {"server": "crm", "domain": "clerk", "kind": "lost"}
    assert [one.count for one in work.due(WINDOW + 2 * S)] == [1]


def test_a_server_that_flaps_is_told_of_once_a_window() -> None:
    work, told = windows(), list[Notice]()
    for n in range(10):
        told += work.take(lost(n * 25 * S))
        told += work.take(back((n * 25 + 12) * S))
    told += work.due(2 * WINDOW)
    assert [(one.type, one.count) for one in told] == [
        *(("server_lost", 1), ("server_back", 1)),
        *(("server_lost", 9), ("server_back", 9)),
    ]


def test_a_server_that_is_given_up_is_told_of_at_once() -> None:
    work = windows()
    work.take(lost(0))
    given_up = cause(ServerDisabled(server="crm", reason=""), S, "host/1")
    assert work.take(given_up) == [given_up]
    assert work.due(60 * S) == []


def test_no_more_than_so_many_servers_are_remembered() -> None:
    work = windows()
    for n in range(500):
        work.take(lost(0, f"s{n}"))
    assert len(work.away) == 200


def test_only_the_wanted_types_are_told() -> None:
    work = windows("server_back")
    assert work.take(failed(0)) == work.take(lost(0)) == work.due(60 * S) == []
    assert [one.type for one in work.take(back(61 * S))] == ["server_back"]


def test_what_is_kept_goes_on_as_it_was() -> None:
    # law 10
    work = windows()
    for one in (failed(0), failed(1), lost(2)):
        work.take(one)
    text = work.to_json("p-7")
    later = json.loads(text)
    later["counted"]["failed a"]["said_by_a_later_release"] = 1
    again, cursor = Windows.from_json(json.dumps(later), WINDOW, CAUSES)
    assert cursor == "p-7"
    assert again.due(3 * WINDOW) == work.due(3 * WINDOW) != []


def test_the_id_says_which_events_a_notice_is_about() -> None:
    one, two, three = failed(0), failed(1), failed(2)
    assert one.id == failed(0).id
    both = two.after(one)
    assert both.id == failed(1).after(failed(0)).id
    assert len({one.id, two.id, both.id, three.after(both).id}) == 4


def test_each_secret_has_a_signature() -> None:
    headers = signed("id", 5, b"{}", [b"old", b"new"])
    expected = [
        base64.b64encode(hmac.digest(one, b"id.5.{}", "sha256")).decode()
        for one in (b"old", b"new")
    ]
    assert headers == {
        "webhook-id": "id",
        "webhook-timestamp": "5",
        "webhook-signature": f"v1,{expected[0]} v1,{expected[1]}",
    }


def test_an_event_that_was_changed_is_told_of_once() -> None:
    one = Notice.of_fault("run/x: it was changed", 5)
    assert one.id == Notice.of_fault("run/x: it was changed", 6).id
    assert windows().take(one) == [one]
