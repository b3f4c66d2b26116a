"""
Exceptions of this package, and the cause of each.

* `CaxtonError`
    * `UsageError` -- a configuration, an argument or a module cannot be used
        * `ConfigError` -- a configuration file is invalid
            * `UnsetError` -- it names a variable that is not set
        * `ConditionError` -- a condition on parameters is invalid
        * `ModuleRefused` -- the sandbox refuses the module
        * `CursorError` -- a cursor does not belong to what is read
        * `NotFoundError` -- no such run, agent, server or tool
        * `RestoredError` -- the run waits for a person since its log was restored
        * `NotKeptError` -- the log does not keep what is needed
    * `BadBytes` -- bytes from outside break their format
    * `NondeterminismError` -- replay and log disagree; the run stops
    * `RunStopped` -- the run reached a limit
    * `Suspend` -- the run waits for a decision of a person
    * `StoreError` -- an event could not be stored; nothing was sent
        * `LeaseLost` -- another host drives the run now
        * `LogBrokenError` -- the stored events are not the written ones
        * `LogMovedError` -- the database file was moved or replaced
            * `LogSetBackError` -- the database lacks committed events
        * `ReadOnlyError` -- the database is read-only
    * `BusyError` -- the host is full, or drives the run already
        * `OverloadedError` -- the request may be repeated later
    * `ForbiddenError` -- the caller is not permitted to do that
        * `StaleSignInError` -- the caller has to sign in again for that
    * `SandboxError` -- a worker died under its guest
    * `ServerUnavailable` -- a required server is down
    * `ToolError` -- a tool server failed; becomes a `Failed` outcome
    * `UnexpectedRun` -- in a test, an agent deviated from its script
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: How a call failed.
FailureKind: TypeAlias = Literal[
    "timeout",
    "transport",
    "protocol",
    "cancelled",
    "too_large",
    "invalid_result",
    "changed",
]

#: Whether the call may have reached the server.
Sent: TypeAlias = Literal["no", "yes", "unknown"]


class CaxtonError(Exception):
    """
    Base class of every error this package raises on purpose.

    Attributes:
        fix: What the reader can do about it, without a full stop, or ``""``.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class UsageError(CaxtonError):
    """An argument, a file or a module cannot be used. Nothing was started."""


class ConfigError(UsageError):
    """
    A configuration file is invalid.

    Attributes:
        file: The file, as messages name it, or ``""``.

        key: The dotted key, or ``""``.

        line: The line in the file, if it is known.

        problem: The message without file and key.

        each: All errors that were found; this is the first.
    """

    def __init__(
        self,
        problem: str,
        *,
        fix: str = "",
        file: str = "",
        key: str = "",
        line: int | None = None,
    ) -> None:
        super().__init__(": ".join(filter(None, (file, key, problem))), fix=fix)
        self.file, self.key, self.line, self.problem = file, key, line, problem
        self.each: tuple[ConfigError, ...] = (self,)


class UnsetError(ConfigError):
    """A configuration file refers to an environment variable that is not set."""


class ConditionError(UsageError):
    """
    A condition on parameters is invalid, or has no effect.

    Attributes:
        keys: The path to it, from the name of the parameter on.
    """

    def __init__(self, keys: tuple[str, ...], message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.keys = keys


class ModuleRefused(UsageError):  # noqa: N818 -- a verdict, not a fault
    """The sandbox refuses the module."""


class CursorError(UsageError):
    """A cursor does not belong to the events that are read."""


class NotFoundError(UsageError):
    """There is no such run, agent, server or tool."""


class NotKeptError(UsageError):
    """
    The needed payload was erased, or was not recorded by configuration.

    Attributes:
        call: The number of the call whose answer is missing; ``None``: a whole run.
    """

    def __init__(self, message: str, *, fix: str = "", call: int | None = None) -> None:
        super().__init__(message, fix=fix)
        self.call = call


class NotStartedError(UsageError):
    """The run is queued: there is nothing yet to replay, to resume or to fork."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} has not started: it waits for a place",
            fix=f"wait for it, or stop it with `caxton runs cancel {run_id}`",
        )


class RestoredError(UsageError):
    """The log was restored, so the run is suspended until a person resumes it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} is suspended, for its log was restored from a copy: calls "
            "that it made after the copy are not in the log, and may have taken effect",
            fix=f"find out what it did, then: caxton runs resume --restored {run_id}",
        )


class BadBytes(CaxtonError):  # noqa: N818 -- says what is bad
    """Bytes from outside exceed a limit or break their format."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """
    The first difference between a log and a re-execution.

    Attributes:
        seq: The recorded event, or ``None`` if the log ended before it.

        path: The place in that event, as a JSON path: ``$.params.location``.

        recorded: The value in the log.

        replayed: The value of the re-execution.

        run: The run of the event, if the run was forked from that one.
    """

    seq: int | None
    path: str
    recorded: Any
    replayed: Any
    run: str | None = None

    def __str__(self) -> str:
        where = f"event {self.seq}" if self.seq else "the end of the log"
        of = f" of run {self.run}" if self.run else ""
        return (
            f"{where}{of}, {self.path}: "
            f"recorded {self.recorded!r}, replayed {self.replayed!r}"
        )


class NondeterminismError(CaxtonError):
    """The re-execution differs from the log."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence


class RunStopped(CaxtonError):  # noqa: N818 -- an end, not a fault
    """
    The run reached a limit and ends.

    Attributes:
        limit: Its name in ``[agents.X.limits]``.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class Suspend(CaxtonError):  # noqa: N818 -- a request, not a fault
    """
    The run is suspended until a person decides about a call.

    Attributes:
        call: The number of that call.
    """

    def __init__(self, call: int, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.call = call


class ChildSuspended(Suspend):
    """The run is suspended until the run goes on that answers a call of it."""


class StoreError(CaxtonError):
    """
    An event could not be stored.

    Attributes:
        unsent: It was to record a call before its first send, which was not made.
    """

    unsent = False


class LeaseLost(StoreError):  # noqa: N818 -- a state, not a fault
    """Another host drives the run now. This host stops it and writes no more."""


class LogBrokenError(StoreError):
    """The stored events are not the written ones."""


class LogMovedError(StoreError):
    """The database file was moved or replaced. Nothing is written to it."""


class LogSetBackError(LogMovedError):
    """The database lacks committed events. Nothing is written to it."""


class ReadOnlyError(StoreError):
    """The database is read-only, for example a standby."""


class BusyError(CaxtonError):
    """The host is full, or drives the run already. Nothing was started."""


class OverloadedError(BusyError):
    """
    The host is full for now. Nothing was started.

    Attributes:
        retry_after: Seconds after which the request may be repeated.

        whose: The quota that is used up: of the ``host``, or of this ``principal``.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float,
        whose: Literal["host", "principal"],
        fix: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.retry_after = retry_after
        self.whose: Literal["host", "principal"] = whose


class ForbiddenError(CaxtonError):
    """The caller is not permitted to do that."""


class StaleSignInError(ForbiddenError):
    """The sign-in of the caller is too old for that, or there is none."""


class SandboxError(CaxtonError):
    """A worker died under its guest. The run may continue in another worker."""


class ServerUnavailable(CaxtonError):  # noqa: N818 -- a state, not a fault
    """A server with ``required = true`` is down."""


class ToolError(CaxtonError):
    """
    A tool server could not be reached, or broke the protocol.

    Attributes:
        kind: ``timeout``, ``transport``, ``protocol``, ``too_large``,
            ``invalid_result`` or ``changed``.

        sent: Whether the server may have acted: ``no``, ``yes`` or ``unknown``.

        code: The code of the server's own error, or ``None``.
    """

    def __init__(
        self,
        kind: FailureKind,
        sent: Sent,
        message: str,
        *,
        code: int | None = None,
        fix: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.code = code
        self.kind: FailureKind = kind
        self.sent: Sent = sent


class TokenError(ToolError):
    """A call has no token that its tool server takes. The server is not to blame."""


class UnexpectedRun(CaxtonError, AssertionError):  # noqa: N818 -- a test fails with it
    """
    In a test, an agent deviated from its script or its cassette.

    Attributes:
        divergence: The first difference from a cassette, or ``None``.
    """

    def __init__(
        self, message: str, *, fix: str = "", divergence: Divergence | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.divergence = divergence
