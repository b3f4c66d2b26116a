"""
URLs as texts: whether one matches a rule, and the origin of one.

No name is resolved: the tool has to check what a public name resolves to. A URL that
two programs may read differently is in doubt: one with a user name, a backslash, a
character that is not printable ASCII, a host that is a number in an unusual notation,
or dot segments in its path. So is a path with parameters (``/a;x/b``) that the rule
does not contain: some servers drop them. A host that is not public has to be listed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from ...errors import ConditionError, UsageError
from ..calls import JSON
from .globs import Glob, fits

_MAX_LENGTH = 4096
_MAX_LISTED = 1000
#: A name has at most 253 characters.
_LONGEST_AUTHORITY = 260
_PORTS: Mapping[str, int] = {
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "ftp": 21,
}
_URL = re.compile(r"([A-Za-z]+)://([^/?#]*)([^?#]*)[!-~]*")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9-]{1,63}")
_HOST_GLOB = re.compile(r"[a-z0-9_.*-]+|[0-9a-f:.]+")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
#: Escapes of characters that need none: two readers may see two paths.
_IDLE = re.compile(r"//|%(?:[46][1-9a-f]|[57][0-9a]|3[0-9]|2d|2e|5f|7e)", re.IGNORECASE)
_LEADS_AWAY = re.compile(
    r"/(?:%20)*(?:\.|%2e){1,2}(?:%20)*(?:[;/]|%3b|$)|%(?:2f|5c|25|0|1|7f|u)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(";|%3b", re.IGNORECASE)
#: Names that lead to the machine or its network with any resolver.
_LOCAL = ("localhost", "local", "internal", "home.arpa", "lan", "localdomain")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class _Parts(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class Addresses:
    """
    A set of URLs.

    Attributes:
        schemes: ``https`` alone, unless others are listed; of a deny rule, all.

        hosts: Globs by label; ``None``: every public host.

        literal: The hosts without a star. They may be private.

        ports: ``None``: the default port of the scheme; of a deny rule, all ports.

        paths: Globs; ``None``: every path.
    """

    schemes: frozenset[str]
    hosts: tuple[tuple[tuple[str, ...], ...], ...] | None
    literal: frozenset[str]
    ports: frozenset[int] | None
    paths: tuple[Glob, ...] | None
    deny: bool = False

    @classmethod
    def parse(cls, said: JSON, at: tuple[str, ...], *, deny: bool = False) -> Addresses:
        """
        Parse ``{ scheme, host, port, path }``, each one value or a list.

        Args:
            said: The table.

            at: Its place, for messages.

            deny: It belongs to a deny rule: a missing key means all values.

        Raises:
            ConditionError: It is not such a table, or a value is invalid.
        """
        known = {"scheme", "host", "port", "path"}
        if not isinstance(said, dict) or said.keys() - known:
            raise ConditionError(
                at,
                "is not a table of parts of a URL",
                fix='write { host = ["example.com"] }; known: scheme, host, port, path',
            )
        schemes = _texts(said, "scheme", at) or (_PORTS if deny else ["https"])
        for scheme in schemes:
            if scheme not in _PORTS:
                raise ConditionError(
                    (*at, "scheme"),
                    "has a scheme that is not known here",
                    fix=f"known: {', '.join(_PORTS)}",
                )
        hosts = _texts(said, "host", at)
        for host in hosts:
            _check_host(host, (*at, "host"))
        ports = _listed(said, "port", at)
        if not all(type(port) is int and 0 < port < 65536 for port in ports):  # noqa: PLR2004
            raise ConditionError((*at, "port"), "is no port", fix="write 1 to 65535")
        return cls(
            schemes=frozenset(schemes),
            hosts=tuple(map(_labels, hosts)) if hosts else None,
            literal=frozenset(_shortest(host) for host in hosts if "*" not in host),
            ports=frozenset(port for port in ports if isinstance(port, int)) or None,
            paths=tuple(_glob(text, at) for text in _texts(said, "path", at)) or None,
            deny=deny,
        )

    def hold(self, text: str) -> bool | None:
        """
        Return whether *text* is a URL of the set; ``None``: it is in doubt.

        >>> wanted = Addresses.parse({"host": "*.example.com"}, ())
        >>> wanted.hold("https://api.example.com/v1"), wanted.hold("https://a.test/")
        (True, False)
        >>> wanted.hold("https://api.example.com@a.test/")
        """
        parts = _parts(text)
        if parts is None:
            return None
        if parts.host not in self.literal and not _public(parts.host):
            return None
        if self.paths is not None and _IDLE.search(parts.path):
            return None
        return (
            parts.scheme in self.schemes
            and self._has_port(parts)
            and self._has_host(parts.host)
            and self._has_path(parts.path)
        )

    def _has_port(self, parts: _Parts) -> bool:
        if self.ports is None:
            return self.deny or parts.port == _PORTS[parts.scheme]
        return parts.port in self.ports

    def _has_host(self, host: str) -> bool:
        if self.hosts is None or host in self.literal:
            return True
        if ":" in host:
            return False
        labels = host.split(".")
        return any(_fits(pattern, labels) for pattern in self.hosts)

    def _has_path(self, path: str) -> bool | None:
        if self.paths is None:
            return True
        count = len(_PARAMETER.findall(path))
        if any(
            glob.matches(path) and count == len(_PARAMETER.findall(glob.text))
            for glob in self.paths
        ):
            return True
        return None if count else False


def _parts(text: str) -> _Parts | None:
    if len(text) > _MAX_LENGTH or "\\" in text:
        return None
    found = _URL.fullmatch(text)
    if not found or not text.isascii() or not text.isprintable() or " " in text:
        return None
    scheme, path = found[1].lower(), found[3] or "/"
    authority = _AUTHORITY.fullmatch(found[2])
    if not authority or scheme not in _PORTS or _LEADS_AWAY.search(path):
        return None
    host = _host(authority[1].lower())
    port = int(authority[2]) if authority[2] else _PORTS[scheme]
    return _Parts(scheme, host, port, path) if host else None


def _host(written: str) -> str | None:
    """Return a host in its canonical form, or ``None`` if it is in doubt."""
    if written.startswith("["):
        try:
            address = ipaddress.IPv6Address(written[1:-1])
        except ValueError:
            return None
        return _shortest(str(address))
    if _NUMERIC.fullmatch(written.rpartition(".")[2]):
        # Some reader parses such a name as an IPv4 address.
        try:
            return str(ipaddress.IPv4Address(written))
        except ValueError:
            return None
    return written if _NAME.fullmatch(written) else None


def _shortest(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if address.version == 6 else None  # noqa: PLR2004
    return str(mapped or address)


def _public(host: str) -> bool:
    """Return whether a host is a name or an address of the public network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # Punycode may look like another name; a name without a dot is local.
        labels = host.split(".")
        return (
            len(labels) > 1
            and not any(label.startswith("xn--") for label in labels)
            and not host.endswith(tuple(f".{name}" for name in _LOCAL))
        )
    if address.version == 6 and (  # noqa: PLR2004
        address.sixtofour or address.teredo or address in _NAT64
    ):
        return False
    return address.is_global and not address.is_multicast


def _fits(pattern: tuple[tuple[str, ...], ...], labels: list[str]) -> bool:
    """Return whether labels match; a leading ``**`` matches one or more of them."""
    if pattern[0] == ("", "", ""):
        pattern, labels = (
            pattern[1:],
            labels[-len(pattern) + 1 :] if (len(labels) >= len(pattern)) else [],
        )
    return len(pattern) == len(labels) and all(map(fits, pattern, labels))


def _labels(host: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(label.split("*")) for label in host.split("."))


def _check_host(host: str, at: tuple[str, ...]) -> None:
    problem = ""
    if not _HOST_GLOB.fullmatch(host) or ".." in f".{host}.":
        problem = "is no host; write names in small ASCII letters"
    elif "**" in host and (host.rfind("**") or not host.startswith("**.")):
        problem = "has ** elsewhere than alone in front"
    elif host.count("*") > 3:  # noqa: PLR2004
        problem = "has more than 3 stars"
    elif not host.replace("*", "").strip("."):
        problem = "names every host"
    elif "*" not in host and _host(f"[{host}]" if ":" in host else host) is None:
        problem = "is an address in an odd notation"
    if problem:
        raise ConditionError(
            at, problem, fix='write it like: "api.example.com" or "*.example.com"'
        )


def _listed(said: dict[str, JSON], key: str, at: tuple[str, ...]) -> list[JSON]:
    if key not in said:
        return []
    value = said[key]
    listed: list[JSON] = value if isinstance(value, list) else [value]
    if not 0 < len(listed) <= _MAX_LISTED:
        raise ConditionError((*at, key), "lists nothing", fix="leave it out")
    return listed


def _texts(said: dict[str, JSON], key: str, at: tuple[str, ...]) -> list[str]:
    listed = _listed(said, key, at)
    texts = [item for item in listed if isinstance(item, str)]
    if len(texts) < len(listed):
        raise ConditionError((*at, key), "is not a text", fix="write it in quotes")
    return texts


def _glob(text: str, at: tuple[str, ...]) -> Glob:
    try:
        glob = Glob.parse(text)
    except UsageError as exc:
        raise ConditionError((*at, "path"), str(exc), fix=exc.fix) from None
    if not text.startswith("/"):
        raise ConditionError(
            (*at, "path"), "does not begin with a slash", fix=f"/{text}"
        )
    return glob


def parts_of(url: str) -> SplitResult | None:
    """
    Return the parts of a URL; ``None``: its host or port cannot be one.

    >>> parts_of("https://[::1"), parts_of("https://host:99999")
    (None, None)
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def host_and_port(text: str, port: int | None = None) -> tuple[str, int] | None:
    """
    Return the canonical host and the port of an authority; ``None``: it is in doubt.

    Args:
        text: ``HOST:PORT``.

        port: The port if *text* has none; ``None``: it has to have one.

    >>> host_and_port("API.example.com.:443"), host_and_port("[::FFFF:127.0.0.1]:80")
    (('api.example.com', 443), ('127.0.0.1', 80))
    >>> host_and_port("0x7f.1:80"), host_and_port("me@a.test:80"), host_and_port("a:0")
    (None, None, None)
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None or len(text) > _LONGEST_AUTHORITY:
        return None
    host = _host(found[1].lower().removesuffix("."))
    port = int(found[2]) if found[2] else port
    return (host, port) if host and port and port < 65536 else None  # noqa: PLR2004


def origin(url: str) -> tuple[str, str | None, int | None]:
    """
    Return the origin of a URL: scheme, host and port. Credentials stay within it.

    >>> origin("https://Host/a") == origin("https://host:443/b")
    True
    """
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def in_the_clear(url: str) -> bool:
    """
    Return whether a request to *url* would leave this machine unencrypted.

    That is so for every text but a URL of ``https`` or of loopback ``http``.

    >>> in_the_clear("https://a.example"), in_the_clear("http://127.0.0.1:8080/")
    (False, False)
    >>> in_the_clear("http://127.0.0.1.example"), in_the_clear("javascript:alert(1)")
    (True, True)
    >>> in_the_clear("https://[::1")
    True
    """
    where = parts_of(url)
    if where is None:
        return True
    near = where.scheme == "http" and is_loopback(where.hostname or "")
    return where.scheme != "https" and not near


def is_loopback(host: str) -> bool:
    """
    Return whether *host* is this machine with any resolver.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


#: Modes in which libpq checks the certificate of a PostgreSQL server.
_VERIFIED = frozenset({"verify-ca", "verify-full"})


def reaches_verified(options: Mapping[str, str]) -> bool:
    """
    Return whether a connection to PostgreSQL is verified, or stays on this machine.

    Args:
        options: Those of libpq. The file of a ``service`` is not known.

    >>> reaches_verified({"host": "db.example"}), reaches_verified({"host": "/run/pg"})
    (False, True)
    >>> reaches_verified({"host": "db.example", "sslmode": "verify-full"})
    True
    """
    if options.get("sslmode") in _VERIFIED:
        return True
    hosts = options.get("host", "").split(",")
    addresses = options.get("hostaddr", "").split(",")
    return "service" not in options and all(
        not (at or host) or (at or host)[0] in "/@" or is_loopback(at or host)
        for host, at in zip_longest(hosts, addresses, fillvalue="")
    )
