"""
Headers that refer to the context of a run, and the tools of that run.

A value may hold ``${context.NAME}``, or ``${context.NAME.PART}`` of a table. It is
filled in when a run begins, from what that run was given, and is part of the key of
the connection: what one run may do is never done for another.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offered
from ..core.tools.contexts import ServerResource
from ..core.tools.servers import ServerConfig
from ..errors import ServerUnavailable, ToolError
from ..ports import RunScope, ToolClient, ToolRequest
from .catalogue import check_names

_logger = logging.getLogger(__name__)
_REFERENCE = re.compile(r"\$\{context\.([^{}]*)\}")
_LONGEST = 4096


def is_open(config: ServerConfig) -> bool:
    """Return whether a header of the server refers to the context of a run."""
    return config.url is not None and any(
        map(_REFERENCE.search, config.headers.values())
    )


def fill(
    servers: Mapping[str, ServerConfig], context: Mapping[str, JSON]
) -> tuple[dict[str, ServerConfig], dict[str, str]]:
    """Return *servers* with headers filled in, and why those without have none."""
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
        else:
            # It cannot be started before there is a run.
            filled[name] = replace(config, headers=headers, eager=False)
    return filled, problems


def composed(
    servers: Mapping[str, ServerConfig], filled: Mapping[str, ServerConfig]
) -> Iterator[str]:
    """
    Yield the values that consist of more than a variable.

    One that is a variable and nothing else is as secret as the variable.
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


def described_missing(
    missing: Mapping[str, tuple[ServerConfig, str]],
) -> dict[str, dict[str, JSON]]:
    """
    Say that servers are left out, and return what ``RunStarted.servers`` holds of them.

    Raises:
        ServerUnavailable: One of them is ``required``.
    """
    described: dict[str, dict[str, JSON]] = {}
    for name, (config, why) in missing.items():
        if config.required:
            raise ServerUnavailable(
                f"the server {name} cannot be asked: {why}",
                fix="say it with --var NAME=VALUE",
            )
        _logger.warning("MCP: %s is left out: %s", name, why)
        unknown = dict.fromkeys(("address", "name", "version", "protocol"))
        described[name] = {"transport": config.transport, **unknown, "problem": why}
    return described


@dataclass(frozen=True, slots=True)
class ForOneRun:
    """
    Tools that all runs share, and those that a run has of its own.

    Attributes:
        mine: Names of servers that are reached for this run alone.

        problems: Why some of these cannot be.
    """

    shared: ToolClient
    own: ToolClient
    mine: Mapping[str, ServerConfig]
    problems: Mapping[str, str]

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer. See `ToolClient`."""
        missing = described_missing(
            {
                name: (self.mine[name], self.problems[name])
                for name in servers
                if name in self.problems
            }
        )
        shared = await self.shared.offered([n for n in servers if n not in self.mine])
        own = await self.own.offered([n for n in servers if n in self.mine])
        offers = shared.offers + own.offers
        check_names(offers)
        return Offered(
            offers=offers,
            servers={**shared.servers, **own.servers, **missing},
            options={**shared.options, **own.options},
        )

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read what the run is to have of *servers*. See `ToolClient`."""
        shared = [name for name in servers if name not in self.mine]
        own = [name for name in servers if name in self.mine]
        return [
            *await self.shared.resources(shared, scope),
            *await self.own.resources(own, scope),
        ]

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request* once. See `ToolClient`."""
        if why := self.problems.get(request.server):
            raise ToolError("transport", "no", why)
        client = self.own if request.server in self.mine else self.shared
        return await client.call_tool(request)
