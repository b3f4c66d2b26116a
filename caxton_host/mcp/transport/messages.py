"""
JSON-RPC messages: built for servers, and checked when they come from servers.

No I/O. Requests of a server for input are answered or refused here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.calls import JSON
from ...core.text.redact import Redactor, plain
from ...core.tools.servers import ASKED, Elicitation
from ...errors import BadBytes, ToolError
from ...lib.codec import load_json
from ...ports.tools import Progress, ignore
from ...ports.watch import Fields
from .questions import Put

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

METHOD_NOT_FOUND = -32601

#: How often a server may ask for more before it answers a call.
ROUNDS = 10

ELICIT = "elicitation/create"
_KNOWN = frozenset({ELICIT, "sampling/createMessage", "roots/list"})

#: Characters of a message about progress.
_LONGEST_REPORT = 500

#: Seconds between two reports of one call; faster ones are dropped.
_REPORT_EVERY_S = 0.1

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Answer(NamedTuple):
    """
    The result of a request.

    Attributes:
        size: Bytes of its message.
    """

    result: dict[str, JSON]
    size: int


class Refusal(Exception):  # noqa: N818 -- the server's answer, not a fault of the host
    """A server answered a request with an error, whose parts are not trusted."""

    def __init__(self, error: Mapping[str, JSON]) -> None:
        code, message = error.get("code"), error.get("message")
        self.code = code if type(code) is int else 0
        self.message = message if isinstance(message, str) else ""
        self.data = error.get("data")
        super().__init__(self.code)

    def for_sdk(self) -> MCPError:
        """Return it as the SDK's session expects it."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- half a second

        return MCPError(code=self.code, message=self.message, data=self.data)


# -- what the host sends -----------------------------------------------------------


def notification(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a message that has no answer."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def cancelled(number: int) -> dict[str, Any]:
    """Return the notification that a request is cancelled."""
    return notification(
        "notifications/cancelled",
        {"requestId": number, "reason": "nobody waits for it any more"},
    )


def tokened(params: Mapping[str, Any] | None, number: int) -> dict[str, Any]:
    """Return the parameters of a request, with a token for progress reports."""
    known = dict(params or {})
    return {**known, "_meta": {**known.get("_meta", {}), "progressToken": number}}


def reply_to(request: Mapping[str, JSON], elicitation: Elicitation) -> dict[str, Any]:
    """Return the answer to a request of a server. Sampling and roots are refused."""
    method = request["method"]
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if method == "ping":
        reply["result"] = {}
    elif said := answered(method, request.get("params"), elicitation):
        reply["result"] = said
    else:
        reply["error"] = {"code": METHOD_NOT_FOUND, "message": "not supported"}
    return reply


async def carried(
    result: Mapping[str, JSON], elicitation: Elicitation, put: Put
) -> dict[str, JSON] | None:
    """
    Return the parameters that the next round adds, or ``None`` after the last round.

    Args:
        result: What the server answered.

        elicitation: How requests for input are answered.

        put: Puts a question to people, if they are asked.

    Raises:
        ToolError: An agent cannot give the input.
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
            name: await _response(request, elicitation, partial(put, name))
            for name, request in asked.items()
        }
    if state is not None:
        # Opaque: sent back as it came.
        found["requestState"] = state
    return found


async def _response(
    request: JSON,
    elicitation: Elicitation,
    put: Callable[[JSON], Awaitable[JSON]],
) -> JSON:
    known = request if isinstance(request, dict) else {}
    method = known.get("method")
    if elicitation in ASKED and method == ELICIT:
        return await put(known.get("params"))
    said = answered(method, known.get("params"), elicitation)
    if said is None:
        name = method if isinstance(method, str) and method in _KNOWN else "of no kind"
        raise _refused(f"{name}, which an agent cannot give")
    return said


def answered(
    method: JSON, params: JSON, elicitation: Elicitation
) -> dict[str, JSON] | None:
    """
    Return the answer to a request for input, or ``None`` if it is refused.

    A form is filled in with its own defaults, and declined if they are not enough. It
    is declined too if people are to be asked, and it is not known for which call.
    """
    if method != ELICIT or elicitation == "refuse":
        return None
    if elicitation in ASKED:
        return {"action": "decline"}
    if not isinstance(params, dict):
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


# -- what a server sends -----------------------------------------------------------


def message_of(data: bytes, limit: int) -> dict[str, JSON]:
    """
    Parse a JSON-RPC message.

    Raises:
        ToolError: It is not valid.
    """
    try:
        message = load_json(data.decode(), limit=limit)
    except UnicodeDecodeError:
        raise ToolError("protocol", "yes", "the answer is not UTF-8") from None
    except BadBytes as exc:
        raise ToolError("protocol", "yes", f"the answer was refused: {exc}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ToolError("protocol", "yes", "the answer is not a JSON-RPC message")
    return message


def answers(message: dict[str, JSON], number: int) -> bool:
    """Return whether a message has the id of request *number*."""
    given = message.get("id")
    # True is 1 as well.
    return type(given) in {int, str} and str(given) == str(number)


def outcome(message: dict[str, JSON], number: int, size: int) -> Answer:
    """
    Return the answer to request *number*.

    Raises:
        ToolError: The message answers another request, or is not valid.

        Refusal: The server refused.
    """
    if not answers(message, number):
        raise ToolError("protocol", "yes", "the answer has the id of another request")
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict) and error is None:
        return Answer(result, size)
    if result is None and (refused := refusal_of(message)):
        raise refused
    raise ToolError("protocol", "yes", "the answer is neither result nor error")


def refusal_of(message: dict[str, JSON]) -> Refusal | None:
    """Return the error of a message, if it is one, whatever its id."""
    error = message.get("error")
    return Refusal(error) if isinstance(error, dict) else None


def progress_of(message: Mapping[str, JSON]) -> tuple[int, Mapping[str, JSON]] | None:
    """Return the request of a progress report, and its parameters."""
    params = message.get("params")
    if message["method"] != "notifications/progress" or not isinstance(params, dict):
        return None
    token = params.get("progressToken")
    return (token, params) if type(token) is int else None


class Heard:
    """Turns a server's reports about one call into `Progress`, and tells its number."""

    def __init__(
        self,
        tell: Callable[[Progress], None],
        redact: Redactor,
        on_wire: Callable[[Fields], None] = ignore,
    ) -> None:
        self._tell = tell
        self._on_wire = on_wire
        self._redact = redact
        self._clock = asyncio.get_running_loop().time
        self._not_before = 0.0

    def numbered(self, number: int) -> None:
        """Tell the number of the request."""
        self._on_wire({"jsonrpc.request.id": str(number)})

    def __call__(self, params: Mapping[str, JSON]) -> None:
        """Take the untrusted parameters of a ``notifications/progress``."""
        progress, total = _number(params.get("progress")), _number(params.get("total"))
        if progress is None or self._clock() < self._not_before:
            return
        self._not_before = self._clock() + _REPORT_EVERY_S
        said = params.get("message")
        text = (
            plain(said, self._redact, _LONGEST_REPORT)
            if isinstance(said, str)
            else None
        )
        self._tell(Progress(progress=progress, total=total, message=text))


def _number(value: JSON) -> float | None:
    return float(value) if type(value) in {int, float} else None  # type: ignore[arg-type]  # no bool
