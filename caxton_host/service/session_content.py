"""
What the client of a session may read: lists, completions, and the calls that read.

Lists and completions are asked of the servers and not recorded. Reading is a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..core.calls import JSON, Route
from ..core.grants import content as rules
from ..core.grants.decisions import Attempt, may_again
from ..core.grants.grants import Grant
from ..core.names import READ, exposed_name
from ..core.text.templates import expand
from ..errors import ToolError
from ..lib.json_schema import fits
from ..ports.tools import ToolClient, ToolRequest

logger = logging.getLogger("caxton_host")

#: Seconds for which a list is used again, and those that a server has for a request.
_FRESH_S, _TIMEOUT_S = 10.0, 10.0
_COMPLETIONS = 100


@dataclass(slots=True, kw_only=True, eq=False)
class Content:
    """
    What the client of a stream may read.

    Attributes:
        grant: The grant of the session.

        run_id: The stream.

        tools: Its tools.

        now: Returns the time, in microseconds since 1970.

        frozen: Returns whether a server is frozen.
    """

    grant: Grant
    run_id: str
    tools: ToolClient
    now: Callable[[], int]
    frozen: Callable[[str], bool]
    _lists: dict[str, tuple[float, rules.Lists]] = field(
        default_factory=dict[str, tuple[float, rules.Lists]], init=False
    )

    def _servers(self, method: str) -> list[str]:
        named = self.grant.literals()
        return sorted({server for server, tool in named if tool == method})

    def _allows(self, kind: rules.Kind, server: str, name: str) -> bool:
        route, params = Route(server=server, tool=kind.method), {kind.param: name}
        attempt = Attempt(route=route, params=params, now=self.now(), matches=fits)
        return may_again(self.grant, attempt)

    async def listed(self, method: str) -> rules.Lists:
        """
        Return the lists of the servers as one, by what a client calls each entry.

        A server that has no valid list is left out.
        """
        clock = asyncio.get_running_loop().time
        until, known = self._lists.get(method, (0.0, {}))
        if clock() >= until:
            kind = rules.LISTS[method]
            some = self._servers(kind.method)
            answers = await asyncio.gather(*(self._ask(s, method, {}) for s in some))
            pairs = zip(some, answers, strict=True)
            found = {server: said.get("entries", ()) for server, said in pairs}
            known = rules.merged(kind, found, partial(self._allows, kind))
            self._lists[method] = clock() + _FRESH_S, known
        return known

    async def _ask(
        self, server: str, method: str, params: dict[str, JSON]
    ) -> dict[str, Any]:
        """Send a request, and return the data of the answer; ``{}``: there is none."""
        request = ToolRequest(
            run_id=self.run_id,
            call=0,
            server=server,
            tool=method,
            params=params,
            definition_sha256=None,
            idempotency_key="",
            timeout=_TIMEOUT_S,
        )
        try:
            done = None if self.frozen(server) else await self.tools.call_tool(request)
        except ToolError as exc:
            logger.info("%s of %s is left out: %s", method, server, exc)
            return {}
        return done.data if done and isinstance(done.data, dict) else {}

    async def call(
        self, method: str, params: dict[str, JSON]
    ) -> tuple[str, dict[str, JSON]]:
        """Return the name and the parameters of the call that a client asks for."""
        lists, more = rules.RESOURCES, rules.TEMPLATES
        if method != READ:
            lists = more = rules.PROMPTS
        kind, listed = rules.LISTS[lists], await self.listed(lists)
        templates = await self.listed(more)
        allows, name = partial(self._allows, kind), str(params[kind.param])
        some = self._servers(method)
        server, own = rules.place(name, listed, templates, some, allows)
        return exposed_name(server, method), {**params, kind.param: own}

    async def complete(self, asked: dict[str, Any]) -> list[Any]:
        """
        Return values of an argument of a prompt, or of a variable of a template.

        A value is left out that leads to nothing that the client may read.

        Raises:
            UsageError: The template is not valid.
        """
        ref, argument = asked["ref"], asked["argument"]
        method = rules.PROMPTS if "name" in ref else rules.TEMPLATES
        kind = rules.LISTS[method]
        one = (await self.listed(method)).get(ref[kind.param])
        if one is None:
            return []
        asked = {**asked, "ref": {**ref, kind.param: one.name}}
        found = (await self._ask(one.server, rules.COMPLETE, asked)).get("values", [])
        values = [value for value in found if isinstance(value, str)][:_COMPLETIONS]
        if method == rules.PROMPTS:
            return values
        others, name = asked.get("context", {}).get("arguments", {}), argument["name"]
        uris = [expand(one.name, {**others, name: value}).uri for value in values]
        pairs = zip(values, uris, strict=True)
        return [value for value, uri in pairs if self._allows(kind, one.server, uri)]
