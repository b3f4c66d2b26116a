"""
What is wrong with a request, as RFC 9457 has it.

Every error that is raised on purpose has a place in a table here. What is not raised on
purpose is logged, and told to nobody.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...core.calls import JSON
from ...errors import (
    BadBytes,
    BusyError,
    CaxtonError,
    CursorError,
    ForbiddenError,
    LeaseLost,
    LogBrokenError,
    LogMovedError,
    LogSetBackError,
    NotFoundError,
    NotKeptError,
    OverloadedError,
    ReadOnlyError,
    SandboxError,
    ServerUnavailable,
    StoreError,
    Suspend,
    ToolError,
    UsageError,
)
from .bearer import Unauthenticated

logger = logging.getLogger("caxton_host")

Headers: TypeAlias = Mapping[str, str]

#: Each kind of problem, its status, and its title.
KINDS: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request is not well-formed"),
    "unauthenticated": (401, "Nobody vouches for who asks"),
    "forbidden": (403, "Whoever asks may not do that"),
    "bad-origin": (403, "Pages of that origin may not ask"),
    "not-found": (404, "There is no such thing"),
    "bad-method": (405, "That cannot be done to it"),
    "slow": (408, "The request took too long to arrive"),
    "conflict": (409, "It cannot be done as things are"),
    "waiting": (409, "A person has to decide first"),
    "erased": (410, "It was erased, or never recorded"),
    "too-large": (413, "The request is too large"),
    "long-target": (414, "The address is too long"),
    "bad-media": (415, "The body is not what can be read"),
    "misdirected": (421, "The request is for another host"),
    "refused": (422, "The request cannot be carried out"),
    "overloaded-principal": (429, "You ask for too much"),
    "large-headers": (431, "The headers are too large"),
    "internal": (500, "Something is wrong with the host"),
    "broken-log": (500, "What is stored is not what was written"),
    "server-unavailable": (502, "A tool server does not answer"),
    "overloaded": (503, "There is no room now"),
    "store": (503, "The log cannot be reached"),
    "sandbox": (503, "The sandbox cannot be used"),
    "unusable": (503, "The agent cannot be run"),
}

_ASK, _LATER = "ask who runs the host", "try again later"
#: What can be done about each kind, where an error says nothing else.
_FIXES: Mapping[str, str] = {
    "bad-request": "see /api/v1/openapi.json",
    "unauthenticated": "send Authorization: Bearer with a token that has not expired",
    "forbidden": "use a token that may",
    "bad-origin": "add the origin to allowed_origins in [serve]",
    "not-found": "take it from a list",
    "bad-method": "use a method that the header Allow names",
    "slow": "send the whole request at once",
    "conflict": _LATER,
    "waiting": "ask for the list of approvals",
    "erased": "ask for another run",
    "too-large": "send less",
    "long-target": "send less in the address",
    "bad-media": "send JSON, with Content-Type: application/json",
    "misdirected": "add the name to allowed_hosts in [serve]",
    "refused": "see /api/v1/openapi.json",
    "overloaded-principal": _LATER,
    "large-headers": "send fewer headers",
    "internal": _ASK,
    "broken-log": _ASK,
    "server-unavailable": _ASK,
    "overloaded": _LATER,
    "store": _ASK,
    "sandbox": _ASK,
    "unusable": _ASK,
}

#: What can be done about a cursor that is none.
NO_CURSOR = "ask without a cursor, and go on with those of the answer"

#: Errors and their kinds: of the classes of one, the first that is here counts.
_ERRORS: Mapping[type[BaseException], str] = {
    CursorError: "bad-request",
    NotFoundError: "not-found",
    NotKeptError: "erased",
    UsageError: "refused",
    BadBytes: "bad-request",
    ForbiddenError: "forbidden",
    Suspend: "waiting",
    BusyError: "conflict",
    LogBrokenError: "broken-log",
    StoreError: "store",
    ServerUnavailable: "server-unavailable",
    ToolError: "server-unavailable",
    SandboxError: "sandbox",
    CaxtonError: "internal",
}


#: Kinds whose details say how a host is built: files, addresses, commands.
_INNER = frozenset({"store", "broken-log", "sandbox", "server-unavailable", "internal"})

#: What is told of a log that is not well. The first that fits counts.
_WHY: tuple[tuple[type[CaxtonError], str], ...] = (
    (LogSetBackError, "the server of the log lacks what was committed"),
    (LogMovedError, "the file of the log was moved away or replaced"),
    (ReadOnlyError, "the database of the log is read-only, as a standby is"),
    (LeaseLost, "the lease of this host has lapsed: other hosts may take its runs"),
    (CaxtonError, "the log cannot be read, or not be written"),
)


def why(exc: CaxtonError) -> str:
    """Return what is wrong with the log, for everybody, so without its name."""
    return next(text for kind, text in _WHY if isinstance(exc, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """
    A problem document, and the headers that go with it.

    Attributes:
        kind: One of `KINDS`.

        detail: What is wrong this time.

        fix: What the caller can do about it; ``""``: what the kind says.

    >>> Problem(kind="not-found").status
    404
    """

    kind: str
    detail: str = ""
    fix: str = ""
    headers: Headers | None = None

    @property
    def status(self) -> int:
        """The status of the response."""
        return KINDS[self.kind][0]

    def document(self, instance: str = "") -> dict[str, JSON]:
        """Return the document of the problem with the request for *instance*."""
        return {
            "type": f"/problems/{self.kind}",
            "title": KINDS[self.kind][1],
            "status": self.status,
            "detail": self.detail or KINDS[self.kind][1],
            "fix": self.fix or _FIXES[self.kind],
            "instance": instance,
        }


class Refusal(Exception):  # noqa: N818 -- a verdict, not a fault
    """The request is refused for a reason of the web's own."""

    def __init__(
        self,
        kind: str,
        detail: str = "",
        *,
        fix: str = "",
        headers: Headers | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(kind=kind, detail=detail, fix=fix, headers=headers)


def problem_of(exc: Exception, *, inside: bool = False) -> Problem:
    """
    Return what to tell of an error. One that nobody meant to raise is logged.

    Args:
        exc: The error.

        inside: Whoever asks may know how the host is built.
    """
    match exc:
        case Refusal():
            return exc.problem
        case Unauthenticated():
            return Problem(
                kind="unauthenticated",
                detail=str(exc),
                headers={"www-authenticate": exc.challenge},
            )
        case OverloadedError():
            mine = exc.whose == "principal"
            return Problem(
                kind="overloaded-principal" if mine else "overloaded",
                detail=str(exc),
                fix=exc.fix,
                headers={"retry-after": str(max(1, math.ceil(exc.retry_after)))},
            )
        case CaxtonError():
            return _of(exc, inside=inside)
        case _:
            logger.error("a request failed", exc_info=exc)
            return Problem(kind="internal")


def _of(exc: CaxtonError, *, inside: bool) -> Problem:
    kind = next(_ERRORS[cls] for cls in type(exc).__mro__ if cls in _ERRORS)
    if isinstance(exc, CursorError):
        return Problem(kind=kind, detail=str(exc), fix=NO_CURSOR)
    if kind in _INNER:
        logger.warning("a request failed: %s", exc)
        if kind == "store" and not isinstance(exc, LeaseLost):
            return Problem(kind=kind, detail=why(exc))
        if not inside:
            return Problem(kind=kind)
    return Problem(kind=kind, detail=str(exc), fix=exc.fix)
