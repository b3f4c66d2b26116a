"""
Readers: functions that turn a value of a file into a typed value, or an error.

A table is read by a table: key of the file to the attribute it sets and to the
reader of its value. Two keys may set one attribute; such spellings are aliases.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from ..core.calls import JSON
from ..core.text.urls import in_the_clear, parts_of
from ..core.tools.servers import Rate
from ..errors import ConfigError
from .source import At, ErrorCollector

#: What they look like, for JSON Schema.
_FIGURE = r"[0-9]{1,15}(?:\.[0-9]{1,6})? ?"
_DURATION = rf"\s*{_FIGURE}(?:ms|s|m|min|h|d)\s*"
_SIZE = rf"\s*{_FIGURE}(?:[KMG]i?)?B\s*"
_RATE = rf"\s*[1-9][0-9]{{0,8}}\s*/\s*(?:{_FIGURE})?(?:ms|s|m|min|h|d)\s*"

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


def parse_duration(text: str) -> float | None:
    """
    Parse a duration into seconds; ``None`` if it is not one.

    >>> [parse_duration(text) for text in ("10s", "500ms", "15m", "soon")]
    [10.0, 0.5, 900.0, None]
    """
    return _scaled(text, _SECONDS)


def parse_rate(text: str) -> tuple[int, float] | None:
    """
    Parse a rate into a number and seconds; ``None`` if it is not one.

    >>> [parse_rate(text) for text in ("60/min", "5/s", "100 / 10s", "often")]
    [(60, 60.0), (5, 1.0), (100, 10.0), None]
    """
    number, slash, time = map(str.strip, text.partition("/"))
    seconds = parse_duration(time if time[:1].isdecimal() else f"1{time}")
    if not slash or not seconds or not _NUMBER.fullmatch(number):
        return None
    return int(number), seconds


def parse_size(text: str) -> int | None:
    """
    Parse a size into bytes; ``None`` if it is not one.

    >>> [parse_size(text) for text in ("64 KiB", "32MiB", "1MB", "1 yard")]
    [65536, 33554432, 1000000, None]
    """
    amount = _scaled(text, _BYTES)
    return None if amount is None else int(amount)


def _scaled(text: str, units: dict[str, float] | dict[str, int]) -> float | None:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


Shape: TypeAlias = dict[str, JSON]
_Reader = TypeVar("_Reader", bound=Callable[..., Any])

_NOTE = "shape"

STRING: Shape = {"type": "string"}
INTEGER: Shape = {"type": "integer", "minimum": 0}


def shaped(shape: Shape) -> Callable[[_Reader], _Reader]:
    """Return a decorator that attaches a JSON Schema to a reader."""

    def noted(reader: _Reader) -> _Reader:
        vars(reader)[_NOTE] = shape
        return reader

    return noted


def shape_of(reader: Callable[..., Any]) -> Shape:
    """Return the JSON Schema of a reader; ``{}`` if it has none."""
    return cast("Shape", vars(reader).get(_NOTE, {}))


def object_(
    fields: Mapping[str, tuple[str, Callable[..., Any]]], *required: str
) -> Shape:
    """Return the JSON Schema of a table with these fields."""
    shape: dict[str, JSON] = {
        "type": "object",
        "properties": {key: shape_of(reader) for key, (_, reader) in fields.items()},
        "additionalProperties": False,
    }
    return {**shape, "required": [*required]} if required else shape


def mapping(shape: Shape) -> Shape:
    """Return the JSON Schema of a table with any keys."""
    return {"type": "object", "additionalProperties": shape}


def array(shape: Shape) -> Shape:
    """Return the JSON Schema of a list."""
    return {"type": "array", "items": shape}


def one_of(values: Iterable[JSON]) -> Shape:
    """Return the JSON Schema of an enumeration."""
    return {"enum": [*values]}


def either(*shapes: Shape) -> Shape:
    """Return the JSON Schema of a union."""
    return {"anyOf": [*shapes]}


def _pattern(text: str, description: str) -> Shape:
    r"""
    Return the JSON Schema of texts that match *text*, or hold a reference.

    >>> _pattern("[0-9]+", "a number")["pattern"]
    '^(?:[0-9]+)$|\\$\\{'
    """
    return {
        "type": "string",
        "pattern": rf"^(?:{text})$|\$\{{",
        "description": description,
    }


DURATION = _pattern(_DURATION, 'a duration, as `"10s"`')
RATE = _pattern(_RATE, 'a rate, as `"60/min"`')
SIZE = _pattern(_SIZE, 'a size, as `"64 KiB"`')


Reader: TypeAlias = Callable[[Any, At], Any]
Fields: TypeAlias = Mapping[str, tuple[str, Reader]]

_MAX_ITEMS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 2**63 - 1
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_URL = re.compile(r"(https?)://([^/?#\s]+)([^#\s]*)", re.IGNORECASE)
_HOST = re.compile(r"(?:[^\s:@\[\]{}]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
    type(None): "null",
}


def wrong(value: object, wanted: str, example: str, at: At) -> ConfigError:
    """Return the error that *value* has the wrong type."""
    found = _KINDS.get(type(value), "a date or time")
    return at.error(f"wanted {wanted}, found {found}", fix=f"write it like: {example}")


def table(value: object, at: At, example: str = "{ key = value }") -> dict[str, Any]:
    """Return *value* as a table, or raise an error."""
    kind = type(value)
    if kind is not dict:
        raise wrong(value, "a table", example, at)
    found = cast("dict[str, Any]", value)
    if len(found) > _MAX_ITEMS:
        raise at.error(f"has more than {_MAX_ITEMS} entries", fix="remove some")
    return found


def items(value: object, at: At) -> list[Any]:
    """Return *value* as a list, or raise an error."""
    kind = type(value)
    if kind is not list:
        raise wrong(value, "a list", "[...]", at)
    found = cast("list[Any]", value)
    if len(found) > _MAX_ITEMS:
        raise at.error(f"has more than {_MAX_ITEMS} entries", fix="remove some")
    return found


def read(values: object, fields: Fields, at: At) -> dict[str, Any]:
    """
    Read the attributes of a table.

    Raises:
        ConfigError: It is no table, has an unknown key, sets an attribute twice,
            or holds a value of the wrong kind.
    """
    several = ErrorCollector()
    found = collect(values, fields, at, several)
    several.settle()
    return found


def needs(values: object, at: At, **examples: str) -> None:
    """Check that a table has each of some keys; *examples*: a value of each."""
    for key, example in examples.items():
        if key not in table(values, at):
            raise at.error(f"needs its {key}", fix=f'write {key} = "{example}"')


def collect(
    values: object, fields: Fields, at: At, several: ErrorCollector
) -> dict[str, Any]:
    """Read the valid attributes of a table; *several* collects the errors."""
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for key, value in table(values, at).items():
        with several:
            if key not in fields:
                at.unknown(key, fields)
                continue
            attribute, reader = fields[key]
            if attribute in said:
                raise at.key(key).error(
                    f"sets the same value as {said[attribute]}", fix="keep one"
                )
            if attribute:
                said[attribute] = key
            found[attribute] = reader(value, at.key(key))
    found.pop("", None)
    return found


@shaped(STRING)
def text(value: object, at: At) -> str:
    """Read a text and expand its variables."""
    if not isinstance(value, str):
        raise wrong(value, "a text", '"..."', at)
    expanded = at.expand(value)
    try:
        expanded.encode()
    except UnicodeEncodeError:
        raise at.error("is not UTF-8 text", fix="correct it") from None
    if "\0" in expanded:
        raise at.error("contains a NUL character", fix="remove it")
    return expanded


@shaped({"type": "boolean"})
def flag(value: object, at: At) -> bool:
    """Read a boolean."""
    if not isinstance(value, bool):
        raise wrong(value, "true or false", "true", at)
    return value


@shaped(INTEGER)
def number(value: object, at: At) -> int:
    """Read a whole number that is not negative; ``2e10`` is one."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(value, "a whole number", "20", at)
    if not 0 <= value <= _LARGEST:
        raise at.error("is out of range", fix="write a number from 0 to 2**63 - 1")
    return value


@shaped({"type": "integer", "minimum": 1})
def some(value: object, at: At) -> int:
    """Read a whole number of at least 1."""
    if (found := number(value, at)) < 1:
        raise at.error("must be at least 1", fix="write 1 or more")
    return found


@shaped(DURATION)
def duration(value: object, at: At) -> float:
    """Read a time, in seconds. An imported file says milliseconds."""
    if at.source.imported and isinstance(value, int):
        return milliseconds(value, at)
    if not isinstance(value, str):
        raise wrong(value, "a duration", '"10s"', at)
    seconds = parse_duration(at.expand(value))
    if not seconds:
        raise at.error(
            "is not a duration", fix='write it like: "10s", "500ms", "15m" or "1h"'
        )
    return seconds


@shaped({"type": "integer", "minimum": 1})
def milliseconds(value: object, at: At) -> float:
    """Read a time that is given in milliseconds, in seconds."""
    amount = number(value, at)
    if not amount:
        raise at.error("must be more than zero", fix="write it like: 5000")
    return amount / 1000


@shaped(STRING)
def moment(value: object, at: At) -> int:
    """Read a point in time, in microseconds since 1970."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise wrong(value, "a date and time", "2027-01-31T18:00:00Z", at)
    if value.tzinfo is None:
        raise at.error(
            "has no time zone",
            fix=f"write it like: {value.isoformat()}Z",
        )
    return (value - _EPOCH) // timedelta(microseconds=1)


@shaped(RATE)
def rate(value: object, at: At) -> Rate:
    """Read a rate."""
    if not isinstance(value, str):
        raise wrong(value, "a rate", '"60/min"', at)
    found = parse_rate(at.expand(value))
    if found is None:
        raise at.error("is not a rate", fix='write it like: "60/min", "5/s" or "9/10s"')
    return Rate(*found)


@shaped(SIZE)
def size(value: object, at: At) -> int:
    """Read a size, in bytes."""
    if not isinstance(value, str):
        raise wrong(value, "a size", '"64 KiB"', at)
    amount = parse_size(at.expand(value))
    if not amount or amount > _LARGEST:
        raise at.error("is not a size", fix='write it like: "64 KiB", "1MB" or "2 GiB"')
    return amount


def choice(*values: str) -> Reader:
    """Return a reader of one of *values*."""

    @shaped(one_of(values))
    def reader(value: object, at: At) -> str:
        if value not in values:
            allowed = ", ".join(f'"{one}"' for one in values)
            raise at.error(
                "is not one of the known values", fix=f"write one of {allowed}"
            )
        return str(value)

    return reader


@shaped(STRING)
def path(value: object, at: At) -> Path:
    """Read a path; a relative one starts from the folder of its file."""
    name = text(value, at)
    if not name:
        raise at.error("is empty", fix="name a file")
    return resolved(name, at)


@shaped(STRING)
def file(value: object, at: At) -> str:
    """Read a path as a text; see `path`."""
    return str(path(value, at))


def resolved(name: str, at: At) -> Path:
    """Resolve a path relative to the file."""
    if name == "~" or name.startswith("~/"):
        return at.source.secrets.home / name[2:]
    return at.source.folder / name


@shaped(STRING)
def url(value: object, at: At) -> str:
    """Read a URL without credentials."""
    address = text(value, at)
    check_url(address, at)
    return address


@shaped(STRING)
def safe_url(value: object, at: At) -> str:
    """Read a URL of ``https``, or of ``http`` on this machine."""
    address = url(value, at)
    if in_the_clear(address):
        raise at.error(
            "is not https: it could be changed in transit",
            fix="write its https address",
        )
    return address


def check_url(address: str, at: At) -> None:
    """Check that a URL is valid and holds no credentials."""
    found = _URL.fullmatch(address)
    if found and "@" in found[2]:
        raise at.error(
            "contains a user name",
            fix="take it out; a server and a webhook may have "
            'headers = { Authorization = "Basic ${env:NAME}" }',
        )
    sound = found and _HOST.fullmatch(found[2]) and parts_of(address)
    if not sound or not address.isprintable():
        raise at.error("is not a valid URL", fix="write it like: https://HOST/PATH")


def listed(reader: Reader) -> Reader:
    """Return a reader of a list of what *reader* reads."""

    @shaped(array(shape_of(reader)))
    def all_of(value: object, at: At) -> tuple[Any, ...]:
        found: list[Any] = []
        several = ErrorCollector()
        for number, item in enumerate(items(value, at), 1):
            with several:
                found.append(reader(item, at.key(number)))
        several.settle()
        return tuple(found)

    return all_of


def mapped(reader: Reader, check: Callable[[str, At], None] | None = None) -> Reader:
    """Return a reader of a table of what *reader* reads; *check* sees each key."""

    @shaped(mapping(shape_of(reader)))
    def all_of(value: object, at: At) -> dict[str, Any]:
        found: dict[str, Any] = {}
        several = ErrorCollector()
        for name, item in table(value, at, "{ NAME = ... }").items():
            here = at.key(name)
            with several:
                if check:
                    check(name, here)
                found[name] = reader(item, here)
        several.settle()
        return found

    return all_of


def tables(fields: Fields, build: Callable[..., Any]) -> Reader:
    """Return a reader of a table that becomes ``build(**attributes)``."""

    @shaped(object_(fields))
    def reader(value: object, at: At) -> Any:  # noqa: ANN401 -- whatever is built
        return build(**read(value, fields, at))

    return reader


def single(fields: Fields) -> Reader:
    """Return a reader of a table that holds one value, the attribute ``value``."""

    @shaped(object_(fields))
    def reader(value: object, at: At) -> Any:  # noqa: ANN401 -- whatever is held
        return read(value, fields, at).get("value")

    return reader


@shaped(mapping(STRING))
def header_map(value: object, at: At) -> dict[str, str]:
    """Read HTTP headers. Values are secrets, except of a few plain headers."""
    found: dict[str, str] = mapped(text, _header_name)(value, at)
    for name, content in found.items():
        if not _HEADER_VALUE.fullmatch(content):
            raise at.key(name).error(
                "holds a character that no header may have",
                fix="use printable ASCII characters in one line",
            )
        if name.lower() not in PLAIN_HEADERS:
            note = at.source.secrets.note
            note(content, name, at)
            # A server that tells what it was sent may leave the scheme out.
            scheme, _, credentials = content.partition(" ")
            note(credentials, name, at)
            if scheme.lower() == "basic":
                for part in _basic(credentials):
                    note(part, name, at)
    return found


def _basic(credentials: str) -> tuple[str, ...]:
    """Return the secrets in basic credentials: user and password, and password."""
    try:
        said = base64.b64decode(credentials, validate=True).decode()
    except ValueError:
        return ()
    return said, said.partition(":")[2]


PLAIN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_OUR_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "upgrade",
    }
)


def _header_name(name: str, at: At) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise at.error("is not a valid header name", fix="write it like: Authorization")
    if name.lower() in _OUR_HEADERS:
        raise at.error("is a header that only the host sets", fix="remove it")


@shaped({})
def json_value(value: object, at: At) -> JSON:
    """Read a JSON value unchanged."""
    kind = type(value)
    if kind is dict:
        return {k: json_value(v, at.key(k)) for k, v in table(value, at).items()}
    if kind is list:
        return [
            json_value(item, at.key(n)) for n, item in enumerate(items(value, at), 1)
        ]
    if isinstance(value, float) and not math.isfinite(value):
        raise at.error("is not a number", fix="write a finite number")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise at.error("has more than 64 bits", fix="write it as a text")
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise wrong(value, "a value that JSON can say", '"2026-01-31"', at)
