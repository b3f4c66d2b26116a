"""Agents, the caller's permissions, and explanations of grants."""

from __future__ import annotations

from starlette.responses import Response

from ...config import Agent
from ...core.analysis.checking import Known, missing
from ...core.calls import JSON
from ...core.tools.webhooks import SERVER as WEBHOOK
from ...errors import NotFoundError, UsageError
from ...lib.codec import decode_trusted
from ...lib.json_schema import input_check
from ...runs.explain import as_sent, told_astray
from ...runs.explain import judgement as judgement_document
from ...runs.modules import AgentDescription
from ..edge.messages import Refusal
from .operations import Answer, Asked, Operation, answer, takes
from .servers import may_edit


async def list_(asked: Asked) -> Response:
    """Return the agents that the caller may see."""
    found: list[JSON] = [_document(asked, agent) for agent in _agents(asked).values()]
    return answer({"$type": "caxton.agents/v1", "agents": found})


async def show(asked: Asked) -> Response:
    """Return an agent with the manifest of its module."""
    agent = agent_of(asked, asked.path["name"])
    await asked.service.code.refresh()
    try:
        card = asked.service.card(agent)
    except UsageError:
        card = None
    document = _document(asked, agent)
    document["card"] = _card(card) if card else None
    return answer(document)


def _agents(asked: Asked) -> dict[str, Agent]:
    config = asked.service.config()
    return {
        name: agent
        for name, agent in sorted(config.executed.items())
        if asked.who.reaches(name)
    }


def agent_of(asked: Asked, name: str) -> Agent:
    """
    Return an agent that the caller may see.

    Raises:
        NotFoundError: There is no such agent.
    """
    found = _agents(asked)
    if name not in found:
        raise NotFoundError(f"no agent {name!r}", fix="ask for the list of agents")
    return found[name]


def _document(asked: Asked, agent: Agent) -> dict[str, JSON]:
    """Return its ``caxton.agent/v1`` document; its file for admin only."""
    document = agent.to_document()
    return document if asked.who.may("admin") else {**document, "module": None}


def _card(card: AgentDescription) -> dict[str, JSON]:
    return {
        "tool": card.tool,
        "description": card.description,
        "version": card.version,
        "input_schema": {**card.input_schema} if card.input_schema else None,
        "output_schema": {**card.output_schema} if card.output_schema else None,
    }


async def judgement(asked: Asked) -> Response:
    """Return the verdict of an agent's grants on a hypothetical call."""
    agent = agent_of(asked, str(asked.body["agent"]))
    target = _split(asked.body["tool"])
    params, before = asked.body.get("params", {}), asked.body.get("after", [])
    assert isinstance(params, dict)  # noqa: S101 -- its schema says so
    assert isinstance(before, list)  # noqa: S101 -- its schema says so
    config = asked.service.config()
    schema = await _schema(asked, target)
    document = judgement_document(
        agent,
        target,
        params,
        after=map(_split, before),
        schema=as_sent(config, *target, input_check(schema))
        if isinstance(schema, dict)
        else None,
        now=asked.service.host.clock.now(),
    )
    if asked.who.may("admin"):
        lost = missing(*target, await offered(asked))
        return answer({**told_astray(document, lost)})
    return answer(document)


async def offered(asked: Asked) -> Known:
    """Return the known tools of the servers, without asking them."""
    config = asked.service.config()
    found: dict[str, dict[str, JSON] | None] = dict.fromkeys(config.servers)
    for server, tool in await asked.service.store.definitions.accepted(config.servers):
        found[server] = {**(found[server] or {}), tool: None}
    if config.webhooks:
        found[WEBHOOK] = dict.fromkeys(config.webhooks)
    return found


async def _schema(asked: Asked, target: tuple[str, str]) -> JSON:
    """Return the known schema of a tool, without asking its server."""
    config, store = asked.service.config(), asked.service.store
    server, tool = target
    if hook := config.webhooks.get(tool) if server == WEBHOOK else None:
        return {**hook.params}
    if server not in config.servers:
        return None
    own = config.servers[server].options(tool).input_schema
    digest = (await store.definitions.accepted([server])).get(target)
    if own is not None or digest is None:
        return own
    found: JSON = decode_trusted(await store.reader.blob(digest)).get("inputSchema")
    return found


def _split(tool: JSON) -> tuple[str, str]:
    server, slash, name = str(tool).partition("/")
    if not slash:
        raise Refusal("bad-request", "a tool is named SERVER/TOOL")
    return server, name


_TOOL: dict[str, JSON] = {"type": "string", "pattern": "^[^/]+/.+$", "maxLength": 400}


async def caller(asked: Asked) -> Response:
    """Return the caller and its permissions."""
    who = asked.who
    scopes: list[JSON] = [*sorted(who.scopes)]
    return answer(
        {
            "$type": "caxton.caller/v1",
            **who.actor,
            "scopes": scopes,
            "agents": [*who.agents],
            "roles": [*who.roles],
            "tenant": who.tenant,
            "edit": may_edit(asked),
        }
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listAgents",
        method="GET",
        path="/agents",
        about="List the agents that your token is for.",
        scopes=("run", "read", "decide"),
        handler=list_,
        answers={200: Answer(about="The agents.", schema="Agents")},
    ),
    Operation(
        id="showAgent",
        method="GET",
        path="/agents/{name}",
        about="Show an agent, with the manifest of its module.",
        scopes=("run", "read", "decide"),
        handler=show,
        answers={200: Answer(about="The agent.", schema="Agent")},
        problems=("not-found",),
    ),
    Operation(
        id="explainGrant",
        method="POST",
        path="/grants/explain",
        about="Explain whether an agent may call a tool. Nothing is called.",
        scopes=("run", "read", "decide"),
        handler=judgement,
        body=takes(
            ("agent", "tool"),
            agent={"type": "string", "minLength": 1, "maxLength": 200},
            tool=_TOOL,
            params={"type": "object"},
            after={"type": "array", "items": _TOOL, "maxItems": 100},
        ),
        answers={200: Answer(about="The judgement.", schema="Judgement")},
        problems=("not-found",),
    ),
    Operation(
        id="showCaller",
        method="GET",
        path="/me",
        about="Show the caller and its permissions. `edit`: may change servers.",
        scopes=("run", "read", "decide"),
        handler=caller,
        answers={200: Answer(about="The caller.", schema="Caller")},
    ),
)
