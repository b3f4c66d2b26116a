"""
Headers that refer to the context of a run, and tokens that are those of its caller.

A value may hold ``${context.NAME}``, or ``${context.NAME.PART}`` of a table. It is
filled in when a run begins, from the run's own context, and is part of the key of the
connection, so that runs share a connection only if their headers are equal.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offered
from ..core.tools.servers import ServerConfig
from ..errors import ServerUnavailable, ToolError
from ..ports.tools import ToolClient, ToolRequest

logger = logging.getLogger(__name__)

#: Why no token can be exchanged.
NO_CALLER = "its caller has no access token of an authorization server"

_REFERENCE = re.compile(r"\$\{context\.([^{}]*)\}")
_LONGEST = 4096


def refers_to_run(config: ServerConfig) -> bool:
    """Return whether a header or the tokens of the server are those of a run."""
    return config.url is not None and (
        _exchanges(config) or any(map(_REFERENCE.search, config.headers.values()))
    )


def _exchanges(config: ServerConfig) -> bool:
    oauth = config.oauth
    return oauth is not None and oauth.flow == "exchange" and not oauth.principal


def fill(
    servers: Mapping[str, ServerConfig], context: Mapping[str, JSON], caller: str = ""
) -> tuple[dict[str, ServerConfig], dict[str, str]]:
    """
    Return *servers* with what a run has for them, and the reason for each failure.

    Args:
        servers: By name.

        context: The variables of the run.

        caller: The key of the principal whose access token is exchanged, or ``""``.
    """
    filled: dict[str, ServerConfig] = {}
    problems: dict[str, str] = {}
    for name, config in servers.items():
        try:
            headers = {
                header: _filled(header, text, context)
                for header, text in config.headers.items()
            }
        except ServerUnavailable as exc:
            problems[name] = str(exc)
            continue
        oauth = config.oauth
        if oauth and _exchanges(config):
            if not caller:
                problems[name] = NO_CALLER
                continue
            oauth = replace(oauth, principal=caller)
        # There are no values before there is a run.
        filled[name] = replace(config, headers=headers, oauth=oauth, eager=False)
    return filled, problems


def composed(
    servers: Mapping[str, ServerConfig], filled: Mapping[str, ServerConfig]
) -> Iterator[str]:
    """
    Yield the header values that consist of more than one variable.

    The others are redacted as the variable is.
    """
    for name, config in filled.items():
        for header, text in servers[name].headers.items():
            if _REFERENCE.search(text) and not _REFERENCE.fullmatch(text):
                yield config.headers[header]


def _filled(header: str, text: str, context: Mapping[str, JSON]) -> str:
    def value(found: re.Match[str]) -> str:
        said = _at(found[1], context)
        if isinstance(said, str):
            return said
        if isinstance(said, (bool, int, float)):
            return json.dumps(said)
        raise ServerUnavailable(
            f"the run has no text or number {found[1]} for its header {header}"
        )

    whole = _REFERENCE.sub(value, text)
    if len(whole) > _LONGEST or not (whole.isascii() and whole.isprintable()):
        raise ServerUnavailable(
            f"what the run has for its header {header} cannot be sent"
        )
    return whole


def _at(path: str, context: Mapping[str, JSON]) -> JSON:
    if path in context:
        return context[path]
    found: JSON = dict(context)
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


class LeftOut(ToolClient):
    """
    A `ToolClient` for a server whose headers cannot be filled in: it offers nothing.

    Args:
        why: The reason.
    """

    def __init__(self, config: ServerConfig, why: str) -> None:
        self._config = config
        self._why = why

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return no offers, and the reason for ``RunStarted.servers``, with a warning.

        Raises:
            ServerUnavailable: It is ``required``.
        """
        del servers
        name = self._config.name
        if self._config.required:
            raise ServerUnavailable(
                f"the server {name} cannot be asked: {self._why}",
                fix="pass it with --var NAME=VALUE, or call with an access token",
            )
        logger.warning("MCP: %s is left out: %s", name, self._why)
        unknown = dict.fromkeys(("address", "name", "version", "protocol"))
        described = {"transport": self._config.transport, **unknown}
        return Offered(servers={name: described | {"problem": self._why}})

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Refuse.

        Raises:
            ToolError: Always.
        """
        del request
        raise ToolError("transport", "no", self._why)
