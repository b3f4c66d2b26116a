"""
What a confined server may connect to, and how it asks for that.

A server with ``connect`` has a network with nothing in it but a proxy of the host. Its
requests name a host, which is compared as a text here; the proxy resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import BadBytes, ConditionError
from ..calls import JSON
from ..text.urls import Addresses, host_and_port

#: Most entries of one list, and most bytes of the head of a request.
MOST = 100
HEAD = 8 * 1024

_REQUEST = re.compile(r"([A-Z]{1,20}) ([!-~]{1,4096}) HTTP/1\.[01]")
_PLAIN = re.compile(r"http://([^/?#]+)(/[!-~]*)?")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
#: Headers that are for the proxy, or that it sets itself.
_OWN = {
    *("connection", "content-length", "host", "keep-alive", "proxy-authenticate"),
    *("proxy-authorization", "proxy-connection", "trailer", "upgrade"),
}
#: More digits would be no size.
_DIGITS = re.compile(r"[0-9]{1,15}")
_HTTP = 80


class Target(NamedTuple):
    """
    What a connection is for.

    Attributes:
        host: A name or an address in canonical form.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``HOST:PORT``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AllowList:
    """
    The hosts and ports that a server may connect to.

    Attributes:
        sets: One for each entry.
    """

    sets: tuple[Addresses, ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowList:
        """
        Parse ``HOST:PORT`` entries; a host may have stars.

        ``*`` alone stands for every public host.

        Raises:
            ConditionError: An entry is invalid.
        """
        listed = [*entries]
        if len(listed) > MOST:
            raise ConditionError((), f"has over {MOST} entries", fix="use a star")
        return cls(tuple(map(_entry, listed)))

    def allows(self, target: Target) -> bool:
        """
        Return whether a host may be named.

        >>> allowed = AllowList.parse(["*.example.com:443", "10.0.0.7:5432"])
        >>> allowed.allows(Target("api.example.com", 443))
        True
        >>> allowed.allows(Target("example.com", 443))
        False
        """
        url = f"https://{target}/"
        return any(one.hold(url) is True for one in self.sets)

    def lists(self, target: Target) -> bool:
        """Return whether this very host is listed: it may be a private address."""
        return any(
            target.host in one.literal and target.port in (one.ports or ())
            for one in self.sets
        )


def _entry(text: str) -> Addresses:
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not _DIGITS.fullmatch(port):
        raise ConditionError(
            (), f"{text!r} names no port", fix='write it like: "api.example.com:443"'
        )
    said: dict[str, JSON] = {"port": int(port)}
    try:
        return Addresses.parse(said if host == "*" else {**said, "host": host}, ())
    except ConditionError as exc:
        raise ConditionError((), f"{text!r} {exc}", fix=exc.fix) from None


#: The names of the machine itself.
_HERE = ("localhost", "127.0.0.1", "::1")


def variables(allowed: AllowList, proxy: str) -> dict[str, str]:
    """
    Return the variables that make the clients of a server use its proxy.

    Args:
        allowed: Hosts that are listed are reached through it, whatever they are.

        proxy: Its URL.
    """
    listed = frozenset[str]().union(*(one.literal for one in allowed.sets))
    said = {f"{scheme}_PROXY": proxy for scheme in ("HTTP", "HTTPS", "ALL")}
    said["NO_PROXY"] = ",".join(name for name in _HERE if name not in listed)
    lower = {name.lower(): value for name, value in said.items()}
    return {**said, **lower, "NODE_USE_ENV_PROXY": "1"}


class Request(NamedTuple):
    """
    A request to the proxy.

    Attributes:
        head: What the target gets in its place; ``None``: a tunnel is wanted.

        body: How many bytes of a body follow.
    """

    target: Target
    head: bytes | None = None
    body: int = 0


def read_request(head: bytes) -> Request:
    r"""
    Return what the head of a request asks for: a tunnel, or one request without TLS.

    Only its first line counts, whatever ``Host`` says. A plain request is written anew,
    so that it can be read in one way only.

    Args:
        head: With the empty line after it.

    Raises:
        BadBytes: It is no such request.

    >>> read_request(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n").target
    Target(host='api.example.com', port=443)
    """
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _REQUEST.fullmatch(first)
    headers = [_HEADER.fullmatch(one) for one in lines]
    if len(head) > HEAD or line is None:
        raise BadBytes("this is not a request that a proxy takes")
    fields = [(found[1], found[2]) for found in headers if found]
    if len(fields) < len(lines):
        raise BadBytes("a header is invalid")
    method, where = line.groups()
    if method == "CONNECT":
        return Request(_target(where))
    plain = _PLAIN.fullmatch(where)
    if plain is None:
        raise BadBytes("only CONNECT, and http:// addresses, are proxied")
    target = _target(plain[1], _HTTP)
    return _rewritten(target, f"{method} {plain[2] or '/'} HTTP/1.1", fields)


def _target(authority: str, port: int | None = None) -> Target:
    found = host_and_port(authority, port)
    if found is None:
        raise BadBytes(
            "the host is written in a way that programs may read differently"
        )
    return Target(*found)


def _rewritten(target: Target, line: str, fields: list[tuple[str, str]]) -> Request:
    named: dict[str, list[str]] = {}
    for name, value in fields:
        named.setdefault(name.lower(), []).append(value.strip())
    sizes = named.get("content-length", [])
    if "transfer-encoding" in named or len(sizes) > 1:
        raise BadBytes("a body needs one Content-Length without TLS")
    if sizes and not _DIGITS.fullmatch(sizes[0]):
        raise BadBytes("the Content-Length is invalid")
    dropped = _OWN | {
        token.strip().lower()
        for value in named.get("connection", [])
        for token in value.split(",")
    }
    host = str(target).removesuffix(f":{_HTTP}")
    kept = [f"{name}: {value}" for name, value in fields if name.lower() not in dropped]
    kept += [f"Content-Length: {size}" for size in sizes]
    lines = [line, f"Host: {host}", *kept, "Connection: close", "", ""]
    return Request(target, "\r\n".join(lines).encode("latin-1"), int(*sizes))
