"""Convert what a host sends, which may be hostile, to values and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any

from ..core.calls import JSON
from ..core.grants.bounds import bounds_of
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import routes_from_payload
from ..core.limits import Limits
from ..core.log.asked import Asked
from ..core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    QuestionAsked,
    Recorded,
    RunErased,
    RunStarted,
    from_payload,
)
from ..core.log.runs import LISTED, RunRow, RunSummary
from ..errors import (
    BadBytes,
    BusyError,
    CaxtonError,
    ForbiddenError,
    LogBrokenError,
    NotFoundError,
    NotKeptError,
    OverloadedError,
    SandboxError,
    ServerUnavailable,
    StoreError,
    Suspend,
    UsageError,
)
from ..lib.codec import load_json
from ..lib.http import Response
from ..runs.approvals import Waiting
from ..runs.questions import Question
from .address import TOKEN

PROBLEM = "application/problem+json"

_LONGEST = 64 * 1024
_MOST_SHOWN = 1000
_SECONDS = re.compile(r"\d{1,6}")

_Error = Callable[[str, str], CaxtonError]


def _of(kind: type[CaxtonError]) -> _Error:
    def error(message: str, fix: str) -> CaxtonError:
        return kind(message, fix=fix)

    return error


def _suspend(message: str, fix: str) -> CaxtonError:
    return Suspend(0, message, fix=fix)


def _unknown(message: str, _: str) -> CaxtonError:
    return UsageError(
        f"the host does not let you in: {message}",
        fix=f"put a valid token into ${TOKEN}, or name --token-file FILE",
    )


#: By the last part of the ``type`` of a problem.
_KINDS: Mapping[str, _Error] = {
    "not-found": _of(NotFoundError),
    "erased": _of(NotKeptError),
    "refused": _of(UsageError),
    "unauthenticated": _unknown,
    "forbidden": _of(ForbiddenError),
    "waiting": _suspend,
    "conflict": _of(BusyError),
    "store": _of(StoreError),
    "broken-log": _of(LogBrokenError),
    "server-unavailable": _of(ServerUnavailable),
    "sandbox": _of(SandboxError),
}

#: By the status, if the type is unknown.
_STATUSES: Mapping[int, _Error] = {
    401: _unknown,
    403: _of(ForbiddenError),
    404: _of(NotFoundError),
    409: _of(BusyError),
}
_TOO_MANY, _FAULTS, _NO_ROOM = 429, 500, 503

#: Fixes for programs, and what they are on the command line.
_TYPED: Mapping[str, str] = {
    "ask for the list of agents": "caxton agent list",
    "ask for the list of approvals": "caxton approval list",
    "ask for the list of runs": "caxton runs list",
    "ask for the list of servers": "caxton server list",
    "ask without a cursor, and go on with those of the answer": "give one that the "
    "same command printed, or none",
}
#: The fix that a host sends for an unknown path.
_NOWHERE = "see /api/v1/openapi.json for what is"


def problem(answer: Response) -> CaxtonError:
    """Return the error in an answer without success."""
    document = _document(answer)
    if document is None:
        return stranger(f"it answers with status {answer.status}, and no reason")
    message = _shown(document, "detail") or _shown(document, "title") or "it refuses"
    advice = _shown(document, "fix")
    if advice == _NOWHERE:
        return UsageError(
            "--host names no host: nothing is at that address",
            fix="name the address that caxton serve prints, and no path behind it",
        )
    fix = _TYPED.get(advice, advice)
    if (
        answer.status in {_TOO_MANY, _NO_ROOM}
        and (after := _retry_after(answer)) is not None
    ):
        return OverloadedError(
            message,
            retry_after=after,
            whose="principal" if answer.status == _TOO_MANY else "host",
            fix=fix,
        )
    kind = _shown(document, "type").rpartition("/")[2]
    otherwise = _STATUSES.get(
        answer.status, _of(CaxtonError if answer.status >= _FAULTS else UsageError)
    )
    return _KINDS.get(kind, otherwise)(message, fix)


def stranger(why: str) -> ServerUnavailable:
    """Return the error for an answer that no host would send."""
    return ServerUnavailable(
        f"what is at --host is no caxton that serves: {why}",
        fix="name the address that caxton serve prints",
    )


def is_of(headers: Mapping[str, str], kind: str) -> bool:
    """Return whether an answer with these headers says that it is of that *kind*."""
    said = headers.get("content-type", "")
    return said.partition(";")[0].strip().lower() == kind


def _document(answer: Response) -> Mapping[str, JSON] | None:
    if not is_of(answer.headers, PROBLEM):
        return None
    try:
        found = load_json(answer.body, limit=_LONGEST)
    except BadBytes:
        return None
    return found if isinstance(found, dict) else None


def _shown(document: Mapping[str, JSON], key: str) -> str:
    value = document.get(key)
    return value[:_MOST_SHOWN] if isinstance(value, str) else ""


def _retry_after(answer: Response) -> float | None:
    said = answer.headers.get("retry-after", "")
    return float(said) if _SECONDS.fullmatch(said) else None


_RUN_ID = re.compile(r"[0-9a-f-]{1,64}")
_ASKED = {field.name for field in fields(ApprovalRequested)} - {"fuel"}
_QUESTION = {field.name for field in fields(QuestionAsked)}

#: The types of a field by its annotation; other annotations allow all of JSON.
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
    """Check that a document is a map."""
    if not isinstance(document, dict):
        raise stranger("a document is not a map")
    return document


def listed(document: JSON) -> list[JSON]:
    """Check that a document is a list."""
    if not isinstance(document, list):
        raise stranger("a document is not a list")
    return document


def mappings(document: JSON, key: str) -> list[Mapping[str, JSON]]:
    """Return the list of maps under *key*."""
    return [mapping(one) for one in listed(mapping(document).get(key))]


def text(document: Mapping[str, JSON], key: str) -> str:
    """Return the text under *key*."""
    value = document.get(key)
    if not isinstance(value, str):
        raise stranger(f"{key} is not a text")
    return value


def number(document: Mapping[str, JSON], key: str) -> int:
    """Return the whole number under *key*."""
    value = document.get(key)
    if type(value) is not int:
        raise stranger(f"{key} is not a whole number")
    return value


def recorded(document: JSON) -> Recorded:
    """
    Return the event of a ``caxton.event/v1`` document.

    Raises:
        ServerUnavailable: It is not one.
    """
    told = mapping(document)
    type_, version = text(told, "type"), number(told, "schema_version")
    payload = told.get("payload")
    try:
        hash_ = bytes.fromhex(text(told, "hash"))
    except ValueError:
        raise stranger("the hash of an event is not valid hex") from None
    event = None if payload is None else _read(type_, version, mapping(payload))
    return Recorded(
        # Only some callers may see it: it also counts the events of others.
        position=0 if told.get("position") is None else number(told, "position"),
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


def erased(payload: JSON) -> RunErased:
    """
    Return the record of an erasure.

    Raises:
        ServerUnavailable: It is not one.
    """
    event = _read("RunErased", 1, mapping(payload))
    assert isinstance(event, RunErased)  # noqa: S101 -- its type says so
    return event


def waiting(document: JSON) -> Waiting:
    """
    Return the call of a ``caxton.approval/v1`` document.

    Raises:
        ServerUnavailable: It is not one.
    """
    told = mapping(document)
    keys = [key for key in _ASKED if key in told]
    asked = _read(
        "ApprovalRequested", 1, {**{key: told[key] for key in keys}, "fuel": 0}
    )
    assert isinstance(asked, ApprovalRequested)  # noqa: S101 -- its type says so
    return Waiting(
        run_id=run_id(told),
        agent=text(told, "agent"),
        asked=Asked(
            requested=asked,
            seq=number(told, "seq"),
            given=tuple(
                _given(asked.call, one) for one in listed(told.get("given", []))
            ),
        ),
        asked_at=number(told, "asked_at"),
        is_over=told.get("expired") is True,
    )


def question(document: JSON) -> Question:
    """
    Return the question of a ``caxton.question/v1`` document.

    Raises:
        ServerUnavailable: It is not one.
    """
    told = mapping(document)
    known = {key: told[key] for key in _QUESTION if key in told}
    asked = _read("QuestionAsked", 1, known)
    assert isinstance(asked, QuestionAsked)  # noqa: S101 -- its type says so
    return Question(
        run_id=run_id(told),
        agent=text(told, "agent"),
        seq=number(told, "seq"),
        asked=asked,
        asked_at=number(told, "asked_at"),
    )


def _given(call: int, document: JSON) -> ApprovalDecided:
    told = {"call": call, "verdict": "approve", "reason": "", **mapping(document)}
    event = _read("ApprovalDecided", 1, told)
    assert isinstance(event, ApprovalDecided)  # noqa: S101 -- its type says so
    return event


def run_id(document: Mapping[str, JSON]) -> str:
    """Return the id of a run, checked to be safe on a command line."""
    found = text(document, "run_id")
    if not _RUN_ID.fullmatch(found):
        raise stranger("run_id is not a valid id")
    return found


def _optional(document: Mapping[str, JSON], key: str) -> str | None:
    return None if document.get(key) is None else text(document, key)


def _read(type_: str, version: int, payload: Mapping[str, JSON]) -> Event:
    try:
        event = from_payload(type_, version, dict(payload))
        check(event)
        if isinstance(event, RunStarted):
            _check_start(event)
    except (ValueError, CaxtonError):
        raise stranger(f"an event of type {type_!r} is not one") from None
    return event


def listed_run(document: JSON) -> RunRow:
    """Return the run in a ``caxton.listed-run/v1`` document."""
    told = mapping(document)
    run_id(told)
    texts: dict[str, Any] = {
        "actor": json.dumps(mapping(told.get("actor")), sort_keys=True),
        "calls": json.dumps(mapping(told.get("calls") or {})),
        "tools": json.dumps(listed(told.get("tools"))),
    }
    try:
        own: dict[str, Any] = {name: told[name] for name in LISTED}
        row = RunRow(**own, **texts, host=None, owner=None, epoch=0)
        check(row)
        row.to_document()
    except (KeyError, TypeError, ValueError):
        raise stranger("a run is not one") from None
    return row


def check(value: Event | RunRow | RunSummary) -> None:
    """
    Check the type of each field of a value.

    Raises:
        ValueError: One is not.
    """
    for field in fields(value):
        kinds = KINDS.get(str(field.type))
        if kinds and type(getattr(value, field.name)) not in kinds:
            raise ValueError(field.name)


def _check_start(event: RunStarted) -> None:
    """Parse the fields that are parsed later."""
    if not all(
        isinstance(value, int | float | None) for value in event.limits.values()
    ):
        raise ValueError("limits")
    try:
        Grant.from_payload(event.grants)
        bounds_of(event.bounds)
        Limits.from_payload(event.limits)
        routes_from_payload(event.catalogue)
        bytes.fromhex(event.seed)
        if fork := event.forked_from:
            _ = fork["run"], fork["hash"], int(str(fork["seq"]))
    except (AssertionError, AttributeError, LookupError, TypeError) as exc:
        raise ValueError from exc
