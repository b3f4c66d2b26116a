"""Everything that can be asked of a host over its control API."""

from __future__ import annotations

from . import (
    agents,
    approvals,
    blobs,
    caller,
    editing,
    events,
    log,
    run_actions,
    runs,
    servers,
)
from .operations import Operation

OPERATIONS: tuple[Operation, ...] = tuple(
    operation
    for part in (
        runs,
        events,
        blobs,
        run_actions,
        approvals,
        servers,
        editing,
        agents,
        log,
        caller,
    )
    for operation in part.OPERATIONS
)
