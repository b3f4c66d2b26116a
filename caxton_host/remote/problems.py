"""What a host says went wrong, as the error that it would be here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..core.calls import JSON
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
from .address import TOKEN

PROBLEM = "application/problem+json"

_LONGEST = 64 * 1024
_SHOWN = 1000
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

#: By the status, where the type says nothing.
_STATUSES: Mapping[int, _Error] = {
    401: _unknown,
    403: _of(ForbiddenError),
    404: _of(NotFoundError),
    409: _of(BusyError),
}
_TOO_MANY, _FAULTS, _NO_ROOM = 429, 500, 503

#: What a host advises those who write programs, and what is typed instead.
_TYPED: Mapping[str, str] = {
    "ask for the list of agents": "caxton agent list",
    "ask for the list of approvals": "caxton approval list",
    "ask for the list of runs": "caxton runs list",
    "ask for the list of servers": "caxton server list",
    "ask without a cursor, and go on with those of the answer": "give one that the "
    "same command printed, or none",
}
#: What a host advises where none of its resources is.
_NOWHERE = "see /api/v1/openapi.json for what is"


def problem(answer: Response) -> CaxtonError:
    """Return what an answer says that is no success."""
    document = _document(answer)
    if document is None:
        return stranger(f"it answers with status {answer.status}, and no reason")
    message = _text(document, "detail") or _text(document, "title") or "it refuses"
    advice = _text(document, "fix")
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
    kind = _text(document, "type").rpartition("/")[2]
    otherwise = _STATUSES.get(
        answer.status, _of(CaxtonError if answer.status >= _FAULTS else UsageError)
    )
    return _KINDS.get(kind, otherwise)(message, fix)


def stranger(why: str) -> ServerUnavailable:
    """Return what to raise when what answers is not a host, or not like one."""
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


def _text(document: Mapping[str, JSON], key: str) -> str:
    value = document.get(key)
    return value[:_SHOWN] if isinstance(value, str) else ""


def _retry_after(answer: Response) -> float | None:
    said = answer.headers.get("retry-after", "")
    return float(said) if _SECONDS.fullmatch(said) else None
