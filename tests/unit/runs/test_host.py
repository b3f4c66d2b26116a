"""A run, from its request to its one recorded end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)
from caxton_host.core.log.runs import ENDS
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.manifest import section
from caxton_host.errors import (
    BusyError,
    ConfigError,
    ModuleRefused,
    SandboxError,
    ServerUnavailable,
    StoreError,
    ToolError,
    UsageError,
)
from caxton_host.lib import codec
from caxton_host.ports import (
    Door,
    Ending,
    Guest,
    Prepared,
    Refused,
    Reservation,
    RunScope,
    ToolRequest,
    Trace,
)
from caxton_host.runs.admission import Admission
from caxton_host.runs.recording import guest_for
from caxton_host.store.memory import MemoryLog
from caxton_host.testing import FakeSandbox, FakeTools, Script
from tests.scene import ANSWERS, DEMO, Scene, calling, ended, pack, rule, types


def started(events: list[Event]) -> RunStarted:
    assert isinstance(events[0], RunStarted)
    return events[0]


def end(events: list[Event]) -> Event:
    """Return the one terminal event, and see that it is the only one, and last."""
    ends = [e for e in events if ENDS.get(type(e).__name__, "running") != "running"]
    assert ends == [events[-1]]
    return ends[0]


def ending_with(ending: Ending) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        return ending

    return script


def raising(exc: BaseException) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        raise exc

    return script


async def call_then_hang(door: Door, guest: Guest) -> Ending:
    del guest
    await door.call(b"weather", pack(city="Oslo"), 1)
    await asyncio.sleep(30)
    raise AssertionError


class HangingTools(FakeTools):
    """Tools that never answer."""

    async def call_tool(self, request: object) -> Completed:
        del request
        await asyncio.sleep(30)
        raise AssertionError


# -- what is recorded ----------------------------------------------------------


async def test_run_is_recorded_from_its_start_to_its_end() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(1, b"hello")
        await door.call(b"weather", pack(city="Oslo"), 10)
        await door.call(b"rm", pack(path="/"), 20)
        await door.call(b"mcp__demo__fail", pack(), 30)
        return ended({"done": True}, fuel=40)

    events = await Scene(script).run()

    assert types(events) == [
        "RunStarted",
        "LogWritten",
        "ToolInvoked",
        "ToolCompleted",
        "ToolInvoked",
        "ToolDenied",
        "ToolInvoked",
        "ToolFailed",
        "RunCompleted",
    ]
    assert end(events) == RunCompleted(
        output={"done": True},
        output_sha256=codec.sha256(codec.encode({"done": True})),
        fuel=40,
    )


async def test_start_records_everything_the_run_was_given() -> None:
    scene = Scene(calling())
    scene.limit(fuel=5, wall=9)
    scene.request = replace(scene.request, input={"q": 1}, context={"user": "Ann"})

    start = started(await scene.run())

    assert (start.agent, start.actor["id"], start.host) == ("weather", "ann", "host/1")
    assert (start.input, start.context) == ({"q": 1}, {"user": "Ann"})
    assert (start.limits["fuel"], start.limits["wall"]) == (5, 9)
    assert (start.abi, start.entry, start.engine) == ("core/1", "run", "fake")
    assert start.grants == DEMO.to_payload()
    assert start.grants_sha256 == codec.sha256(codec.canonical(start.grants))
    assert len(bytes.fromhex(start.seed)) == 32
    assert start.servers == {
        "demo": {"transport": "fake"},
        "shell": {"transport": "fake"},
    }
    assert start.catalogue["weather"]["visible"] is True  # type: ignore[index, call-overload]
    assert "visible" not in start.catalogue["rm"]  # type: ignore[operator]


async def test_module_and_visible_definitions_are_kept_with_the_start() -> None:
    scene = Scene(calling())

    start = started(await scene.run())

    assert await scene.store.reader.blob(start.module_sha256) == b"\0asm"
    visible: set[str] = set()
    for entry in start.catalogue.values():
        assert isinstance(entry, dict)
        if entry.get("visible"):
            visible.add(str(entry["definition_sha256"]))
    assert len(visible) == 3
    assert scene.store.blobs.keys() == visible | {start.module_sha256}


async def test_guest_is_given_what_the_log_holds() -> None:  # law 5
    scene = Scene(calling(), redact=Redactor(["hunter2hunter2"]))
    scene.request = replace(
        scene.request, input="hunter2hunter2", context={"key": "hunter2hunter2"}
    )

    start = started(await scene.run())

    [guest] = scene.sandbox.guests
    assert codec.decode_trusted(guest.input) == start.input == "[redacted]"  # law 8
    assert codec.decode_trusted(guest.context["key"]) == "[redacted]"
    assert (guest.seed.hex(), guest.domain) == (start.seed, "weather")
    assert guest.now == (await scene.recorded())[0].recorded_at
    tools = codec.decode_trusted(guest.tools)
    assert [tool["name"] for tool in tools] == [
        "mcp__demo__echo",
        "mcp__demo__fail",
        "weather",
    ]
    assert tools[0].keys() == {"name", "description", "input_schema"}


async def test_context_belongs_to_its_run_alone() -> None:
    scene = Scene(calling())
    given: list[JSON] = []
    for name in ("Ada", "Grace"):
        scene.request = replace(scene.request, context={"user": name})
        given.append({**started(await scene.run()).context})

    seen = [
        {key: codec.decode_trusted(value) for key, value in guest.context.items()}
        for guest in scene.sandbox.guests
    ]
    assert seen == given == [{"user": "Ada"}, {"user": "Grace"}]


async def test_output_is_redacted_and_its_digest_is_of_what_was_said() -> None:
    scene = Scene(ending_with(ended("hunter2hunter2")))
    scene.host = replace(scene.host, redact=Redactor(["hunter2hunter2"]))

    last = end(await scene.run())

    assert isinstance(last, RunCompleted)
    assert last.output == "[redacted]"  # law 8
    assert last.output_sha256 == codec.sha256(codec.encode("hunter2hunter2"))


async def test_result_is_durable_before_start_returns() -> None:  # law 3
    scene = Scene(calling("weather"))
    logs: list[MemoryLog] = []
    create = scene.store.create

    def watched(stream: str, trace: Trace | None = None) -> MemoryLog:
        logs.append(create(stream, trace))
        return logs[0]

    scene.store.create = watched  # type: ignore[method-assign]

    await scene.run()

    assert logs[0].durable == len(logs[0].events) == 4


async def test_start_is_durable_before_the_guest_runs() -> None:  # law 3
    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        assert scene.run_id  # told once the start is durable
        assert types(await scene.events()) == ["RunStarted"]
        return ended()

    scene = Scene(script)

    assert isinstance(end(await scene.run()), RunCompleted)


async def test_nobody_need_be_told_of_the_start() -> None:
    scene = Scene(calling())

    scene.run_id = await scene.host.start(scene.request)

    assert isinstance(end(await scene.events()), RunCompleted)


async def test_every_event_of_a_run_has_one_trace_id() -> None:
    scene = Scene(calling("weather"))
    await scene.run()

    traces = {recorded.trace_id for recorded in await scene.recorded()}

    assert len(traces) == 1
    assert len(traces.pop() or "") == 32


async def test_two_runs_differ_in_id_and_seed() -> None:
    scene = Scene(calling())
    first, second = started(await scene.run()), started(await scene.run())

    assert first.seed != second.seed
    assert len(await scene.store.reader.runs(9)) == 2


async def test_names_start_their_server_and_grant_nothing() -> None:  # law 4
    scene = Scene(calling("rm"))

    events = await scene.run()

    assert types(events)[1:3] == ["ToolInvoked", "ToolDenied"]
    intent = events[1]
    assert isinstance(intent, ToolInvoked)
    assert (intent.server, intent.tool) == ("shell", "exec")


async def test_only_servers_that_are_spoken_of_are_asked() -> None:
    asked: list[Collection[str]] = []

    class Asked(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            asked.append(servers)
            return await super().offered(servers)

    scene = Scene(calling(), tools=Asked(ANSWERS))
    scene.request = replace(scene.request, names={})

    await scene.run()

    assert asked == [["demo"]]


# -- every way to end ----------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "recorded"),
    [
        (
            ended(code=3, fuel=9),
            RunFailed(kind="agent_error", message="the agent returned 3", fuel=9),
        ),
        (
            Ending(kind="returned", output=b"\xc1", fuel=9),
            RunFailed(kind="agent_error", message="output: not msgpack", fuel=9),
        ),
        (
            Ending(kind="returned", code=1, output=b"\xc1", fuel=9),
            RunFailed(kind="agent_error", message="output: not msgpack", fuel=9),
        ),
        (
            Ending(kind="trap", message="unreachable", fuel=9),
            RunFailed(kind="trap", message="unreachable", fuel=9),
        ),
        (
            Ending(kind="limit", limit="fuel", message="all 9 burnt", fuel=9),
            RunFailed(kind="limit", message="fuel: all 9 burnt", fuel=9),
        ),
        (
            Ending(kind="limit", limit="compute", message="5 s"),
            RunFailed(kind="limit", message="compute: 5 s", fuel=None),
        ),
        (
            Ending(kind="returned", output=None, fuel=1),
            RunCompleted(output=None, output_sha256=codec.sha256(b"\xc0"), fuel=1),
        ),
    ],
)
async def test_guest_that_ends_by_itself(ending: Ending, recorded: Event) -> None:
    last = end(await Scene(ending_with(ending)).run())

    if isinstance(last, RunFailed):
        last = replace(last, message=last.message.split(":  ")[0])
        assert isinstance(recorded, RunFailed)
        assert last.message.startswith(recorded.message)
        recorded = replace(recorded, message=last.message)
    assert last == recorded


async def test_denied_and_failed_calls_do_not_fail_a_run() -> None:
    events = await Scene(calling("rm", "mcp__demo__fail", "nothing")).run()

    last = end(events)
    assert isinstance(last, RunCompleted)
    assert last.output == [2, 3, 2]


async def test_attempt_over_the_limit_ends_the_run() -> None:
    scene = Scene(calling("weather", "weather"))
    scene.limit(total_calls=1)

    last = end(await scene.run())

    assert isinstance(last, RunFailed)
    assert (last.kind, last.message) == (
        "limit",
        "total_calls: the run reached its limit total_calls",
    )


async def test_wall_time_ends_the_run_and_closes_its_call() -> None:  # law 2
    scene = Scene(call_then_hang, tools=HangingTools(ANSWERS))
    scene.limit(wall=0.02)

    events = await scene.run()

    closing = events[-2]
    assert isinstance(closing, ToolFailed)
    assert (closing.kind, closing.sent) == ("cancelled", "unknown")
    assert end(events) == RunFailed(kind="limit", message="wall: 0.02 s", fuel=None)


async def test_timeout_of_something_else_is_not_the_wall() -> None:
    last = end(await Scene(raising(TimeoutError("a bug"))).run())

    assert last == RunFailed(kind="host", message="TimeoutError", fuel=None)


async def test_cancelled_run_is_recorded_and_the_cancellation_goes_on() -> None:
    scene = Scene(call_then_hang)

    await scene.cancelled_after(3)

    assert end(await scene.events()) == RunCancelled(
        actor=scene.request.actor, reason="interrupted"
    )


async def test_bug_of_the_host_ends_the_run_without_telling_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "caxton_host"):
        last = end(await Scene(raising(ZeroDivisionError("secret"))).run())

    assert last == RunFailed(kind="host", message="ZeroDivisionError", fuel=None)
    assert "the host failed in a run" in caplog.text


async def test_bug_of_a_tool_client_ends_the_run_with_its_call_closed() -> None:
    class Broken(FakeTools):
        async def call_tool(self, request: object) -> Completed:
            del request
            raise ZeroDivisionError

    events = await Scene(calling("weather"), tools=Broken(ANSWERS)).run()

    assert types(events) == ["RunStarted", "ToolInvoked", "ToolFailed", "RunFailed"]
    assert end(events) == RunFailed(kind="host", message="ZeroDivisionError", fuel=None)


async def test_bug_of_who_is_told_of_the_start_ends_the_run_too() -> None:
    def tell(run_id: str) -> None:
        scene.run_id = run_id
        raise BrokenPipeError

    scene = Scene(calling())

    await scene.host.start(scene.request, on_started=tell)

    assert end(await scene.events()) == RunFailed(
        kind="host", message="BrokenPipeError", fuel=None
    )


async def test_run_that_is_cancelled_while_it_starts_has_an_end_too() -> None:
    class Slow(MemoryLog):
        async def append(
            self,
            *events: Event,
            blobs: Mapping[str, bytes] | None = None,
            reserve: Sequence[Reservation] = (),
        ) -> Refused | None:
            first = not self.events
            refused = await super().append(*events, blobs=blobs, reserve=reserve)
            if first:
                appending.set()
                await asyncio.sleep(30)
            return refused

    def create(stream: str, trace: Trace | None = None) -> MemoryLog:
        scene.run_id = stream.removeprefix("run/")
        plain = make(stream, trace)
        return Slow(plain._store, plain._drafter, 0)

    appending = asyncio.Event()
    scene = Scene(calling())
    make = scene.store.create
    scene.store.create = create  # type: ignore[method-assign]
    task = asyncio.create_task(scene.run())
    await appending.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert isinstance(end(await scene.events()), RunCancelled)


async def test_store_that_fails_ends_the_run_with_its_error() -> None:  # law 3
    class Full(MemoryLog):
        async def append(
            self,
            *events: Event,
            blobs: Mapping[str, bytes] | None = None,
            reserve: Sequence[Reservation] = (),
        ) -> Refused | None:
            if self.events:
                raise StoreError("disk full")
            return await super().append(*events, blobs=blobs, reserve=reserve)

    def create(stream: str, trace: Trace | None = None) -> MemoryLog:
        plain = make(stream, trace)
        return Full(plain._store, plain._drafter, 0)

    scene = Scene(calling("weather"))
    make = scene.store.create
    scene.store.create = create  # type: ignore[method-assign]

    with pytest.raises(StoreError, match="disk full"):
        await scene.run()

    assert isinstance(scene.tools, FakeTools)
    assert scene.tools.asked == []
    assert types(await scene.events()) == ["RunStarted"]


async def test_run_that_begins_ahead_sends_nothing_before_its_start_is_durable() -> (
    None
):
    # law 3
    scene = Scene(calling("weather"))
    logs: list[MemoryLog] = []
    make = scene.store.create

    def create(stream: str, trace: Trace | None = None) -> MemoryLog:
        logs.append(make(stream, trace))
        return logs[-1]

    durable: list[int] = []

    class Asking(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            durable.append(logs[-1].durable)
            return await super().call_tool(request)

    scene.tools = Asking(ANSWERS)
    scene.host = replace(scene.host, tools=scene.tools)
    scene.store.create = create  # type: ignore[method-assign]
    begun: list[int] = []

    await scene.host.start(
        scene.request,
        on_started=lambda _: begun.append(logs[-1].durable),
        ahead=True,
    )

    assert (begun, durable) == ([0], [2])


# -- a worker dies -------------------------------------------------------------


@dataclass
class Dying:
    """A guest whose worker dies after its first calls, so many times."""

    deaths: int
    names: Sequence[str] = ("weather", "mcp__demo__echo")
    lives: int = 0
    domains: list[str] = field(default_factory=list[str])
    got: list[list[bytes]] = field(default_factory=list[list[bytes]])

    async def __call__(self, door: Door, guest: Guest) -> Ending:
        self.domains.append(guest.domain)
        self.lives += 1
        got: list[bytes] = []
        self.got.append(got)
        door.log(1, b"hello")
        for fuel, name in enumerate(self.names):
            got.append((await door.call(name.encode(), pack(), fuel)).reply)
        if self.lives <= self.deaths:
            raise SandboxError("the worker died")
        return ended(len(got))


@pytest.mark.parametrize("deaths", [1, 2, 4])
async def test_worker_death_takes_no_run_with_it(deaths: int) -> None:  # law 10
    script = Dying(deaths)
    scene = Scene(script)

    events = await scene.run()

    assert isinstance(end(events), RunCompleted)
    assert script.lives == deaths + 1
    assert isinstance(scene.tools, FakeTools)
    assert len(scene.tools.asked) == 2  # law 7
    assert types(events).count("ToolInvoked") == 2
    assert types(events).count("LogWritten") == 1
    assert all(got == script.got[0] for got in script.got)  # law 5


async def test_run_that_takes_three_workers_down_alone_is_failed() -> None:
    script = Dying(99)
    scene = Scene(script)

    last = end(await scene.run())

    assert last == RunFailed(kind="worker", message="the worker died", fuel=None)
    # The first two may have been the fault of a neighbour.
    alone = f"weather/{scene.run_id}"
    assert script.domains == ["weather"] * 2 + [alone] * 3


async def test_guest_that_does_something_else_in_its_second_life_diverges() -> None:
    script = Dying(1)

    async def fickle(door: Door, guest: Guest) -> Ending:
        if script.lives:
            script.names = ("mcp__demo__echo", "weather")
        return await script(door, guest)

    last = end(await Scene(fickle).run())

    assert isinstance(last, RunFailed)
    assert last.kind == "diverged"
    assert "$.name" in last.message


async def test_call_that_a_dying_worker_waited_for_is_not_made_again() -> None:
    class Once(FakeTools):
        async def call_tool(self, request: object) -> Completed:
            self.asked.append(request)  # type: ignore[arg-type]
            if len(self.asked) == 1:
                await asyncio.sleep(30)
            return Completed(message="again")

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        lives.append(1)
        if len(lives) == 1:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):  # as the sandbox does
                    await door.call(b"weather", pack(), 1)
            raise SandboxError("the worker died")
        return ended((await door.call(b"weather", pack(), 1)).status)

    lives: list[int] = []
    tools = Once(ANSWERS)

    events = await Scene(script, tools=tools).run()

    last = end(events)
    assert isinstance(last, RunCompleted)
    assert last.output == 3  # law 7: failed, cancelled, effect unknown
    assert len(tools.asked) == 1


# -- while a server is down ----------------------------------------------------

DOWN = Grant(
    allow=(rule("demo/*"),), deny=(rule("demo/secret", "shell/*", name="deny[1]"),)
)


async def outcomes(scene: Scene) -> list[tuple[str | None, str | None, str, str]]:
    """Return where each call led, how it ended, and what the agent was told."""
    found: list[tuple[str | None, str | None, str, str]] = []
    for event in await scene.events():
        match event:
            case ToolInvoked():
                found.append((event.server, event.tool, "", ""))
            case ToolFailed(kind=how, message=message):
                found[-1] = (*found[-1][:2], f"{how} {event.sent}", message)
            case ToolDenied(code=how, message=message):
                found[-1] = (*found[-1][:2], how, message)
            case _:
                pass
    return found


async def test_a_call_that_a_glob_grants_fails_while_its_server_is_down() -> None:
    # An outage is no denial: the rule that allows the call is recorded, as ever.
    tools = FakeTools(ANSWERS, down=["demo"])
    scene = Scene(calling("mcp__demo__x", "mcp__demo__secret"), tools)
    scene.request = replace(scene.request, grant=DOWN, names={})

    start = started(await scene.run())

    assert (start.catalogue, start.unlisted) == ({}, ("demo",))
    assert start.servers["demo"] == {
        "transport": "fake",
        "problem": "there is no such program",
    }
    assert await outcomes(scene) == [
        ("demo", "x", "transport no", "the server demo is down"),
        # law 4: a deny rule wins
        ("demo", "secret", "denied", "a rule forbids that tool"),
    ]
    [invoked, _] = [e for e in await scene.events() if isinstance(e, ToolInvoked)]
    assert (invoked.rule, invoked.effect) == ("allow[1]", "unsafe")
    assert [request.tool for request in tools.asked] == ["x"]


async def test_a_tool_that_is_not_granted_is_denied_alike_up_or_down() -> None:
    # law 4: an outage tells an agent nothing of what it may not call
    told: list[list[tuple[str, str]]] = []
    for down in ([], ["demo"]):
        scene = Scene(
            calling("mcp__demo__get_weather", "mcp__demo__nope", "mcp__shell__exec"),
            FakeTools(ANSWERS, down=down),
        )
        grant = Grant(allow=(rule("demo/echo*"),))
        scene.request = replace(scene.request, grant=grant, names={})
        await scene.run()
        told.append([ended[2:] for ended in await outcomes(scene)])
    assert told[0] == told[1]
    assert {code for code, _ in told[0]} == {"not_granted"}


# -- what is refused before anything is written --------------------------------


async def nothing_written(scene: Scene) -> bool:
    return await scene.store.reader.streams() == []


async def test_input_over_the_limit_is_refused() -> None:
    scene = Scene(calling())
    scene.limit(input=10)
    scene.request = replace(scene.request, input="x" * 10)

    with pytest.raises(UsageError, match="11 bytes, of 10 allowed") as caught:
        await scene.run()
    assert caught.value.fix
    assert await nothing_written(scene)


async def test_input_without_a_stored_form_is_refused() -> None:
    scene = Scene(calling())
    scene.request = replace(scene.request, input=2**70)

    with pytest.raises(UsageError, match="input"):
        await scene.run()
    assert await nothing_written(scene)


@pytest.mark.parametrize("given", ["Oslo", ["Oslo"] * 10])
async def test_input_is_judged_before_a_server_is_started_for_it(given: JSON) -> None:
    class Unopened(FakeTools):
        def open(self, scope: RunScope) -> NoReturn:
            raise AssertionError(f"tools were opened for {scope.run_id}")

    scene = Scene(calling(), tools=Unopened(ANSWERS))
    schema = b'{"name": "a", "input_schema": {"type": "array"}}'
    scene.limit(input=20)
    scene.request = replace(
        scene.request, input=given, module=b"\0asm\1\0\0\0" + section(schema)
    )

    with pytest.raises(UsageError, match=r"what the agent takes|of 20 allowed"):
        await scene.run()
    assert await nothing_written(scene)


async def test_required_server_that_is_down_starts_no_run() -> None:
    class Down(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            raise ServerUnavailable(f"{list(servers)[0]} is down")  # noqa: RUF015

    scene = Scene(calling(), tools=Down(ANSWERS))

    with pytest.raises(ServerUnavailable):
        await scene.run()
    assert await nothing_written(scene)


async def test_module_that_the_sandbox_refuses_starts_no_run() -> None:
    class Picky(FakeSandbox):
        async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
            del module, limits, entry
            raise ModuleRefused("not a module")

    scene = Scene(calling())
    scene.host = replace(scene.host, sandbox=Picky(calling()))

    with pytest.raises(ModuleRefused):
        await scene.run()
    assert await nothing_written(scene)


async def test_two_tools_of_one_name_start_no_run() -> None:
    scene = Scene(calling())
    scene.request = replace(
        scene.request, names={"mcp__demo__echo": ("demo", "get_weather")}
    )

    with pytest.raises(ConfigError):
        await scene.run()
    assert await nothing_written(scene)


async def test_server_that_is_down_fails_the_calls_of_what_was_granted_in_full() -> (
    None
):
    class Down(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            del servers
            return Offered()

    answers: Mapping[tuple[str, str], JSON | ToolError] = {
        ("demo", "get_weather"): ToolError("transport", "no", "demo is down")
    }
    scene = Scene(calling("weather", "mcp__demo__echo"), tools=Down(answers))
    scene.request = replace(
        scene.request, grant=Grant(allow=(rule("demo/get_weather", "demo/e*"),))
    )

    events = await scene.run()

    assert types(events)[1:5] == [
        "ToolInvoked",
        "ToolFailed",
        "ToolInvoked",
        "ToolDenied",
    ]


async def test_guest_of_a_log_is_the_guest_that_ran() -> None:  # law 5
    scene = Scene(calling("weather"))
    start = started(await scene.run())
    definitions = {
        key: data for key, data in scene.store.blobs.items() if data != b"\0asm"
    }

    again = guest_for(
        "weather", start, definitions, (await scene.recorded())[0].recorded_at
    )

    assert again == scene.sandbox.guests[0]


async def test_log_lines_of_a_run_have_the_runs_own_numbers() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for line in (b"a", b"b"):
            door.log(1, line)
        return ended()

    lines = [e for e in await Scene(script).run() if isinstance(e, LogWritten)]

    assert [(line.n, line.text) for line in lines] == [(1, "a"), (2, "b")]


# -- one run too many ----------------------------------------------------------


async def test_run_beyond_the_bound_is_refused_and_leaves_no_event() -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        inside.set()
        await leave.wait()
        return ended()

    scene = Scene(script)
    scene.host = replace(scene.host, admission=Admission(1))
    first = asyncio.ensure_future(scene.run())
    await inside.wait()

    with pytest.raises(BusyError, match="under way") as refused:
        await scene.host.start(scene.request)

    assert "[sandbox]" in refused.value.fix
    assert len(await scene.store.reader.streams()) == 1
    leave.set()
    await first
    await scene.run()
    assert scene.host.admission.inside == 0
