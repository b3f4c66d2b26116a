"""
Events as they are stored, and outcomes as events: there and back.

Every log that was ever written is read by this code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import assert_never, cast

from ...errors import FailureKind, LogBrokenError, Sent
from ..calls import JSON, Completed, Denied, Failed, Outcome
from .events import EVENT_TYPES, Event, Payload, ToolCompleted, ToolDenied, ToolFailed

#: How a payload of an older schema version becomes one of the next.
UPCASTERS: dict[tuple[str, int], Callable[[Payload], Payload]] = {}

_KEYS: Mapping[str, tuple[str, ...]] = {
    name: tuple(f.name for f in fields(cls)) for name, cls in EVENT_TYPES.items()
}

_KNOWN = {name: frozenset(keys) for name, keys in _KEYS.items()}
_TUPLES = frozenset(
    {"blobs", "by", "guards", "added", "removed", "changed"}
    | {"scopes", "agents", "roles", "unlisted"}
)
#: Keys that a payload has only if they say something.
_RARE = {
    "ToolInvoked": ("spends",),
    "ToolCompleted": ("cached", "withheld"),
    "RunStarted": ("unlisted",),
}
_LISTS = {name: tuple(_TUPLES.intersection(keys)) for name, keys in _KEYS.items()}


def to_payload(event: Event) -> Payload:
    """
    Return the keys and values of *event*, in the order of its fields.

    >>> from caxton_host.core.log.events import RunSuspended
    >>> to_payload(RunSuspended(reason="approval", call=3))
    {'reason': 'approval', 'call': 3}
    """
    payload = {key: getattr(event, key) for key in _KEYS[type(event).__name__]}
    for key in _LISTS[type(event).__name__]:
        payload[key] = list(payload[key])
    for key in _RARE.get(type(event).__name__, ()):
        if payload[key] in (None, False, []):
            del payload[key]
    return payload


def from_payload(type_: str, version: int, payload: Payload) -> Event:
    """
    Return the event that was stored as *payload*.

    Keys of a later version are ignored; missing ones have their defaults.

    Raises:
        LogBrokenError: No such type, or a key without a default is missing.
    """
    cls = EVENT_TYPES.get(type_)
    if cls is None:
        raise LogBrokenError(f"unknown event type {type_!r}")
    while upcast := UPCASTERS.get((type_, version)):
        payload, version = upcast(payload), version + 1
    known = _KNOWN[type_]
    if payload.keys() <= known:
        given: dict[str, object] = dict(payload)
    else:
        given = {key: value for key, value in payload.items() if key in known}
    for key in _LISTS[type_]:
        value = given.get(key)
        if isinstance(value, list):
            given[key] = tuple(cast("list[JSON]", value))
    try:
        return cls(**given)
    except TypeError as exc:
        raise LogBrokenError(f"{type_} does not fit version {version}: {exc}") from exc


def settled(call: int, outcome: Outcome) -> ToolCompleted | ToolFailed | ToolDenied:
    """Return the event that records *outcome* as the end of *call*."""
    match outcome:
        case Completed():
            return ToolCompleted(
                call=call,
                is_error=outcome.is_error,
                message=outcome.message,
                data=outcome.data,
                blobs=outcome.blobs,
                duration_us=outcome.duration_us,
                attempts=outcome.attempts,
                bytes=outcome.bytes,
                cut=outcome.cut,
                cached=outcome.cached,
                withheld=outcome.withheld,
            )
        case Failed():
            return ToolFailed(
                call=call,
                kind=outcome.kind,
                sent=outcome.sent,
                message=outcome.message,
                code=outcome.code,
            )
        case Denied():
            return ToolDenied(
                call=call,
                code=outcome.code,
                rule=outcome.rule,
                message=outcome.message,
            )
        case _:
            assert_never(outcome)


def outcome_of(event: Event) -> tuple[int, Outcome] | None:
    """Return the call that *event* closes, and how, or ``None`` if it closes none."""
    match event:
        case ToolCompleted():
            return event.call, Completed(
                is_error=event.is_error,
                message=event.message,
                data=event.data,
                blobs=tuple(b for b in event.blobs if isinstance(b, dict)),
                duration_us=event.duration_us,
                attempts=event.attempts,
                bytes=event.bytes,
                cut=event.cut,
                cached=event.cached,
                withheld=event.withheld,
            )
        case ToolFailed():
            return event.call, Failed(
                kind=cast("FailureKind", event.kind),
                sent=cast("Sent", event.sent),
                message=event.message,
                code=event.code,
            )
        case ToolDenied():
            return event.call, Denied(
                code=event.code, rule=event.rule, message=event.message
            )
        case _:
            return None
