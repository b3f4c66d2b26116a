"""
Requests to one server over an open session.

Calls bypass the models of the SDK, which lose unknown fields and reject answers after
the tool has run.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from .. import __version__
from ..core.calls import JSON, Completed, shortened
from ..core.grants.content import LISTS
from ..core.grants.tool_catalog import Offer
from ..core.names import is_method
from ..core.text.redact import Redactor, plain
from ..core.tools.contexts import ServerResource
from ..core.tools.schemas import bounded
from ..core.tools.servers import ASKED, Resources, ServerConfig, ToolOptions
from ..errors import BadBytes, ToolError
from ..gateway.results import completed
from ..lib.codec import decode_trusted
from ..lib.json_schema import mismatch
from ..ports.tools import RunScope, ToolRequest
from .catalogue import offers_of
from .resources import Kept, good_for, list_entries, of_tool, read_resources, set_apart
from .transport.messages import ROUNDS, Answer, Heard, Refusal, carried
from .transport.questions import Put, asking, put
from .transport.wire import Wire

if TYPE_CHECKING:
    from mcp.client.session import ClientSession


logger = logging.getLogger(__name__)

#: Seconds that a tool list is valid over HTTP, where changes may go unannounced, if the
#: server gives no ``ttlMs``. The SDK's default of 0 would double every call.
_LIST_SECONDS = 60.0

_CALL = "tools/call"

#: Where a call carries its idempotency key, in ``_meta``.
_KEY = "io.caxton/idempotency-key"

#: Seconds until a call is repeated whose server asked for time and no input.
_SOONEST, _LATEST = 0.05, 0.25

_PAGES = 100
_TOOLS = 1_000
_LIST_BYTES = 1024 * 1024

_NAME_LENGTH = 128


class Connection:
    """
    An open connection to a server.

    Attributes:
        name: What the server calls itself.

        legacy: It speaks a protocol of before 2026.

        meta: The ``_meta`` of every request.

        told: The capabilities that it announced, of those that the host uses.

        offers: Its tools, by its own names.

        left_out: The reason for each listed tool that is not offered.
    """

    def __init__(
        self, config: ServerConfig, redact: Redactor, peer: Wire, session: ClientSession
    ) -> None:
        info = session.server_info
        self._config = config
        self._options = lru_cache(_TOOLS)(config.options)
        self._redact = redact
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self.meta = _meta_of(session, config)
        self.told = _capabilities(session)
        # The number of changes before the last list, and the time that it expires.
        self._listed = -1
        self._good_until = 0.0
        self._listing = asyncio.Lock()
        self._kept = Kept(self._loop.time)
        # Output schemas by tool.
        self._promises: Mapping[str, Mapping[str, JSON]] = {}
        # By tool: makes the headers that repeat parameters.
        self._mirrored: dict[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {}
        self.name = plain(info.name if info else "", redact, _NAME_LENGTH)
        self.version = plain(info.version if info else "", redact, _NAME_LENGTH)
        self.protocol = str(session.protocol_version)
        self.legacy = session.discover_result is None
        self.offers: Mapping[str, Offer] = {}
        self.left_out: list[str] = []

    @property
    def readable(self) -> bool:
        """Whether it announced resources."""
        return "resources" in self.told

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return self._peer.lost is None and not self._peer.broken

    @property
    def ready(self) -> bool:
        """Whether a call can be made without waiting for anything."""
        return self.alive and not self.stale and self._peer.ready

    @property
    def stale(self) -> bool:
        """Whether the tools of the server may have changed."""
        changed = self._peer.changes != self._listed
        return changed or self._loop.time() > self._good_until

    async def ended(self) -> str:
        """Wait until the server is gone, and return why."""
        return str(await self._peer.ended())

    def lose(self, why: str) -> None:
        """End the connection."""
        self._peer.lose("transport", why)

    async def ping(self, deadline: float) -> bool:
        """Return whether the server answers before the *deadline*."""
        # Since 2026 there is no ping.
        method = "ping" if self.legacy else "server/discover"
        params = {"_meta": self.meta} if self.meta else None
        try:
            await self._peer.request(method, params, deadline)
        except Refusal:
            return True
        except ToolError as exc:
            return exc.sent == "yes"
        return True

    async def writable(self) -> None:
        """Wait until the server has read what it was sent."""
        await self._peer.writable()

    async def refresh(self, deadline: float) -> bool:
        """
        Read all pages of the tool list, if it is stale, and return whether it was.

        Raises:
            ToolError: The list is not valid, has no end or is too large.
        """
        async with self._listing:
            if not self.stale:
                return False
            now = self._peer.changes
            entries, seconds = await self._list(deadline)
            self.offers, self.left_out = offers_of(self._config, entries, self._redact)
            if self._config.url is not None and not self.legacy:
                self._mirror()
            self._promises = dict(self._promised())
            self._listed = now
            self._good_until = self._loop.time() + seconds
            return True

    def _promised(self) -> Iterator[tuple[str, Mapping[str, JSON]]]:
        """Yield the output schemas of the tools that can be checked."""
        for name, offer in self.offers.items():
            said = decode_trusted(offer.definition).get("outputSchema")
            if not isinstance(said, dict):
                continue
            schema = cast("dict[str, JSON]", said)
            try:
                bounded(schema)
            except BadBytes as exc:
                self._unchecked(name, exc)
            else:
                yield name, schema

    def _unchecked(self, tool: str, why: BadBytes) -> None:
        said = plain(str(why), self._redact, 200)
        where = f"{self._config.name}/{tool}"
        logger.warning("MCP: the answer of %s is not checked: %s", where, said)

    def _check(
        self, tool: str, result: Mapping[str, JSON], options: ToolOptions
    ) -> None:
        """Check an answer against the output schema of its tool."""
        promise = self._promises.get(tool)
        if promise is None or result.get("isError"):
            return
        why = "it has no structuredContent"
        if "structuredContent" in result:
            try:
                wrong = mismatch(promise, result["structuredContent"])
            except BadBytes as exc:
                self._unchecked(tool, exc)
                return
            if wrong is None:
                return
            why = plain(str(wrong), self._redact, 300)
        if options.record == "hash":
            why = "which is not kept"  # a wrong key may be part of the answer
        raise ToolError(
            "invalid_result", "yes", f"the answer is not what {tool} promises: {why}"
        )

    def _mirror(self) -> None:
        """Find the parameters that calls repeat in headers, since 2026."""
        from mcp.shared import inbound  # noqa: PLC0415 -- loaded by now

        offers = dict(self.offers)
        self._mirrored.clear()
        for name, offer in self.offers.items():
            if inbound.find_invalid_x_mcp_header(offer.input_schema) is not None:
                # The protocol forbids to use such a tool.
                self.left_out.append(f"'{name}': its x-mcp-header is not sound")
                del offers[name]
            elif found := inbound.x_mcp_header_map(offer.input_schema):
                self._mirrored[name] = partial(inbound.mcp_param_headers, found)
        self.offers = offers

    async def _list(self, deadline: float) -> tuple[list[JSON], float]:
        """Return the entries of all pages, and the seconds that they are valid."""
        entries: list[JSON] = []
        promised: list[float] = []
        cursor: JSON = None
        size = 0
        if "tools" not in self.told:
            return entries, math.inf
        for _ in range(_PAGES):
            params: dict[str, JSON] = {"_meta": self.meta} if self.meta else {}
            if cursor is not None:
                params["cursor"] = cursor
            page = await self._ask("tools/list", params, deadline)
            tools, cursor = page.result.get("tools"), page.result.get("nextCursor")
            if not isinstance(tools, list):
                raise ToolError(
                    "protocol", "no", "the answer to tools/list is not a list"
                )
            entries += tools
            promised += filter(None, (good_for(page.result),))
            size += page.size
            if len(entries) > _TOOLS or size > _LIST_BYTES:
                raise ToolError("too_large", "no", "the list of tools is too long")
            if cursor is None:
                usual = math.inf if self._config.url is None else _LIST_SECONDS
                return entries, min(promised, default=usual)
        raise ToolError("too_large", "no", "the list of tools does not end")

    async def _asked(
        self, method: str, params: dict[str, JSON], *, deadline: float
    ) -> Answer:
        params = {**params, "_meta": self.meta} if self.meta else params
        return await self._ask(method, params, deadline)

    async def _ask(
        self, method: str, params: dict[str, JSON], deadline: float
    ) -> Answer:
        try:
            return await self._peer.request(method, params, deadline)
        except Refusal as exc:
            raise self._refused(method, exc) from None

    def _refused(self, method: str, exc: Refusal) -> ToolError:
        said = plain(exc.message, self._redact)
        if method != _CALL or not said:
            said = f"the server refused {method}: {said}"
        return ToolError("protocol", "yes", said, code=exc.code or None)

    async def call(
        self, request: ToolRequest, trace_context: Mapping[str, str], deadline: float
    ) -> Completed:
        """
        Call a tool, and answer the server's questions within one deadline.

        Args:
            request: The call.

            trace_context: That of its span.

            deadline: On the clock of the event loop.

        Raises:
            ToolError: There is no valid answer.
        """
        began, tool = self._loop.time(), request.tool
        elicitation = self._config.elicitation
        options = self._options(tool)
        if tool in LISTS:
            self._check_told(tool)
            most, ask = self._config.max_result, partial(self._asked, deadline=deadline)
            answer = await list_entries(ask, tool, most, self._redact)
            return self._completed(answer, tool, options, began)
        meta = {**self.meta, _KEY: request.idempotency_key, **trace_context}
        method, params, headers = self._message(request, options, meta)
        heard = Heard(request.on_progress, self._redact, request.on_wire)
        to = put(request.on_question, ASKED.get(elicitation, "people"), deadline)
        send = partial(
            self._peer.request,
            method,
            deadline=deadline,
            headers=headers,
            on_progress=heard,
        )
        more: dict[str, JSON] = {}
        for number in range(ROUNDS + 1):
            try:
                answer = await self._round(send, {**params, **more}, to)
            except Refusal as exc:
                raise self._refused(method, exc) from None
            except ToolError as exc:
                if not number or exc.sent != "no":
                    raise
                # The rounds before may have had an effect.
                raise ToolError(exc.kind, "unknown", str(exc)) from None
            wanted = (
                None if self.legacy else await carried(answer.result, elicitation, to)
            )
            if wanted is None:
                if method != _CALL:
                    answer = answer._replace(result=of_tool(method, answer.result))
                return self._completed(answer, tool, options, began)
            more = wanted
            await self._between_rounds(more, number, deadline)
            if number < ROUNDS:
                await request.on_resend()
        why = f"the tool asks for more input after {ROUNDS} rounds"
        raise ToolError("invalid_result", "yes", why)

    async def _round(
        self,
        send: Callable[..., Awaitable[Answer]],
        params: Mapping[str, JSON],
        to: Put,
    ) -> Answer:
        """Send a call, and answer what a server of before 2026 asks meanwhile."""
        if not self.legacy or self._config.elicitation not in ASKED:
            return await send(params)
        async with asking(to) as asker:
            return await send(params, asker=asker)

    async def _between_rounds(
        self, more: Mapping[str, JSON], number: int, deadline: float
    ) -> None:
        if "inputResponses" not in more:
            await asyncio.sleep(min(_SOONEST * 2**number, _LATEST))
        if self._loop.time() >= deadline:
            raise ToolError(
                "timeout", "unknown", "the server asked for input until the deadline"
            )

    def _message(
        self, request: ToolRequest, options: ToolOptions, meta: dict[str, JSON]
    ) -> tuple[str, dict[str, JSON], dict[str, str] | None]:
        """Return method, parameters and headers of a call."""
        tool, arguments = request.tool, request.params
        if is_method(tool):
            self._check_told(tool)
            return tool, {**arguments, "_meta": meta}, None
        self._check_pin(request)
        if options.key_argument:
            arguments = {**arguments, options.key_argument: request.idempotency_key}
        mirrored = self._mirrored.get(tool)
        headers = mirrored(arguments) if mirrored else None
        return _CALL, {"name": tool, "arguments": arguments, "_meta": meta}, headers

    def _check_told(self, method: str) -> None:
        name = f"{method.partition('/')[0].removesuffix('s')}s"
        if name not in self.told:
            raise ToolError("protocol", "no", f"the server has no {name}")

    def _check_pin(self, request: ToolRequest) -> None:
        offer = self.offers.get(request.tool)
        pinned = request.definition_sha256
        if offer is None:
            raise ToolError("changed", "no", "the server does not offer this tool")
        if pinned is not None and pinned != offer.definition_sha256:
            raise ToolError(
                "changed",
                "no",
                "the tool's definition has changed since the run started",
            )

    def _completed(
        self, answer: Answer, tool: str, options: ToolOptions, began: float
    ) -> Completed:
        """Return the bounded, redacted outcome of a call."""
        most = self._config.max_result
        if answer.size > most and options.over_limit != "cut":
            raise ToolError(
                "too_large",
                "yes",
                f"the answer has {answer.size} bytes, of {most} allowed",
            )
        self._check(tool, answer.result, options)
        done = completed(
            answer.result,
            tool,
            options,
            self._redact,
            size=answer.size,
            duration_us=round((self._loop.time() - began) * 1_000_000),
        )
        if answer.size > most:
            return shortened(done, most)
        return set_apart(done, self._config.blobs_over, self._redact)

    async def resources(
        self, wanted: Resources, scope: RunScope, deadline: float
    ) -> list[ServerResource]:
        """
        Return the resources for a run. See `read_resources`.

        Raises:
            ToolError: The server has none, or cannot list them.
        """
        if not self.readable:
            raise ToolError("protocol", "no", "the server has no resources")

        async def ask(method: str, params: dict[str, JSON]) -> Answer:
            answer = self._kept.find(method, params)
            if answer is None:
                answer = await self._asked(method, params, deadline=deadline)
                self._kept.keep(method, params, answer)
            return answer

        return await read_resources(ask, self._config, wanted, scope, self._redact)


def _capabilities(session: ClientSession) -> frozenset[str]:
    """Return the announced capabilities that the host uses."""
    told = session.server_capabilities
    names = ("tools", "resources", "prompts", "completions")
    return frozenset(name for name in names if getattr(told, name, None) is not None)


def _meta_of(session: ClientSession, config: ServerConfig) -> dict[str, JSON]:
    """Return the ``_meta`` of every request, in protocols without a handshake."""
    if session.discover_result is None:
        return {}
    import mcp_types  # noqa: PLC0415 -- loaded by now

    return {
        mcp_types.PROTOCOL_VERSION_META_KEY: session.protocol_version,
        mcp_types.CLIENT_INFO_META_KEY: {"name": "caxton-host", "version": __version__},
        mcp_types.CLIENT_CAPABILITIES_META_KEY: (
            {"elicitation": {"form": {}}} if config.elicitation != "refuse" else {}
        ),
    }
