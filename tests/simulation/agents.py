"""The agents of the simulation, what they do, and what they may do."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from caxton_host.config import Agent, Config
from caxton_host.config.model import Session
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.bounds import NARROW, Bound
from caxton_host.core.grants.budgets import UNIT, CallCount, Concurrency, Sum
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant
from caxton_host.lib import codec
from caxton_host.runs.modules import AgentDescription, Code, Library
from tests.scene import rule

from .world import Program

#: Who starts all runs, and who decides about calls.
WHO: dict[str, JSON] = {"kind": "token", "id": "ann", "authenticated": True}
PEOPLE = ("ann", "bob", "cyn", "bob", "cyn")
#: How many of them have to approve a call with n = 2, in time.
APPROVERS = 2
_ASKED = Approve(
    by=("ops",),
    within=1.5,
    when=Conditions.parse({"n": {"const": 2}}, deny=True),
    count=APPROVERS,
    not_requester=True,
)
_COST = "result$.cost"


def _cost(per: str, limit: int) -> Sum:
    """Return a budget of what answers cost, which is 0 to 5 each."""
    of_answers = {"of": _COST, "estimate": 2 * UNIT, "limit": limit * UNIT}
    return Sum(per=per, **of_answers)  # type: ignore[arg-type]


_SEND = replace(
    rule("demo/send"), approve=_ASKED, name="send", budgets=(Concurrency(limit=1),)
)
_BUY = replace(
    rule("demo/buy", name="allow[2]"),
    name="buy",
    budgets=(_cost("run", 7), _cost("day", 20), CallCount(limit=4, per="run")),
)
_FREE = rule(
    *(f"demo/{tool}" for tool in ("look", "set", "pay", "fail", "nothing")),
    name="allow[3]",
)
_AGENTS = replace(rule("agents/*", name="allow[4]"), timeout=1.0)
_HELP = replace(_BUY, name="help", budgets=(_cost("run", 4), _cost("day", 12)))
_OWN = replace(_BUY, name="own", budgets=(_cost("run", 3), _cost("week", 8)))


def _tightened(grant: Grant, denied: str) -> Grant:
    return replace(grant, deny=(rule(denied, name="deny[1]"),))


#: The agent that is a client.
SESSION = "dev"
GRANTS = {
    SESSION: Grant(allow=(_SEND, _BUY, _FREE)),
    "agent": Grant(allow=(_SEND, _BUY, _FREE, _AGENTS)),
    "helper": Grant(allow=(replace(_SEND, name="help.send"), _HELP, _FREE)),
    "clerk": Grant(allow=(_OWN, _FREE, _AGENTS)),
}
#: The tool that each agent may not call after a reload.
DENIED = {SESSION: "look", "agent": "set", "helper": "pay", "clerk": "look"}
TIGHT = {
    name: _tightened(grant, f"demo/{DENIED[name]}") for name, grant in GRANTS.items()
}
#: What a narrowed run may do at most.
NARROWED = Bound(
    name=NARROW,
    grant=Grant(
        allow=(
            rule("demo/look", "demo/set", "agents/*"),
            replace(_BUY, name="narrow:buy", budgets=(_cost("run", 4),)),
        )
    ),
)
#: The limits of all budgets in them that are kept in a store, by account and key.
LIMITS = {
    f"{one.account}/{budget.key}": budget.limit
    for grant in (*GRANTS.values(), NARROWED.grant)
    for one in grant.allow
    for budget in one.budgets
}
#: What agents do that others may call. The clerk has authority of its own.
PROGRAMS: dict[str, Program] = {
    "helper": [["look", {}], ["buy", {"n": 1}], ["pay", {"n": 1}], ["send", {"n": 2}]],
    "clerk": [["set", {}], ["helper", {}], ["buy", {"n": 2}], ["look", {"n": 1}]],
}


def configured(grants: dict[str, Grant]) -> Config:
    """Return the configuration with these grants."""
    agents = {
        name: Agent(
            name=name,
            grant=grants[name],
            authority="own" if name == "clerk" else "both",
        )
        for name in PROGRAMS
    }
    agents[SESSION] = Agent(
        name=SESSION, grant=grants[SESSION], session=Session(idle=0.5)
    )
    return Config(store_url="", agents=agents)


CONFIGS = {True: configured(TIGHT), False: configured(GRANTS)}


class Programs(Library):
    """The agents that others may call."""

    def card(self, agent: Agent) -> AgentDescription:
        return AgentDescription(
            name=agent.name,
            tool=None,
            description="",
            version="",
            input_schema=None,
            output_schema=None,
        )

    def code(self, agent: Agent, value: JSON) -> Code:
        module = codec.encode(cast("JSON", PROGRAMS[agent.name]))
        return Code(module=module, program=None, input=value)
