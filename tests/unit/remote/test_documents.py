"""Documents of a host that may be hostile."""

from __future__ import annotations

from dataclasses import fields

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import EVENT_TYPES, event_document, to_payload
from caxton_host.core.log.runs import ENDS
from caxton_host.errors import ServerUnavailable
from caxton_host.remote.documents import KINDS, recorded
from tests.scene import Scene, calling

EVENT: dict[str, JSON] = {
    "position": 3,
    "stream": "run/1",
    "seq": 1,
    "type": "LogWritten",
    "schema_version": 1,
    "recorded_at": 5,
    "trace_id": None,
    "span_id": None,
    "payload": {"n": 1, "level": "info", "text": "hello"},
    "hash": "00ff",
}


WRONG: tuple[JSON, ...] = (None, [], {}, 1.5, "\x1b", True)


async def test_an_event_is_what_it_was_when_it_was_sent() -> None:
    scene = Scene(calling("mcp__demo__get_weather", "mcp__demo__fail", "no"))
    await scene.run()
    events = await scene.recorded()
    assert {"RunStarted", "ToolInvoked", "ToolFailed"} < {one.type for one in events}
    for one in events:
        assert one.event is not None
        document = {
            **{field.name: getattr(one, field.name) for field in fields(one)},
            "hash": one.hash.hex(),
            "payload": to_payload(one.event),
        }
        del document["event"]
        assert recorded(document) == one


def test_what_was_erased_has_no_event() -> None:
    assert recorded(EVENT).event is not None
    assert recorded(EVENT | {"payload": None}).event is None


def test_the_position_of_an_event_may_be_withheld() -> None:
    one = recorded(EVENT | {"position": None})
    assert one.position == 0
    assert event_document(one)["position"] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in sorted(EVENT.keys() - {"payload", "trace_id", "span_id"})
        for value in WRONG
        if (key, value) != ("position", None)
    ],
)
def test_an_event_of_wrong_types_is_refused(key: str, value: JSON) -> None:
    with pytest.raises(ServerUnavailable):
        recorded(EVENT | {key: value} | ({} if value != "\x1b" else {key: [value]}))


@pytest.mark.parametrize("document", [None, [], "event", 1, {}])
def test_what_is_no_document_is_refused(document: JSON) -> None:
    with pytest.raises(ServerUnavailable):
        recorded(document)


@pytest.mark.parametrize(
    "payload",
    [[], {}, {"n": 1, "level": 1, "text": "a"}, {"n": "1", "level": "", "text": ""}],
)
def test_a_payload_of_wrong_types_is_refused(payload: JSON) -> None:
    with pytest.raises(ServerUnavailable):
        recorded(EVENT | {"payload": payload})


@pytest.mark.parametrize(
    "wrong",
    [
        {"grants": {"allow": [7]}},
        {"limits": {"memory": {}}},
        {"catalogue": {"a": {"server": "s"}}},
        {"catalogue": {"a": {"retry": {"no": 1}, "server": "s", "tool": "t"}}},
        {"seed": "xyz"},
        {"forked_from": {"run": 1}},
        {"actor": []},
    ],
)
async def test_a_start_that_cannot_be_read_later_is_refused(
    wrong: dict[str, JSON],
) -> None:
    scene = Scene(calling())
    await scene.run()
    start = (await scene.recorded())[0]
    assert start.event is not None
    document: dict[str, JSON] = EVENT | {
        "type": "RunStarted",
        "payload": to_payload(start.event),
    }
    recorded(document)
    with pytest.raises(ServerUnavailable):
        recorded(document | {"payload": to_payload(start.event) | wrong})


def test_every_field_of_every_event_has_a_kind() -> None:
    # A new annotation is to be thought of here.
    found = {
        str(field.type) for event in EVENT_TYPES.values() for field in fields(event)
    }
    assert found - KINDS.keys() <= {"JSON"}
    assert ENDS.keys() <= EVENT_TYPES.keys()
