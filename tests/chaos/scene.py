"""The configuration and the agents of the kill loop."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from caxton_host.config import Agent, Config, Paths
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.budgets import UNIT, Budget, CallCount, Concurrency, Sum
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.limits import Places
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.core.tools.servers import Restart, ServerConfig, ToolOptions
from caxton_host.runs.run_request import RunRequest
from tests.e2e.guests import call, guest

SERVER = Path(__file__).with_name("server.py")
WHO: dict[str, JSON] = {"kind": "service", "id": "chaos", "authenticated": False}
#: A text in each answer that neither the log nor the agent may contain.
CANARY = "canary-4711-canary"
#: How many looks a run may take, and what all runs of an agent share: how many payments
#: a month, how much in them, and how many messages at once. The other agent has no
#: bounds, so that there are effects for as long as it takes.
LOOKS, PAYMENTS, PAID, SENDING = 5, 24, 200, 2
#: The last sends of a run need an approval within a short time.
LATE = Approve(
    by=("counter",),
    within=60.0,
    when=Conditions.parse({"n": {"min": 30}}, deny=True),
)


def rule(number: int, tool: str, *budgets: Budget, calls: int | None = None) -> Rule:
    """Return the rule of that number, for one tool."""
    # The full name, so that it can be called while its server is down.
    return Rule(
        id=f"allow[{number}]",
        tools=(Pattern.parse(tool),),
        name=tool.partition("/")[2],
        calls=calls,
        budgets=budgets,
        approve=LATE if tool == "world/send" else None,
        redact_result=(JsonPath.parse("$.token"),),
    )


#: What answers may cost: of a run and of those that it calls, and in a month.
_COSTS = (
    Sum(of="result$.cost", limit=60 * UNIT, per="run", estimate=2 * UNIT),
    Sum(of="result$.cost", limit=10**6 * UNIT, per="month", estimate=2 * UNIT),
)
GRANTS = {
    "agent0": Grant(
        allow=(
            rule(1, "world/look"),
            rule(2, "world/pay", *_COSTS),
            rule(3, "world/send"),
            rule(4, "agents/child"),
        )
    ),
    "child": Grant(
        allow=(rule(1, "world/look"), rule(2, "world/pay"), rule(3, "world/send"))
    ),
    "agent1": Grant(
        allow=(
            rule(1, "world/look", calls=LOOKS),
            rule(
                2,
                "world/pay",
                CallCount(limit=PAYMENTS, per="month"),
                Sum(of="n", limit=PAID * UNIT, per="month"),
            ),
            rule(3, "world/send", Concurrency(limit=SENDING)),
        )
    ),
}
#: Number of concurrent runs, and of calls in each.
RUNS, CALLS = 6, 40
_TOOLS = ("pay", "send", "look", "send", "pay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    The folder and the store of one kill loop.

    Attributes:
        store: URL of the log.
    """

    folder: Path
    store: str

    @property
    def counter(self) -> Path:
        """The file of effects, one line each."""
        return self.folder / "counter"

    @property
    def stop(self) -> Path:
        """A file; once it exists, hosts start no new runs."""
        return self.folder / "stop"

    @property
    def done(self) -> Path:
        """A file; once it exists, the clients of sessions have ended."""
        return self.folder / "done"

    @property
    def paths(self) -> Paths:
        """The folders of keys and compiled modules."""
        folder = self.folder
        return Paths(config=folder, data=folder, state=folder, cache=folder)

    def config(self) -> Config:
        """Return the configuration of a host."""
        server = ServerConfig(
            name="world",
            command=(sys.executable, "-I", "-S", str(SERVER), str(self.counter)),
            # Restart the server quickly, however often it is killed.
            restart=Restart(max_restarts=1_000_000_000, backoff=1e-7),
            tools={
                "look": ToolOptions(effect="read"),
                "pay": ToolOptions(effect="keyed"),
            },
            eager=True,
        )
        child = self.folder / "child.wasm"
        if not child.exists():
            child.write_bytes(module(6, calling=False))
        return Config(
            store_url=self.store,
            servers={"world": server},
            agents={"child": Agent(name="child", module=child, grant=GRANTS["child"])},
            places=Places(workers=4),
        )


def module(calls: int = CALLS, *, calling: bool = True) -> bytes:
    """
    Return an agent that makes effects in sequence, whatever their outcomes.

    Args:
        calls: How many.

        calling: Whether it calls another agent in between, if it may.
    """
    steps = [call(f"mcp__world__{_TOOLS[n % len(_TOOLS)]}", n=n) for n in range(calls)]
    if calling:
        steps[4::10] = [call("mcp__agents__child", n=n) for n in range(4, calls, 10)]
    return guest(*steps, output=calls)


def request(number: int, code: bytes) -> RunRequest:
    """Return the request for the run of the given number."""
    agent = f"agent{number % 2}"
    return RunRequest(agent=agent, module=code, actor=WHO, grant=GRANTS[agent])


def happened(counter: Path) -> list[tuple[str, str]]:
    """Return tool and idempotency key of every effect, in order."""
    if not counter.exists():
        return []
    lines = counter.read_text("ascii").splitlines()
    return [(tool, key) for tool, key, _ in (line.split(" ") for line in lines)]
