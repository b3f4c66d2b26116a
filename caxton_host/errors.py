"""
Every exception raised on purpose, and whose fault each is.

* `CaxtonError`
    * `UsageError` -- the operator's: a configuration, an argument, a module
        * `ConfigError` -- a configuration file names something impossible
            * `UnsetError` -- it names a variable that is not set
        * `ConditionError` -- a condition on parameters cannot be
        * `ModuleRefused` -- the sandbox does not take this module
        * `CursorError` -- a cursor does not belong to what is read
        * `NotFoundError` -- no such run, agent, server or tool
        * `RestoredError` -- the run waits for a person since its log was restored
        * `NotKeptError` -- the log was told not to keep what is needed
    * `BadBytes` -- bytes from outside are not what they must be
    * `NondeterminismError` -- replay and log disagree; the run stops
    * `RunStopped` -- a bound of the run was reached; its log says which
    * `Suspend` -- the run waits for a person; its log says for what
    * `StoreError` -- an event could not be stored; nothing was sent
        * `LeaseLost` -- another host drives the run now; this one lets go of it
        * `LogBrokenError` -- what is stored is not what was written
        * `LogMovedError` -- what would be stored would not be found again
            * `LogSetBackError` -- what was stored is not there any more
        * `ReadOnlyError` -- nothing can be stored, until the database is another
    * `BusyError` -- a host has as many runs as it takes, or drives the run already
        * `OverloadedError` -- it may be tried again later
    * `ForbiddenError` -- whoever asks may not
    * `SandboxError` -- a worker died under its guest
    * `ServerUnavailable` -- a server that the operator calls required is down
    * `ToolError` -- a tool server failed; becomes a `Failed` outcome
    * `UnexpectedRun` -- in a test, an agent did otherwise than it was to
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: What went wrong with a call that was to be sent.
FailureKind: TypeAlias = Literal[
    "timeout",
    "transport",
    "protocol",
    "cancelled",
    "too_large",
    "invalid_result",
    "changed",
]

#: Whether the server may have acted.
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
    A configuration file names something impossible.

    Attributes:
        file: Which, as messages name it, or ``""``.

        key: The dotted key, or ``""``.

        line: Where it is in the file, if that is known.

        problem: What is wrong there.

        each: All that was found, of which this is the first.
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
    """A configuration file names a variable of the environment that is not set."""


class ConditionError(UsageError):
    """
    A condition on parameters cannot be, or says nothing.

    Attributes:
        keys: Where it stands, from the name of the parameter on.
    """

    def __init__(self, keys: tuple[str, ...], message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.keys = keys


class ModuleRefused(UsageError):  # noqa: N818 -- a verdict, not a fault
    """The sandbox does not take this module."""


class CursorError(UsageError):
    """A cursor does not belong to the events that are read."""


class NotFoundError(UsageError):
    """No such run, agent, server or tool."""


class NotKeptError(UsageError):
    """
    What is needed was erased, or never recorded, because the operator wanted it so.

    Attributes:
        call: The number of the call whose answer it is, or ``None`` for a whole run.
    """

    def __init__(self, message: str, *, fix: str = "", call: int | None = None) -> None:
        super().__init__(message, fix=fix)
        self.call = call


class RestoredError(UsageError):
    """The run is suspended since its log was restored, until a person resumes it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} is suspended, for its log was restored from a copy: calls "
            "that it made after the copy are not in the log, and may have taken effect",
            fix=f"find out what it did, then: caxton runs resume --restored {run_id}",
        )


class BadBytes(CaxtonError):  # noqa: N818 -- says what is bad
    """Bytes from outside break a bound or a rule of their format."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """
    The first difference between a log and a re-execution.

    Attributes:
        seq: The recorded event, or ``None`` if the log ended before it.

        path: Where in that event, as a JSON path: ``$.params.location``.

        recorded: What the log holds.

        replayed: What the agent did now.

        run: The run whose event it is, where that is one it was forked from.
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
    """The agent did something else than the log holds."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence


class RunStopped(CaxtonError):  # noqa: N818 -- an end, not a fault
    """
    A bound of the run was reached, so it ends.

    Attributes:
        limit: The bound, by its name in ``[agents.X.limits]``.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class Suspend(CaxtonError):  # noqa: N818 -- a request, not a fault
    """
    The run can only go on once a person has decided.

    Attributes:
        call: The number of the call that is to be decided about.
    """

    def __init__(self, call: int, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.call = call


class StoreError(CaxtonError):
    """An event could not be stored."""


class LeaseLost(StoreError):  # noqa: N818 -- a state, not a fault
    """Another host drives the run now. This one stops it, and writes no more."""


class LogBrokenError(StoreError):
    """What is stored is not what was written."""


class LogMovedError(StoreError):
    """The file of the log is not where it was opened. Nothing is written to it."""


class LogSetBackError(LogMovedError):
    """The server of the log lacks what was committed. Nothing is written to it."""


class ReadOnlyError(StoreError):
    """The database takes no writes, as a standby does not."""


class BusyError(CaxtonError):
    """A host has as many runs as it takes, or drives this one. Nothing was started."""


class OverloadedError(BusyError):
    """
    There is no room now. Nothing was started.

    Attributes:
        retry_after: Seconds after which it is worth to try again.

        whose: ``host``, or ``principal``: others may still have room.
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
    """Whoever asks may not do that."""


class SandboxError(CaxtonError):
    """A worker died under its guest. The run itself may go on in another."""


class ServerUnavailable(CaxtonError):  # noqa: N818 -- a state, not a fault
    """A server that the operator calls required is down."""


class ToolError(CaxtonError):
    """
    A tool server could not be reached, or broke the protocol.

    Attributes:
        kind: ``timeout``, ``transport``, ``protocol``, ``too_large``,
            ``invalid_result`` or ``changed``.

        sent: Whether the server may have acted: ``no``, ``yes`` or ``unknown``.

        code: That of the server's own error, or ``None``.
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


class UnexpectedRun(CaxtonError, AssertionError):  # noqa: N818 -- a test fails with it
    """
    In a test, an agent did otherwise than its script or its cassette says.

    Attributes:
        divergence: The first difference from a cassette, or ``None``.
    """

    def __init__(
        self, message: str, *, fix: str = "", divergence: Divergence | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.divergence = divergence
