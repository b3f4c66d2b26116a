"""What a host says of what it was asked to do, in words that both sides know."""

from __future__ import annotations

#: How it begins if it could not be done.
FAILED = "failed: "
UNKNOWN = "refused: the host does not know this kind of request"

#: Of a server that was to be started anew.
RESTARTED = "restarted"
NOT_HERE = "not here: no run has needed it"


def is_failure(outcome: str) -> bool:
    """
    Return whether what was asked was not done.

    >>> is_failure("failed: no such file"), is_failure("generation 2")
    (True, False)
    """
    return outcome.startswith(FAILED) or outcome == UNKNOWN
