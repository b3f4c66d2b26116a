"""Durations and sizes, as people write them."""

from __future__ import annotations

import re

#: What they look like, for JSON Schema.
_FIGURE = r"[0-9]{1,15}(?:\.[0-9]{1,6})? ?"
DURATION = rf"\s*{_FIGURE}(?:ms|s|m|min|h|d)\s*"
SIZE = rf"\s*{_FIGURE}(?:[KMG]i?)?B\s*"
RATE = rf"\s*[1-9][0-9]{{0,8}}\s*/\s*(?:{_FIGURE})?(?:ms|s|m|min|h|d)\s*"

_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{1,3})")
_NUMBER = re.compile("[1-9][0-9]{0,8}")
_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def duration(text: str) -> float | None:
    """
    Return the seconds that *text* says, or ``None`` if it says none.

    >>> duration("10s"), duration("500ms"), duration("15m"), duration("soon")
    (10.0, 0.5, 900.0, None)
    """
    return _scaled(text, _SECONDS)


def rate(text: str) -> tuple[int, float] | None:
    """
    Return how many in how many seconds *text* says, or ``None`` if it says none.

    >>> rate("60/min"), rate("5/s"), rate("100 / 10s"), rate("often")
    ((60, 60.0), (5, 1.0), (100, 10.0), None)
    """
    number, slash, time = map(str.strip, text.partition("/"))
    seconds = duration(time if time[:1].isdecimal() else f"1{time}")
    if not slash or not seconds or not _NUMBER.fullmatch(number):
        return None
    return int(number), seconds


def size(text: str) -> int | None:
    """
    Return the bytes that *text* says, or ``None`` if it says none.

    >>> size("64 KiB"), size("32MiB"), size("1MB"), size("1 yard")
    (65536, 33554432, 1000000, None)
    """
    amount = _scaled(text, _BYTES)
    return None if amount is None else int(amount)


def _scaled(text: str, units: dict[str, float] | dict[str, int]) -> float | None:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]
