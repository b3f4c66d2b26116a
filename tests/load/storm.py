"""Concurrent calls and their outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

__all__ = ["Answers", "storm"]

_PROTOCOL = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _PROTOCOL,
    "io.modelcontextprotocol/clientInfo": {"name": "storm", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_REFUSED = {httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE}


@dataclass(slots=True)
class Answers:
    """
    The outcomes of calls.

    Attributes:
        kinds: Number of outcomes by kind: ``result``, or the status of a refusal.

        wrong: Answers that are neither.

        runs: The runs of accepted calls.
    """

    kinds: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    runs: list[str] = field(default_factory=list[str])

    def take(self, answer: httpx.Response) -> None:
        """Count an answer."""
        if answer.status_code in _REFUSED:
            self.kinds[str(answer.status_code)] += 1
            if not float(answer.headers.get("retry-after", 0)) > 0:
                self.wrong.append("no Retry-After")
            return
        said = answer.json() if answer.status_code == httpx.codes.OK else {}
        result = said.get("result") or {}
        if not result or result.get("isError"):
            self.wrong.append(answer.text[:500])
            return
        self.kinds["result"] += 1
        self.runs.append(result["_meta"]["io.caxton/run-id"])


async def storm(
    url: str, tokens: Sequence[str], tool: str, asked: object, calls: int
) -> Answers:
    """Make *calls* concurrent calls of a tool, each over its own connection."""
    answers = Answers()
    limits = httpx.Limits(max_connections=calls, max_keepalive_connections=calls)
    params = {"name": tool, "arguments": asked, "_meta": _META}

    async with httpx.AsyncClient(limits=limits, timeout=300) as client:

        async def call(number: int) -> None:
            headers = {
                "Authorization": f"Bearer {tokens[number % len(tokens)]}",
                "Accept": "application/json",
                "MCP-Protocol-Version": _PROTOCOL,
                "MCP-Method": "tools/call",
                "MCP-Name": tool,
            }
            body = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": params,
            }
            try:
                answers.take(await client.post(url, json=body, headers=headers))
            except httpx.HTTPError as exc:
                answers.wrong.append(repr(exc))

        await asyncio.gather(*(call(number) for number in range(calls)))
    return answers
