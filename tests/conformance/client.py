"""
The host's MCP client, driven by the official conformance suite.

    python -m tests.conformance.client SOCKET
    python -m tests.conformance.client URL

With the URL of a scenario it runs that scenario only. With a socket, it forks a process
for each `launch.py` that connects. A scenario starts as a run does, by listing the
tools, and then makes the calls that the scenario defines, or one of each tool. When the
host requires a login, a headless browser logs in and the host tries again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from caxton_host.core.calls import JSON
from caxton_host.core.grants.tool_catalog import Offer
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import OAuth, ServerConfig
from caxton_host.errors import ServerUnavailable, ToolError
from caxton_host.mcp import McpTools
from caxton_host.mcp.auth.login import log_in
from caxton_host.mcp.auth.tokens import TokenFile
from caxton_host.ports.tools import ToolRequest
from tests.visitor import Visitor

#: Maximum number of logins.
_LOGINS = 3
_LOGIN = "caxton server login"
_CREDENTIALS = ("client_id", "client_secret", "issuer")
_DOCUMENT = "https://conformance-test.local/client-metadata.json"

_PRESERVED = "json_schema_2020_12_tool"
_VALUES: dict[str, JSON] = {
    "string": "text",
    "number": 5,
    "integer": 5,
    "boolean": True,
    "array": [],
}


class _Call(NamedTuple):
    tool: str
    params: dict[str, JSON]


def _arguments(offer: Offer, values: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return what the schema of *offer* requires."""
    schema: Any = offer.input_schema
    return {
        name: values[schema["properties"][name]["type"]]
        for name in schema.get("required", [])
    }


def _calls(offers: Sequence[Offer]) -> list[_Call]:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if wanted := given.get("toolCalls"):
        return [_Call(call["name"], call["arguments"]) for call in wanted]
    # One tool of the suite checks what the client made of another's schema.
    schemas = {offer.tool: offer.input_schema for offer in offers}
    values = _VALUES | {"object": schemas.get(_PRESERVED, {})}
    return [_Call(offer.tool, _arguments(offer, values)) for offer in offers]


async def _log_in(config: ServerConfig, folder: Path) -> None:
    file = TokenFile(folder, config)
    redact = Redactor()
    try:
        await log_in(config, Visitor(), file, redact=redact)
    except ServerUnavailable as exc:
        if not exc.fix.startswith("caxton server logout"):
            raise
        # The issuer of the tokens is another host, which the operator allows.
        file.remove()
        await log_in(config, Visitor(), file, redact=redact)


async def _use(config: ServerConfig, folder: Path) -> str:
    """Make the calls, and return what has to be done first, if anything."""
    fix = ""
    async with McpTools({"suite": config}, redact=Redactor(), tokens=folder) as tools:
        try:
            offers = (await tools.offered(["suite"])).offers
        except ServerUnavailable as exc:
            if not exc.fix.startswith(_LOGIN):
                raise
            return exc.fix
        for number, call in enumerate(_calls(offers), start=1):
            request = ToolRequest(
                run_id="conformance",
                call=number,
                server="suite",
                tool=call.tool,
                params=call.params,
                definition_sha256=None,
                idempotency_key=f"conformance:{number}",
            )
            try:
                await tools.call_tool(request)
            except ToolError as exc:
                # Some scenarios break a call on purpose; the suite checks the rest.
                fix = fix or exc.fix
    return fix


async def _main(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = ServerConfig(
        name="suite",
        url=url,
        transport="http",
        required=True,
        timeout=10.0,
        elicitation="defaults",
        oauth=OAuth(
            flow="code",
            allow_private=True,
            **(
                {key: given.get(key, "") for key in _CREDENTIALS}
                if "client_id" in given
                else {"client_metadata": _DOCUMENT}
            ),
        ),
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(_LOGINS):
            fix = await _use(config, folder)
            if not fix.startswith(_LOGIN):
                return
            await _log_in(config, folder)
        await _use(config, folder)


def _run(peer: socket.socket) -> None:
    """Run a scenario for *peer*, with the streams of that process."""
    said, streams, _, _ = socket.recv_fds(peer, 1 << 16, 3)
    while len(said) < 4 + int.from_bytes(said[:4], "big"):
        said += peer.recv(1 << 16)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    url, os.environ["MCP_CONFORMANCE_CONTEXT"] = said[4:].decode().split("\n", 1)
    code = 1
    try:
        asyncio.run(_main(url))
        code = 0
    except BaseException:  # noqa: BLE001 -- the suite reports every failure
        traceback.print_exc()
    peer.send(bytes([code]))


def _listen(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        while True:
            peer, _ = listener.accept()
            if not os.fork():
                _run(peer)
                os._exit(0)
            peer.close()


if __name__ == "__main__":
    if "://" in sys.argv[-1]:
        asyncio.run(_main(sys.argv[-1]))
    else:
        _listen(sys.argv[-1])
