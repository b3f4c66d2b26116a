"""What the answer to one POST is, and whose fault it is if it is none. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mcp.shared.exceptions import MCPError

from ...core.calls import JSON
from ...errors import BadBytes, ToolError
from ...lib.codec import load_json
from .jsonrpc import refusal
from .sse import Event
from .wire import Answer

_LONGEST_ID = 1024


@dataclass(slots=True)
class Mark:
    """
    Where a stream of events is to go on, should it break off.

    Attributes:
        wait: Seconds that the server wants it to take until then.
    """

    id: str = ""
    wait: float = 1.0

    def pass_by(self, event: Event) -> None:
        """Take note of an event. An id that could not be sent back is none."""
        if event.id and event.id.isascii() and len(event.id) <= _LONGEST_ID:
            text = event.id.decode()
            self.id = text if text.isprintable() else self.id
        if event.retry is not None:
            self.wait = event.retry / 1000


def message_of(data: bytes, limit: int) -> dict[str, JSON]:
    """
    Return the JSON-RPC message that bytes are.

    Raises:
        ToolError: They are none.
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
    """Return whether a message has the id of the request of that number."""
    given = message.get("id")
    # True is 1 as well.
    return type(given) in {int, str} and str(given) == str(number)


def outcome(message: dict[str, JSON], number: int, size: int) -> Answer:
    """
    Return what a message answers to the request of that number.

    Raises:
        ToolError: It answers another one, or nothing.

        MCPError: The server refused.
    """
    if not answers(message, number):
        raise ToolError("protocol", "yes", "an answer to something else came back")
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict) and error is None:
        return Answer(result, size)
    if result is None and (refused := refusal_of(message)):
        raise refused
    raise ToolError("protocol", "yes", "the answer is neither result nor error")


def refusal_of(message: dict[str, JSON]) -> MCPError | None:
    """Return what to raise if a message is an error, to whatever it answers."""
    error = message.get("error")
    return refusal(error) if isinstance(error, dict) else None
