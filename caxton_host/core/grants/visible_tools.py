"""The tools of a host, or those that an agent sees, with their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..calls import JSON, Route
from ..tools.typed import TypedTool
from .decisions import may_ever
from .grants import Grant


def typed_tools(
    documents: Iterable[Mapping[str, JSON]], agent: Mapping[str, JSON] | None = None
) -> list[TypedTool]:
    """
    Return tools with their types, by their exposed names.

    Args:
        documents: The ``caxton.tool/v1`` documents of all tools.

        agent: Only tools that this ``caxton.agent/v1`` document allows, by the agent's
            own names.
    """
    found = [*_visible(documents, agent or {})] if agent else [*_all(documents)]
    return sorted(found, key=lambda tool: tool.exposed)


def _all(documents: Iterable[Mapping[str, JSON]]) -> Iterator[TypedTool]:
    for document in documents:
        yield _typed(str(document["exposed"]), document)


def _visible(
    documents: Iterable[Mapping[str, JSON]], agent: Mapping[str, JSON]
) -> Iterator[TypedTool]:
    rules, names = agent["grants"], agent.get("names")
    grant = Grant.from_payload(rules if isinstance(rules, dict) else {})
    own = names if isinstance(names, dict) else {}
    for document in documents:
        server, tool = str(document["server"]), str(document["tool"])
        if may_ever(grant, Route(server=server, tool=tool)):
            target = f"{server}/{tool}"
            named = [name for name, one in own.items() if one == target]
            for name in named or [str(document["exposed"])]:
                yield _typed(name, document)


def _typed(name: str, document: Mapping[str, JSON]) -> TypedTool:
    return TypedTool(
        exposed=name,
        description=str(document["description"]),
        input_schema=document["input_schema"],
        output_schema=document.get("output_schema"),
    )
