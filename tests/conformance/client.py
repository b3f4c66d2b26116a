"""
The host's own client of tools, as the official conformance suite drives it.

    python client.py URL

It starts as a run does, by asking what there is, and then makes the calls that the
scenario gives it, or one of each tool.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from caxton_host.core.calls import JSON
from caxton_host.core.catalogue import Offer
from caxton_host.core.redact import Redactor
from caxton_host.core.servers import ServerConfig
from caxton_host.errors import ToolError
from caxton_host.mcp import McpTools
from caxton_host.ports import ToolRequest

_PRESERVED = "json_schema_2020_12_tool"
_VALUES: dict[str, JSON] = {
    "string": "text",
    "number": 5,
    "integer": 5,
    "boolean": True,
    "array": [],
}


class _Call(NamedTuple):
    tool: str
    params: dict[str, JSON]


def _arguments(offer: Offer, values: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return what the schema of *offer* requires."""
    schema: Any = offer.input_schema
    return {
        name: values[schema["properties"][name]["type"]]
        for name in schema.get("required", [])
    }


def _calls(offers: Sequence[Offer]) -> list[_Call]:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if wanted := given.get("toolCalls"):
        return [_Call(call["name"], call["arguments"]) for call in wanted]
    # One tool of the suite wants to see what the client made of another's schema.
    schemas = {offer.tool: offer.input_schema for offer in offers}
    values = _VALUES | {"object": schemas.get(_PRESERVED, {})}
    return [_Call(offer.tool, _arguments(offer, values)) for offer in offers]


async def _main(url: str) -> None:
    config = ServerConfig(
        name="suite",
        url=url,
        transport="http",
        required=True,
        timeout=10.0,
        elicitation="defaults",
    )
    async with McpTools({"suite": config}, redact=Redactor()) as tools:
        offers = (await tools.offered(["suite"])).offers
        for number, call in enumerate(_calls(offers), start=1):
            request = ToolRequest(
                run_id="conformance",
                call=number,
                server="suite",
                tool=call.tool,
                params=call.params,
                definition_sha256=None,
                idempotency_key=f"conformance:{number}",
            )
            with suppress(ToolError):
                # Some scenarios break a call on purpose; the suite judges the rest.
                await tools.call_tool(request)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[-1]))
