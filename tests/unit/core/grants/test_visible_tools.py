"""An agent's typed tools are those that its grants may allow, by its own names."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.core.grants.visible_tools import typed_tools
from caxton_host.core.tools.typed import TypedTool

DOCUMENTS: list[dict[str, JSON]] = [
    {
        "server": "crm",
        "tool": tool,
        "exposed": f"mcp__crm__{tool}",
        "description": tool,
        "input_schema": {},
        "output_schema": None,
    }
    for tool in ("remove", "lookup")
]


def names(agent: dict[str, JSON] | None = None) -> list[str]:
    return [tool.exposed for tool in typed_tools(DOCUMENTS, agent)]


def test_without_an_agent_there_are_all_tools_by_name() -> None:
    assert names() == ["mcp__crm__lookup", "mcp__crm__remove"]
    (older,) = typed_tools(
        [{key: value for key, value in DOCUMENTS[0].items() if key != "output_schema"}]
    )
    assert older == TypedTool(
        exposed="mcp__crm__remove", description="remove", input_schema={}
    )


def test_an_agent_has_the_tools_that_its_grant_may_allow() -> None:
    # law 4
    rule: JSON = {"id": "allow[1]", "tools": ["crm/lookup"]}
    agent: dict[str, JSON] = {"grants": {"allow": [rule]}}
    assert names(agent) == ["mcp__crm__lookup"]
    assert names({"grants": None}) == []
    own: JSON = {"find": "crm/lookup", "look": "crm/lookup", "rm": "crm/remove"}
    assert names({**agent, "names": own}) == ["find", "look"]
