"""Events of runs, as far as sources are concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    Payload,
    RunStarted,
    ToolCompleted,
    ToolInvoked,
)

__all__ = ["completed", "invoked", "started"]


def started(
    given: JSON,
    context: Mapping[str, JSON] | None = None,
    *,
    vouched: Payload | None = None,
) -> RunStarted:
    return RunStarted(
        agent="a",
        actor={},
        module_sha256="",
        abi="core/1",
        entry="run",
        input=given,
        context={**(context or {})},
        limits={},
        seed="",
        grants={},
        grants_sha256="",
        catalogue={},
        servers={},
        host=None,
        engine="",
        vouched=vouched,
    )


def invoked(
    call: int,
    tool: str,
    params: Mapping[str, JSON] | None = None,
    checked: Iterable[str] = (),
    *,
    rule: str | None = "allow[1]",
) -> ToolInvoked:
    """Return the intent of a call; *checked* parameters have a source."""
    server, _, name = tool.partition("/")
    place: JSON = {"call": 0, "path": "$", "source": "input"}
    return ToolInvoked(
        call=call,
        name=name,
        server=server,
        tool=name,
        params={**(params or {})},
        params_sha256="",
        effect="read",
        rule=rule,
        idempotency_key="",
        fuel=0,
        sources={f"$.{path}": [place] for path in checked} or None,
    )


def completed(call: int, data: JSON, *, is_error: bool = False) -> ToolCompleted:
    return ToolCompleted(call=call, is_error=is_error, message="", data=data)
