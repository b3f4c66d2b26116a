"""
Texts with placeholders: prompts, messages of results, and URI templates.

`fill` fills ``{name}`` in a text for one run, `pick_message` picks the message of a
result out of its data, and `expand` expands a URI template (RFC 6570).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from ...errors import UsageError
from ..calls import JSON

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,255}"
_PLACEHOLDER = re.compile(rf"\$\{{context\.({_NAME})\}}|\{{({_NAME})\}}")
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """
    A text whose placeholders are filled in.

    Attributes:
        unknown: Placeholders that are not replaced, since the name is unknown.

        problem: Why the text is unchanged, or ``None``.
    """

    text: str
    unknown: tuple[str, ...] = ()
    problem: str | None = None


def fill(text: str, values: Mapping[str, JSON], *, longest: int) -> Filled:
    """
    Return *text* with ``{name}`` and ``${context.name}`` replaced by values.

    >>> fill("For {user.name}: {n} of {all}", {"user": {"name": "Ada"}, "n": 3},
    ...      longest=100)
    Filled(text='For Ada: 3 of {all}', unknown=('all',), problem=None)

    Args:
        text: Braces around anything but a name stay as they are. A text in which
            one has no partner stays as it is, whole.

        values: Values by name. A dotted name is looked up as a whole, then by steps.

        longest: Characters. A text that would be longer stays as it is.
    """
    if not _paired(text):
        return Filled(text=text, problem="a brace in it has no partner")
    parts: list[str] = []
    unknown: list[str] = []
    end = size = 0
    for found in _PLACEHOLDER.finditer(text):
        name = found[1] or found[2]
        there, value = _look_up(values, name)
        parts += text[end : found.start()], _text(value) if there else found[0]
        size += len(parts[-2]) + len(parts[-1])
        end = found.end()
        if not there:
            unknown.append(name)
        if size > longest:
            break
    parts.append(text[end:])
    if size + len(parts[-1]) > longest:
        return Filled(text=text, problem=f"it would have over {longest} characters")
    return Filled(text="".join(parts), unknown=tuple(dict.fromkeys(unknown)))


def named(text: str) -> list[str]:
    """
    Return the names of the placeholders in *text*, without duplicates.

    >>> named("{a} ${context.b.c} {a} {1}")
    ['a', 'b.c']
    """
    names = (found[1] or found[2] for found in _PLACEHOLDER.finditer(text))
    return list(dict.fromkeys(names))


def unfilled(value: JSON, known: Mapping[str, JSON]) -> list[str]:
    """
    Return the placeholders in the texts of *value* that *known* has a value for.

    An agent that passes on such a placeholder should have passed its value.

    >>> unfilled({"to": ["{phone}", "{x}"]}, {"phone": "555"})
    ['phone']
    """
    names = (name for text in texts(value) for name in named(text))
    return list(dict.fromkeys(n for n in names if _look_up(known, n)[0]))


def _paired(text: str) -> bool:
    depth = 0
    for found in _BRACE.finditer(text):
        depth += 1 if found[0] == "{" else -1
        if depth < 0:
            return False
    return not depth


def _look_up(values: Mapping[str, JSON], name: str) -> tuple[bool, JSON]:
    if name in values:
        return True, values[name]
    value: JSON = dict(values)
    for step in name.split("."):
        if not isinstance(value, dict) or step not in value:
            return False, None
        value = value[step]
    return True, value


def _text(value: JSON) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def texts(value: JSON) -> Iterator[str]:
    """Yield every text of *value*, without keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


#: In characters: a template may repeat a long value.
MAX_MESSAGE = 64 * 1024

_NOTHING = "MCP tool returned no result."
_PATH = re.compile(r"\{([^{}]+)\}")


def pick_message(value: JSON, field: str | None, template: str | None) -> str | None:
    """
    Return the text that *field* or *template* picks out of *value*.

    >>> data = {"customer": {"name": "Ada"}, "orders": [{"id": 7}]}
    >>> pick_message(data, "customer.name", None)
    'Ada'
    >>> pick_message(data, None, "{customer.name} ordered {orders.0.id}{nothing}")
    'Ada ordered 7'

    Args:
        value: The data of the answer.

        field: A dotted path; list items by their index.

        template: A text with ``{dotted.path}`` placeholders. A missing value is
            empty. Takes precedence over *field*.

    Returns:
        ``None`` if neither is given, or there is no value at *field*.
    """
    if template is not None:
        text = _PATH.sub(lambda found: _text(_at(value, found[1])), template)
        return text[:MAX_MESSAGE]
    if field is None or (picked := _at(value, field)) is None:
        return None
    return _text(picked)[:MAX_MESSAGE]


def summary(tool: str, data: Mapping[str, JSON]) -> str:
    """
    Return the message of an answer that has no text.

    >>> summary("lookup", {"content": [], "structuredContent": {"name": "Ada"}})
    'lookup returned 1 field'
    >>> summary("prompts/get", {"content": [], "messages": [{"role": "user"}]})
    'prompts/get returned 1 part'
    """
    structured = data.get("structuredContent")
    parts = data.get("content") or data.get("messages")
    if isinstance(structured, dict):
        return f"{tool} returned {_counted(len(structured), 'field')}"
    if isinstance(parts, list) and parts:
        return f"{tool} returned {_counted(len(parts), 'part')}"
    return _NOTHING


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _at(value: JSON, path: str) -> JSON:
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value


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
    An expanded URI template.

    Attributes:
        missing: Names without a value. Their expressions are kept, but in a query,
            where they are optional, they are dropped.
    """

    uri: str
    missing: tuple[str, ...]


def is_template(uri: str) -> bool:
    """Return whether *uri* contains expressions."""
    return bool(set("{}") & set(uri))


def expand(template: str, values: Mapping[str, str]) -> Expanded:
    """
    Expand a URI template (RFC 6570). Every value is a text.

    >>> expand("crm://customers/{id}{?page,size}", {"id": "8 a/b", "page": "2"})
    Expanded(uri='crm://customers/8%20a%2Fb?page=2', missing=())
    >>> expand("crm://{+path}{/id}", {"path": "a/b"})
    Expanded(uri='crm://a/b{/id}', missing=('id',))

    Raises:
        UsageError: It is not a valid template.
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
    # Where reserved characters are kept, triplets are not encoded again.
    parts = _TRIPLET.split(text)
    return "".join(
        part if number % 2 else quote(part, safe=safe)
        for number, part in enumerate(parts)
    )
