"""What a server wants to know before it answers: said, or refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.calls import JSON
from ...core.tools.servers import Elicitation
from ...errors import ToolError

#: How often a server may ask for more before it answers a call.
ROUNDS = 10

_ELICIT = "elicitation/create"
_KNOWN = frozenset({_ELICIT, "sampling/createMessage", "roots/list"})


def carried(
    result: Mapping[str, JSON], elicitation: Elicitation
) -> dict[str, JSON] | None:
    """
    Return what the next round of a call carries, or ``None`` if this one was the last.

    >>> carried({"resultType": "input_required", "requestState": "s"}, "refuse")
    {'requestState': 's'}

    Raises:
        ToolError: What is wanted, an agent has not.
    """
    if result.get("resultType") != "input_required":
        return None
    asked, state = result.get("inputRequests"), result.get("requestState")
    sound = isinstance(asked, dict | None) and isinstance(state, str | None)
    if not sound or (not asked and state is None):
        raise _refused("and does not say which")
    found: dict[str, JSON] = {}
    if isinstance(asked, dict) and asked:
        found["inputResponses"] = {
            name: _response(request, elicitation) for name, request in asked.items()
        }
    if state is not None:
        # As it came: what it means is the server's business.
        found["requestState"] = state
    return found


def _response(request: JSON, elicitation: Elicitation) -> JSON:
    known = request if isinstance(request, dict) else {}
    method = known.get("method")
    said = answered(method, known.get("params"), elicitation)
    if said is None:
        name = method if isinstance(method, str) and method in _KNOWN else "of no kind"
        raise _refused(f"{name}, and an agent has none to give")
    return said


def answered(
    method: JSON, params: JSON, elicitation: Elicitation
) -> dict[str, JSON] | None:
    """
    Return what a server gets that asks for input, or ``None`` if it is refused.

    A form is filled with its own defaults. One that wants more than that is declined.
    """
    if elicitation != "defaults" or method != _ELICIT or not isinstance(params, dict):
        return None
    schema = params.get("requestedSchema")
    if params.get("mode", "form") != "form" or not isinstance(schema, dict):
        return None
    fields, wanted = schema.get("properties"), schema.get("required")
    content: dict[str, JSON] = {}
    for name, field in fields.items() if isinstance(fields, dict) else ():
        if isinstance(field, dict) and "default" in field:
            content[name] = field["default"]
    if any(
        name not in content for name in (wanted if isinstance(wanted, list) else ())
    ):
        return {"action": "decline"}
    return {"action": "accept", "content": content}


def _refused(why: str) -> ToolError:
    return ToolError("invalid_result", "yes", f"the tool asks for more input: {why}")
