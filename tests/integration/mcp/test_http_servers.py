"""How servers over HTTP are found, asked and left."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from caxton_host import __version__
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.demo_server import demo_server
from caxton_host.errors import ServerUnavailable, ToolError
from caxton_host.mcp import McpTools
from caxton_host.mcp.transport.http_transport import Posts
from caxton_host.mcp.transport.streamable import HttpPeer

from .conftest import SECRET, request, until
from .faulty_http import FaultyHttp

_Message = MutableMapping[str, Any]
_App = Callable[
    [
        _Message,
        Callable[[], Awaitable[_Message]],
        Callable[[_Message], Awaitable[None]],
    ],
    Awaitable[None],
]


def tools_of(url: str, *, proxy: str | None = None, **options: Any) -> McpTools:  # noqa: ANN401
    given: dict[str, Any] = {"transport": "http"}
    config = ServerConfig(name="web", url=url, **(given | options))
    return McpTools({"web": config}, redact=Redactor([SECRET]), proxy=proxy)


def old(app: _App) -> _App:
    """Return *app* as a server of before 2026."""

    async def answer(scope: _Message, receive: Any, send: Any) -> None:  # noqa: ANN401
        headers = dict(scope.get("headers", []))
        if headers.get(b"mcp-protocol-version") == b"2026-07-28":
            head = {"type": "http.response.start", "status": 400, "headers": []}
            await send(head)
            await send({"type": "http.response.body", "body": b"unknown version"})
        else:
            await app(scope, receive, send)

    return answer


@asynccontextmanager
async def sdk_server(
    *,
    legacy: bool,
    stateless: bool,
    as_json: bool,
    mcp: Any = None,  # noqa: ANN401
) -> AsyncGenerator[str]:
    app: Any = (mcp or demo_server()).streamable_http_app(
        stateless_http=stateless, json_response=as_json
    )
    config = uvicorn.Config(
        old(app) if legacy else app, log_level="error", lifespan="on", ws="none"
    )
    server = uvicorn.Server(config)
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listening]))
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        await serving


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
async def test_servers_of_the_official_sdk_answer_in_every_way_they_can(
    *, legacy: bool, stateless: bool, as_json: bool
) -> None:
    async with (
        sdk_server(legacy=legacy, stateless=stateless, as_json=as_json) as url,
        tools_of(url) as tools,
    ):
        offered = await tools.offered(["web"])
        assert len(offered.offers) == 9
        about = offered.servers["web"]
        assert about["transport"] == "http"
        assert about["name"] == "caxton-demo"
        assert about["protocol"] == ("2025-11-25" if legacy else "2026-07-28")
        weather = await tools.call_tool(
            request("get_weather", {"location": "Seattle"}, server="web")
        )
        assert weather.message == "Seattle: 12 °C, rain"
        assert '"temperature": 12' in json.dumps(weather.data)
        wrong = await tools.call_tool(request("echo", {"txt": "?"}, server="web"))
        assert wrong.is_error
        large = request("large", {"bytes": 900_000}, server="web")
        assert len((await tools.call_tool(large)).message) == 900_000
        texts = [f"höhe {number}" for number in range(20)]
        said = await asyncio.gather(
            *(
                tools.call_tool(request("echo", {"text": text}, server="web"))
                for text in texts
            )
        )
        assert [answer.message for answer in said] == texts


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_the_demo_server_serves_http_as_a_program(transport: str) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caxton_host.demo_server", f"--{transport}", "0"),
        stderr=subprocess.PIPE,
    )
    try:
        assert program.stderr
        url = (await program.stderr.readline()).decode().strip()
        async with tools_of(url, transport=transport) as tools:
            answer = await tools.call_tool(
                request("echo", {"text": "hello"}, server="web")
            )
        assert answer.message == "hello"
    finally:
        program.send_signal(signal.SIGINT)
        await program.communicate()


@pytest.mark.parametrize("legacy", [False, True])
async def test_every_request_says_what_the_protocol_and_the_operator_want(
    *, legacy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The environment names no proxy: it is not the operator's word.
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    given = {"Authorization": f"Bearer {SECRET}", "Accept": "text/html", "X-Mine": "1"}
    given["Mcp-Session-Id"] = "stolen"
    async with FaultyHttp(legacy=legacy) as server:
        async with tools_of(server.url, headers=given) as tools:
            await tools.call_tool(request("echo", server="web"))
            session = server.asked[-1].headers.get("mcp-session-id")
        sent = [asked.headers for asked in server.asked]
    for headers in sent:
        assert headers["authorization"] == f"Bearer {SECRET}"
        assert headers["x-mine"] == "1"
        assert headers.get("mcp-session-id") != "stolen"
        assert headers["accept"] == "application/json, text/event-stream"
        assert headers["accept-encoding"] == "identity"
        assert headers["user-agent"] == "caxton-host"
        assert headers["host"] == f"127.0.0.1:{server.port}"
    call = next(h for h in sent if h.get("mcp-name") or h.get("mcp-session-id"))
    if legacy:
        assert server.asked[-1].verb == "DELETE"
        assert session == server.asked[-1].headers["mcp-session-id"]
        assert call["mcp-protocol-version"] == "2025-11-25"
        assert not any("mcp-name" in headers for headers in sent)
    else:
        assert call["mcp-protocol-version"] == "2026-07-28"
        assert (call["mcp-method"], call["mcp-name"]) == ("tools/call", "echo")
        assert not any("mcp-session-id" in headers for headers in sent)


async def test_an_old_server_is_greeted_once_by_name() -> None:
    async with FaultyHttp(legacy=True) as server:
        async with tools_of(server.url) as tools:
            for _ in range(2):
                await tools.call_tool(request("echo", server="web"))
        [greeting] = server.told("initialize")
        assert len(server.told("notifications/initialized")) == 1
    assert greeting["clientInfo"] == {"name": "caxton-host", "version": __version__}


async def test_a_password_in_an_address_is_not_recorded() -> None:
    async with FaultyHttp() as server:
        url = server.url.replace("//", "//me:geheim-1@") + "?key=geheim-2"
        async with tools_of(url) as tools:
            about = (await tools.offered(["web"])).servers["web"]
    assert about["address"] == server.url  # law 8


async def test_the_era_of_a_server_is_remembered() -> None:
    async with FaultyHttp(legacy=True) as server, tools_of(server.url) as tools:
        await tools.call_tool(request("echo", server="web"))
        server.forget()
        with pytest.raises(ToolError):
            await tools.call_tool(request("echo", server="web"))
        await tools.call_tool(request("echo", server="web"))
        assert len(server.told("server/discover")) == 1
        assert len(server.told("initialize")) == 2


async def test_the_idempotency_key_and_the_trace_go_with_a_call() -> None:
    traceparent = f"00-{1:032x}-{2:016x}-01"
    async with FaultyHttp() as server:
        config = ServerConfig(name="web", url=server.url, transport="http")
        async with McpTools(
            {"web": config},
            redact=Redactor(),
            trace_context=lambda: {"traceparent": traceparent},
        ) as tools:
            await tools.call_tool(request("echo", server="web"))
        [params] = server.told("tools/call")
    assert params["_meta"]["io.caxton/idempotency-key"] == "key"
    assert params["_meta"]["traceparent"] == traceparent
    assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


async def test_a_parameter_is_repeated_in_the_header_that_its_schema_names() -> None:
    # attack 30
    async with FaultyHttp() as server, tools_of(server.url) as tools:
        field = {"type": "string", "x-mcp-header": "Region"}
        server.schema = {"type": "object", "properties": {"region": field}}
        await tools.call_tool(request("act", {"region": "süd\r\nx: y"}, server="web"))
        header = server.asked[-1].headers["mcp-param-region"]
    assert re.fullmatch(r"=\?base64\?[A-Za-z0-9+/=]+\?=", header)


async def test_tools_are_listed_again_from_time_to_time() -> None:
    async with FaultyHttp() as server, tools_of(server.url) as tools:
        shown = (await tools.offered(["web"])).offers[0]
        pinned = request("act", pin=shown.definition_sha256, server="web")
        await tools.call_tool(pinned)
        assert len(server.told("tools/list")) == 1
        [connection] = [server._current for server in tools._pool.values()]
        assert connection
        connection._good_until = 0.0
        server.schema = {"type": "object", "title": "another one"}
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(pinned)
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")


async def test_a_tool_whose_header_could_not_be_sent_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # attack 30
    async with FaultyHttp() as server, tools_of(server.url) as tools:
        field = {"type": "string", "x-mcp-header": "a\r\nauthorization"}
        server.schema = {"type": "object", "properties": {"region": field}}
        offered = await tools.offered(["web"])
    assert [offer.tool for offer in offered.offers] == ["echo"]
    assert "'act': its x-mcp-header is not sound" in caplog.text


async def test_requests_go_through_the_proxy_of_the_configuration_alone() -> None:
    seen: list[bytes] = []

    async def proxied(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(proxied, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    address = f"http://me:{SECRET}@127.0.0.1:{port}"
    async with tools_of("http://tools.example/mcp", proxy=address) as tools:
        assert (await tools.offered(["web"])).offers == ()
        problem = str(tools.problem("web"))
    proxy.close()
    await proxy.wait_closed()
    assert seen[0].startswith(b"POST http://tools.example/mcp HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic" in seen[0]
    assert "403" in problem
    assert SECRET not in problem  # law 8


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("status 401", r"401 \(Unauthorized\)"),
        ("status 404", r"404 \(Not Found\)"),
        ("redirects 308", r"a redirect, 308 \(Permanent Redirect\), is not followed"),
        ("html", "neither JSON nor events"),
        ("garbage", "the answer was refused"),
        ("never", "not ready within 1 s"),
    ],
)
async def test_a_server_that_cannot_be_used_is_skipped_unless_it_is_required(
    mode: str, why: str
) -> None:
    class Bad(FaultyHttp):
        async def _serve(self, asked: Any, to: Any) -> None:  # noqa: ANN401
            await self._act(asked.message.get("id"), to)

    headers = {"authorization": SECRET}
    async with Bad(mode, secret=SECRET) as server:
        async with tools_of(server.url, headers=headers, start_timeout=1.0) as tools:
            assert (await tools.offered(["web"])).offers == ()
            problem = tools.problem("web")
        async with tools_of(server.url, required=True, start_timeout=1.0) as tools:
            with pytest.raises(ServerUnavailable, match="is down"):
                await tools.offered(["web"])
    assert problem is not None
    assert re.search(why, str(problem))
    assert SECRET not in str(problem)  # law 8
    assert "url and headers of [servers.web]" in problem.fix
    assert ('transport = "sse"' in problem.fix) == ("404" in why)


async def test_what_cannot_be_a_header_is_never_sent() -> None:
    async with FaultyHttp() as server:
        for bad in ("höhe", "a\r\nb: c"):
            async with tools_of(server.url, headers={"x-mine": bad}) as tools:
                with pytest.raises(ToolError) as caught:
                    await tools.call_tool(request("echo", server="web"))
                assert caught.value.sent == "no"
                assert bad not in str(tools.problem("web"))
        assert server.asked == []


def certificate(folder: Path) -> ssl.SSLContext:
    """Return the TLS of a server that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    found = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(
        found.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem")
    return context


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    tmp_path: Path,
) -> None:
    server = FaultyHttp()
    server.tls = certificate(tmp_path)
    async with server, tools_of(server.url) as tools:
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(request("echo", server="web"))
        assert (caught.value.kind, caught.value.sent) == ("transport", "no")
        assert "cannot connect" in str(tools.problem("web"))
        assert server.asked == []


async def test_a_connection_that_does_not_come_up_in_time_is_never_sent() -> None:
    # A server that accepts nobody: its queue is full.
    full = socket.socket(proto=socket.IPPROTO_TCP)
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)  # noqa: FBT003 -- the standard library's
        one.connect_ex(full.getsockname())
        waiting.append(one)
    peer = HttpPeer(
        Posts(f"http://127.0.0.1:{full.getsockname()[1]}/", {}, idle=1, proxy=None),
        limit=1000,
    )
    deadline = asyncio.get_running_loop().time() + 0.3
    with pytest.raises(ToolError) as caught:
        await peer.request("tools/list", {}, deadline)
    assert (caught.value.kind, caught.value.sent) == ("timeout", "no")
    assert peer.lost is None
    await peer.close(now=True)
    for one in (*waiting, full):
        one.close()


async def test_nothing_is_left_open_when_the_host_ends() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- counts itself too
    async with FaultyHttp("never", legacy=True) as server:
        tools = tools_of(server.url)
        async with tools:
            call = asyncio.create_task(tools.call_tool(request("act", server="web")))
            await until(lambda: server.told("tools/call"))
        with pytest.raises(ToolError) as caught:
            await call
        assert (caught.value.kind, caught.value.sent) == ("transport", "unknown")
        await until(lambda: server.gone == 1)
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208
    assert json.dumps(server.told("notifications/cancelled")) == "[]"
