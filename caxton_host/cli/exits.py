"""What the exit codes mean, and what is said when an error says no more."""

from __future__ import annotations

from ..errors import (
    CaxtonError,
    ForbiddenError,
    LogBrokenError,
    NondeterminismError,
    ServerUnavailable,
    StoreError,
    Suspend,
    UsageError,
)

FAILED, USAGE, SUSPENDED, DIVERGED, AUDIT, UNAVAILABLE = range(1, 7)

#: The first that fits counts, so a kind stands before what it is a kind of.
_KINDS: tuple[tuple[type[CaxtonError], int, str], ...] = (
    (UsageError, USAGE, "correct what is named, or see caxton --help"),
    (ForbiddenError, USAGE, "use a token that may"),
    (Suspend, SUSPENDED, "caxton runs show @last"),
    (NondeterminismError, DIVERGED, "run the module that was recorded"),
    (
        LogBrokenError,
        AUDIT,
        "caxton audit verify; restore the database from a copy: docs/how-to/restore.md",
    ),
    (StoreError, FAILED, "see that the database's disk has room; caxton db status"),
    (ServerUnavailable, UNAVAILABLE, "caxton server list"),
    (CaxtonError, FAILED, "try again; caxton doctor shows what this machine lacks"),
)


def exit_code(error: CaxtonError) -> int:
    """
    Return the exit code that stands for *error*.

    >>> exit_code(UsageError("no such file")), exit_code(CaxtonError("broken"))
    (2, 1)
    """
    return next(code for kind, code, _ in _KINDS if isinstance(error, kind))


def remedy(error: CaxtonError) -> str:
    """
    Return what the reader can do about *error*.

    >>> remedy(CaxtonError("it rains", fix="take an umbrella"))
    'take an umbrella'
    """
    if error.fix:
        return error.fix
    return next(fix for kind, _, fix in _KINDS if isinstance(error, kind))
