"""One test per sentence of the gateway's contract."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from caxton_host.core.calls import (
    JSON,
    Completed,
    Denied,
    Effect,
    Failed,
    Retry,
    Route,
    ToolCall,
    cut,
    reply,
    shortened,
)
from caxton_host.core.grants.bounds import TODAY, Bound
from caxton_host.core.grants.freezes import Freezes, Halted
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Answered, Journal
from caxton_host.core.grants.settlement import Correction
from caxton_host.core.log.events import (
    Event,
    Recorded,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolProgress,
    ToolRetried,
    outcome_of,
    settled,
)
from caxton_host.core.names import idempotency_key
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import (
    FailureKind,
    LeaseLost,
    NondeterminismError,
    RunStopped,
    Sent,
    StoreError,
    Suspend,
    ToolError,
)
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.ports.log import Refused, Reservation
from caxton_host.ports.tools import Asker, Progress, ToolRequest
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import rule
from tests.unit.gateway.logs import Failing, Slow

RUN = "0193"
WEATHER_ROUTE = Route(server="demo", tool="get_weather", definition_sha256="d")
ROUTES = {"weather": WEATHER_ROUTE, "rm": Route(server="shell", tool="exec")}
GRANT = Grant(allow=(rule("demo/*", calls=2),))
SUNNY: JSON = {"sky": "clear"}
OUTCOME = Completed(message=str(SUNNY), data=SUNNY)


def tool_call(number: int = 1, name: str = "weather", **params: JSON) -> ToolCall:
    return ToolCall(
        number=number,
        name=name,
        params=params,
        digest=codec.sha256(codec.encode(params)),
        fuel=50 + number,
    )


WEATHER = tool_call(city="Oslo")


def invoked(call: ToolCall = WEATHER, effect: Effect = "unsafe") -> ToolInvoked:
    return ToolInvoked(
        call=call.number,
        name=call.name,
        server="demo",
        tool="get_weather",
        params=call.params,
        params_sha256=call.digest,
        effect=effect,
        rule="allow[1]",
        idempotency_key=idempotency_key(RUN, call.number),
        fuel=call.fuel,
    )


def new_log() -> MemoryLog:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    return store.create(f"run/{RUN}")


def tools(answer: JSON | ToolError | Completed = SUNNY) -> FakeTools:
    return FakeTools({("demo", "get_weather"): answer})


@dataclass
class Scene:
    """A gateway, and what is around it."""

    tools: FakeTools = field(default_factory=tools)
    history: Sequence[Event] = ()
    grant: Grant = GRANT
    effect: Effect = "unsafe"
    secrets: Sequence[str] = ()
    retry: Retry = field(default_factory=Retry)
    log: MemoryLog = field(default_factory=new_log)
    waits: list[float] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        journal = Journal()
        for seq, event in enumerate(self.history, 2):
            journal.apply(event, 77, seq)
        routes: Mapping[str, Route] = ROUTES | {
            "weather": replace(WEATHER_ROUTE, effect=self.effect, retry=self.retry)
        }
        self.gate = Gateway(
            judge=Judge(
                run_id=RUN,
                grant=self.grant,
                routes=routes,
                journal=journal,
                redact=Redactor(self.secrets),
                now=self.clock.now,
            ),
            recorder=Recorder(self.log, journal),
            tools=self.tools,
            wait=self.wait,
        )

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self.waiting()

    async def waiting(self) -> None:
        """Be in no hurry, where a test wants that."""


# -- the five steps ------------------------------------------------------------


async def test_granted_call_is_forwarded_between_two_events() -> None:  # law 2
    scene = Scene()

    answer = await scene.gate.call(WEATHER)

    assert answer == Answered(OUTCOME, scene.log.recorded_at)
    assert scene.log.events == [invoked(), settled(1, OUTCOME)]
    assert scene.tools.asked == [
        ToolRequest(
            run_id=RUN,
            call=1,
            server="demo",
            tool="get_weather",
            params={"city": "Oslo"},
            definition_sha256="d",
            idempotency_key=idempotency_key(RUN, 1),
        )
    ]


async def test_digest_of_an_answer_that_is_cut_is_data_too() -> None:
    long = Completed(message="clear", data=SUNNY, bytes=10)
    scene = Scene(tools(long))
    route = replace(WEATHER_ROUTE, over_limit="cut", reply="message")
    gate = replace(
        scene.gate,
        judge=replace(scene.gate.judge, routes={"weather": route}),
        max_result=3,
    )

    outcome = (await gate.call(WEATHER)).outcome

    assert isinstance(outcome, Completed)
    assert (outcome.message, outcome.data) == ("cle", None)
    assert outcome.withheld


async def test_only_a_tool_that_reads_may_have_the_answer_of_another_call() -> None:
    today = Grant(allow=(rule("demo/get_weather"),))
    scene, unsafe, resumed = Scene(effect="read"), Scene(), Scene(effect="read")
    resumed.gate.recorder.journal.bind(Bound(name=TODAY, grant=today))
    for one in (scene, unsafe, resumed):
        await one.gate.call(WEATHER)

    asked = [one.tools.asked[0].asker for one in (scene, unsafe, resumed)]
    own = Asker(agent="", grants=(GRANT,), params_sha256=WEATHER.digest)
    assert asked == [own, None, replace(own, grants=(GRANT, today))]


async def test_answer_of_another_call_is_recorded_as_such() -> None:  # law 2
    scene = Scene(tools(replace(OUTCOME, cached=True)), effect="read")

    answer = await scene.gate.call(WEATHER)

    intent, end = scene.log.events
    assert (intent, scene.log.durable) == (invoked(effect="read"), 1)
    assert isinstance(end, ToolCompleted)
    assert end.cached
    assert outcome_of(end) == (1, answer.outcome)


async def test_what_a_server_allows_is_spent_behind_the_intent_of_its_call() -> None:
    place = Reservation(key="!server/demo/open", amount=1, limit=1, rule="", call=1)

    class Limited(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert scene.log.events == [invoked()]  # law 2
            assert await request.reserve([place]) is None
            assert await request.reserve([replace(place, call=2)]) == Refused(0, "")
            assert scene.log.events == [invoked()]
            return await super().call_tool(request)

    scene = Scene(Limited({("demo", "get_weather"): SUNNY}))

    await scene.gate.call(WEATHER)

    # Its end has freed the place.
    assert await scene.log.append(reserve=[replace(place, call=2)]) is None


async def test_call_that_the_log_answers_is_not_sent_again() -> None:  # law 7
    scene = Scene(history=[invoked(), settled(1, OUTCOME)])

    assert await scene.gate.call(WEATHER) == Answered(OUTCOME, 77)
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_webhook_of_an_old_log_is_answered_in_its_old_shape() -> None:  # law 5
    old = Completed(message="dry", data={"status": 200, "body": {"sky": "dry"}})
    scene = Scene(history=[invoked(), settled(1, old)])

    assert (await scene.gate.call(WEATHER)).outcome == old


async def test_call_that_was_just_answered_is_answered_the_same_again() -> None:
    scene = Scene()

    first = await scene.gate.call(WEATHER)

    assert await scene.gate.call(WEATHER) == first  # law 5
    assert len(scene.tools.asked) == 1


async def test_denied_call_is_recorded_and_never_sent() -> None:  # law 4
    scene = Scene(grant=Grant())

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert isinstance(outcome, Denied)
    assert outcome.code == "not_granted"
    assert scene.tools.asked == []
    assert scene.log.events == [replace(invoked(), rule=None), settled(1, outcome)]


async def test_attempt_and_denial_are_one_transaction() -> None:  # law 2
    class Watching(MemoryLog):
        queued: list[int]

        def queue(
            self,
            *events: Event,
            blobs: Mapping[str, bytes] | None = None,
            correct: Sequence[Correction] = (),
        ) -> None:
            groups.append([type(event).__name__ for event in events])
            super().queue(*events, blobs=blobs, correct=correct)

    groups: list[list[str]] = []
    plain = new_log()
    log = Watching(plain._store, plain._drafter, 0)

    await Scene(grant=Grant(), log=log).gate.call(WEATHER)

    assert groups == [["ToolInvoked", "ToolDenied"]]


async def test_name_that_leads_nowhere_is_recorded_without_a_server() -> None:
    scene = Scene()

    await scene.gate.call(tool_call(name="nothing"))

    intent, denial = scene.log.events
    assert isinstance(intent, ToolInvoked)
    assert (intent.server, intent.tool, intent.effect) == (None, None, "unsafe")
    assert isinstance(denial, ToolDenied)


async def test_call_of_a_tool_without_a_grant_names_that_tool() -> None:
    scene = Scene()

    await scene.gate.call(tool_call(name="rm"))

    intent = scene.log.events[0]
    assert isinstance(intent, ToolInvoked)
    assert (intent.server, intent.tool) == ("shell", "exec")


async def test_failing_tool_is_an_outcome() -> None:
    scene = Scene(tools(ToolError("timeout", "unknown", "no answer in 5 s")))

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == Failed(kind="timeout", sent="unknown", message="no answer in 5 s")
    assert scene.log.events[-1] == settled(1, outcome)


async def test_error_of_a_server_keeps_its_words_and_its_number() -> None:
    refusal = ToolError("protocol", "yes", "no such city", code=-32602)
    scene = Scene(tools(refusal))

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == Failed(
        kind="protocol", sent="yes", message="no such city", code=-32602
    )
    assert outcome_of(scene.log.events[-1]) == (1, outcome)  # law 5
    assert reply(outcome)[1]["error"] == {
        "code": "protocol",
        "message": "no such city",
        "server_code": -32602,
    }


async def test_budget_counts_what_was_allowed_and_denies_beyond() -> None:
    scene = Scene()

    outcomes = [(await scene.gate.call(tool_call(n))).outcome for n in (1, 2, 3)]

    assert isinstance(outcomes[2], Denied)
    assert (outcomes[2].code, outcomes[2].rule) == ("budget", "allow[1]")
    assert len(scene.tools.asked) == 2


async def test_budget_of_a_resumed_run_counts_what_it_had_spent() -> None:
    scene = Scene(history=[invoked(tool_call(1)), settled(1, OUTCOME)])

    outcomes = [(await scene.gate.call(tool_call(n))).outcome for n in (2, 3)]

    assert [isinstance(o, Denied) for o in outcomes] == [False, True]


# -- the store -----------------------------------------------------------------


def log_of(kind: type[MemoryLog]) -> MemoryLog:
    plain = new_log()
    return kind(plain._store, plain._drafter, 0)


async def test_nothing_is_sent_if_the_intent_cannot_be_stored() -> None:  # law 3
    scene = Scene(log=log_of(Failing))

    with pytest.raises(StoreError):
        await scene.gate.call(WEATHER)
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_intent_is_durable_before_the_tool_is_asked() -> None:  # law 3
    @dataclass(slots=True)
    class Watching(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert scene.log.durable == len(scene.log.events) == 1
            return await super(Watching, self).call_tool(request)

    scene = Scene(Watching(tools().answers))

    await scene.gate.call(WEATHER)

    assert len(scene.tools.asked) == 1
    assert (scene.log.durable, len(scene.log.events)) == (1, 2)  # rides the next commit


# -- what is judged and what is recorded ---------------------------------------


async def test_error_while_deciding_is_a_denial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # law 4
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("caxton_host.gateway.judge.decide_all", broken)
    scene = Scene()

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == Denied(
        code="error", rule=None, message="the call could not be judged"
    )
    assert scene.tools.asked == []
    assert len(scene.log.events) == 2


async def test_bad_request_is_recorded_before_any_decision() -> None:
    fault = replace(WEATHER, params=None, fault="params are not a map")
    scene = Scene()

    outcome = (await scene.gate.call(fault)).outcome

    assert outcome == Denied(
        code="bad_request", rule=None, message="params are not a map"
    )
    assert scene.log.events == [
        replace(invoked(), params=None, rule=None),
        settled(1, outcome),
    ]


async def test_attempt_over_a_limit_is_recorded_and_ends_the_run() -> None:
    scene = Scene()

    with pytest.raises(RunStopped) as caught:
        await scene.gate.call(replace(WEATHER, over="total_calls"))

    assert caught.value.limit == "total_calls"
    denial = scene.log.events[-1]
    assert isinstance(denial, ToolDenied)
    assert (denial.code, denial.rule) == ("limit", "limits.total_calls")
    assert scene.tools.asked == []


async def test_attempt_over_a_limit_ends_the_replay_as_well() -> None:
    denial = Denied(code="limit", rule="limits.total_calls", message="over")
    scene = Scene(history=[invoked(), settled(1, denial)])

    with pytest.raises(RunStopped) as caught:
        await scene.gate.call(WEATHER)
    assert caught.value.limit == "total_calls"


async def test_event_is_redacted_and_the_tool_gets_what_the_agent_asked() -> None:
    scene = Scene(secrets=["hunter2hunter2"])

    await scene.gate.call(tool_call(key="hunter2hunter2"))

    intent = scene.log.events[0]
    assert isinstance(intent, ToolInvoked)
    assert intent.params == {"key": "[redacted]"}  # law 8
    assert scene.tools.asked[0].params == {"key": "hunter2hunter2"}


async def test_text_of_a_failure_is_redacted() -> None:  # law 8
    answer = ToolError("transport", "no", "401 for hunter2hunter2")
    scene = Scene(tools(answer), secrets=["hunter2hunter2"])

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert isinstance(outcome, Failed)
    assert outcome.message == "401 for [redacted]"


async def test_failure_says_what_a_person_can_do() -> None:
    answer = ToolError(
        "transport", "no", "there is no token", fix="caxton server login x"
    )
    scene = Scene(tools(answer))

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert isinstance(outcome, Failed)
    assert outcome.message == "there is no token. To fix: caxton server login x"


async def test_replayed_call_is_compared_as_it_was_redacted() -> None:
    recorded = invoked(tool_call(key="[redacted]", n=1))
    scene = Scene(history=[recorded], secrets=["hunter2hunter2"])

    with pytest.raises(NondeterminismError) as caught:
        await scene.gate.call(tool_call(key="hunter2hunter2", n=2))
    assert caught.value.divergence.path == "$.params.n"


async def test_another_call_than_the_recorded_one_ends_the_run() -> None:
    scene = Scene(history=[invoked()])

    with pytest.raises(NondeterminismError):
        await scene.gate.call(tool_call(city="Rome"))
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_replay_tells_true_from_one() -> None:
    scene = Scene(history=[invoked(tool_call(n=1))])

    with pytest.raises(NondeterminismError):
        await scene.gate.call(tool_call(n=True))


# -- in doubt: law 7 -----------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent", "keyed"])
async def test_call_in_doubt_is_sent_again_if_its_effect_allows_it(
    effect: Effect,
) -> None:
    scene = Scene(history=[invoked(effect=effect)], effect=effect)

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == replace(OUTCOME, attempts=2)
    assert scene.log.events == [
        ToolRetried(call=1, attempt=2, reason="resumed"),
        settled(1, outcome),
    ]
    [request] = scene.tools.asked
    assert (request.attempt, request.params) == (2, {"city": "Oslo"})
    assert request.idempotency_key == invoked().idempotency_key


@pytest.mark.parametrize(
    ("recorded", "current"),
    [("unsafe", "unsafe"), ("read", "unsafe"), ("unsafe", "read"), ("odd", "read")],
)
async def test_stricter_of_recorded_and_current_effect_holds(
    recorded: Effect, current: Effect
) -> None:
    scene = Scene(history=[invoked(effect=recorded)], effect=current)

    with pytest.raises(Suspend, match="call 1 is in doubt"):
        await scene.gate.call(WEATHER)
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_call_in_doubt_whose_route_is_gone_suspends_the_run() -> None:
    gone = tool_call(name="gone")
    scene = Scene(history=[invoked(gone, "read")])

    with pytest.raises(Suspend):
        await scene.gate.call(gone)


async def test_every_further_send_is_a_durable_retry() -> None:  # law 2
    @dataclass(slots=True)
    class Watching(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert scene.log.durable == 1
            return await super(Watching, self).call_tool(request)

    history = [
        invoked(effect="read"),
        ToolRetried(call=1, attempt=2, reason="resumed"),
    ]
    scene = Scene(Watching(tools().answers), history=history, effect="read")

    await scene.gate.call(WEATHER)

    retry = scene.log.events[0]
    assert retry == ToolRetried(call=1, attempt=3, reason="resumed")
    assert scene.tools.asked[0].attempt == 3


async def test_retry_that_cannot_be_stored_is_not_sent() -> None:  # law 3
    scene = Scene(history=[invoked(effect="read")], effect="read", log=log_of(Failing))

    with pytest.raises(StoreError):
        await scene.gate.call(WEATHER)
    assert scene.tools.asked == []


async def test_progress_that_a_tool_reports_after_its_answer_is_dropped() -> None:
    @dataclass(slots=True)
    class Chatty(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            request.on_progress(Progress(progress=1.0))
            return await FakeTools.call_tool(self, request)

    scene = Scene(Chatty({("demo", "get_weather"): SUNNY}))
    await scene.gate.call(WEATHER)
    before = [*scene.log.events]

    scene.tools.asked[0].on_progress(Progress(progress=2.0))

    assert scene.log.events == before
    assert len([one for one in before if isinstance(one, ToolProgress)]) == 1


# -- the run is stopped in mid-call --------------------------------------------


async def cancelled(scene: Scene) -> None:
    task = asyncio.create_task(scene.gate.call(WEATHER))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_call_that_is_cancelled_while_the_tool_works_is_closed() -> None:  # law 2
    @dataclass(slots=True)
    class Hanging(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            self.asked.append(request)
            await asyncio.sleep(30)
            raise AssertionError

    scene = Scene(Hanging({}))

    await cancelled(scene)

    end = scene.log.events[-1]
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent) == ("cancelled", "unknown")
    assert len(scene.gate.recorder.journal.in_doubt) == 0


async def test_call_that_is_cancelled_before_it_was_sent_says_so() -> None:  # law 2
    scene = Scene(log=log_of(Slow))

    await cancelled(scene)

    intent, end = scene.log.events
    assert intent == invoked()
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent) == ("cancelled", "no")
    assert scene.tools.asked == []


@dataclass(slots=True)
class Queueing(FakeTools):
    """Tools whose calls wait for a turn; *turns* lists what each try comes to."""

    turns: list[ToolError | None] = field(default_factory=list)

    async def call_tool(self, request: ToolRequest) -> Completed:
        if self.turns and (failure := self.turns.pop(0)):
            raise failure
        with request.queued():
            await self.turn()
        return await FakeTools.call_tool(self, request)

    async def turn(self) -> None:
        await asyncio.sleep(30)


@pytest.mark.parametrize("before", ["no", "unknown"])
async def test_call_that_is_cancelled_while_it_waits_for_its_turn_was_not_sent(
    before: Sent,
) -> None:
    # law 2, law 7: of the send before, that is another question
    failed = ToolError("transport", before, "the connection broke")
    tools = Queueing({}, turns=[failed])
    scene = Scene(tools, effect="read", retry=Retry(attempts=2))

    await cancelled(scene)

    end = scene.log.events[-1]
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent) == ("cancelled", before)
    assert len(scene.gate.recorder.journal.in_doubt) == 0


async def test_call_that_is_cancelled_after_its_turn_may_have_been_sent() -> None:
    # law 7
    class Working(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            with request.queued():
                pass
            await asyncio.sleep(30)
            raise AssertionError

    scene = Scene(Working({}))

    await cancelled(scene)

    end = scene.log.events[-1]
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent) == ("cancelled", "unknown")


async def test_call_whose_lease_ran_out_while_it_waited_is_not_sent() -> None:
    class Leased(MemoryLog):
        lease = True

        def holds(self) -> bool:
            return self.lease

    @dataclass(slots=True)
    class LongQueue(Queueing):
        async def turn(self) -> None:
            scene.log.lease = False  # type: ignore[attr-defined]  # the one above

    scene = Scene(LongQueue({}), log=log_of(Leased))

    with pytest.raises(LeaseLost):  # law 7
        await scene.gate.call(WEATHER)

    assert (scene.tools.asked, scene.log.events) == ([], [invoked()])


async def test_admitted_call_that_is_given_up_is_closed_once_and_not_sent() -> None:
    # law 2
    scene = Scene()
    pending = scene.gate.recall(WEATHER)
    await scene.gate.admit((pending,))

    scene.gate.give_up(pending)
    scene.gate.give_up(pending)

    _, end = scene.log.events
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent) == ("cancelled", "no")
    assert scene.tools.asked == []


async def test_call_stays_open_if_its_host_leaves_before_it_was_sent() -> None:
    scene = Scene(log=log_of(Slow))  # law 7
    scene.gate.recorder.leaving = True

    await cancelled(scene)

    assert scene.log.events == [invoked()]
    assert len(scene.gate.recorder.journal.in_doubt) == 1


async def test_guest_that_runs_again_after_that_finds_the_call_answered() -> None:
    scene = Scene(log=log_of(Slow))
    await cancelled(scene)

    answer = await scene.gate.call(WEATHER)

    assert isinstance(answer.outcome, Failed)
    assert len(scene.log.events) == 2  # law 2: one attempt, closed once


async def test_call_in_doubt_stays_so_if_it_is_cancelled_before_it_is_sent() -> None:
    scene = Scene(history=[invoked(effect="read")], effect="read", log=log_of(Slow))

    await cancelled(scene)

    assert scene.log.events == [ToolRetried(call=1, attempt=2, reason="resumed")]
    assert (
        len(scene.gate.recorder.journal.in_doubt) == 1
    )  # law 7: the first send may have arrived


async def test_bug_of_a_tool_client_closes_the_call_and_ends_the_run() -> None:
    scene = Scene(FakeTools({}))  # knows no such tool: KeyError

    with pytest.raises(KeyError):
        await scene.gate.call(WEATHER)

    end = scene.log.events[-1]
    assert isinstance(end, ToolFailed)
    assert end.sent == "unknown"


async def test_answer_has_the_time_at_which_it_was_recorded() -> None:  # law 5
    scene = Scene(history=[invoked(), settled(1, OUTCOME)])

    assert (await scene.gate.call(WEATHER)).at == 77
    assert (await scene.gate.call(tool_call(2))).at == FakeClock().time


async def test_completed_event_has_what_the_agent_saw() -> None:  # law 5
    scene = Scene()

    outcome = (await scene.gate.call(WEATHER)).outcome

    end = scene.log.events[-1]
    assert isinstance(end, ToolCompleted)
    assert isinstance(outcome, Completed)
    assert (end.message, end.data) == (outcome.message, outcome.data)


async def test_answer_over_the_limit_of_the_run_is_a_failure() -> None:  # law 9
    scene = Scene(tools=tools(Completed(message="long", data="long", bytes=101)))
    gate = replace(scene.gate, max_result=100)

    answer = await gate.call(WEATHER)

    assert isinstance(answer.outcome, Failed)
    assert (answer.outcome.kind, answer.outcome.sent) == ("too_large", "yes")
    assert isinstance(scene.log.events[-1], ToolFailed)


async def test_answer_over_the_limit_is_cut_where_the_operator_wants_that() -> None:
    done = Completed(message="a long one", data={"content": ["long"]}, bytes=101)
    scene = Scene(tools=tools(done))
    routes = {"weather": replace(WEATHER_ROUTE, over_limit="cut")}
    gate = replace(
        scene.gate, judge=replace(scene.gate.judge, routes=routes), max_result=6
    )

    outcome = (await gate.call(WEATHER)).outcome

    kept = cut(done).data
    assert outcome == replace(done, message="a long", data=kept)
    again = shortened(replace(done, data=kept), 3)
    assert (again.message, again.data) == ("a l", kept)  # not a digest of a digest


async def test_answer_is_cleaned_before_it_is_cut_to_the_size_of_its_rule() -> None:
    data: JSON = {"mail": "ada@example.org"}
    done = Completed(message="?", data=data, bytes=101, told=str)
    strict = replace(
        GRANT.allow[0], max_result=100, redact_result=(JsonPath.parse("$.mail"),)
    )
    scene = Scene(tools=tools(done), grant=Grant(allow=(strict,)))
    routes = {"weather": replace(WEATHER_ROUTE, over_limit="cut")}
    gate = replace(scene.gate, judge=replace(scene.gate.judge, routes=routes))

    outcome = (await gate.call(WEATHER)).outcome

    text = "{'mail': '[redacted]'}"
    clean = Completed(message=text, data={"mail": "[redacted]"})
    assert outcome == Completed(message=text, data=cut(clean).data, bytes=101)


# -- sent again ------------------------------------------------------------------


@dataclass(slots=True)
class Moody(FakeTools):
    """Tools that fail so often before they answer."""

    failures: list[ToolError] = field(default_factory=list)

    async def call_tool(self, request: ToolRequest) -> Completed:
        if self.failures:
            self.asked.append(request)
            raise self.failures.pop(0)
        return await super(Moody, self).call_tool(request)


def moody(*failures: tuple[FailureKind, Sent]) -> Moody:
    failed = [ToolError(kind, sent, f"{kind} {sent}") for kind, sent in failures]
    return Moody(tools().answers, failures=failed)


THRICE = Retry(attempts=3, backoff=1.0)


@pytest.mark.parametrize("effect", ["read", "idempotent", "keyed"])
async def test_call_that_failed_is_sent_again_if_its_effect_allows_it(
    effect: Effect,
) -> None:  # laws 2 and 7
    scene = Scene(
        moody(("transport", "unknown"), ("timeout", "unknown")),
        effect=effect,
        retry=THRICE,
    )

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == replace(OUTCOME, attempts=3)
    assert scene.log.events == [
        invoked(effect=effect),
        ToolRetried(call=1, attempt=2, reason="transport"),
        ToolRetried(call=1, attempt=3, reason="transport"),
        settled(1, outcome),
    ]
    assert [request.attempt for request in scene.tools.asked] == [1, 2, 3]
    assert len({request.idempotency_key for request in scene.tools.asked}) == 1
    first, second = scene.waits
    assert 0.5 <= first <= 1 <= second <= 2


@pytest.mark.parametrize(("sent", "unsent"), [("no", [1]), ("unknown", [])])
async def test_call_that_is_frozen_before_a_retry_stays_open(
    sent: Sent, unsent: list[int]
) -> None:  # law 7
    frozen: list[Freezes] = [Freezes()]

    @dataclass(slots=True)
    class Freezing(Scene):
        async def waiting(self) -> None:
            there = cast("Recorded", None)
            frozen[:] = [Freezes({("server", "demo"): there})]

    scene = Freezing(moody(("transport", sent)), effect="read", retry=THRICE)
    judge = replace(scene.gate.judge, freezes=lambda: frozen[0])

    with pytest.raises(Halted) as halted:
        await replace(scene.gate, judge=judge).call(WEATHER)

    assert [*halted.value.unsent] == unsent
    assert scene.log.events == [invoked(effect="read")]
    assert len(scene.tools.asked) == 1


async def test_duration_of_a_call_is_that_of_all_its_attempts() -> None:
    clock, took = FakeClock(), list[float]()

    @dataclass(slots=True)
    class Waiting(Scene):
        async def waiting(self) -> None:
            took.append(self.waits[-1])
            clock.time += round(self.waits[-1] * 1e6)

    failures = moody(("timeout", "unknown"), ("transport", "unknown")).failures
    answered = replace(OUTCOME, duration_us=5)
    answers = Moody({("demo", "get_weather"): answered}, failures=failures)
    scene = Waiting(answers, effect="read", retry=THRICE, clock=clock)

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert isinstance(outcome, Completed)
    assert outcome.attempts == 3
    assert outcome.duration_us == sum(round(one * 1e6) for one in took) > 1_500_000


async def test_each_send_of_a_call_is_under_the_terms_of_its_rule() -> None:
    patient = Grant(allow=(replace(GRANT.allow[0], timeout=2.5),))
    unlucky = moody(("timeout", "unknown"), ("transport", "unknown"))
    scene = Scene(tools=unlucky, grant=patient, effect="read", retry=THRICE)

    await scene.gate.call(WEATHER)

    assert [request.timeout for request in unlucky.asked] == [2.5, 2.5, 2.5]


async def test_call_of_any_effect_is_sent_again_if_it_never_left() -> None:  # law 7
    scene = Scene(moody(("transport", "no"), ("timeout", "unknown")), retry=THRICE)

    outcome = (await scene.gate.call(WEATHER)).outcome

    # The second send may have arrived, so there is no third.
    assert outcome == Failed(kind="timeout", sent="unknown", message="timeout unknown")
    assert len(scene.tools.asked) == 2


@pytest.mark.parametrize(
    "kind", ["protocol", "changed", "too_large", "invalid_result", "cancelled"]
)
async def test_call_that_would_fail_the_same_way_is_not_sent_again(
    kind: FailureKind,
) -> None:
    scene = Scene(moody((kind, "no")), effect="read", retry=THRICE)

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert isinstance(outcome, Failed)
    assert (outcome.kind, len(scene.tools.asked)) == (kind, 1)


async def test_failure_tells_what_is_known_of_every_send() -> None:
    failures = moody(("timeout", "unknown"), ("transport", "no"), ("transport", "no"))
    scene = Scene(failures, effect="read", retry=THRICE)

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == Failed(kind="transport", sent="unknown", message="transport no")
    assert len(scene.tools.asked) == 3


async def test_call_in_doubt_has_all_its_attempts_again() -> None:
    history = [
        invoked(effect="read"),
        ToolRetried(call=1, attempt=4, reason="transport"),
    ]
    failures = moody(("transport", "no"), ("transport", "no"))
    scene = Scene(failures, history=history, effect="read", retry=THRICE)

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == replace(OUTCOME, attempts=7)
    assert [request.attempt for request in scene.tools.asked] == [5, 6, 7]


async def test_every_send_after_the_first_is_durable_before() -> None:  # law 2
    @dataclass(slots=True)
    class Watching(Moody):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert scene.log.durable == len(scene.log.events) == request.attempt
            return await super(Watching, self).call_tool(request)

    failures = moody(("timeout", "unknown")).failures
    scene = Scene(
        Watching(tools().answers, failures=failures), effect="read", retry=THRICE
    )

    await scene.gate.call(WEATHER)

    assert len(scene.tools.asked) == 2


async def test_call_is_not_sent_again_once_the_lease_is_lost() -> None:  # law 7
    class Lapsed(MemoryLog):
        def holds(self) -> bool:
            return len(self.events) < 2

    log = log_of(Lapsed)
    scene = Scene(moody(("timeout", "unknown")), effect="read", retry=THRICE, log=log)

    with pytest.raises(LeaseLost):
        await scene.gate.call(WEATHER)

    assert len(scene.tools.asked) == 1
    assert len(scene.gate.recorder.journal.in_doubt) == 1


async def test_call_is_not_sent_again_if_that_cannot_be_stored() -> None:  # law 3
    class Filling(MemoryLog):
        async def append(
            self,
            *events: Event,
            blobs: Mapping[str, bytes] | None = None,
            reserve: Sequence[Reservation] = (),
        ) -> Refused | None:
            if self.events:
                raise StoreError("disk full")
            return await super().append(*events, blobs=blobs, reserve=reserve)

    log = log_of(Filling)
    scene = Scene(moody(("timeout", "unknown")), effect="read", retry=THRICE, log=log)

    with pytest.raises(StoreError):
        await scene.gate.call(WEATHER)

    assert len(scene.tools.asked) == 1


async def stopped_between_two_sends(sent: Sent, *, leaving: bool = False) -> Scene:
    waits = asyncio.Event()

    class Patient(Scene):
        async def waiting(self) -> None:
            waits.set()
            await asyncio.sleep(30)

    scene = Patient(moody(("transport", sent)), effect="read", retry=THRICE)
    calling = asyncio.create_task(scene.gate.call(WEATHER))
    await waits.wait()
    scene.gate.recorder.leaving = leaving
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    return scene


async def test_call_between_two_sends_when_its_host_leaves_is_in_doubt() -> None:
    scene = await stopped_between_two_sends("unknown", leaving=True)  # law 7

    assert scene.log.events == [invoked(effect="read")]
    assert len(scene.gate.recorder.journal.in_doubt) == 1


@pytest.mark.parametrize("sent", ["no", "unknown"])
async def test_run_that_is_stopped_between_two_sends_says_what_is_known_of_the_first(
    sent: Sent,
) -> None:  # law 2
    scene = await stopped_between_two_sends(sent)

    end = scene.log.events[-1]
    assert isinstance(end, ToolFailed)
    assert (end.kind, end.sent, len(scene.tools.asked)) == ("cancelled", sent, 1)


# -- rounds ---------------------------------------------------------------------


@dataclass(slots=True)
class Asking(FakeTools):
    """Tools that ask to be asked again before they answer."""

    rounds: int = 2

    async def call_tool(self, request: ToolRequest) -> Completed:
        done = await super(Asking, self).call_tool(request)
        for _ in range(self.rounds):
            await request.on_resend()
        return done


async def test_round_that_a_server_asks_for_is_a_send() -> None:  # law 2
    scene = Scene(Asking(tools().answers))

    outcome = (await scene.gate.call(WEATHER)).outcome

    assert outcome == replace(OUTCOME, attempts=3)
    assert scene.log.events[1:3] == [
        ToolRetried(call=1, attempt=2, reason="input"),
        ToolRetried(call=1, attempt=3, reason="input"),
    ]
    assert scene.log.durable == 3


async def test_round_is_not_begun_once_the_lease_is_lost() -> None:  # law 7
    class Lapsed(MemoryLog):
        def holds(self) -> bool:
            return len(self.events) < 3

    scene = Scene(Asking(tools().answers), log=log_of(Lapsed))

    with pytest.raises(LeaseLost):
        await scene.gate.call(WEATHER)

    assert (
        len(scene.gate.recorder.journal.in_doubt) == 1
    )  # it is open, whoever takes it over
    assert len(scene.log.events) == 3


# -- leases --------------------------------------------------------------------


async def test_call_is_not_sent_once_the_lease_is_lost() -> None:  # law 7
    class Lapsed(MemoryLog):
        def holds(self) -> bool:
            return not self.events

    plain = new_log()
    scene = Scene(log=Lapsed(plain._store, plain._drafter, 0))

    with pytest.raises(LeaseLost, match="before call 1 was sent"):
        await scene.gate.call(WEATHER)

    assert scene.tools.asked == []
    # law 2: open, so whoever takes the run over finds it in doubt
    assert scene.log.events == [invoked()]
