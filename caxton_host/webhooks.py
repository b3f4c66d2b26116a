"""
Webhooks: HTTP requests as tools, with the same grants and events as MCP tools.

They are the tools of one reserved server, ``webhook``. An answer becomes a
``CallToolResult``. A status of 400 or more is an error of the tool; without a valid
answer the call fails.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from .core.calls import JSON, Completed
from .core.grants.tool_catalog import Offer, Offered
from .core.names import exposed_name
from .core.text.redact import Redactor
from .core.tools.completions import assembled
from .core.tools.servers import ToolOptions
from .core.tools.webhooks import SERVER, Webhook
from .errors import BadBytes, ToolError, UsageError
from .gateway.results import completed
from .lib.codec import canonical, load_json, sha256
from .ports.tools import ToolClient, ToolRequest

if TYPE_CHECKING:
    from .lib.http import Client, Response


_ERROR = 400


class WebhookTools(ToolClient):
    """
    The tools of the server ``webhook``.

    Args:
        webhooks: By tool name.

        redact: Removes configured secrets from answers and definitions.

        proxy: The proxy for every request.

        trace_context: Returns the W3C headers of a request's span.
    """

    def __init__(
        self,
        webhooks: Mapping[str, Webhook],
        *,
        redact: Redactor | None = None,
        proxy: str | None = None,
        trace_context: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._webhooks = webhooks
        self._redact = redact or Redactor()
        self._proxy = proxy
        self._trace_context = trace_context
        self._client: Client | None = None
        self._slots = {
            name: asyncio.Semaphore(hook.concurrency) for name, hook in webhooks.items()
        }
        self._offers = {
            name: _offer(hook, self._redact) for name, hook in webhooks.items()
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return every webhook, if *servers* includes their group. Sends nothing."""
        if SERVER not in servers or not self._offers:
            return Offered()
        origins = {hook.origin for hook in self._webhooks.values()}
        described: dict[str, JSON] = {
            "transport": "webhook",
            "address": self._redact.text(" ".join(sorted(origins))),
            "name": SERVER,
            "version": None,
            "protocol": None,
        }
        return Offered(offers=tuple(self._offers.values()), servers={SERVER: described})

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send one request.

        Invalid parameters are an error of the tool, and nothing is sent.

        Raises:
            ToolError: There is no valid answer.
        """
        hook = self._webhooks.get(request.tool)
        if hook is None:
            raise ToolError("transport", "no", f"there is no webhook {request.tool!r}")
        pinned = request.definition_sha256
        if pinned not in {None, self._offers[request.tool].definition_sha256}:
            raise ToolError(
                "changed",
                "no",
                f"webhook {request.tool!r} has changed since the run started",
            )
        try:
            url, rest = hook.fill(request.params)
        except UsageError as exc:
            return _unsent(str(exc))
        if rest and hook.body == "none":
            unknown = ", ".join(repr(name) for name in sorted(rest))
            return _unsent(f"no such parameter: {unknown}")
        with ExitStack() as queue:
            queue.enter_context(request.queued())
            async with self._slots[request.tool]:
                queue.close()
                began = time.monotonic()
                answer = await self._send(hook, url, rest, request)
                duration = time.monotonic() - began
        return completed(
            _result(answer, hook.max_result),
            hook.name,
            hook.options,
            self._redact,
            size=len(answer.body),
            duration_us=int(duration * 1_000_000),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _send(
        self, hook: Webhook, url: str, rest: dict[str, JSON], request: ToolRequest
    ) -> Response:
        if self._client is None:
            from .lib.http import Client  # noqa: PLC0415 -- 100 ms, only once one is called

            self._client = Client(
                proxy=self._proxy,
                trace_context=self._trace_context,
                # One for each slot, so that no request waits for a connection.
                connections=sum(hook.concurrency for hook in self._webhooks.values()),
            )
        headers = {"accept": "application/json, text/*;q=0.9"}
        content = None
        if hook.body == "json":
            headers["content-type"] = "application/json"
            content = json.dumps(rest, ensure_ascii=False, allow_nan=False).encode()
        headers |= {name.lower(): text for name, text in hook.headers.items()}
        headers["idempotency-key"] = request.idempotency_key
        answer = await self._client.request(
            hook.method,
            url,
            headers=headers,
            content=content,
            timeout=min(hook.timeout, request.timeout or hook.timeout),
            max_bytes=hook.max_result,
            allow_private=hook.allow_private,
        )
        request.on_wire({"http.response.status_code": answer.status})
        return answer


def _unsent(why: str) -> Completed:
    return Completed(is_error=True, message=why, told=lambda _: why)


def _result(answer: Response, limit: int) -> dict[str, JSON]:
    """
    Return an answer as a ``CallToolResult``.

    The status is included if it is an error, or if there is no body. A streamed
    completion of a model becomes the completion that is not streamed.
    """
    is_error = answer.status >= _ERROR
    media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    texts: list[str] = []
    if is_error or not answer.body:
        texts.append(f"HTTP {answer.status}")
    result: dict[str, JSON] = {"isError": is_error}
    try:
        if answer.body:
            text = answer.body.decode()
            if media == "text/event-stream" and (
                found := assembled(text, lambda data: load_json(data, limit=limit))
            ):
                result["isError"] = is_error or "error" in found
                text, media = json.dumps(found, ensure_ascii=False), "application/json"
            texts.append(text)
            if media == "application/json" or media.endswith("+json"):
                value = load_json(text, limit=limit)
                # MCP requires an object; its SDKs wrap other values like this.
                result["structuredContent"] = (
                    value if isinstance(value, dict) else {"result": value}
                )
    except (BadBytes, UnicodeDecodeError) as exc:
        reason = exc if isinstance(exc, BadBytes) else "neither JSON nor UTF-8 text"
        raise ToolError(
            "invalid_result", "yes", f"the answer cannot be recorded: {reason}"
        ) from None
    result["content"] = [{"type": "text", "text": text} for text in texts]
    return result


def _offer(hook: Webhook, redact: Redactor) -> Offer:
    """
    Return the offer of a webhook.

    Its definition covers everything that changes a call, except secrets: a new address
    is a new definition, a new token is not.
    """
    schema = dict(hook.params)
    said: dict[str, JSON] = {
        "name": hook.name,
        "description": hook.description,
        "input_schema": schema,
        "method": hook.method,
        "url": hook.url,
        "headers": [*sorted(name.lower() for name in hook.headers)],
        "body": hook.body,
    }
    definition = canonical(redact.value(said))
    return Offer(
        server=SERVER,
        tool=hook.name,
        exposed=hook.expose_as or exposed_name(SERVER, hook.name),
        description=hook.description,
        input_schema=schema,
        definition=definition,
        definition_sha256=sha256(definition),
        effect=hook.effect,
        record=hook.record,
        reply=hook.reply,
        retry=ToolOptions(retry=hook.retry).retrying(hook.effect),
    )
