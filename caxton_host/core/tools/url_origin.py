"""Where a request goes, as far as who may see it is concerned."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def origin(url: str) -> tuple[str, str | None, int | None]:
    """
    Return what no credential leaves: scheme, host and port.

    >>> origin("https://Host/a") == origin("https://host:443/b")
    True
    """
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def in_the_clear(url: str) -> bool:
    """
    Return whether what is sent there leaves this machine unencrypted, or goes nowhere.

    >>> in_the_clear("https://a.example"), in_the_clear("http://127.0.0.1:8080/")
    (False, False)
    >>> in_the_clear("http://127.0.0.1.example"), in_the_clear("javascript:alert(1)")
    (True, True)
    """
    where = urlsplit(url)
    near = where.scheme == "http" and is_loopback(where.hostname or "")
    return where.scheme != "https" and not near


def is_loopback(host: str) -> bool:
    """
    Return whether only this machine can be meant, whatever a resolver says.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
