"""
Rules of HTTP requests to hosts that may be hostile, whichever library sends them.

`lib.http` sends with httpx, and MCP servers are reached with the library of the SDK.
Which certificates are trusted, which addresses are public, how much of an answer is
read and what an error means is the same for both, and defined here. No error text
holds a query string, a header value or a byte of an answer.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Final

from ..errors import Sent, ServerUnavailable, ToolError

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: Outside every private range, and yet a cloud's own network: it gives out credentials.
_METADATA = ipaddress.IPv4Address("168.63.129.16")

#: The libraries that send requests. They log addresses with their query, and header
#: values, below this level (law 8).
_LIBRARIES: Final = ("httpx", "httpcore", "httpx2", "httpcore2")

for _library in _LIBRARIES:
    logging.getLogger(_library).setLevel(logging.WARNING)


class Lost(ToolError):  # noqa: N818 -- a kind of ToolError
    """The connection ended before the answer did, whatever its kind says of it."""


class Unreachable(ToolError):  # noqa: N818 -- a kind of ToolError
    """Nothing was sent: there is no connection to the host."""


class NoTls(Unreachable):
    """The host answers, but does not speak TLS."""


def failure(exc: Exception, host: str, sent: Sent) -> ToolError:
    """
    Return the error for *exc*, whose own text may hold anything.

    httpx, httpcore and their successors name their exceptions alike, and share no base.
    """
    kinds = {kind.__name__ for kind in type(exc).__mro__}
    if "ConnectError" in kinds:
        found = _tls_error(exc)
        return _no_tls(found, host) if found else _unreachable(host)
    if "ConnectTimeout" in kinds:
        return ToolError("timeout", "no", f"cannot connect to {host} in time")
    if "ProxyError" in kinds:
        return Unreachable("transport", "no", "the proxy refuses")
    if "RemoteProtocolError" in kinds:
        return Lost("protocol", sent, f"{host} does not speak HTTP/1.1 as it must")
    if kinds & {"UnsupportedProtocol", "LocalProtocolError"}:
        return ToolError("protocol", "no", "the request cannot be sent")
    return broken(host, sent)


def broken(host: str, sent: Sent) -> Lost:
    """Return the error for a connection that ended."""
    return Lost("transport", sent, f"the connection to {host} broke")


def _unreachable(host: str) -> Unreachable:
    return Unreachable("transport", "no", f"cannot connect to {host}")


def _tls_error(exc: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that *exc* comes from, if there is one."""
    while exc:
        if isinstance(exc, ssl.SSLError):
            return exc
        exc = exc.__context__
    return None


def _no_tls(exc: ssl.SSLError, host: str) -> Unreachable:
    what = f"cannot connect to {host}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return Unreachable(
            "transport",
            "no",
            f"{what}: its certificate is not trusted",
            fix="name the certificate of its authority in $SSL_CERT_FILE",
        )
    return NoTls("transport", "no", f"{what}: it speaks no TLS, or another version")


def status_text(status: int) -> str:
    """
    Return a status with its standard phrase, never the server's.

    >>> status_text(404), status_text(299)
    ('404 (Not Found)', '299')
    """
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def redirected(status: int) -> ToolError | None:
    """Return the error for a redirect: none is followed."""
    if not HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return None
    said = status_text(status)
    return ToolError("protocol", "yes", f"a redirect, {said}, is not followed")


def refuse_encoding(headers: Mapping[str, str]) -> None:
    """
    Check that a body is sent as it is, so that 200 KB cannot become 200 MB.

    Raises:
        ToolError: It is encoded.
    """
    encoding = headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in {"identity", ""}:
        raise ToolError("protocol", "yes", "the answer is encoded, unasked")


async def read_body(
    chunks: AsyncIterator[bytes], headers: Mapping[str, str], max_bytes: int
) -> bytes:
    """
    Return a whole body.

    Raises:
        ToolError: It is encoded, or larger than *max_bytes*.
    """
    refuse_encoding(headers)
    size = headers.get("content-length", "0")
    # An absurd number is left to the count.
    if size.isdecimal() and int(size[:18]) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(body)


def _too_large(max_bytes: int) -> ToolError:
    return ToolError("too_large", "yes", f"the answer has over {max_bytes} bytes")


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """
    Return whether an IP address is one of the open internet.

    An IPv4 address inside an IPv6 one is judged for what it is.

    >>> is_public("9.9.9.9"), is_public("169.254.169.254")
    (True, False)
    >>> is_public("::ffff:127.0.0.1"), is_public("64:ff9b::10.0.0.1")
    (False, False)
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.teredo or found.is_site_local:
            return False
    if found == _METADATA:
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def refuse_private(host: str, addresses: Iterable[str]) -> None:
    """
    Check that every address of a host is public.

    Raises:
        ToolError: One is not.
    """
    if not all(map(is_public, addresses)):
        raise ToolError(
            "transport",
            "no",
            f"{host} has an address that is not public; "
            "allow_private = true lets it be called",
        )


def tls_context(*own: str) -> ssl.SSLContext:
    """
    Return the context for requests.

    Args:
        own: PEM files of the certificate to show, and of its key; read each time.

    Raises:
        ServerUnavailable: They cannot be used.
    """
    if not own:
        return _shared()
    context = _trusting()
    try:
        context.load_cert_chain(*own)
    except (OSError, ssl.SSLError) as exc:
        raise ServerUnavailable(
            f"the client certificate {own[0]} cannot be used: {exc.strerror or exc}",
            fix="name PEM files of a certificate and of its key",
        ) from None
    return context


@cache
def _shared() -> ssl.SSLContext:
    """Return one for all: it takes 25 ms to build."""
    return _trusting()


def _trusting() -> ssl.SSLContext:
    import certifi  # noqa: PLC0415 -- 17 ms, for https alone

    context = ssl.create_default_context(cafile=certifi.where())
    # The system's store adds an operator's own authority.
    context.load_default_certs()
    return context
