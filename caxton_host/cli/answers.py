"""Answers of tools, given in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.calls import JSON, Completed
from ..core.log.events import ToolInvoked
from ..errors import BadBytes, CaxtonError, ToolError, UsageError
from ..lib.codec import load_json

if TYPE_CHECKING:
    from ..config import Config
    from ..core.text.redact import Redactor


_EXAMPLE = '{"content": [{"type": "text", "text": "done"}]}'


class Answers:
    """
    Reads answers as if their tool had given them.

    Args:
        config: Has the options of the tool.

        redact: Replaces secrets.

        limit: Most bytes.
    """

    def __init__(self, config: Config, redact: Redactor, limit: int) -> None:
        self._config = config
        self._redact = redact
        self._limit = limit

    def read(self, path: Path, option: str, invoked: ToolInvoked | None) -> Completed:
        """
        Return the answer to a call: an MCP ``CallToolResult`` in JSON.

        Args:
            path: The file.

            option: The option of the command line, for messages.

            invoked: The call.

        Raises:
            UsageError: The file does not exist or does not hold an answer.
        """
        from ..gateway.results import answered

        size, result = _answer(path, option, self._limit)
        try:
            return answered(
                result, invoked, self._config.options, self._redact, size=size
            )
        except ToolError as exc:
            raise _no_answer(path, option, exc) from None


def read_answer(path: Path, option: str, limit: int) -> dict[str, JSON]:
    """
    Return the map in a file of JSON, unchecked.

    Raises:
        UsageError: The file does not exist or does not hold a map.
    """
    return _answer(path, option, limit)[1]


def _answer(path: Path, option: str, limit: int) -> tuple[int, dict[str, JSON]]:
    """Return the size of a file of JSON, and the map that it holds."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
        value = load_json(raw, limit=limit)
    except OSError as exc:
        raise UsageError(
            f"{option} {path.name}: {exc.strerror}", fix="name a file that exists"
        ) from None
    except BadBytes as exc:
        raise _no_answer(path, option, exc) from None
    if not isinstance(value, dict):
        raise _no_answer(path, option, BadBytes("not a map"))
    return len(raw), value


def _no_answer(path: Path, option: str, exc: CaxtonError) -> UsageError:
    return UsageError(
        f"{option} {path.name}: {exc}",
        fix=f"write a CallToolResult, for example {_EXAMPLE}",
    )
