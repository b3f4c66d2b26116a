"""Lists, page by page. A cursor is the last name of a page, and stays good."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable

import mcp_types as types
from mcp.shared.exceptions import MCPError

#: How long a client may take a list for true, in milliseconds.
TTL = 60_000

_SIZE = 100


def page(
    names: Iterable[str], params: types.PaginatedRequestParams | None
) -> tuple[list[str], str | None]:
    """
    Return the names of a page, and the cursor of the next.

    Args:
        names: All of them, in order.

        params: Of the request.

    Raises:
        MCPError: The cursor is none of ours.
    """
    after = ""
    if params is not None and params.cursor is not None:
        with contextlib.suppress(ValueError):
            after = base64.urlsafe_b64decode(params.cursor).decode()
        if params.cursor != _cursor(after):
            raise MCPError(types.INVALID_PARAMS, "no such cursor")
    left = [name for name in names if name > after]
    found = left[:_SIZE]
    return found, _cursor(found[-1]) if len(left) > _SIZE else None


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()
