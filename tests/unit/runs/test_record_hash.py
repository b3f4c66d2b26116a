"""Where the operator wants it so, the log keeps the digest of an answer alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON, Completed, cut
from caxton_host.core.grants.tool_catalog import Offered, pinned, routes_from_payload
from caxton_host.core.log.events import (
    RunStarted,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    to_payload,
)
from caxton_host.core.log.requests import Resend
from caxton_host.core.tools.servers import ToolOptions
from caxton_host.errors import NotKeptError, SandboxError, ToolError
from caxton_host.lib import codec
from caxton_host.ports import Door, Ending, Guest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools, offer
from tests.scene import ANSWERS, DEMO, Scene, Watched, calling, ended, pack, types

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
PRIVATE: JSON = {"name": "Ada", "phone": "+44 20 7946 0000"}
CRM = ("demo", "get_weather")


def scene_of(
    script: object, answer: JSON | ToolError | Completed = PRIVATE
) -> tuple[Scene, Watched]:
    watched = Watched(script)  # type: ignore[arg-type]
    tools = FakeTools({**ANSWERS, CRM: answer}, hashed=[CRM])
    return Scene(watched, tools=tools), watched


async def one(
    answer: JSON | ToolError | Completed = PRIVATE,
) -> tuple[Scene, Watched, ToolCompleted]:
    scene, watched = scene_of(calling("weather"), answer)
    events = await scene.run()
    [done] = [event for event in events if isinstance(event, ToolCompleted)]
    return scene, watched, done


async def test_agent_gets_the_answer_and_the_log_its_digest() -> None:
    scene, watched, done = await one()

    given = codec.decode_trusted(watched.answers[0].reply)
    assert given["data"] == PRIVATE
    assert (done.cut, done.message, done.blobs) == (True, "", ())
    assert "Ada" not in repr([to_payload(e) for e in await scene.events()])
    text = json.dumps(
        {"data": given["data"], "message": given["message"]},
        sort_keys=True,
        separators=(",", ":"),
    ).encode()
    digest = hashlib.sha256(text).hexdigest()
    assert done.data == {"$cut": {"sha256": digest, "bytes": len(text)}}


async def test_error_of_the_tool_is_kept_as_a_digest_too() -> None:
    answer = Completed(is_error=True, message="no such person: Ada", data=PRIVATE)
    scene, watched, done = await one(answer)

    assert codec.decode_trusted(watched.answers[0].reply)["message"] == answer.message
    assert done.is_error
    assert "Ada" not in repr([to_payload(e) for e in await scene.events()])


async def test_parameters_are_recorded_as_ever() -> None:  # law 2
    scene, _, _ = await one()

    [invoked] = [e for e in await scene.events() if isinstance(e, ToolInvoked)]
    assert invoked.params == {"city": "Oslo"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [("protocol", "the server refused the call"), ("timeout", "no answer of Ada")],
)
async def test_words_of_a_server_that_refuses_reach_nobody(
    kind: str, message: str
) -> None:
    error = ToolError(kind, "yes", "no answer of Ada")  # type: ignore[arg-type]
    scene, watched = scene_of(calling("weather"), error)
    events = await scene.run()

    [failed] = [event for event in events if isinstance(event, ToolFailed)]
    assert failed.message == message
    # law 5: the agent sees what the log holds, so the run replays.
    assert codec.decode_trusted(watched.answers[0].reply)["message"] == message
    assert (await scene.replay()).verdict == "identical"


async def test_mode_is_pinned_when_the_run_starts() -> None:
    scene, _, _ = await one()

    started = (await scene.events())[0]
    assert isinstance(started, RunStarted)
    modes = {n: r.record for n, r in routes_from_payload(started.catalogue).items()}
    assert modes["weather"] == modes["mcp__demo__get_weather"] == "hash"
    assert modes["mcp__demo__echo"] == "full"
    [echo] = [v for k, v in started.catalogue.items() if k == "mcp__demo__echo"]
    assert isinstance(echo, dict)
    assert "record" not in echo


@pytest.mark.parametrize("recorded", ["full", "hash"])
@pytest.mark.parametrize("now", ["full", "hash"])
@pytest.mark.parametrize("up", [False, True])
def test_stricter_of_recorded_and_current_mode_holds(
    recorded: str,
    now: str,
    up: bool,  # noqa: FBT001
) -> None:
    payload: dict[str, JSON] = {
        "t": {
            "server": "s",
            "tool": "t",
            "definition_sha256": None,
            "effect": "read",
            **({"record": "hash"} if recorded == "hash" else {}),
        }
    }
    offered = Offered(
        offers=(replace(offer("s", "t"), record=now),) if up else (),  # type: ignore[arg-type]
        options={("s", "t"): ToolOptions(record=now)},  # type: ignore[arg-type]
    )

    route = pinned(payload, offered)["t"]

    assert route.record == ("hash" if "hash" in {recorded, now} else "full")


async def test_guest_that_starts_anew_in_another_worker_gets_the_answer() -> None:
    lives = 0

    async def script(door: Door, guest: Guest) -> Ending:
        nonlocal lives
        lives += 1
        del guest
        answer = await door.call(b"weather", pack(city="Oslo"), 1)
        if lives == 1:
            raise SandboxError("the worker died")
        return ended(codec.decode_trusted(answer.reply)["message"])

    scene, watched = scene_of(script, Completed(message="Ada", data=PRIVATE))
    events = await scene.run()

    assert types(events)[-1] == "RunCompleted"
    assert watched.answers[0] == watched.answers[1]
    assert len(scene.tools.asked) == 1  # type: ignore[attr-defined]


async def test_replay_ends_at_the_answer_that_is_not_kept() -> None:
    scene, _ = scene_of(calling("mcp__demo__echo", "weather", "mcp__demo__echo"))
    await scene.run()

    found = await scene.replay()

    assert (found.verdict, found.divergence, found.calls) == ("incomplete", None, 3)
    assert found.not_kept is not None
    assert "call 2 (event 4), demo/get_weather" in str(found.not_kept)
    assert found.to_document()["not_kept"] == 2
    assert "record" in found.not_kept.fix


async def test_replay_still_finds_what_differs_before_and_at_that_call() -> None:
    scene, _ = scene_of(calling("mcp__demo__echo", "weather"))
    await scene.run()

    before = await scene.replay(calling("rm", "weather"))
    at = await scene.replay(calling("mcp__demo__echo", "rm"))

    assert before.verdict == at.verdict == "diverged"
    assert at.not_kept is None


async def test_run_with_an_answer_that_is_not_kept_cannot_be_resumed() -> None:
    first, _ = scene_of(calling("weather", "mcp__demo__echo"))
    await first.run()
    scene, _ = scene_of(calling("weather", "mcp__demo__echo"))
    log = scene.store.create(f"run/{first.run_id}")
    await log.append(*(await first.events())[:4], blobs=first.store.blobs)
    before = await scene.store.reader.read(f"run/{first.run_id}")

    with pytest.raises(NotKeptError, match=r"of call 1 .* keeps a digest") as caught:
        await scene.host.resume(first.run_id, actor=ANN, grant=DEMO)

    assert caught.value.call == 1
    # A word on the call in doubt is taken, but it does not help: law 5.
    await scene.host.resolve(first.run_id, 4, Resend(), actor=ANN, reason="again")
    with pytest.raises(NotKeptError):
        await scene.host.resume(first.run_id, actor=ANN, grant=DEMO)
    after = await scene.store.reader.read(f"run/{first.run_id}")
    assert types([e.event for e in after[len(before) :] if e.event]) == ["CallResolved"]
    assert scene.tools.asked == []  # type: ignore[attr-defined]


async def fork(scene: Scene, seq: int, edited: Completed | None = None) -> list[str]:
    request = ForkRequest(
        run_id=scene.run_id, seq=seq, actor=ANN, grant=DEMO, edited=edited
    )
    run_id = await scene.host.fork(request)
    return types(
        [e.event for e in await scene.store.reader.read(f"run/{run_id}") if e.event]
    )


async def test_fork_behind_an_answer_that_is_not_kept_is_refused() -> None:
    scene, _ = scene_of(calling("mcp__demo__echo", "weather", "mcp__demo__echo"))
    await scene.run()
    asked = len(scene.tools.asked)  # type: ignore[attr-defined]
    streams = await scene.store.reader.streams()

    for seq in (5, 7):
        with pytest.raises(NotKeptError, match=r"call 2 .*digest") as caught:
            await fork(scene, seq)
        assert caught.value.call == 2
        assert "--set-result" in caught.value.fix
    assert await scene.store.reader.streams() == streams
    assert len(scene.tools.asked) == asked  # type: ignore[attr-defined]


async def test_fork_before_it_or_with_another_answer_goes_on() -> None:
    scene, _ = scene_of(calling("mcp__demo__echo", "weather"))
    await scene.run()

    assert (await fork(scene, 3))[-1] == "RunCompleted"
    own = Completed(message="said by a person")
    assert (await fork(scene, 5, own))[-1] == "RunCompleted"


async def test_run_whose_hashed_call_is_still_open_can_be_resumed() -> None:
    first, _ = scene_of(calling("weather"))
    await first.run()
    scene, _ = scene_of(calling("weather"))
    scene.tools.effects = {CRM: "read"}  # type: ignore[attr-defined]
    events = [
        replace(event, effect="read") if isinstance(event, ToolInvoked) else event
        for event in (await first.events())[:2]
    ]
    started = events[0]
    assert isinstance(started, RunStarted)
    catalogue: dict[str, JSON] = {
        name: {**entry, "effect": "read"} if isinstance(entry, dict) else entry
        for name, entry in started.catalogue.items()
    }
    events[0] = replace(started, catalogue=catalogue)
    log = scene.store.create(f"run/{first.run_id}")
    await log.append(*events, blobs=first.store.blobs)

    await scene.host.resume(first.run_id, actor=ANN, grant=DEMO)

    found = [e.event for e in await scene.store.reader.read(f"run/{first.run_id}")]
    [done] = [event for event in found if isinstance(event, ToolCompleted)]
    assert done.cut


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    one = cut(Completed(data={"a": 1, "b": "ü"}, message="m"))
    two = cut(Completed(data={"b": "ü", "a": 1}, message="m"))

    assert one.data == two.data


async def test_batch_is_answered_in_full_and_recorded_as_digests() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        items: list[JSON] = [["weather", {"n": 1}], ["mcp__demo__echo", {"n": 2}]]
        answer = await door.call_many(codec.encode(items), 1)
        given.append(codec.decode_trusted(answer.reply))
        return ended(None)

    given: list[JSON] = []
    scene = Scene(script, tools=FakeTools({**ANSWERS, CRM: PRIVATE}, hashed=[CRM]))
    events = await scene.run()

    assert "Ada" in repr(given)
    done = [event for event in events if isinstance(event, ToolCompleted)]
    assert sorted(event.cut for event in done) == [False, True]
    assert "Ada" not in repr(events)
    assert (await scene.replay()).verdict == "incomplete"


async def test_batch_in_another_worker_gets_its_answers_again() -> None:
    replies: list[bytes] = []

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        items: list[JSON] = [["weather", {"n": 1}], ["mcp__demo__echo", {"n": 2}]]
        replies.append((await door.call_many(codec.encode(items), 1)).reply)
        if len(replies) == 1:
            raise SandboxError("the worker died")
        return ended(None)

    tools = FakeTools({**ANSWERS, CRM: PRIVATE}, hashed=[CRM])
    events = await Scene(script, tools=tools).run()

    assert types(events)[-1] == "RunCompleted"
    assert replies[0] == replies[1]
    assert len(tools.asked) == 2
