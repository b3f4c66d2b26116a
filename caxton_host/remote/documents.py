"""Documents of a host that may be hostile, as the values that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType

from ..core.calls import JSON
from ..core.catalogue import routes_from_payload
from ..core.events import Event, Recorded, RunStarted
from ..core.grants import Grant
from ..core.limits import Limits
from ..core.payloads import from_payload
from ..core.summary import RunSummary
from ..errors import CaxtonError
from .problems import stranger

__all__ = ["KINDS", "check", "listed", "mapping", "number", "recorded", "text"]

#: What a field may hold, by its annotation; all of JSON, if that is not here.
KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, NoneType),
    "int": (int,),
    "int | None": (int, NoneType),
    "float | None": (int, float, NoneType),
    "bool": (bool,),
    "Payload": (dict,),
    "Payload | None": (dict, NoneType),
    "tuple[JSON, ...]": (tuple,),
    "float": (int, float),
    "dict[str, JSON]": (dict,),
    "dict[str, JSON] | None": (dict, NoneType),
    "dict[str, int]": (dict,),
}


def mapping(document: JSON) -> Mapping[str, JSON]:
    """Return a document that has to be a map."""
    if not isinstance(document, dict):
        raise stranger("a document is no map")
    return document


def listed(document: JSON) -> list[JSON]:
    """Return a document that has to be a list."""
    if not isinstance(document, list):
        raise stranger("a document is no list")
    return document


def text(document: Mapping[str, JSON], key: str) -> str:
    """Return a text that has to be there."""
    value = document.get(key)
    if not isinstance(value, str):
        raise stranger(f"{key} is no text")
    return value


def number(document: Mapping[str, JSON], key: str) -> int:
    """Return a whole number that has to be there."""
    value = document.get(key)
    if type(value) is not int:
        raise stranger(f"{key} is no whole number")
    return value


def recorded(document: JSON) -> Recorded:
    """
    Return the event of a ``caxton.event/v1`` document.

    Raises:
        ServerUnavailable: It is none.
    """
    told = mapping(document)
    type_, version = text(told, "type"), number(told, "schema_version")
    payload = told.get("payload")
    try:
        hash_ = bytes.fromhex(text(told, "hash"))
        event = None if payload is None else _event(type_, version, mapping(payload))
    except (ValueError, CaxtonError):
        raise stranger(f"an event of type {type_!r} is not one") from None
    return Recorded(
        position=number(told, "position"),
        stream=text(told, "stream"),
        seq=number(told, "seq"),
        type=type_,
        schema_version=version,
        recorded_at=number(told, "recorded_at"),
        trace_id=_optional(told, "trace_id"),
        span_id=_optional(told, "span_id"),
        hash=hash_,
        event=event,
    )


def _optional(document: Mapping[str, JSON], key: str) -> str | None:
    return None if document.get(key) is None else text(document, key)


def _event(type_: str, version: int, payload: Mapping[str, JSON]) -> Event:
    event = from_payload(type_, version, dict(payload))
    check(event)
    if isinstance(event, RunStarted):
        _check_start(event)
    return event


def check(value: Event | RunSummary) -> None:
    """
    Return if each field of a value is of its kind.

    Raises:
        ValueError: One is not.
    """
    for field in fields(value):
        kinds = KINDS.get(str(field.type))
        if kinds and type(getattr(value, field.name)) not in kinds:
            raise ValueError(field.name)


def _check_start(event: RunStarted) -> None:
    """Read what is read of it later."""
    if not all(
        isinstance(value, int | float | None) for value in event.limits.values()
    ):
        raise ValueError("limits")
    try:
        Grant.from_payload(event.grants)
        Limits.from_payload(event.limits)
        routes_from_payload(event.catalogue)
        bytes.fromhex(event.seed)
        if fork := event.forked_from:
            _ = fork["run"], fork["hash"], int(str(fork["seq"]))
    except (AssertionError, AttributeError, LookupError, TypeError) as exc:
        raise ValueError from exc
