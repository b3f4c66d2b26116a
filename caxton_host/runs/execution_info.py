"""What a watched execution of a run is: for the first time, once more, or a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..core.log.events import CallResolved, RunResumed, ToolInvoked
from ..core.names import run_of
from ..ports import Execution, Origin, Served

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.log.events import Recorded, RunStarted
    from ..core.tools.manifest import Manifest
    from .recording import Recording


_TRACE = ("traceparent", "tracestate")
_NO_TRACE: Mapping[str, str] = {}


def start_of(
    run_id: str,
    started: RunStarted,
    manifest: Manifest | None = None,
    trace: Mapping[str, str] = _NO_TRACE,
) -> Execution:
    """Return the execution of a new run, by its first event."""
    return Execution(
        run_id=run_id,
        agent=started.agent,
        mode="live",
        module_sha256=started.module_sha256,
        description=manifest.description if manifest else "",
        version=manifest.version if manifest else "",
        asked=trace_of(trace),
    )


def trace_of(said: Mapping[str, object]) -> dict[str, str]:
    """Return the W3C trace context that is among headers or metadata."""
    found = {key: said.get(key) for key in _TRACE}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def resume_of(recording: Recording) -> Execution:
    """Return the execution of a run that goes on."""
    return Execution(
        run_id=recording.run_id,
        agent=recording.started.agent,
        mode="resume",
        module_sha256=recording.started.module_sha256,
        origin=_origin("resume_of", recording.own[0]),
    )


def fork_of(run_id: str, agent: str, module_sha256: str, parent: Recorded) -> Execution:
    """Return the execution of a fork, by the first event of its parent."""
    return Execution(
        run_id=run_id,
        agent=agent,
        mode="live",
        module_sha256=module_sha256,
        origin=_origin("forked_from", parent),
    )


def replay_of(recording: Recording, module_sha256: str) -> Execution:
    """Return the execution of a run that is replayed."""
    return Execution(
        run_id=recording.run_id,
        agent=recording.started.agent,
        mode="replay",
        module_sha256=module_sha256,
        origin=_origin("replay_of", recording.own[0]),
    )


def recorded_calls(recording: Recording) -> Mapping[int, Served]:
    """Return every call that a replay answers from the log."""
    return {
        recorded.event.call: Served(by="log", origin=_origin("replay_of", recorded))
        for recorded in recording.history
        if isinstance(recorded.event, ToolInvoked)
    }


def resolved_calls(own: Iterable[Recorded]) -> Mapping[int, Served]:
    """Return the calls that a person resolved since the run was driven last."""
    found: dict[int, Served] = {}
    for recorded in own:
        match recorded.event:
            case RunResumed():
                found.clear()
            case CallResolved(call=call, verdict=verdict, actor=actor):
                by: Literal["upstream", "resolution"] = (
                    "upstream" if verdict == "retry" else "resolution"
                )
                found[call] = Served(by=by, actor=str(actor.get("id", "")))
            case _:
                pass
    return found


def _origin(
    kind: Literal["resume_of", "forked_from", "replay_of"], recorded: Recorded
) -> Origin:
    return Origin(
        kind=kind,
        run_id=run_of(recorded.stream) or "",
        trace_id=recorded.trace_id,
        span_id=recorded.span_id,
        seq=recorded.seq,
        hash=recorded.hash.hex(),
    )
