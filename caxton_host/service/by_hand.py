"""
Calls that a person makes, each a run of its own: a session of one call.

    callTool -> a run whose grant is that one tool -> Seat -> Gateway -> ToolClient

So freezes, limits of servers, redaction and the record are those of every call. The
agent of such a run is `BY_HAND`; who called, and why, is in its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..core.calls import JSON, Outcome
from ..core.clients import Client
from ..core.grants.grants import Grant, Rule
from ..core.grants.principals import Principal
from ..core.limits import Limits
from ..core.names import BY_HAND, exposed_name
from ..core.text.globs import Pattern
from ..runs.run_request import RunRequest
from ..runs.seats import Seat, Seats, Waits
from .run_service import Service

_CLIENT = Client(name="the control API")
_ONE = replace(Limits(), total_calls=1)
#: Seconds that the call has to arrive after its run has begun.
_IDLE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """
    A call that a person wants to make.

    Attributes:
        target: Server and tool.

        reason: Why.

        context: Variables for the server, without those in *private*.
    """

    target: tuple[str, str]
    params: Mapping[str, JSON]
    reason: str
    context: dict[str, JSON]
    private: Mapping[str, JSON]


async def call_by_hand(
    service: Service, who: Principal, wanted: ByHand
) -> tuple[str, Outcome]:
    """
    Make a call for *who*, and return the id of its run and the outcome.

    Raises:
        Suspend: Its server is frozen.

        OverloadedError: There is no room.

        BusyError: The host stopped meanwhile.

        StoreError: It could not be recorded.
    """
    name, host = exposed_name(*wanted.target), service.host
    run_id, seat = host.new_id(), Seat(limits=_ONE, idle=_IDLE_S)
    tool = Pattern.parse("/".join(wanted.target))
    request = RunRequest(
        agent=BY_HAND,
        module=_CLIENT.module,
        input={**_CLIENT.input, "reason": wanted.reason},
        context=wanted.context,
        private=wanted.private,
        limits=_ONE,
        grant=Grant(allow=(Rule(id=BY_HAND, tools=(tool,)),)),
        names={name: wanted.target},
        actor=who.actor,
        trigger="api",
    )
    driver = replace(host, sandbox=Seats({run_id: seat}))

    async def drive(begun: Callable[[str], None]) -> None:
        await driver.start(request, run_id=run_id, on_started=begun)

    ticket = await service.line.enter(who)
    await service.background.begin(run_id, ticket, drive)
    try:
        outcome = await seat.call(name, wanted.params)
    finally:
        seat.close()
    assert not isinstance(outcome, Waits)  # noqa: S101 -- its rule asks nobody
    await service.over(run_id)
    return run_id, outcome
