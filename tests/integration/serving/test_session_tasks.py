"""A call of a session is a task: of both revisions that have tasks, on a real port."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest

from caxton_host.config import Agent, Config
from caxton_host.config.model import Session
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.clients import Client
from caxton_host.core.grants.approvals import Approve, Verdict
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import ApprovalDecided, ToolFailed
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import BusyError
from caxton_host.ports.history import Streams
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.runs.questions import inbox
from caxton_host.runs.recording import Recording
from caxton_host.service.sessions import Connection, Sessions
from caxton_host.testing import FakeTools
from caxton_host.web.mcp.http_router import sessions_app
from caxton_host.web.mcp.session_tasks import SessionTasks
from caxton_host.web.mcp.sessions import APPROVAL, CODE, STATUS, result_of
from caxton_host.web.mcp.tasks import (
    LONGEST_TTL_MS,
    RELATED,
    SHORTEST_TTL_MS,
    TTL_MS,
)
from tests.integration.mcp.authority import served
from tests.integration.serving.rpc import DATED, MODERN, Refused, Rpc, rpc
from tests.scene import Scene, rule, types

both = pytest.mark.parametrize("revision", [DATED, MODERN])
UNKNOWN_METHOD, INVALID = -32601, -32602
ECHO, PAY, WEATHER = "mcp__demo__echo", "mcp__demo__pay", "mcp__demo__get_weather"
NOBODYS = "018bcfe5-6800-7c5a-9f9b-000000000000"
WANTED = replace(rule("demo/pay", name="allow[2]"), approve=Approve(by=("ops",)))
GRANT = Grant(allow=(rule("demo/echo", "demo/get_weather"), WANTED))
RED = b"\x89PNG red"
ANSWERS: dict[tuple[str, str], Any] = {
    ("demo", "echo"): "echoed",
    ("demo", "pay"): "paid",
    ("demo", "get_weather"): {"sky": "clear"},
}


def client_of(name: str, tenant: str | None = None) -> Principal:
    return Principal(
        kind="token",
        id=name,
        scopes=frozenset(),
        agents=(),
        sessions=("dev", "ops"),
        tenant=tenant,
    )


ANN = client_of("ann")


@dataclass(slots=True)
class SlowTools(FakeTools):
    """Tools that answer when they are let, and know how often they were asked."""

    let: asyncio.Event = field(default_factory=asyncio.Event)
    reached: list[str] = field(default_factory=list[str])

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.reached.append(request.tool)
        await self.let.wait()
        return await FakeTools.call_tool(self, request)


async def _no_guest(*_: object) -> Any:  # noqa: ANN401 -- never
    raise AssertionError


@dataclass
class Desk:
    """The sessions of a host, which can be started again on the same log."""

    tools: SlowTools = field(default_factory=lambda: SlowTools(ANSWERS))
    grant: Grant = GRANT
    session: Session = field(default_factory=Session)
    redact: Redactor = field(default_factory=Redactor)
    scene: Scene = field(init=False)
    closed: bool = False

    def __post_init__(self) -> None:
        self.scene = Scene(_no_guest, tools=self.tools, redact=self.redact)
        self.scene.host = replace(self.scene.host, present=self._present)

    def _present(self, _: str) -> Grant:
        return self.grant

    def config(self) -> Config:
        agents = {
            name: Agent(name=name, grant=self.grant, session=self.session)
            for name in ("dev", "ops")
        }
        return Config(store_url="sqlite://", agents=agents)

    @asynccontextmanager
    async def up(self) -> AsyncGenerator[Callable[..., Rpc]]:
        """Serve, and yield what returns a client of a session."""
        sessions = Sessions.of(self.scene.host, self.scene.store, self.config)
        app = sessions_app(sessions, lambda: self.closed, body=100_000)

        async def edge(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if scope["type"] == "http":
                who, scope["caxton.session"] = scope["path"].split("/")[1:]
                name, _, tenant = who.partition("@")
                scope["caxton.principal"] = client_of(name, tenant or None)
                await app(scope, receive, send)

        joined = self.scene.store.leases.joined
        joined.add("host/1")
        async with AsyncExitStack() as stack:
            stack.callback(joined.discard, "host/1")
            await stack.enter_async_context(sessions.running())
            await stack.enter_async_context(app.running())
            origin = await stack.enter_async_context(served(edge))
            one = await stack.enter_async_context(rpc(origin))

            def as_client(
                revision: str = DATED, who: str = "ann", session: str = "dev"
            ) -> Rpc:
                return replace(one, url=f"{origin}/{who}/{session}", revision=revision)

            yield as_client

    async def decide(self, key: str, verdict: Verdict) -> None:
        """Decide about a call as a person, once no host drives its session."""
        run_id = key.split(".", maxsplit=1)[0]
        word = Word(verdict=verdict, actor={"id": "bob"}, reason="so", role="ops")
        async with asyncio.timeout(20):
            while True:
                try:
                    now = self.scene.clock.now()
                    await say(self.scene.store, run_id, None, word, now=now)
                except BusyError:
                    await asyncio.sleep(0.01)
                else:
                    return

    def events(self, key: str) -> list[Any]:
        stream = self.scene.store.streams[f"run/{key.split('.', maxsplit=1)[0]}"]
        return [one.event for one in stream if one.event]


async def over(ask: Rpc, key: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            found: dict[str, Any] = await ask("tasks/get", taskId=key)
            if found["status"] in {"completed", "failed", "cancelled"}:
                return found
            await asyncio.sleep(0.01)


async def waiting(ask: Rpc, **arguments: JSON) -> str:
    """Make a call that waits for an approval, and return its task."""
    task = await ask.begin(PAY, arguments=arguments)
    return str(task["taskId"])


async def under_way(desk: Desk) -> None:
    """Return when a tool was asked."""
    async with asyncio.timeout(20):
        while not desk.tools.reached:  # noqa: ASYNC110 -- or the test times out
            await asyncio.sleep(0.01)


async def refusal(call: Any) -> Refused:  # noqa: ANN401
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


async def test_a_call_is_a_task_and_its_result_is_that_of_the_call() -> None:  # law 3
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        task = await ask.begin(WEATHER, ttl=60_000)
        key = task["taskId"]
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        assert types(desk.events(key)) == ["RunStarted", "ToolInvoked"]
        result = asyncio.create_task(ask("tasks/result", taskId=key))
        desk.tools.let.set()
        found = await result
        assert found["_meta"].pop(RELATED) == {"taskId": key}
        del found["_meta"]
        assert found == await ask("tools/call", name=WEATHER)
        assert (await ask("tasks/get", taskId=key))["status"] == "completed"
        again = await ask("tasks/result", taskId=key)
        assert again["content"] == found["content"]
    assert desk.tools.reached == ["get_weather"] * 2


async def test_a_call_that_is_answered_is_no_task_of_the_extension() -> None:
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        answer = await client(MODERN)("tools/call", name=ECHO)
        assert answer["resultType"] == "complete"
        assert answer["content"][0]["text"] == "echoed"


@both
async def test_a_call_that_waits_for_an_approval_goes_on_once_that_is_given(
    revision: str,
) -> None:  # law 4
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client(revision)
        key = await waiting(ask, amount=7)
        found = await ask("tasks/get", taskId=key)
        # In the extension, input is what the client gives.
        assert found["status"] == ("input_required" if revision == DATED else "working")
        assert "waits for the approval of ops: event 2 of run" in found["statusMessage"]
        assert desk.tools.reached == []
        await desk.decide(key, "approve")
        assert (await over(ask, key))["status"] == "completed"
        if revision == DATED:
            found = await ask("tasks/result", taskId=key)
        else:
            found = (await ask("tasks/get", taskId=key))["result"]
        assert found["content"] == [{"type": "text", "text": "paid"}]
    (request,) = desk.tools.asked
    assert request.params == {"amount": 7}


async def test_who_waits_for_a_result_gets_it_once_the_call_is_approved() -> None:
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        key = await waiting(ask)
        several = [asyncio.create_task(ask("tasks/result", taskId=key)) for _ in "123"]
        await desk.decide(key, "approve")
        for one in several:
            assert (await one)["content"][0]["text"] == "paid"
    assert desk.tools.reached == ["pay"]


@both
async def test_many_looks_at_an_approved_call_make_it_once(
    revision: str,
) -> None:  # law 7
    desk = Desk()
    async with desk.up() as client:
        ask = client(revision)
        key = await waiting(ask)
        await desk.decide(key, "approve")
        found = await asyncio.gather(*(ask("tasks/get", taskId=key) for _ in range(20)))
        assert {one["status"] for one in found} == {"working"}
        await under_way(desk)
        assert (await ask("tasks/get", taskId=key))["status"] == "working"
        desk.tools.let.set()
        assert (await over(ask, key))["status"] == "completed"
    assert desk.tools.reached == ["pay"]
    assert types(desk.events(key)).count("ApprovalRequested") == 1


async def test_a_look_that_takes_longer_than_the_call_does_not_make_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # law 7
    desk = Desk()
    desk.tools.let.set()
    load, reads, ended = Recording.load, iter("12"), asyncio.Event()

    async def slow_at_first(run_id: str, store: Streams) -> Recording:
        found = await load(run_id, store)
        if next(reads, "") == "1":
            await ended.wait()
        return found

    async with desk.up() as client:
        ask = client()
        key = await waiting(ask)
        await desk.decide(key, "approve")
        monkeypatch.setattr(Recording, "load", slow_at_first)
        late = asyncio.create_task(ask("tasks/get", taskId=key))
        await asyncio.sleep(0.2)
        assert (await over(ask, key))["status"] == "completed"
        ended.set()
        await late
        assert (await over(ask, key))["status"] == "completed"
        await asyncio.sleep(0.2)
    assert desk.tools.reached == ["pay"]
    assert types(desk.events(key)).count("ApprovalRequested") == 1


async def test_without_tasks_the_answer_names_the_approval() -> None:
    async with Desk().up() as client:
        for ask in (client(), replace(client(MODERN), can=False)):
            answer = await ask("tools/call", name=PAY)
            assert answer["_meta"][STATUS] == "waits"
            assert answer["_meta"][APPROVAL] == 2


@both
async def test_a_denial_is_the_result_of_the_task(revision: str) -> None:
    desk = Desk()
    async with desk.up() as client:
        ask = client(revision)
        key = await waiting(ask)
        await desk.decide(key, "deny")
        found = await over(ask, key)
        if revision == DATED:
            assert found["status"] == "failed"
            found["result"] = await ask("tasks/result", taskId=key)
        assert found["result"]["isError"]
        assert found["result"]["_meta"][CODE] == "approval"
    assert desk.tools.reached == []


async def test_what_no_rule_allows_is_a_task_that_has_failed() -> None:
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        task = await ask.begin("mcp__demo__steal")
        assert task["status"] == "failed"
        result = await ask("tasks/result", taskId=task["taskId"])
        assert result["_meta"][CODE] == "not_granted"
        assert types(desk.events(task["taskId"])) == [
            "RunStarted",
            "ToolInvoked",
            "ToolDenied",
        ]


@both
async def test_cancelling_takes_back_what_waits_for_an_approval(
    revision: str,
) -> None:  # law 7
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client(revision)
        key = await waiting(ask)
        told = await ask("tasks/cancel", taskId=key)
        assert (await ask("tasks/get", taskId=key))["status"] == "cancelled"
        decided = desk.events(key)[-1]
        assert isinstance(decided, ApprovalDecided)
        assert (decided.verdict, decided.actor) == ("deny", ANN.actor)
        if revision == DATED:
            assert told["status"] == "cancelled"
            assert (await refusal(ask("tasks/cancel", taskId=key))).code == INVALID
            assert (await ask("tasks/result", taskId=key))["isError"]
        # The same call again is denied, and the task stays as it was.
        plain = replace(ask, can=False)
        denied = await plain("tools/call", name=PAY, arguments={})
        assert denied["_meta"][CODE] == "approval"
        assert (await ask("tasks/get", taskId=key))["status"] == "cancelled"
    assert desk.tools.reached == []


async def test_cancelling_stops_a_call_that_is_under_way() -> None:  # law 2
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        key = (await ask.begin(ECHO))["taskId"]
        await under_way(desk)
        assert (await ask("tasks/cancel", taskId=key))["status"] == "cancelled"
        (failed,) = [e for e in desk.events(key) if isinstance(e, ToolFailed)]
        assert failed.kind == "cancelled"
        assert (await refusal(ask("tasks/cancel", taskId=key))).code == INVALID


@pytest.mark.parametrize("steps", [0, 1, 5, 20])
async def test_a_cancellation_and_an_answer_at_once_leave_one_of_them(
    steps: int,
) -> None:  # law 2
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        key = (await ask.begin(ECHO))["taskId"]
        cancelling = asyncio.create_task(ask("tasks/cancel", taskId=key))
        for _ in range(steps):
            await asyncio.sleep(0)
        desk.tools.let.set()
        await asyncio.wait([cancelling])
        status = (await over(ask, key))["status"]
        if status == "completed":
            assert (await refusal(cancelling)).code == INVALID
    ends = [one for one in types(desk.events(key)) if one[:4] == "Tool"]
    closed = "ToolCompleted" if status == "completed" else "ToolFailed"
    assert ends == ["ToolInvoked", closed]


@both
@pytest.mark.parametrize(
    ("who", "session"), [("bob", "dev"), ("ann@acme", "dev"), ("ann", "ops")]
)
async def test_a_task_of_another_client_or_session_does_not_exist(
    revision: str, who: str, session: str
) -> None:
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        ask, theirs = client(revision), client(revision, who, session)
        key = await waiting(ask)
        methods = ["tasks/get", "tasks/cancel"]
        methods += ["tasks/result"] if revision == DATED else ["tasks/update"]
        for method in methods:
            hidden, unknown = [
                await refusal(theirs(method, taskId=one))
                for one in (key, f"{NOBODYS}.1.1000")
            ]
            assert hidden == unknown
            assert hidden.code == INVALID
        await desk.decide(key, "approve")
        await refusal(theirs("tasks/get", taskId=key))
        assert desk.tools.reached == []


@both
async def test_an_id_that_is_none_is_no_task(revision: str) -> None:
    async with Desk().up() as client:
        ask = client(revision)
        key = await waiting(ask)
        run_id, _, ttl = key.split(".")
        for wrong in (
            *("x", "..", run_id, f"{run_id}.1", f"{run_id}.99.{ttl}"),
            *(f"{run_id}.0.{ttl}", f"{run_id}.-1.{ttl}", f"{key}.1", f"{key}0000000"),
            *(f"{run_id}.1.0", f"{run_id}.{'9' * 40}.{ttl}", "x" * 10_000),
        ):
            assert (await refusal(ask("tasks/get", taskId=wrong))).code == INVALID
            assert (await refusal(ask("tasks/cancel", taskId=wrong))).code == INVALID
        # A longer life than any does not come of an id that was made up.
        longer = f"{run_id}.1.999999999"
        found = await ask("tasks/get", taskId=longer)
        assert found["ttl" if revision == DATED else "ttlMs"] == LONGEST_TTL_MS


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, TTL_MS), (1, SHORTEST_TTL_MS), (70_000, 70_000), (10**15, LONGEST_TTL_MS)],
)
async def test_a_task_exists_for_its_ttl(asked: int | None, given: int) -> None:
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        task = await ask.begin(ECHO, ttl=asked)
        assert task["ttl"] == given
        await over(ask, task["taskId"])
        desk.scene.clock.time += given * 1_000
        gone = await refusal(ask("tasks/get", taskId=task["taskId"]))
        assert gone.code == INVALID
    assert "ToolCompleted" in types(desk.events(task["taskId"]))


async def test_a_call_that_waits_is_listed_while_its_session_is_not_suspended() -> None:
    # Nor is it after its host was killed, until its client makes another call.
    desk = Desk()
    async with desk.up() as client:
        await client().begin(ECHO)
        await under_way(desk)
        key = await waiting(client(), amount=7)
        found = await inbox(
            desk.scene.store.reader,
            desk.scene.clock.now(),
            most=9,
            unread=lambda run_id, _: pytest.fail(run_id),
        )
        desk.tools.let.set()

    assert [(key.split(".")[0], {"amount": 7})] == [
        (one.run_id, one.call.params) for one in found.calls
    ]


@both
async def test_a_task_that_waits_survives_its_host(revision: str) -> None:  # law 10
    desk = Desk()
    desk.tools.let.set()
    async with desk.up() as client:
        key = await waiting(client(revision), amount=7)
    await desk.decide(key, "approve")
    async with desk.up() as client:
        assert (await over(client(revision), key))["status"] == "completed"
    (request,) = desk.tools.asked
    assert request.params == {"amount": 7}


async def test_a_call_of_a_host_that_is_gone_is_in_doubt_and_not_repeated() -> (
    None
):  # law 7
    desk = Desk()
    async with desk.up() as client:
        key = (await client().begin(ECHO))["taskId"]
        await under_way(desk)
    async with desk.up() as client:
        ask = client()
        assert (await ask("tasks/get", taskId=key))["status"] == "failed"
        result = await ask("tasks/result", taskId=key)
        assert "unknown" in result["content"][0]["text"]
        assert (await refusal(ask("tasks/cancel", taskId=key))).code == INVALID
        desk.tools.let.set()
        # The session goes on, which closes the call.
        await ask("tools/call", name=WEATHER)
        assert "ToolFailed" in types(desk.events(key))
        assert (await ask("tasks/get", taskId=key))["status"] in {
            "failed",
            "cancelled",
        }
    assert desk.tools.reached == ["echo", "get_weather"]


async def test_arguments_that_the_log_does_not_hold_have_to_be_said_again() -> None:
    desk = Desk(redact=Redactor(["hunter2hunter2"]))
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        key = await waiting(ask, key="hunter2hunter2")
        await desk.decide(key, "approve")
        found = await ask("tasks/get", taskId=key)
        assert found["status"] == "input_required"
        assert "same call again" in found["statusMessage"]
        assert "hunter2" not in str(desk.events(key))  # law 8
        await ask("tools/call", name=PAY, arguments={"key": "hunter2hunter2"})
        assert (await over(ask, key))["status"] == "completed"
    assert desk.tools.reached == ["pay"]


async def test_a_session_that_ended_leaves_no_task_that_waits() -> None:
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        key = await waiting(ask)
        await desk.decide(key, "approve")
        run_id = key.split(".")[0]
        await cancel_idle(desk.scene.store, run_id, {"id": "bob"}, "enough")
        found = await over(ask, key)
        assert found["status"] == "failed"
        assert "the session ended" in found["statusMessage"]
    assert desk.tools.reached == []


async def test_an_answer_of_which_a_digest_is_kept_is_no_result() -> None:
    desk = Desk(SlowTools(ANSWERS, hashed={("demo", "echo")}))
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        key = (await ask.begin(ECHO))["taskId"]
        found = await over(ask, key)
        assert found["status"] == "failed"
        assert "only a digest" in found["statusMessage"]


async def test_parts_that_the_log_keeps_apart_are_whole_in_a_result() -> None:
    digest = sha256(RED).hexdigest()
    name: JSON = {"sha256": digest, "bytes": len(RED), "media_type": "image/png"}
    done = Completed(
        data={"content": [{"type": "image", "data": name, "mimeType": "image/png"}]},
        blobs=({"sha256": digest, "bytes": len(RED), "media_type": "image/png"},),
        contents={digest: RED},
    )
    desk = Desk(SlowTools({("demo", "echo"): done}))
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        key = (await ask.begin(ECHO))["taskId"]
        (image,) = (await ask("tasks/result", taskId=key))["content"]
    assert base64.b64decode(image["data"]) == RED


async def test_a_search_for_tools_is_no_task_and_a_call_by_its_name_is() -> None:
    desk = Desk(session=Session(search_above=1))
    desk.tools.let.set()
    async with desk.up() as client:
        ask = client()
        listed = (await ask("tools/list"))["tools"]
        assert {one["name"]: "execution" in one for one in listed} == {
            "search_tools": False,
            "call_tool": True,
        }
        found = await ask("tools/call", name="search_tools", arguments={"query": "x"})
        assert "structuredContent" in found
        refused = await refusal(ask.begin("search_tools", arguments={"query": "x"}))
        assert refused.code == UNKNOWN_METHOD
        assert (await refusal(ask.begin("call_tool", arguments={}))).code == INVALID
        task = await ask.begin("call_tool", arguments={"name": ECHO})
        assert (await over(ask, task["taskId"]))["status"] == "completed"


async def test_tools_say_that_they_can_be_tasks_and_tasks_are_not_listed() -> None:
    async with Desk().up() as client:
        ask = client()
        hello = await ask(
            "initialize",
            protocolVersion=DATED,
            capabilities={},
            clientInfo={"name": "x", "version": "1"},
        )
        assert hello["capabilities"]["tasks"] == {
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        assert (await refusal(ask("tasks/list"))).code == UNKNOWN_METHOD
        for tool in (await ask("tools/list"))["tools"]:
            assert tool["execution"] == {"taskSupport": "optional"}


async def test_who_waits_for_a_result_is_told_that_the_host_stops() -> None:
    desk = Desk()
    async with desk.up() as client:
        ask = client()
        key = await waiting(ask)
        result = asyncio.create_task(ask("tasks/result", taskId=key))
        desk.closed = True
        assert "about to stop" in (await refusal(result)).message


@pytest.mark.parametrize("steps", range(0, 30, 3))
async def test_a_client_that_hangs_up_before_it_has_a_task_leaves_no_call(
    steps: int,
) -> None:  # law 2
    desk = Desk()
    sessions = Sessions.of(desk.scene.host, desk.scene.store, desk.config)
    by = Connection(who=ANN, session="dev", client=Client(name="x"))
    tasks = SessionTasks(sessions=sessions, connection=lambda _: by, told=result_of)
    async with sessions.running():
        await sessions.started(by)
        beginning = asyncio.create_task(tasks.begin(by, ECHO, {}, 1_000))
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait([beginning])
        if not beginning.cancelled():
            await tasks.stop()
        (stream,) = [key for key in desk.scene.store.streams if key[:4] == "run/"]
        async with asyncio.timeout(20):
            while True:
                recording = await Recording.load(stream[4:], desk.scene.store.reader)
                if not recording.journal().open_calls:
                    break
                await asyncio.sleep(0.01)
