"""
Driving: execute the guest of a run, and say how it went.

A run that is driven ends, or has to wait for a person. Whatever happens, the event
that records it comes out here; only the store's own failure and a cancellation do
not: the first cannot be recorded, and the second is recorded by whoever cancels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.grants.approvals import Unapproved
from ..core.limits import Limits
from ..core.log.events import Event, RunCompleted, RunFailed, RunSuspended
from ..core.text.redact import Redactor
from ..errors import (
    BadBytes,
    NondeterminismError,
    RunStopped,
    SandboxError,
    StoreError,
    Suspend,
)
from ..gateway.gateway import Gateway
from ..gateway.guest_calls import RunDoor, output_value
from ..ports import Ending, Guest, Prepared, RunSpan, Sandbox, Served

#: How many workers may die under a run that has company, and under one that has none:
#: that one is itself the cause.
_IN_COMPANY, _ALONE = 2, 3

logger = logging.getLogger("caxton_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """
    Drives a run.

    Attributes:
        sandbox: Where its guest is executed.

        span: Watches its calls.

        served: See `RunDoor`.
    """

    sandbox: Sandbox
    span: RunSpan
    served: Mapping[int, Served] = field(default_factory=dict[int, Served])

    async def drive(
        self,
        gateway: Gateway,
        prepared: Prepared,
        guest: Guest,
        *,
        wall: float,
        on_started: Callable[[str], None] | None = None,
    ) -> Sequence[Event]:
        """
        Return the events that end or suspend the run. They are not stored yet.

        The last is the end; before it stands what people are asked.

        Args:
            gateway: Of the run.

            prepared: Its module.

            guest: What that is given.

            wall: Seconds that the run may be driven.

            on_started: Called with the run's id.

        Raises:
            StoreError: An event could not be stored.
        """
        bound = asyncio.timeout(wall)
        try:
            if on_started:
                on_started(gateway.run_id)
            async with bound:
                ending = await self._execute(gateway, prepared, guest)
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 -- it ends this run, not the host
            if isinstance(exc, TimeoutError) and bound.expired():
                exc = RunStopped("wall", f"{guest.limits.wall:g} s")
            return _stopped_by(exc)
        return [end_of(ending, guest.limits, gateway.redact)]

    async def _execute(
        self, gateway: Gateway, prepared: Prepared, guest: Guest
    ) -> Ending:
        """Execute the guest; if its worker dies, again over the journal so far."""
        alone = replace(guest, domain=f"{guest.domain}/{gateway.run_id}")
        for life in range(1, _IN_COMPANY + _ALONE + 1):
            door = RunDoor(
                gateway=gateway,
                limits=guest.limits,
                span=self.span,
                served=self.served,
                seeds=guest.seeds,
            )
            try:
                return await self.sandbox.run(
                    prepared, guest if life <= _IN_COMPANY else alone, door
                )
            except SandboxError:
                if life == _IN_COMPANY + _ALONE:
                    raise
        raise AssertionError  # pragma: no cover -- the loop returns or raises


def _stopped_by(exc: Exception) -> Sequence[Event]:
    """Return the events that record why a guest was stopped."""
    match exc:
        case Unapproved():
            return *exc.requests, RunSuspended(reason="approval", call=exc.call)
        case Suspend():
            return [RunSuspended(reason="in_doubt", call=exc.call)]
        case RunStopped():
            return [RunFailed(kind="limit", message=f"{exc.limit}: {exc}", fuel=None)]
        case NondeterminismError():
            return [RunFailed(kind="diverged", message=str(exc), fuel=None)]
        case SandboxError():
            return [RunFailed(kind="worker", message=str(exc), fuel=None)]
        case _:
            logger.error("the host failed in a run", exc_info=exc)
            return [RunFailed(kind="host", message=type(exc).__name__, fuel=None)]


def end_of(ending: Ending, limits: Limits, redact: Redactor) -> Event:
    """Return the event that records how a guest ended."""
    if ending.kind == "limit":
        return RunFailed(
            kind="limit",
            message=f"{ending.limit}: {ending.message}",
            fuel=ending.fuel,
        )
    if ending.kind == "trap":
        return RunFailed(kind="trap", message=ending.message, fuel=ending.fuel)
    try:
        output, digest = output_value(ending.output, limits)
    except BadBytes as exc:
        return RunFailed(kind="agent_error", message=f"output: {exc}", fuel=ending.fuel)
    if ending.code:
        return RunFailed(
            kind="agent_error",
            message=redact.text(ending.message) or f"the agent returned {ending.code}",
            fuel=ending.fuel,
        )
    return RunCompleted(
        output=redact.value(output), output_sha256=digest, fuel=ending.fuel
    )
