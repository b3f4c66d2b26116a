"""
The attributes of spans, with the names of the conventions and our own.

The same for spans that are made while a run is driven, and for those that are made
again from its log. Parameters and results are left out, unless that was opted in.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping

from .. import __version__
from ..core.calls import JSON, Completed, Failed, Outcome, Route
from ..core.grants.approvals import Unapproved
from ..core.grants.freezes import Halted
from ..core.log.events import ToolCompleted, ToolInvoked
from ..core.log.runs import outcome_word
from ..core.names import is_method, stream_of
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import (
    LeaseLost,
    NondeterminismError,
    NotKeptError,
    RunStopped,
    StoreError,
    Suspend,
    ToolError,
)
from ..lib.codec import decode
from ..ports.watch import Execution, Fields, Origin, Served

#: The newest released conventions that define spans of agents, tools and MCP.
SCHEMA = "https://opentelemetry.io/schemas/1.41.1"

#: What says that it is this host, and by which conventions: name, version, schema.
SCOPE = ("caxton_host", __version__, SCHEMA)

#: Characters of the parameters or the answer of a call.
_LONGEST = 16 * 1024

_PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(r"(https?)://([^/:@\s]+|\[[^]\s]+\])(?::(\d{1,5}))?(?:/\S*)?")

_ERRORS: Mapping[type[BaseException], str] = {
    asyncio.CancelledError: "cancelled",
    LeaseLost: "lease_lost",
    NondeterminismError: "diverged",
    NotKeptError: "not_kept",
    RunStopped: "limit",
    StoreError: "store",
    Suspend: "in_doubt",
}


def agent_fields(execution: Execution) -> Fields:
    """Return the attributes of an execution that are known before it begins."""
    fields: Fields = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "caxton",
        "gen_ai.agent.id": execution.module_sha256,
        "gen_ai.agent.name": execution.agent,
        "gen_ai.conversation.id": execution.run_id,
        "caxton.run.id": execution.run_id,
        "caxton.run.mode": execution.mode,
        "caxton.module.sha256": execution.module_sha256,
        "caxton.event.stream": stream_of(execution.run_id),
    }
    if execution.description:
        fields["gen_ai.agent.description"] = execution.description
    if execution.version:
        fields["gen_ai.agent.version"] = execution.version
    if execution.caller:
        run_id, call = execution.caller
        fields |= {"caxton.caller.run_id": run_id, "caxton.caller.call": call}
    return fields | _origin_fields(execution.origin)


def _origin_fields(origin: Origin | None) -> Fields:
    """Return the relation to the origin: some backends drop links."""
    if origin is None:
        return {}
    fields: Fields = {
        "caxton.link.type": origin.kind,
        "caxton.origin.run_id": origin.run_id,
    }
    if origin.trace_id:
        fields["caxton.origin.trace_id"] = origin.trace_id
    return fields


def call_fields(execution: Execution, number: int, name: str) -> Fields:
    """Return the attributes of a call that are known before the decision."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": f"{execution.run_id}:{number}",
        "caxton.event.stream": stream_of(execution.run_id),
    }


def served_fields(served: Served) -> Fields:
    """Return the source of the answer of a call."""
    fields: Fields = {"caxton.call.served_from": served.by}
    if served.actor:
        fields["caxton.resolved_by"] = served.actor
    if served.origin:
        fields["caxton.event.stream"] = stream_of(served.origin.run_id)
        fields["caxton.event.seq"] = served.origin.seq
        fields["caxton.event.hash"] = served.origin.hash
    return fields | _origin_fields(served.origin)


def route_fields(server: str, tool: str, effect: str) -> Fields:
    """Return the server and tool of a call."""
    return {
        "caxton.server.name": server,
        "caxton.tool.name": tool,
        "caxton.call.effect": effect,
    }


def outcome_fields(outcome: Outcome, route: Route | None = None) -> Fields:
    """Return the outcome of a call, with its server and tool."""
    fields: Fields = {"caxton.call.outcome": outcome_word(outcome)}
    if isinstance(outcome, Completed) and outcome.cached:
        fields["caxton.call.cached"] = True
    if isinstance(outcome, Failed):
        fields["caxton.call.sent"] = outcome.sent
    if error := error_of(outcome):
        fields["error.type"] = error
    if route:
        fields |= route_fields(route.server, route.tool, route.effect)
    return fields


def error_of(outcome: Outcome) -> str | None:
    """Return the type of the error, or ``None``."""
    if isinstance(outcome, Completed):
        return "tool_error" if outcome.is_error else None
    return outcome.kind if isinstance(outcome, Failed) else outcome.code


def raised_fields(exc: BaseException) -> Fields:
    """Return the type of *exc*, never its message, which may quote a secret."""
    if isinstance(exc, Unapproved):
        return {"caxton.call.outcome": "waits"}
    if isinstance(exc, Halted):
        return {"caxton.call.outcome": "frozen"}
    if isinstance(exc, ToolError):
        return {"error.type": exc.kind}
    error = next((_ERRORS[t] for t in type(exc).__mro__ if t in _ERRORS), None)
    fields: Fields = {"error.type": error or type(exc).__name__}
    if isinstance(exc, StoreError) and exc.unsent:
        fields["caxton.call.outcome"] = "unrecorded"
    elif isinstance(exc, (Suspend, LeaseLost)):
        fields["caxton.call.outcome"] = "in_doubt"
    return fields


def attempt_fields(server: str, tool: str, attempt: int) -> Fields:
    """Return the attributes of one attempt to call a tool."""
    fields: Fields = {"caxton.server.name": server, "caxton.call.attempt": attempt}
    if server == WEBHOOK:
        again: Fields = {"http.request.resend_count": attempt - 1}
        return fields | (again if attempt > 1 else {})
    if is_method(tool):
        return fields | {"mcp.method.name": tool}
    return fields | {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
    }


def attempt_name(fields: Fields) -> str:
    """Return the name of the span of an attempt, or of a request of a client."""
    method = fields.get("mcp.method.name") or fields.get("http.request.method", "HTTP")
    return f"{method} {fields.get('gen_ai.tool.name', '')}".rstrip()


def webhook_fields(definition: bytes) -> Fields:
    """Return how and where a webhook is reached, without what is filled in."""
    match decode(definition, limit=len(definition)):
        case {"method": str(method), "url": str(url)}:
            how: Fields = {"http.request.method": method, "url.full": url}
            return how | _place_fields(url)
        case _:
            return {}


def server_fields(known: Mapping[str, JSON]) -> Fields:
    """Return the attributes of a server: ``{transport, address, protocol, ...}``."""
    fields: Fields = {}
    if isinstance(protocol := known.get("protocol"), str):
        fields["mcp.protocol.version"] = protocol
    if known.get("transport") == "stdio":
        fields["network.transport"] = "pipe"
    elif place := _place_fields(str(known.get("address"))):
        fields |= {
            "network.transport": "tcp",
            "network.protocol.name": "http",
            **place,
        }
    return fields


def _place_fields(url: str) -> Fields:
    if not (place := _PLACE.fullmatch(url)):
        return {}
    scheme, host, port = place.groups()
    return {
        "server.address": host,
        "server.port": int(port) if port else _PORTS[scheme],
    }


def arguments(invoked: ToolInvoked) -> Fields:
    """Return the parameters of a call, as the log holds them."""
    return {"gen_ai.tool.call.arguments": _text(invoked.params)}


def result(completed: ToolCompleted) -> Fields:
    """Return the answer of a call, as the log holds it."""
    answer: JSON = {"message": completed.message, "data": completed.data}
    return {"gen_ai.tool.call.result": _text(answer)}


def _text(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))[:_LONGEST]
