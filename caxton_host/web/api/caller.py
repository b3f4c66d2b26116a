"""Who asks, as the host knows it."""

from __future__ import annotations

from starlette.responses import Response

from ...core.calls import JSON
from .editing import may_edit
from .operations import Answer, Asked, Operation, answer


async def show(asked: Asked) -> Response:
    """Return who asks, and what for."""
    who = asked.who
    scopes: list[JSON] = [*sorted(who.scopes)]
    return answer(
        {
            "$type": "caxton.caller/v1",
            **who.actor,
            "scopes": scopes,
            "agents": [*who.agents],
            "roles": [*who.roles],
            "edit": may_edit(asked),
        }
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="showCaller",
        method="GET",
        path="/me",
        about="Who you are, and what you may do. `edit`: change servers.",
        scopes=("run", "read", "decide"),
        handler=show,
        answers={200: Answer(about="You are this.", schema="Caller")},
    ),
)
