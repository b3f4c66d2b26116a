"""
The descriptions of agents that execute what their caller sends.

Each is offered with the typed header of its tools, which is made from what its next run
would see: its servers are asked, and only accepted definitions count. The servers start
for the first list of agents, and stay up; a list that follows asks them in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..config import Agent, Config
from ..config.model import CALLER
from ..core.grants.tool_catalog import Offer, catalogue_for
from ..core.programs import Runtime, runtime_of
from ..core.tools.headers import header
from ..core.tools.typed import TypedTool
from ..errors import CaxtonError
from ..ports.tools import RunScope, ToolSource
from ..runs.modules import AgentDescription

logger = logging.getLogger("caxton_host")

#: Most characters of the typed header in a description.
LARGEST_HEADER = 8_000
#: Seconds that a list of agents waits for servers that start, and for ones that are up.
PATIENCE, _SOON = 10.0, 1.0

_USE: Mapping[Runtime, str] = MappingProxyType(
    {
        "python": (
            "Runs a program in Python in a sandbox that has the standard library, and "
            "no files, network or packages. The result is what run() returns:\n\n"
            "from caxton_agent import input, tools\n"
            "def run():\n"
            "    return input()"
        ),
        "javascript": (
            "Runs a module in JavaScript in a sandbox that has no files, network or "
            "packages. The result is what run() returns:\n\n"
            'import { input, tools } from "caxton";\n'
            "export async function run() { return input(); }"
        ),
    }
)
_ERRORS = (
    "If the program fails, the result is an error with the place in the program: "
    "correct it and call again. Nothing is kept between two calls."
)


@dataclass(slots=True, kw_only=True)
class CodeTools:
    """
    Describes the agents that execute what their caller sends.

    Attributes:
        tools: The tools of runs.

        servers: Every server that a grant may name now.

        config: Returns what is configured now.

        patience: Seconds that a refresh waits for servers that start.
    """

    tools: ToolSource
    servers: Collection[str]
    config: Callable[[], Config]
    patience: float = PATIENCE
    _offers: dict[str, Mapping[str, Offer]] = field(
        default_factory=dict[str, Mapping[str, Offer]], init=False
    )
    #: By agent: the servers that did not list their tools.
    _unlisted: dict[str, Collection[str]] = field(
        default_factory=dict[str, Collection[str]], init=False
    )
    _problems: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _asking: asyncio.Task[None] | None = field(default=None, init=False)

    async def refresh(self) -> None:
        """
        Ask the servers of these agents what they offer.

        After `patience`, or a second if they are known, it goes on in the background.
        """
        agents = [one for one in self.config().agents.values() if _takes_code(one)]
        if not agents:
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(agents))
        known = all(agent.name in self._offers for agent in agents)
        patience = min(_SOON, self.patience) if known else self.patience
        await asyncio.wait({self._asking}, timeout=patience)

    async def aclose(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def described(self, agent: Agent, card: AgentDescription) -> AgentDescription:
        """Return the description of an agent; of these, with their tools."""
        if agent.language is None or not _takes_code(agent):
            return card
        runtime = runtime_of(agent.language)
        offers = self._offers.get(agent.name, {})
        tools = [_typed(name, offer) for name, offer in sorted(offers.items())]
        listed = header(tools, runtime, LARGEST_HEADER)
        listed = f"The tools of a program:\n\n{listed}" if tools else ""
        missing = self._missing(agent, known=bool(tools))
        parts = (card.description, _USE[runtime], _ERRORS, listed, missing)
        return replace(card, description="\n\n".join(filter(None, parts)))

    def _missing(self, agent: Agent, *, known: bool) -> str:
        """Return which tools are missing, and why; problems may quote secrets."""
        if silent := ", ".join(self._unlisted.get(agent.name, ())):
            tools = "Some tools are missing" if known else "It has no tools now"
            return f"{tools}: these servers do not answer: {silent}."
        if known:
            return ""
        if self._problems.get(agent.name):
            return "It has no tools now: one of its servers does not answer."
        if agent.name not in self._offers:
            return "It has no tools yet: its servers have not answered."
        return "It has no tools."

    async def _ask(self, agents: Collection[Agent]) -> None:
        await asyncio.gather(*map(self._learn, agents))

    async def _learn(self, agent: Agent) -> None:
        problem = ""
        try:
            self._offers[agent.name] = await self._visible(agent)
        except CaxtonError as exc:
            self._offers.setdefault(agent.name, {})
            problem = str(exc)
        if problem not in {"", self._problems.get(agent.name)}:
            logger.warning(
                "the tools in the description of agent %s are not up to date: %s",
                *(agent.name, problem),
            )
        self._problems[agent.name] = problem

    async def _visible(self, agent: Agent) -> Mapping[str, Offer]:
        """Return the tools that the next run of *agent* would see, by their names."""
        wanted = agent.grant.servers(self.servers)
        scope = RunScope(run_id="", agent=agent.name, trigger="mcp")
        async with self.tools.open(scope) as tools:
            offered = await tools.offered(wanted)
        self._unlisted[agent.name] = offered.unlisted
        return catalogue_for(
            agent.grant, agent.names, offered.offers, offered.options
        ).visible


def _takes_code(agent: Agent) -> bool:
    return agent.program == CALLER


def _typed(name: str, offer: Offer) -> TypedTool:
    return TypedTool(
        exposed=name,
        description=offer.description,
        input_schema=offer.parameters,
        output_schema=offer.output_schema,
    )
