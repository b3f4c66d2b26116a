"""Addresses with ``{name}`` in them: RFC 6570, where every value is a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from ...errors import UsageError

_RESERVED = ":/?#[]@!$&'()*+,;="
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)(?::([1-9][0-9]{0,3})|\*)?")
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


class _Operator(NamedTuple):
    first: str
    between: str
    named: bool = False
    if_empty: str = ""
    safe: str = ""


_OPERATORS = {
    "": _Operator("", ","),
    "+": _Operator("", ",", safe=_RESERVED),
    "#": _Operator("#", ",", safe=_RESERVED),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True, if_empty="="),
    "&": _Operator("&", "&", named=True, if_empty="="),
}


class Expanded(NamedTuple):
    """
    An address.

    Attributes:
        missing: Names without a value, whose expressions stay as they are. In a query
            they are left out: what stands there may be left out.
    """

    uri: str
    missing: tuple[str, ...]


def is_template(uri: str) -> bool:
    """Return whether something of *uri* is to be filled in."""
    return bool(set("{}") & set(uri))


def expand(template: str, values: Mapping[str, str]) -> Expanded:
    """
    Return the address that *template* is with these values.

    >>> expand("crm://customers/{id}{?page,size}", {"id": "8 a/b", "page": "2"})
    Expanded(uri='crm://customers/8%20a%2Fb?page=2', missing=())
    >>> expand("crm://{+path}{/id}", {"path": "a/b"})
    Expanded(uri='crm://a/b{/id}', missing=('id',))

    Raises:
        UsageError: It is no template.
    """
    parts: list[str] = []
    missing: list[str] = []
    end = 0
    for found in _EXPRESSION.finditer(template):
        parts.append(_literal(template[end : found.start()]))
        end = found.end()
        variables = [_VARIABLE.fullmatch(spec) for spec in found[2].split(",")]
        specs = [(spec[1], spec[2]) for spec in variables if spec]
        if len(specs) < len(variables):
            raise UsageError(f"{found[0]} is no part of a template")
        operator = _OPERATORS[found[1]]
        unknown = [name for name, _ in specs if name not in values]
        if unknown and operator.if_empty != "=":
            missing += unknown
            parts.append(found[0])
        else:
            parts.append(_expression(operator, specs, values))
    parts.append(_literal(template[end:]))
    return Expanded("".join(parts), tuple(dict.fromkeys(missing)))


def _literal(text: str) -> str:
    if set("{}") & set(text):
        raise UsageError("a brace in it has no partner")
    return _quoted(text, _RESERVED)


def _expression(
    operator: _Operator, specs: list[tuple[str, str]], values: Mapping[str, str]
) -> str:
    found: list[str] = []
    for name, length in specs:
        if name in values:
            value = values[name][: int(length)] if length else values[name]
            text = _quoted(value, operator.safe)
            if operator.named:
                text = name + (f"={text}" if text else operator.if_empty)
            found.append(text)
    return operator.first + operator.between.join(found) if found else ""


def _quoted(text: str, safe: str) -> str:
    if not safe:
        return quote(text, safe="")
    # What is encoded already is not encoded again where reserved signs may stand.
    parts = _TRIPLET.split(text)
    return "".join(
        part if number % 2 else quote(part, safe=safe)
        for number, part in enumerate(parts)
    )
