"""What a tool is said to have answered, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..codec import load_json
from ..core.calls import JSON, Completed
from ..core.events import ToolInvoked
from ..core.servers import ToolOptions
from ..errors import BadBytes, ToolError, UsageError

if TYPE_CHECKING:
    from ..config import Config
    from ..core.redact import Redactor

__all__ = ["Answers"]

_EXAMPLE = '{"content": [{"type": "text", "text": "done"}]}'


class Answers:
    """
    Reads an answer as if the tool had given it.

    Args:
        config: What the operator says of the tool.

        redact: Takes secrets out of it.

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

            option: How the command line names it.

            invoked: The call.

        Raises:
            UsageError: There is no such file, or it holds something else.
        """
        from ..results import completed

        named = f"{option} {path.name}"
        try:
            size, result = self._map(path)
            return completed(
                result,
                (invoked and invoked.tool) or "the tool",
                self._options(invoked),
                self._redact,
                size=size,
            )
        except OSError as exc:
            raise UsageError(
                f"{named}: {exc.strerror}", fix="name a file that exists"
            ) from None
        except (BadBytes, ToolError) as exc:
            raise UsageError(
                f"{named}: {exc}", fix=f"write a CallToolResult, for example {_EXAMPLE}"
            ) from None

    def _options(self, invoked: ToolInvoked | None) -> ToolOptions:
        options = ToolOptions()
        if invoked and (server := self._config.servers.get(invoked.server or "")):
            return server.tools.get(invoked.tool or "", options)
        return options

    def _map(self, path: Path) -> tuple[int, dict[str, JSON]]:
        """Return the size of a file of JSON, and the map that it holds."""
        with path.open("rb") as file:
            raw = file.read(self._limit + 1)
        value = load_json(raw, limit=self._limit)
        if not isinstance(value, dict):
            raise BadBytes("not a map")
        return len(raw), value
