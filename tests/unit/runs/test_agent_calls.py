"""An agent that another one calls is a run, whose end is the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config.model import ContextVar
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve, Verdict
from caxton_host.core.grants.budgets import CallCount, Sum
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ChildSuspended, UsageError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import ForkRequest
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeSandbox, Script
from tests.family import ANN, Family, allowing, asking, call, child_of, grant, output

LOOKING = asking("demo/look", at="sky")


def planner_and_reader(folder: Path, reader: Script = LOOKING) -> Family:
    family = Family(
        folder,
        scripts={"planner": asking("agents/reader", q="sky"), "reader": reader},
        grants={
            "planner": grant("agents/reader", "demo/*"),
            "reader": grant("demo/look"),
        },
        answers={("demo", "look"): {"sky": "clear"}, ("demo", "pay"): "paid"},
    )
    family.tools.effects = {("demo", "look"): "read"}
    return family


async def test_what_a_caller_gave_is_no_source_for_an_agent_that_is_called(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path)
    known = {"town": ContextVar(), "unit": ContextVar()}
    family.config = replace(family.config, context=known)
    host = family.host()
    run_id = host.new_id()
    request = family.request("planner")

    given: dict[str, JSON] = {"town": "Oslo", "unit": "km"}
    await host.start(
        replace(request, context=given, unvouched=("town",)), run_id=run_id
    )

    assert (await family.started(run_id)).vouched == {
        "input": ["$"],
        "context": ["unit"],
    }
    child = await family.started(child_of(run_id))
    assert child.context == given
    assert child.vouched == {"input": [], "context": ["unit"]}


async def test_a_call_of_an_agent_is_answered_by_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path)

    run_id = await family.run("planner")

    child = child_of(run_id)
    started = await family.started(child)
    assert (started.agent, started.input) == ("reader", {"q": "sky"})
    assert (started.parent, started.called_by) == (run_id, 1)
    assert started.callers == (run_id,)
    assert started.actor == ANN
    invoked, completed, end = (await family.events(run_id))[1:]
    assert isinstance(invoked, ToolInvoked)
    assert (invoked.server, invoked.tool, invoked.effect) == (
        "agents",
        "reader",
        "keyed",
    )
    child_end = (await family.events(child))[-1]
    assert isinstance(child_end, RunCompleted)
    assert isinstance(completed, ToolCompleted)
    assert isinstance(completed.data, dict)
    assert completed.data["structuredContent"] == child_end.output
    assert isinstance(end, RunCompleted)


async def test_what_a_fork_of_a_called_run_calls_is_of_the_family_of_the_fork(
    tmp_path: Path,
) -> None:
    # law 4: shared budgets go by the run at the top, and so does who may stop it
    scripts = {
        "editor": asking("agents/planner"),
        "planner": asking("agents/reader"),
        "reader": LOOKING,
    }
    every = grant("agents/*", "demo/*")
    answers = {("demo", "look"): "clear"}
    family = Family(tmp_path, scripts, dict.fromkeys(scripts, every), answers)
    planner = child_of(await family.run("editor"))
    wanted = ForkRequest(run_id=planner, seq=1, actor=ANN, grant=every)

    fork = await family.host().fork(wanted)

    assert (await family.started(fork)).callers == ()
    assert (await family.started(child_of(fork))).callers == (fork,)


async def test_a_child_needs_the_permission_of_both_grants(tmp_path: Path) -> None:
    # law 4
    async def pays(door: Door, guest: Guest) -> Ending:
        del guest
        await call(door, "demo/pay", amount=1)
        await call(door, "demo/look")
        return output(None)

    family = planner_and_reader(tmp_path, pays)
    family.agent("planner", grant=grant("agents/reader", "demo/look"))
    family.agent("reader", grant=grant("demo/*"))

    child = child_of(await family.run("planner"))

    events = await family.events(child)
    denied = [one for one in events if isinstance(one, ToolDenied)]
    assert [one.code for one in denied] == ["not_granted"]
    assert "of the agent that called this one" in denied[0].message
    assert [one.tool for one in family.tools.asked] == ["look"]


async def test_an_agent_of_its_own_authority_is_not_bound_by_its_caller(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path)
    family.agent("planner", grant=grant("agents/reader"))
    family.agent("reader", authority="own")

    child = child_of(await family.run("planner"))

    assert (await family.started(child)).bounds == ()
    assert [one.tool for one in family.tools.asked] == ["look"]


async def test_a_child_that_fails_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async def traps(door: Door, guest: Guest) -> Ending:
        del door, guest
        return Ending(kind="trap", message="at /srv/secret", fuel=1)

    family = planner_and_reader(tmp_path, traps)

    run_id = await family.run("planner")

    completed = (await family.events(run_id))[2]
    assert isinstance(completed, ToolCompleted)
    assert completed.is_error
    assert completed.message == (
        f"The run failed (trap). Its id is {child_of(run_id)}."
    )


async def test_an_agent_that_cannot_start_is_a_failure_without_paths(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path)

    async def breaks(door: Door, guest: Guest) -> Ending:
        (tmp_path / "reader.wasm").unlink()
        return await asking("agents/reader")(door, guest)

    family.scripts = {**family.scripts, "planner": breaks}

    run_id = await family.run("planner")

    failed = (await family.events(run_id))[2]
    assert isinstance(failed, ToolFailed)
    assert (failed.kind, failed.sent) == ("changed", "no")
    assert str(tmp_path) not in failed.message


async def test_no_star_stands_for_the_agents(tmp_path: Path) -> None:
    # law 4
    family = planner_and_reader(tmp_path)
    family.agent("planner", grant=grant("agent*/reader", "a*/*"))

    run_id = await family.run("planner")

    denied = (await family.events(run_id))[2]
    assert isinstance(denied, ToolDenied)
    assert denied.code == "not_granted"


async def test_what_an_agent_takes_and_gives_may_be_no_object(tmp_path: Path) -> None:
    async def counts(door: Door, guest: Guest) -> Ending:
        del door, guest
        return output([1, 2])

    family = planner_and_reader(tmp_path, counts)

    run_id = await family.run("planner")

    completed = (await family.events(run_id))[2]
    assert isinstance(completed, ToolCompleted)
    data: JSON = completed.data
    assert isinstance(data, dict)
    assert completed.message == "[1, 2]"
    assert "structuredContent" not in data


# -- what stops a caller stops what it called ----------------------------------


async def hang(door: Door, guest: Guest) -> Ending:
    del door, guest
    await asyncio.sleep(30)
    raise AssertionError


async def begun(family: Family, run_id: str) -> None:
    async with asyncio.timeout(10):
        while not await family.events(run_id):  # noqa: ASYNC110 -- or its end
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "end",
    [
        RunCancelled(actor=ANN, reason="enough"),
        RunSuspended(reason="host_stopped"),
    ],
    ids=["cancelled", "handed over"],
)
async def test_what_stops_a_caller_stops_its_child_too(
    tmp_path: Path, end: RunCancelled | RunSuspended
) -> None:
    family = planner_and_reader(tmp_path, hang)
    host = family.host()
    run_id = host.new_id()
    running = asyncio.create_task(host.start(family.request("planner"), run_id=run_id))
    await begun(family, child_of(run_id))

    await host.under_way.stop(run_id, end)

    await running
    assert (await family.events(child_of(run_id)))[-1] == end
    assert (await family.events(run_id))[-1] == end


async def test_the_wall_clock_of_a_child_ends_with_that_of_its_caller(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path, hang)
    family.agent("planner", limits=replace(Limits(), wall=0.05))

    run_id = await family.run("planner")

    end = (await family.events(run_id))[-1]
    assert isinstance(end, RunFailed)
    assert end.message.startswith("wall")
    cancelled = (await family.events(child_of(run_id)))[-1]
    assert cancelled == RunCancelled(actor=ANN, reason="the run that called it ended")


async def test_a_call_of_an_agent_has_the_timeout_of_its_rule(tmp_path: Path) -> None:
    family = planner_and_reader(tmp_path, hang)
    family.agent("planner", grant=grant(allowing("agents/reader", timeout=0.05)))

    run_id = await family.run("planner")

    assert await family.types(run_id) == [
        "RunStarted",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    cancelled = (await family.events(child_of(run_id)))[-1]
    assert isinstance(cancelled, RunCancelled)
    assert cancelled.reason == "the call took longer than 0.05 s"


# -- what a child waits for, its caller waits for ------------------------------

APPROVED = grant(allowing("demo/look", approve=Approve()))


async def decide(family: Family, run_id: str, verdict: Verdict = "approve") -> None:
    word = Word(verdict=verdict, actor=ANN, reason="looked")
    await say(family.store, run_id, None, word, now=family.clock.now())


async def test_a_child_that_waits_for_a_person_suspends_its_caller(
    tmp_path: Path,
) -> None:
    family = planner_and_reader(tmp_path)
    family.agent("reader", grant=APPROVED)

    run_id = await family.run("planner")

    child = child_of(run_id)
    assert (await family.events(run_id))[-1] == RunSuspended(reason="child", call=1)
    assert (await family.events(child))[-1] == RunSuspended(reason="approval", call=1)
    before = await family.types(run_id)
    with pytest.raises(ChildSuspended, match=child):
        await family.resume(run_id)
    assert await family.types(run_id) == before  # and no event was written

    await decide(family, child)
    await family.resume(run_id)

    assert (await family.types(child))[-3:] == [
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    assert (await family.types(run_id))[-4:] == [
        "RunResumed",
        "ToolRetried",
        "ToolCompleted",
        "RunCompleted",
    ]
    assert len(family.tools.asked) == 1


async def test_a_child_is_resumed_by_its_caller_alone(tmp_path: Path) -> None:
    family = planner_and_reader(tmp_path)
    family.agent("reader", grant=APPROVED)
    run_id = await family.run("planner")
    await decide(family, child_of(run_id))

    with pytest.raises(UsageError, match="which resumes it") as caught:
        await family.resume(child_of(run_id))

    assert run_id in caught.value.fix


async def test_calls_of_a_batch_end_before_a_child_suspends_their_run(
    tmp_path: Path,
) -> None:
    # law 2
    async def several(door: Door, guest: Guest) -> Ending:
        del guest
        items: JSON = [["mcp__agents__reader", {}], ["mcp__demo__pay", {}]]
        answer = await door.call_many(codec.encode(items), 1)
        return output(codec.decode(answer.reply, limit=1 << 20))

    family = planner_and_reader(tmp_path)
    family.scripts = {**family.scripts, "planner": several}
    family.agent("reader", grant=APPROVED)

    run_id = await family.run("planner")

    assert await family.types(run_id) == [
        "RunStarted",
        "ToolInvoked",
        "ToolInvoked",
        "ToolCompleted",
        "RunSuspended",
    ]
    await decide(family, child_of(run_id))
    await family.resume(run_id)
    assert (await family.recording(run_id)).state == "completed"
    assert [one.tool for one in family.tools.asked] == ["pay", "look"]


async def test_a_host_that_takes_over_a_caller_finds_its_child(tmp_path: Path) -> None:
    # laws 2 and 7: the first host dies at each event of both runs
    family = planner_and_reader(tmp_path)
    whole = await family.run("planner")
    child = child_of(whole)
    mine, its = await family.events(whole), await family.events(child)
    died = [(1, 0), *((2, n) for n in range(len(its) + 1)), (3, len(its))]
    for of_caller, of_child in died:
        again = planner_and_reader(tmp_path)
        again.store.blobs |= family.store.blobs
        await again.store.record(f"run/{whole}", mine[:of_caller])
        if of_child:
            await again.store.record(f"run/{child}", its[:of_child])

        await again.resume(whole)

        assert (await again.recording(whole)).state == "completed"
        assert (await again.recording(child)).state == "completed"
        # Only a read in doubt is repeated.
        assert len(again.tools.asked) == (0 if of_child > 2 else 1)


# -- budgets and limits of a family of runs ------------------------------------


def family_of_three(folder: Path, **terms: object) -> Family:
    """Return a planner that calls a reader, pays, and calls a reader again."""

    async def plans(door: Door, guest: Guest) -> Ending:
        del guest
        told = [await call(door, "agents/reader"), await call(door, "demo/pay", n=1)]
        told.append(await call(door, "agents/reader"))
        return output([one["status"] for one in told if isinstance(one, dict)])

    async def pays_twice(door: Door, guest: Guest) -> Ending:
        del guest
        told = [await call(door, "demo/pay", n=1), await call(door, "demo/pay", n=1)]
        return output([one["status"] for one in told if isinstance(one, dict)])

    family = planner_and_reader(folder, pays_twice)
    family.scripts = {**family.scripts, "planner": plans}
    family.agent("planner", grant=grant("agents/*", allowing("demo/*", **terms)))
    family.agent("reader", grant=grant("demo/*"))
    return family


@pytest.mark.parametrize(
    "terms",
    [{"calls": 4}, {"budgets": (Sum(of="n", limit=4_000_000, per="run"),)}],
    ids=["calls", "sum"],
)
async def test_a_budget_of_a_run_counts_over_the_runs_that_it_calls(
    tmp_path: Path, terms: dict[str, object]
) -> None:
    family = family_of_three(tmp_path, **terms)

    run_id = await family.run("planner")

    assert len(family.tools.asked) == 4
    denied = (await family.events(child_of(run_id, 3)))[-2]
    assert isinstance(denied, ToolDenied)
    assert (denied.code, denied.rule) == ("budget", "parent.allow[2]")


async def test_a_budget_of_an_agent_is_spent_by_it_when_others_call_for_it(
    tmp_path: Path,
) -> None:
    daily = (CallCount(limit=4, per="day"),)
    family = family_of_three(tmp_path, budgets=daily)

    run_id = await family.run("planner")

    assert len(family.tools.asked) == 4
    events = await family.events(child_of(run_id))
    spends = [one.spends for one in events if isinstance(one, ToolInvoked)]
    assert all(key.startswith("@planner/") for one in spends for key in one or {})


@pytest.mark.parametrize(
    ("limits", "made", "rule"),
    [
        (Limits(depth=0), 0, "limits.depth"),
        (Limits(children=1), 1, "limits.children"),
        (Limits(descendants=1), 1, "limits.descendants"),
    ],
)
async def test_the_runs_below_one_are_limited(
    tmp_path: Path, limits: Limits, made: int, rule: str
) -> None:
    family = family_of_three(tmp_path)
    family.agent("planner", limits=limits)

    run_id = await family.run("planner")

    events = await family.events(run_id)
    denied = [one for one in events if isinstance(one, ToolDenied)]
    assert [(one.code, one.rule) for one in denied] == [("budget", rule)] * (2 - made)
    assert len(family.store.rows) == 1 + made
    assert (await family.recording(run_id)).state == "completed"


async def test_the_limits_of_the_first_run_bind_those_below(tmp_path: Path) -> None:
    family = Family(
        tmp_path,
        scripts={
            "top": asking("agents/middle"),
            "middle": asking("agents/low"),
            "low": asking("demo/look"),
        },
        grants={
            "top": grant("agents/*"),
            "middle": grant("agents/*"),
            "low": grant("demo/*"),
        },
    )
    family.agent("top", limits=Limits(depth=1, descendants=7))

    run_id = await family.run("top")

    middle = child_of(run_id)
    limits = (await family.started(middle)).limits
    assert (limits["depth"], limits["descendants"]) == (0, 7)
    denied = (await family.events(middle))[-2]
    assert isinstance(denied, ToolDenied)
    assert denied.rule == "limits.depth"


async def test_a_family_of_three_levels_is_bound_by_all_above(tmp_path: Path) -> None:
    family = Family(
        tmp_path,
        scripts={
            "top": asking("agents/middle"),
            "middle": asking("agents/low"),
            "low": asking("demo/look"),
        },
        grants={
            "top": grant("agents/middle", "agents/low", allowing("demo/*", calls=1)),
            "middle": grant("agents/low", "demo/*"),
            "low": grant("demo/*"),
        },
        answers={("demo", "look"): "clear"},
    )

    run_id = await family.run("top")

    low = child_of(child_of(run_id))
    started = await family.started(low)
    assert started.callers == (run_id, child_of(run_id))
    names = [bound["name"] for bound in started.bounds if isinstance(bound, dict)]
    assert names == ["parent", "parent.parent"]
    invoked = (await family.events(low))[1]
    assert isinstance(invoked, ToolInvoked)
    assert next(iter(invoked.spends or {})).startswith(f"#{run_id}/")


# -- the order of calls, over a family of runs ---------------------------------

CLOSED = (Pattern.parse("demo/look"),)


@pytest.mark.parametrize("who", ["planner", "reader"])
async def test_a_tool_is_closed_for_all_after_what_one_of_them_called(
    tmp_path: Path, who: str
) -> None:
    # law 4: neither does a child pay for a caller that has looked, nor the other way
    async def plans(door: Door, guest: Guest) -> Ending:
        del guest
        if who == "planner":
            await call(door, "demo/look")
        told = await call(door, "agents/reader")
        if who == "reader":
            told = await call(door, "demo/pay")
        return output(told)

    family = planner_and_reader(
        tmp_path, asking("demo/pay" if who == "planner" else "demo/look")
    )
    family.scripts = {**family.scripts, "planner": plans}
    closed = allowing("demo/pay", unless_after=CLOSED)
    family.agent("planner", grant=grant("agents/*", "demo/look", closed))
    family.agent("reader", grant=grant("demo/*"))

    run_id = await family.run("planner")

    assert [one.tool for one in family.tools.asked] == ["look"]
    payer = child_of(run_id, 2) if who == "planner" else run_id
    denied = (await family.events(payer))[-2]
    assert isinstance(denied, ToolDenied)
    assert denied.code == "order"


async def test_what_a_child_called_is_in_the_log_of_its_caller(tmp_path: Path) -> None:
    # law 5
    family = planner_and_reader(tmp_path)

    run_id = await family.run("planner")

    completed = (await family.events(run_id))[2]
    assert isinstance(completed, ToolCompleted)
    assert completed.reached == ("demo/look",)


async def test_a_replay_of_a_caller_starts_no_run(tmp_path: Path) -> None:
    # law 6
    family = planner_and_reader(tmp_path)
    run_id = await family.run("planner")
    before = len(family.store.events)

    replayed = await replay(
        run_id,
        store=family.store.reader,
        sandbox=FakeSandbox(family.script),
        telemetry=NoTelemetry(),
    )

    assert replayed.divergence is None
    assert len(family.store.events) == before


async def test_what_an_answer_settles_is_settled_for_all_runs_that_share_it(
    tmp_path: Path,
) -> None:
    cost = Sum(of="result$.n", limit=10_000_000, per="run", estimate=1_000_000)
    family = family_of_three(tmp_path, budgets=(cost,))
    family.tools.answers = {("demo", "pay"): {"n": 4}}

    run_id = await family.run("planner")

    # 4, 8, and 12, which exceeds it: nothing more is paid for.
    assert len(family.tools.asked) == 3
    denied = (await family.events(child_of(run_id, 3)))[-2]
    assert isinstance(denied, ToolDenied)
    assert (denied.code, denied.rule) == ("budget", "parent.allow[2]")
