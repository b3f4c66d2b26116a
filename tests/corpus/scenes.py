"""
Every kind of run, each made for real.

To add one: a function with ``@scene``, named as its log is to be called, that makes
a run and keeps it; then ``python -m tests.corpus write NAME``.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from caxton_host.building import build_agent
from caxton_host.config.narrowing import narrowings
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.budgets import Budget, CallCount, Concurrency, Pace, Sum
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Frozen, RunSuspended, Thawed
from caxton_host.core.log.requests import Abort, Fail, GiveResult, Resend
from caxton_host.core.log.runs import RESTORED
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.runs.freezing import Fields, freeze, thaw
from tests.e2e.guests import SPINS, TRAPS, call, guest, log
from tests.e2e.hostile import ATTACKS
from tests.family import child_of

from .studio import WHO, Deadly, Other, Studio

Scene: TypeAlias = Callable[[Studio], Awaitable[None]]

SCENES: dict[str, Scene] = {}


def scene(function: Scene) -> Scene:
    """Register a scene under the name of its function."""
    SCENES[getattr(function, "__name__", "").replace("_", "-")] = function
    return function


def tool(name: str, n: int = 1) -> tuple[str, bytes, bytes]:
    return call(f"mcp__demo__{name}", n=n)


def attack(what: str) -> bytes:
    return next(one.module for one in ATTACKS if one.what == what)


#: Completes; its third call is unsafe to repeat.
WORKS = guest(
    *(tool("look"), tool("pay"), tool("send"), log("nearly"), tool("set")),
    output={"done": True},
)
READS = guest(tool("look"), tool("look", 2), output=[1, 2.5, None, "ü"])


# -- ends ----------------------------------------------------------------------


@scene
async def completed(it: Studio) -> None:
    await it.start(WORKS, input={"city": "Oslo"}, context={"user": "ann"})
    await it.keep()


@scene
async def completed_without_calls(it: Studio) -> None:
    await it.start(guest(output=None))
    await it.keep()


@scene
async def completed_with_random_output(it: Studio) -> None:
    await it.start(attack("random output"))
    await it.keep()


@scene
async def completed_with_progress(it: Studio) -> None:
    await it.start(guest(tool("tells"), tool("look"), output=None))
    await it.keep()


@scene
async def completed_with_a_question(it: Studio) -> None:
    await it.start(guest(tool("asks"), tool("look"), output=None))
    await it.keep()


@scene
async def completed_after_a_queue(it: Studio) -> None:
    await it.start(guest(tool("look"), output=None), queued=True)
    await it.keep()


@scene
async def failed_by_trap(it: Studio) -> None:
    await it.start(guest(tool("look"), then=TRAPS))
    await it.keep()


@scene
async def failed_by_bad_pointer(it: Studio) -> None:
    await it.start(attack("params over the end"))
    await it.keep()


@scene
async def failed_by_stack_overflow(it: Studio) -> None:
    await it.start(attack("deep recursion"))
    await it.keep()


@scene
async def failed_by_agent(it: Studio) -> None:
    await it.start(guest(tool("look"), then="(i32.const 3)"))
    await it.keep()


async def _limited(it: Studio, module: bytes, **limits: float) -> None:
    payload = Limits().to_payload() | limits
    await it.start(module, limits=Limits.from_payload(payload))
    await it.keep()


@scene
async def limit_fuel(it: Studio) -> None:
    await _limited(it, guest(tool("look"), then=SPINS), fuel=10_000_000)


@scene
async def limit_compute(it: Studio) -> None:
    await _limited(it, guest(tool("look"), then=SPINS), compute=0.2)


@scene
async def limit_wall(it: Studio) -> None:
    await _limited(it, guest(tool("look"), tool("wait")), wall=0.5)


@scene
async def limit_total_calls(it: Studio) -> None:
    await _limited(it, guest(*[tool("look", n) for n in range(9)]), total_calls=3)


@scene
async def limit_recorded(it: Studio) -> None:
    await _limited(it, guest(*[tool("look", n) for n in range(9)]), recorded=200)


@scene
async def limit_host_calls(it: Studio) -> None:
    await _limited(it, attack("host call flood"), host_calls=100)


@scene
async def cancelled(it: Studio) -> None:
    task = asyncio.create_task(it.start(guest(tool("look"), tool("wait"))))
    await it.tools.waiting.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await it.keep()


@scene
async def failed_by_host(it: Studio) -> None:
    await it.start(guest(tool("look"), tool("breaks"), tool("look")))
    await it.keep()


@scene
async def worker_died(it: Studio) -> None:
    sound = it.sandbox
    it.sandbox = Deadly(sound, deaths=2)
    await it.start(WORKS)
    it.sandbox = sound
    await it.keep()


@scene
async def failed_by_worker(it: Studio) -> None:
    sound = it.sandbox
    it.sandbox = Deadly(sound)
    await it.start(READS)
    it.sandbox = sound
    await it.keep()


# -- calls ---------------------------------------------------------------------


@scene
async def denied(it: Studio) -> None:
    rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/look"),), calls=1)
    names = (tool("look"), tool("look", 2), tool("send"), call("nothing"))
    await it.start(guest(*names), grant=Grant(allow=(rule,)))
    await it.keep()


@scene
async def denied_by_rule(it: Studio) -> None:
    await it.start(guest(tool("look"), tool("wipe"), tool("send")))
    await it.keep()


#: Each constraint, in the form that logs contain.
_SAID: dict[str, JSON] = {
    "n": {"type": "integer", "min": 1, "max": 9},
    "s": {"min_length": 1, "max_length": 9, "pattern": "[a-z]+", "optional": True},
    "one": {"const": {"a": [1, True]}, "optional": True},
    "of": {"one_of": [1, "a"], "optional": True},
    "repo": {"glob": "acme/**/*", "optional": True},
    "path": {"path": {"inside": ["/srv"]}, "optional": True},
    "url": {"url": {"host": ["*.a.org"], "port": 443}, "optional": True},
    "list": {"each": {"type": "any"}, "max_items": 2, "min_items": 1, "optional": True},
    "map": {"keys": {"values": {"type": "null"}, "max": 2}, "optional": True},
    "user": {"has": {"name": {"type": "string"}}, "optional": True},
    "user.age": {"type": "number"},
    "a\\.b": {"type": "boolean", "optional": True},
}


@scene
async def denied_by_params(it: Studio) -> None:
    allow = Rule(
        id="allow[1]",
        tools=(Pattern.parse("demo/*"),),
        params=Conditions.parse(_SAID),
        other_params=True,
    )
    deny = Rule(
        id="deny[1]",
        tools=(Pattern.parse("demo/look"),),
        params=Conditions.parse(
            {"list": {"some": {"min": 1}}, "n": {"min": 5}}, deny=True
        ),
    )
    look, strict = "mcp__demo__look", "mcp__demo__strict"
    await it.start(
        guest(
            call(look, n=3, list=[0], repo="acme/site"),
            call(look, n=10, list=[0]),
            call(look, n=3, list=[0], repo="acme/../x"),
            call(look, n=7, list=[1]),
            call(look, n=3),
            call(strict, n=3, x="others"),
            call(strict, n=4),
        ),
        grant=Grant(allow=(allow,), deny=(deny,)),
    )
    await it.keep()


def spending(*budgets: Budget) -> Grant:
    rule = Rule(
        id="allow[1]",
        tools=(Pattern.parse("demo/*"),),
        name="demo",
        budgets=budgets,
    )
    return Grant(allow=(rule,))


@scene
async def denied_by_budgets(it: Studio) -> None:
    grant = spending(
        Sum(of="n", limit=4_000_000, per="day"),
        Sum(of="n", limit=7_000_000, per="run"),
        Pace(limit=4, every=10**12),
        Concurrency(limit=1),
    )
    calls = [tool("look", 3), tool("look", 2), tool("look")]
    await it.start(guest(*calls, *calls, output=None), grant=grant)
    await it.keep()


@scene
async def resumed_with_budgets(it: Studio) -> None:
    await it.start(READS, grant=spending(CallCount(limit=9, per="month")))
    async with it.crashed(1) as left:
        today = spending(
            CallCount(limit=8, per="month"), Sum(of="n", limit=2_000_000, per="run")
        )
        await left.resume(today)
        await left.keep()


@scene
async def forked_with_budgets(it: Studio) -> None:
    await it.start(WORKS, grant=spending(CallCount(limit=9, per="month")))
    await it.fork(3, grant=spending(Sum(of="n", limit=3_000_000, per="run")))
    await it.keep()


@scene
async def bad_requests(it: Studio) -> None:
    await it.start(
        guest(
            call(b"bad name\x1b[2J"),
            ("call", b"mcp__demo__look", b"\xc1"),
            ("call", b"mcp__demo__look", b"\x80\x80"),
            tool("look"),
        )
    )
    await it.keep()


@scene
async def failed_calls(it: Studio) -> None:
    names = ("wrong", "late", "down", "changed", "huge", "look")
    await it.start(guest(*map(tool, names), output="it goes on"))
    await it.keep()


@scene
async def log_lines(it: Studio) -> None:
    lines = [log("hello"), tool("look"), log("w\u00f6rld \x1b[31m"), log("x" * 90)]
    await _limited(it, guest(*lines, log("too much")), log=120)


# -- crashes -------------------------------------------------------------------


@scene
async def killed_between_calls(it: Studio) -> None:
    await it.start(guest(tool("look"), tool("wipe"), tool("look")))
    async with it.crashed(2, later=1) as left:
        await left.keep()


@scene
async def restored(it: Studio) -> None:
    await it.start(guest(tool("look"), tool("wipe"), tool("look")))
    async with it.crashed(2, later=1) as left:
        stream = await left.store.resume_log(f"run/{left.run_id}")
        await stream.append(RunSuspended(reason=RESTORED))
        await left.resume(restored=True)
        await left.keep()


@scene
async def in_doubt(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.keep()


@scene
async def resumed_read(it: Studio) -> None:
    await it.start(READS)
    async with it.crashed(1) as left:
        await left.resume()
        await left.keep()


@scene
async def resumed_keyed(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(2) as left:
        await left.resume()
        await left.keep()


@scene
async def resumed_with_less_granted(it: Studio) -> None:
    await it.start(READS)
    async with it.crashed(1) as left:
        rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/look"),), calls=1)
        await left.resume(Grant(allow=(rule,)))
        await left.keep()


@scene
async def suspended(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.resume()
        await left.keep()


@scene
async def resolved_by_retry(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.resume()
        await left.resolve(Resend())
        await left.resume()
        await left.keep()


@scene
async def resolved_by_result(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.resume()
        await left.resolve(GiveResult(Completed(message="it was sent", data=[1])))
        await left.resume()
        await left.keep()


@scene
async def resolved_by_failure(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.resolve(Fail())
        await left.resume()
        await left.keep()


@scene
async def resolved_by_abort(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        await left.resume()
        await left.resolve(Abort())
        await left.keep()


@scene
async def failed_in_doubt(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        sound = left.sandbox
        left.sandbox = Deadly(sound, early=True)
        await left.resume()
        left.sandbox = sound
        await left.keep()


@scene
async def diverged(it: Studio) -> None:
    await it.start(WORKS)
    async with it.crashed(3) as left:
        sound = left.sandbox
        left.sandbox = Other(sound, guest(tool("look"), tool("set")))
        await left.resume()
        left.sandbox = sound
        await left.keep()


@scene
async def answers_under_terms(it: Studio) -> None:
    hidden = (JsonPath.parse("$.said"), JsonPath.parse("$..token"))
    rules = [
        Rule(
            id="allow[1]",
            tools=(Pattern.parse("demo/look"),),
            timeout=2.5,
            redact_result=hidden,
        ),
        Rule(id="allow[2]", tools=(Pattern.parse("demo/*"),), max_result=4096),
    ]
    await it.start(
        guest(*map(tool, ("look", "huge", "send")), output=None),
        grant=Grant(allow=tuple(rules)),
    )
    await it.keep()


# -- approvals -----------------------------------------------------------------


def _wanting(within: float | None = 900.0) -> Grant:
    people = Approve(by=("ops", "finance"), within=within)
    large = Approve(when=Conditions.parse({"n": {"min": 5}}, deny=True))
    return Grant(
        allow=(
            Rule(id="allow[1]", tools=(Pattern.parse("demo/pay"),), approve=people),
            Rule(id="allow[2]", tools=(Pattern.parse("demo/*"),), approve=large),
        )
    )


#: Both payments need an approval, and so does the second look.
PAYS = guest(tool("look"), tool("pay", 9), tool("look", 7), output="paid")


@scene
async def waits_for_approval(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.keep()


@scene
async def approved(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    await it.resume(_wanting())
    await it.say("approve")
    await it.resume(_wanting())
    await it.keep()


@scene
async def approved_and_not_taken_over(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    await it.keep()


@scene
async def not_approved(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("deny", role="finance")
    await it.resume(Grant(allow=(Rule(id="a", tools=(Pattern.parse("demo/*"),)),)))
    await it.say("deny")
    await it.resume()
    await it.keep()


@scene
async def not_approved_in_time(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting(within=0.001))
    await it.resume()
    await it.keep()


@scene
async def approved_by_two(it: Studio) -> None:
    board = Rule(
        id="allow[1]",
        tools=(Pattern.parse("demo/*"),),
        approve=Approve(by=("board",)),
    )
    await it.start(guest(tool("pay")), grant=_wanting())
    await it.say("approve", role="ops")
    await it.resume(Grant(allow=(board,)))
    await it.say("approve", role="board")
    await it.resume(Grant(allow=(board,)))
    await it.keep()


@scene
async def approved_and_denied_today(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    await it.resume(Grant())
    await it.keep()


@scene
async def approved_for_other_bytes(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    sound = it.sandbox
    it.sandbox = Other(sound, guest(tool("look"), tool("pay", 8)))
    await it.resume(_wanting())
    it.sandbox = sound
    await it.keep()


@scene
async def approved_and_killed(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    await it.resume(_wanting())
    async with it.crashed(2) as left:
        await left.resume(_wanting())
        await left.keep()


@scene
async def cancelled_while_it_waited(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await cancel_idle(it.store, it.run_id, WHO, "no need")
    await it.keep()


@scene
async def batch_approved(it: Studio) -> None:
    await it.start(_batching(it.folder), input=_PAYMENTS, grant=_wanting())
    first, second = await it.questions()
    await it.say("approve", seq=second, role="finance")
    await it.say("deny", seq=first, role="ops")
    await it.resume(_wanting())
    await it.keep()


@scene
async def forked_while_it_waited(it: Studio) -> None:
    await it.start(PAYS, grant=_wanting())
    await it.say("approve", role="ops")
    await it.fork(len(await it.history()), grant=_wanting())
    await it.say("approve", role="finance")
    await it.resume(_wanting())
    await it.keep()


# -- batches and forks ---------------------------------------------------------

_BATCHES: JSON = {
    "batches": [
        [
            ["mcp__demo__look", {"n": 1}],
            ["mcp__demo__wipe", {}],
            ["mcp__demo__late", {}],
            ["no such tool", {}],
            ["mcp__demo__pay", {"n": 2}],
        ],
        [["mcp__demo__look", {"n": 3}]],
    ]
}
_PAYMENTS: JSON = {
    "batches": [
        [
            ["mcp__demo__look", {"n": 1}],
            ["mcp__demo__pay", {"n": 2}],
            ["mcp__demo__pay", {"n": 3}],
        ],
        [["mcp__demo__look", {"n": 4}]],
    ]
}


def _batching(folder: Path) -> bytes:
    source = Path(__file__).parents[1] / "integration" / "agents" / "batch.c"
    place = folder / "batching"
    place.mkdir(exist_ok=True)
    shutil.copy(source, place / "agent.c")
    return build_agent(place, cache=folder / "zig").path.read_bytes()


@scene
async def batches(it: Studio) -> None:
    await it.start(_batching(it.folder), input=_BATCHES)
    await it.keep()


@scene
async def batch_resumed(it: Studio) -> None:
    await it.start(_batching(it.folder), input=_BATCHES)
    async with it.crashed(5) as again:
        await again.resume()
        await again.keep()


@scene
async def forked(it: Studio) -> None:
    await it.start(WORKS)
    await it.fork(3)
    await it.keep()


@scene
async def forked_with_another_answer(it: Studio) -> None:
    await it.start(WORKS)
    await it.fork(3, edited=Completed(message="another answer", data={"n": 7}))
    await it.keep()


@scene
async def forked_twice(it: Studio) -> None:
    await it.start(WORKS)
    await it.fork(3)
    await it.fork(3)
    await it.keep()


# -- sources, narrowings, called runs and freezes ------------------------------


@scene
async def narrowed(it: Studio) -> None:
    """A sum over answers, a source in the input, and rules beside the grant."""
    tokens = Sum(of="result$.tokens", limit=20_000_000, per="run", estimate=2_000_000)
    known = Conditions.parse({"n": {"from": ["input$.known"]}})
    grant = Grant(
        allow=(
            Rule(id="allow[1]", tools=(Pattern.parse("demo/look"),), params=known),
            Rule(id="allow[2]", tools=(Pattern.parse("demo/*"),), budgets=(tokens,)),
        )
    )
    asked = (tool("look", 1234), tool("count"), tool("look", 5678), tool("pay"))
    await it.start(
        guest(*asked, output="narrowed"),
        grant=grant,
        input={"known": 1234},
        bounds=narrowings({"allow": [{"tools": ["demo/look", "demo/count"]}]}),
    )
    await it.keep()


async def _calling(it: Studio) -> None:
    it.called = READS
    everything = tuple(map(Pattern.parse, ("demo/look", "agents/called")))
    await it.start(
        guest(tool("look"), call("mcp__agents__called"), tool("look"), output="asked"),
        grant=Grant(allow=(Rule(id="allow[1]", tools=everything, calls=9),)),
    )


@scene
async def calling(it: Studio) -> None:
    await _calling(it)
    await it.keep()


@scene
async def called(it: Studio) -> None:
    await _calling(it)
    it.run_id = child_of(it.run_id, 2)
    await it.keep()


@scene
async def frozen(it: Studio) -> None:
    fields = Fields(kind="server", name="demo", actor=WHO, reason="I looked")
    await freeze(it.store, Frozen(**fields), agents=[], servers=["demo"])
    await it.start(READS)
    await thaw(it.store, Thawed(**fields))
    await it.resume()
    await it.keep()
