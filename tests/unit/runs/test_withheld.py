"""Where an agent is to have the message of an answer, nothing gives it the data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from caxton_host.core.calls import JSON, Completed, cut
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import Event, ToolCompleted, to_payload
from caxton_host.core.log.requests import GiveResult
from caxton_host.lib import codec
from caxton_host.ports import Door, Ending, Guest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools
from tests.scene import DEMO, Scene, Watched, calling, ended

RAW = "a raw row"
DONE = Completed(
    message="Ada",
    data={"content": [], "structuredContent": {"name": "Ada", "rest": RAW}},
    blobs=({"sha256": "00", "bytes": 1, "media_type": "image/png"},),
    contents={"00": b"x"},
    bytes=40,
)
ACTOR: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


@dataclass(slots=True)
class Terse(FakeTools):
    """Tools of whose answers agents get the message."""

    async def offered(self, servers: Collection[str]) -> Offered:
        offered = await FakeTools.offered(self, servers)
        offers = tuple(replace(one, reply="message") for one in offered.offers)
        return replace(offered, offers=offers)


def terse(answer: Completed = DONE) -> Terse:
    return Terse({("demo", "get_weather"): answer})


def ends(events: list[Event]) -> list[ToolCompleted]:
    return [event for event in events if isinstance(event, ToolCompleted)]


async def test_agent_and_log_get_the_message_and_the_log_a_digest() -> None:
    live, again = Watched(calling("weather")), Watched(calling("weather"))
    scene = Scene(live, tools=terse())

    events = await scene.run()

    [answer], [end] = live.answers, ends(events)
    assert codec.decode_trusted(answer.reply) == {
        "status": "ok",
        "message": "Ada",
        "data": None,
    }
    assert cut(DONE).data == {"$cut": end.withheld}
    assert (end.data, end.blobs, end.bytes) == (None, (), 40)
    assert RAW not in repr([to_payload(event) for event in events])
    assert (await scene.replay(again)).verdict == "identical"
    assert again.answers == live.answers  # law 5


async def test_batch_and_error_are_no_way_around() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        call: JSON = ["weather", {}]
        answer = await door.call_many(codec.encode([call, call]), 1)
        replies: Any = codec.decode_trusted(answer.reply)
        return ended([[reply["message"], reply["data"]] for reply in replies])

    scene = Scene(script, tools=terse(replace(DONE, is_error=True)))

    events = await scene.run()

    assert RAW not in repr(events)
    assert [(end.is_error, end.data) for end in ends(events)] == [(True, None)] * 2


async def test_answer_without_data_is_as_it_is() -> None:
    scene = Scene(calling("weather"), tools=terse(Completed(message="done")))

    [end] = ends(await scene.run())

    assert (end.message, end.withheld) == ("done", None)
    assert "withheld" not in to_payload(end)


async def test_answer_of_a_person_is_cut_down_like_that_of_the_tool() -> None:
    scene = Scene(calling("weather"), tools=terse())
    await scene.run()
    runs: list[str] = []
    fork = ForkRequest(run_id=scene.run_id, seq=2, actor=ACTOR, grant=DEMO, edited=DONE)

    await scene.host.fork(fork, on_started=runs.append)

    recorded = await scene.store.reader.read(f"run/{runs[0]}")
    assert RAW not in repr(recorded)
    [end] = ends([one.event for one in recorded if one.event])
    assert (end.message, end.data) == ("Ada", None)


async def test_what_a_person_says_of_a_call_in_doubt_is_cut_down_too() -> None:
    first = Scene(calling("weather"), tools=terse())
    events = await first.run()
    scene = Scene(calling("weather"), tools=terse())
    log = scene.store.create(f"run/{first.run_id}")
    await log.append(*events[:2], blobs=first.store.blobs)

    await scene.host.resolve(
        first.run_id, 2, GiveResult(DONE), actor=ACTOR, reason="seen"
    )

    recorded = await scene.store.reader.read(f"run/{first.run_id}")
    assert RAW not in repr(recorded)
    [end] = ends([one.event for one in recorded if one.event])
    assert (end.message, end.data) == ("Ada", None)
