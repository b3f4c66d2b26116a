"""The W3C trace context and baggage of a caller: bounded, and only what is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from urllib.parse import unquote

_CONTEXT = ("traceparent", "tracestate")
#: Characters of baggage that is looked at: what every platform has to pass on.
_LONGEST = 8192
#: A name and a value in their own characters; properties are dropped.
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
_MEMBER = re.compile(rf"\s*({_NAME})\s*=\s*([!#-+\--:<-\[\]-~]{{0,256}})\s*(?:;.*)?")
#: What a name in an allow-list looks like.
BAGGAGE = re.compile(_NAME)


def trace_of(
    said: Mapping[str, object],
    names: Collection[str] = (),
    mask: Callable[[str], str] = str,
) -> dict[str, str]:
    """
    Return the trace context among headers or metadata, and of its baggage *names*.

    >>> trace_of({"baggage": "tenant=a;p=1, user=b", "cookie": "c"}, ["tenant"])
    {'baggage': 'tenant=a'}

    Args:
        said: Not trusted.

        names: The members of the baggage that are passed on.

        mask: Replaces secrets in a text: a member with one is dropped.
    """
    found = {key: said.get(key) for key in _CONTEXT}
    kept = {key: value for key, value in found.items() if isinstance(value, str)}
    if baggage := _baggage(said.get("baggage"), names, mask):
        kept["baggage"] = baggage
    return kept


def _baggage(said: object, names: Collection[str], mask: Callable[[str], str]) -> str:
    if not (names and isinstance(said, str) and len(said) <= _LONGEST):
        return ""
    members = dict[str, str]()
    for text in said.split(","):
        member = _MEMBER.fullmatch(text)
        if member and member[1] in names:
            plain = unquote(member[2])
            if mask(plain) == plain:
                members.setdefault(member[1], member[2])
    return ",".join(f"{name}={value}" for name, value in members.items())
