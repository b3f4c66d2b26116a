"""
Webhooks: plain HTTP tools, where a call becomes one request.

An agent chooses values only: each fills one path segment or one query value of a URL
whose scheme and host are configured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote

from ...errors import UsageError
from ..calls import JSON, Effect, Record, Reply, Retry
from .servers import ToolOptions

#: The server of all webhooks in grants and events. No server has this name.
SERVER = "webhook"

Body: TypeAlias = Literal["json", "none"]

_MIB = 1024 * 1024
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """
    One tool of the reserved server ``webhook``.

    Attributes:
        url: Its URL, with ``{param}`` placeholders in path and query.

        params: JSON Schema of the parameters, as agents see it.

        body: ``json``: parameters that the URL does not use are sent as an object.

        timeout: Most seconds of one send.

        concurrency: Most calls at a time. Further calls wait, outside the timeout.

        effect: The effect class: what repeating a call may do.

        expose_as: Its exposed name, instead of ``mcp__webhook__<name>``.

        message_field: Dotted path into the body of the response.

        message_template: The message, with ``{dotted.path}`` placeholders.

        allow_private: Its host may have an address in a private network.

        max_result: Most bytes of one answer.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        cache: Seconds for which an answer may be given to the same call again.

        retry: How often a call is sent; ``None``: as for a tool of a server.
    """

    name: str
    url: str = field(repr=False)
    method: str = "POST"
    description: str = ""
    params: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: Body = "json"
    timeout: float = 30.0
    concurrency: int = 16
    effect: Effect = "unsafe"
    expose_as: str | None = None
    message_field: str | None = None
    message_template: str | None = None
    allow_private: bool = False
    max_result: int = _MIB
    record: Record = "full"
    reply: Reply = "full"
    cache: float | None = None
    retry: Retry | None = None

    @property
    def options(self) -> ToolOptions:
        """The options of it as a tool of a server."""
        return ToolOptions(
            message_field=self.message_field,
            message_template=self.message_template,
            reply=self.reply,
        )

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return "/".join(re.split("[/?]", self.url, maxsplit=3)[:3])

    def fill(self, params: Mapping[str, JSON]) -> tuple[str, dict[str, JSON]]:
        """
        Return the URL for *params*, and the parameters that it does not use.

        >>> hook = Webhook(name="w", url="https://x.example/{city}?unit={unit}")
        >>> hook.fill({"city": "New York/..", "unit": "a&b=c", "days": 3})
        ('https://x.example/New%20York%2F..?unit=a%26b%3Dc', {'days': 3})

        Raises:
            UsageError: A value is missing, is no text or number, or would make
                another path of it.
        """
        used = placeholders(self.url)
        address, _, query = self.url.partition("?")
        address = _PLACEHOLDER.sub(lambda found: _encoded(found[1], params), address)
        if {".", ".."} & set(address.split("/")):
            raise UsageError("a parameter is a path of its own: '.' or '..'")
        if query:
            filled = _PLACEHOLDER.sub(
                lambda found: _encoded(found[1], params, empty=True), query
            )
            address = f"{address}?{filled}"
        return address, {name: params[name] for name in params if name not in used}


def placeholders(url: str) -> list[str]:
    """
    Return the names of the placeholders in *url*.

    Raises:
        UsageError: A placeholder could change the host, or a brace is unpaired.
    """
    _, _, rest = url.partition("://")
    if set("{}") & set(re.split("[/?]", rest, maxsplit=1)[0]):
        raise UsageError(
            "a placeholder is not allowed in the host", fix="write the host out in full"
        )
    if set("{}") & set(_PLACEHOLDER.sub("", rest)):
        raise UsageError(
            "a brace is not part of a placeholder",
            fix="write a placeholder as {name}, and a brace as %7B or %7D",
        )
    return [found[1] for found in _PLACEHOLDER.finditer(rest)]


def _encoded(name: str, params: Mapping[str, JSON], *, empty: bool = False) -> str:
    value = params.get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return quote(str(value), safe="")
    if not isinstance(value, str):
        found = "is missing" if value is None else "is not a text or a number"
        raise UsageError(f"parameter {name!r} {found}")
    if not value and not empty:
        raise UsageError(f"parameter {name!r} is empty")
    return quote(value, safe="")
