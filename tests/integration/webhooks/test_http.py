"""The HTTP client, against servers that mean no good."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from caxton_host.errors import ToolError
from caxton_host.lib import http_rules
from caxton_host.lib.http import Client, Response

from .conftest import Server

CANARY = "canary-4711-canary"


async def get(  # noqa: PLR0913 -- as what it calls
    client: Client,
    url: str,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109 -- what is tested
    max_bytes: int = 10_000,
    headers: dict[str, str] | None = None,
    allow_private: bool = True,
) -> Response:
    return await client.request(
        "GET",
        url,
        timeout=timeout,
        max_bytes=max_bytes,
        headers=headers,
        allow_private=allow_private,
    )


async def refused(client: Client, url: str, **bounds: float | bool) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await get(client, url, **bounds)  # type: ignore[arg-type]  # as above
    assert CANARY not in str(caught.value)
    return caught.value


async def test_answer_is_read_whole(server: Server, client: Client) -> None:
    server.answers(b"hello", "X-Answer: 42")
    answer = await get(client, f"{server.url}/a?b=c")
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["x-answer"] == "42"
    assert server.requests[0][0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert server.sent_headers["accept-encoding"] == "identity"


async def test_connection_is_used_again(server: Server, client: Client) -> None:
    server.answers(b"hello")
    for _ in range(3):
        await get(client, server.url)
    assert (len(server.requests), server.connections) == (3, 1)


async def test_server_that_never_answers_is_given_up(
    server: Server, client: Client
) -> None:
    error = await refused(client, f"{server.url}/?token={CANARY}", timeout=0.2)
    assert (error.kind, error.sent) == ("timeout", "unknown")


async def test_drip_is_cut_at_the_total_deadline(
    server: Server, client: Client
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    server.says(head, *([b"x"] * 1000), every=0.05)
    with anyio.fail_after(5):
        error = await refused(client, server.url, timeout=1.0)
    assert (error.kind, error.sent) == ("timeout", "yes")


async def test_drip_of_headers_is_cut_as_well(server: Server, client: Client) -> None:
    server.says(b"HTTP/1.1 200 OK\r\n", *([b"X: y\r\n"] * 1000), every=0.05)
    with anyio.fail_after(5):
        error = await refused(client, server.url, timeout=1.0)
    assert (error.kind, error.sent) == ("timeout", "unknown")


async def test_flood_of_headers_is_refused(server: Server, client: Client) -> None:
    server.says(b"HTTP/1.1 200 OK\r\n", *([b"X: " + b"y" * 60_000 + b"\r\n"] * 10))
    error = await refused(client, server.url)
    assert error.kind == "protocol"


async def test_body_over_the_cap_is_cut(server: Server, client: Client) -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n")
            await writer.drain()

    server.script = flood
    error = await refused(client, server.url, max_bytes=100_000)
    assert (error.kind, error.sent) == ("too_large", "yes")


async def test_body_of_exactly_the_cap_is_taken(server: Server, client: Client) -> None:
    server.answers(b"x" * 1000)
    assert len((await get(client, server.url, max_bytes=1000)).body) == 1000


async def test_packed_answer_is_refused_unopened(
    server: Server, client: Client
) -> None:
    # attack 31
    bomb = gzip.compress(b"\0" * 10_000_000)
    server.answers(bomb, "Content-Encoding: gzip")
    error = await refused(client, server.url, max_bytes=1_000_000)
    assert (error.kind, error.sent) == ("protocol", "yes")


async def test_redirect_is_refused_and_not_followed(
    server: Server, client: Client
) -> None:
    # attack 35
    server.answers(b"", f"Location: /?token={CANARY}", status="302 Found")
    error = await refused(client, server.url)
    assert (error.kind, error.sent) == ("protocol", "yes")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",  # noqa: S104 -- to be refused
        "2130706433",
        "0x7f000001",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
    ],
)
async def test_private_address_is_refused_by_default(
    server: Server, client: Client, host: str
) -> None:
    url = f"http://{host}:{server.port}/?token={CANARY}"
    error = await refused(client, url, allow_private=False)
    assert (error.kind, error.sent) == ("transport", "no")
    assert "not public" in str(error)
    assert server.connections == 0


async def test_host_with_one_private_address_is_refused_whole(
    monkeypatch: pytest.MonkeyPatch, server: Server, client: Client
) -> None:
    # attack 35
    async def both(*_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (ip, server.port)) for ip in ("9.9.9.9", "127.0.0.1")]

    monkeypatch.setattr(anyio, "getaddrinfo", both)
    url = f"http://rebind.example:{server.port}/"
    error = await refused(client, url, allow_private=False)
    assert "not public" in str(error)
    assert server.connections == 0


async def test_connection_of_a_trusted_request_serves_no_other(
    server: Server, client: Client
) -> None:
    server.answers(b"hello")
    await get(client, server.url, allow_private=True)
    error = await refused(client, server.url, allow_private=False)
    assert "not public" in str(error)
    assert len(server.requests) == 1


async def test_next_address_is_tried(
    monkeypatch: pytest.MonkeyPatch, server: Server, client: Client
) -> None:
    async def both(*_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (ip, server.port)) for ip in ("127.0.0.9", "127.0.0.1")]

    monkeypatch.setattr(anyio, "getaddrinfo", both)
    server.answers(b"hello")
    answer = await get(client, f"http://two.example:{server.port}/")
    assert answer.body == b"hello"
    assert server.sent_headers["host"] == f"two.example:{server.port}"


async def test_nobody_listens(client: Client) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 -- no database
    error = await refused(client, f"http://127.0.0.1:{port}/?token={CANARY}")
    assert (error.kind, error.sent) == ("transport", "no")
    assert "127.0.0.1" in str(error)


async def test_host_that_does_not_exist(client: Client) -> None:
    error = await refused(client, f"http://nowhere.invalid/?token={CANARY}")
    assert (error.kind, error.sent) == ("transport", "no")


async def test_server_that_hangs_up_leaves_it_open_whether_it_acted(
    server: Server, client: Client
) -> None:
    server.says()
    server.close_after = True
    error = await refused(client, server.url)
    assert error.sent == "unknown"


async def test_garbage_is_a_breach_of_protocol_and_is_not_quoted(
    server: Server, client: Client
) -> None:
    server.says(f"{CANARY}\r\n\r\n".encode())
    error = await refused(client, server.url)
    assert (error.kind, error.sent) == ("protocol", "unknown")


async def test_body_cut_short_is_a_failure(server: Server, client: Client) -> None:
    server.says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    server.close_after = True
    error = await refused(client, server.url)
    assert (error.kind, error.sent) == ("protocol", "yes")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("X-A", f"{CANARY}\r\nX-B: injected"),
        ("X-A", f"{CANARY}\n"),
        ("X-A\r\nX-B", CANARY),
        ("X A", CANARY),
        ("", CANARY),
        ("X-A", f"{CANARY}\0"),
    ],
)
async def test_header_that_would_be_two_is_never_sent(
    server: Server, client: Client, name: str, text: str
) -> None:
    error = await refused(client, server.url, headers={name: text})  # type: ignore[arg-type]
    assert (error.kind, error.sent) == ("protocol", "no")
    assert server.connections == 0


@pytest.mark.parametrize("method", ["GET /\r\nX: y", ""])
async def test_method_that_is_none(server: Server, client: Client, method: str) -> None:
    with pytest.raises(ToolError) as caught:
        await client.request(
            method, server.url, timeout=5, max_bytes=10, allow_private=True
        )
    assert caught.value.kind == "protocol"
    assert server.requests == []


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://", "http://[::1/"])
async def test_address_that_is_none(client: Client, url: str) -> None:
    error = await refused(client, url)
    assert (error.kind, error.sent) == ("protocol", "no")


async def test_cookies_are_not_kept(server: Server, client: Client) -> None:
    server.answers(b"", f"Set-Cookie: session={CANARY}; Path=/")
    await get(client, server.url)
    await get(client, server.url)
    assert "cookie" not in server.sent_headers


async def test_environment_names_no_proxy(
    monkeypatch: pytest.MonkeyPatch, server: Server, client: Client
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    server.answers(b"direct")
    assert (await get(client, server.url)).body == b"direct"


async def test_log_of_the_library_shows_no_address(
    server: Server, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    # law 8
    server.answers(b"")
    with caplog.at_level(logging.DEBUG):
        await get(
            client, f"{server.url}/?token={CANARY}", headers={"Authorization": CANARY}
        )
    assert CANARY not in caplog.text


async def test_trace_context_is_sent(server: Server) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    client = Client(trace_context=lambda: {"traceparent": parent})
    server.answers(b"")
    await get(client, server.url)
    await client.aclose()
    assert server.sent_headers["traceparent"] == parent


@pytest.fixture
async def proxied(server: Server) -> AsyncIterator[Client]:
    client = Client(proxy=server.url)
    yield client
    await client.aclose()


async def test_proxy_is_asked_for_what_only_it_can_look_up(
    server: Server, proxied: Client
) -> None:
    server.answers(b"by proxy")
    answer = await get(proxied, "http://far.example/a", allow_private=False)
    assert answer.body == b"by proxy"
    assert server.requests[0][0].startswith("GET http://far.example/a HTTP/1.1\r\n")


async def test_proxy_is_not_asked_for_a_private_address(
    server: Server, proxied: Client
) -> None:
    error = await refused(proxied, "http://169.254.169.254/", allow_private=False)
    assert "not public" in str(error)
    assert server.connections == 0


async def test_proxy_gets_the_credentials_of_its_address_and_nobody_else_does(
    server: Server,
) -> None:
    # law 8
    address = server.url.replace("://", f"://me:{CANARY}%40@", 1)
    wanted = b64encode(f"me:{CANARY}@".encode()).decode()
    client = Client(proxy=address)
    server.answers(b"by proxy")
    await get(client, "http://far.example/a", allow_private=False)
    server.answers(b"", status="407 Proxy Authentication Required")
    error = await refused(client, "https://far.example/a")
    await client.aclose()
    plain, tunnel = (head.lower() for head, _ in server.requests)
    for head in (plain, tunnel):
        assert f"proxy-authorization: basic {wanted}".lower() in head
    assert tunnel.startswith("connect far.example:443 ")
    assert "authorization: basic" not in tunnel.replace("proxy-authorization", "")
    assert CANARY not in str(error)


async def test_proxy_that_refuses_is_a_failure_before_anything_was_sent(
    server: Server, proxied: Client
) -> None:
    server.answers(b"", status="407 Proxy Authentication Required")
    error = await refused(proxied, "https://far.example/a")
    assert error.kind == "transport"


async def test_cancelled_request_frees_its_connection(
    server: Server, client: Client
) -> None:
    with anyio.move_on_after(0.2) as scope:
        await get(client, server.url)
    assert scope.cancelled_caught
    server.answers(b"hello")
    assert (await get(client, server.url)).body == b"hello"


@pytest.fixture
async def tls(tmp_path: Path, server: Server) -> AsyncIterator[str]:
    """A server for ``tls.example`` by an authority that only it knows."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tls.example")])
    day = dt.timedelta(days=1)
    today = dt.datetime.now(dt.UTC)  # noqa: TID251 -- certificates have dates
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), 1, today - day, today + day
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("tls.example")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "tls.pem"
    pem.write_bytes(
        certificate.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    server.close_after = True
    yield str(pem)
    listening.close()
    await listening.wait_closed()
    http_rules._shared.cache_clear()


async def to_loopback(_: str, port: int, **__: object) -> list[object]:
    return [(0, 0, 0, "", ("127.0.0.1", port))]


async def test_certificate_of_a_stranger_is_refused(
    monkeypatch: pytest.MonkeyPatch, server: Server, client: Client, tls: str
) -> None:
    del tls
    monkeypatch.setattr(anyio, "getaddrinfo", to_loopback)
    error = await refused(client, f"https://tls.example:{server.port}/?token={CANARY}")
    assert (error.kind, error.sent) == ("transport", "no")
    assert server.requests == []


async def test_checked_address_is_called_by_the_name_of_its_certificate(
    monkeypatch: pytest.MonkeyPatch, server: Server, client: Client, tls: str
) -> None:
    http_rules._shared.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", tls)
    monkeypatch.setattr(anyio, "getaddrinfo", to_loopback)
    server.answers(b"sealed", "Connection: close")
    answer = await get(client, f"https://tls.example:{server.port}/")
    assert answer.body == b"sealed"
    assert server.sent_headers["host"] == f"tls.example:{server.port}"
    error = await refused(client, f"https://other.example:{server.port}/")
    assert (error.kind, error.sent) == ("transport", "no")
