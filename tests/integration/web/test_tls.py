"""HTTPS: a certificate that is renewed while a host serves, and those of clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.demo_server import demo_server
from caxton_host.errors import CaxtonError, ServerUnavailable, UsageError
from caxton_host.lib import http_rules
from caxton_host.mcp.connect import connect
from caxton_host.remote import client as remote_client
from caxton_host.remote.address import Address
from caxton_host.remote.client import Remote
from caxton_host.web.edge import tls
from caxton_host.web.edge.listen import bind, listening
from caxton_host.web.edge.tls import Certificate
from tests.certificates import Authority

from .test_listen import up


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def certified(authority: Authority) -> Certificate:
    chain, key = authority.give("localhost", "127.0.0.1", file="host")
    return Certificate(chain=str(chain), key=str(key))


@pytest.fixture
def certificate(authority: Authority) -> Certificate:
    return certified(authority)


@asynccontextmanager
async def client(authority: Authority, *own: Path) -> AsyncGenerator[httpx.AsyncClient]:
    trust = ssl.create_default_context(cafile=authority.file)
    if own:
        trust.load_cert_chain(own[0], str(own[1]))
    async with httpx.AsyncClient(verify=trust) as one:
        yield one


async def test_https_with_a_certificate_by_name_and_by_address(
    certificate: Certificate, authority: Authority
) -> None:
    async with up(certificate) as port, client(authority) as one:
        for name in ("localhost", "127.0.0.1"):
            assert (await one.get(f"https://{name}:{port}/")).text == "hello"


def test_a_certificate_that_is_none_is_told(
    certificate: Certificate, tmp_path: Path
) -> None:
    broken = str(tmp_path / "broken.pem")
    Path(broken).write_text("no certificate")

    with pytest.raises(UsageError, match=r"broken\.pem"):
        Certificate(chain=broken).load()
    with pytest.raises(UsageError, match="No such file"):
        Certificate(chain=str(tmp_path / "none.pem")).load()
    with pytest.raises(UsageError, match=r"authorities in .*broken\.pem"):
        Certificate(
            chain=certificate.chain, key=certificate.key, client_ca=broken
        ).load()


async def shown(port: int, trust: Authority) -> str:
    """Return the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=trust.file)
    _, to = await asyncio.open_connection("localhost", port, ssl=context)
    found: ssl.SSLObject = to.get_extra_info("ssl_object")
    der = found.getpeercert(binary_form=True)
    to.close()
    await to.wait_closed()
    assert der
    return der.hex()


async def test_a_renewed_certificate_is_taken_once_both_files_are_there(
    certificate: Certificate,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tls, "_EVERY", 0.01)
    monkeypatch.setattr(tls, "_WHOLE", 0.0)
    caplog.set_level(logging.INFO, "caxton_host")
    chain, key = authority.give("localhost", file="renewed")

    async def told(text: str) -> None:
        async with asyncio.timeout(60):
            while not any(  # noqa: ASYNC110 -- a log tells nobody
                text in one.getMessage() for one in caplog.records
            ):
                await asyncio.sleep(0.01)

    async with up(certificate) as port, client(authority) as kept:
        url = f"https://localhost:{port}/"
        await kept.get(url)
        before = await shown(port, authority)

        chain.replace(certificate.chain)
        await told("the certificate stays as it was")
        assert await shown(port, authority) == before

        key.replace(certificate.key or "")
        await told("is renewed")
        assert await shown(port, authority) != before
        # Over the connection from before.
        assert (await kept.get(url)).text == "hello"


@pytest.fixture
def mutual(certificate: Certificate, authority: Authority) -> Certificate:
    return Certificate(
        chain=certificate.chain, key=certificate.key, client_ca=str(authority.file)
    )


async def test_a_client_needs_a_certificate_of_the_authority(
    mutual: Certificate, authority: Authority, tmp_path: Path
) -> None:
    good = authority.give("laptop")
    other = Authority(tmp_path, "other").give("stranger")
    async with up(mutual) as port:
        url = f"https://localhost:{port}/healthz"
        async with client(authority, *good) as one:
            assert (await one.get(url)).text == "hello"
        for own in ((), other):
            async with client(authority, *own) as one:
                with pytest.raises(httpx.TransportError):
                    await one.get(url)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    http_rules._shared.cache_clear()
    yield
    http_rules._shared.cache_clear()


def joined(folder: Path, chain: Path, key: Path) -> str:
    file = folder / "own.pem"
    file.write_bytes(chain.read_bytes() + key.read_bytes())
    return str(file)


@pytest.mark.usefixtures("trusted")
async def test_the_command_line_shows_its_certificate(
    mutual: Certificate,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_client, "_PAUSES", ())
    own = joined(tmp_path, *authority.give("desk"))
    async with up(mutual) as port:
        address = Address.parse(f"https://localhost:{port}")
        async with Remote(address, None, print, own) as remote:
            with pytest.raises(CaxtonError, match="no caxton that serves"):
                await remote.get("/runs")
        async with Remote(address, None, print) as remote:
            with pytest.raises(CaxtonError, match="the connection to localhost broke"):
                await remote.get("/runs")
        async with Remote(address, None, print, str(tmp_path / "none")) as remote:
            with pytest.raises(CaxtonError, match="No such file"):
                await remote.get("/runs")


@pytest.mark.usefixtures("trusted")
async def test_a_tool_server_is_shown_a_certificate(
    mutual: Certificate, authority: Authority
) -> None:
    chain, key = map(str, authority.give("agents"))
    app = demo_server().streamable_http_app()
    with bind("127.0.0.1", 0) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}/mcp"
        plain = ServerConfig(name="demo", url=url, transport="http")
        async with app.router.lifespan_context(app), listening(app, listener, mutual):
            shows = ServerConfig(
                name="demo",
                url=url,
                transport="http",
                client_cert=chain,
                client_key=key,
            )
            async with connect(shows, Redactor([])) as connection:
                assert connection.protocol
            with pytest.raises(
                ServerUnavailable, match="the connection to localhost broke"
            ):
                async with connect(plain, Redactor([])):
                    pass
