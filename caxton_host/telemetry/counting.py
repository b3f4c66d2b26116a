"""What is counted of a host, its runs and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..core.calls import REPEATABLE
from ..core.log.events import ServerRestarted
from ..core.tools.webhooks import SERVER as WEBHOOK
from . import instruments as i

if TYPE_CHECKING:
    from ..core.log.events import Event
    from ..ports import ToolRequest
    from .metrics import Metrics, ServerState
    from .observed import OneCall, OneRun


#: What stands for a name that leads nowhere: the agent made it up.
_UNKNOWN = "unknown"


class Counting:
    """Counts what it is told of."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    # -- of runs and calls -----------------------------------------------------

    def began(self, run: OneRun) -> None:
        """Count a run that is driven from now on."""
        of = run.execution
        if of.mode != "replay":
            self._metrics.add(i.RUNS)
            self._metrics.add(i.RUNS_STARTED, of.agent, of.mode)

    def ended(self, run: OneRun) -> None:
        """Count the end of a run, or of a replay."""
        if run.execution.mode == "replay":
            self._metrics.add(i.REPLAYS, run.verdict or _UNKNOWN)
            self._metrics.add(i.DIVERGENCES, by=run.verdict == "diverged")
            return
        agent, state = run.execution.agent, run.state or _UNKNOWN
        self._metrics.add(i.RUNS, by=-1)
        self._metrics.add(i.RUNS_ENDED, agent, state, run.kind)
        error = run.kind or ("" if state in _WELL else state)
        self._metrics.time(
            i.RUN_SECONDS, run.seconds, "invoke_agent", "caxton", agent, error
        )

    def settled(self, call: OneCall) -> None:
        """Count a call, and what was decided of it."""
        if call.asked:
            self._metrics.add(i.DECISIONS, "ask", "")
            return
        if not call.status:
            return
        denied = call.status == "denied"
        if call.status != "in_doubt":
            self._metrics.add(
                i.DECISIONS, "deny" if denied else "allow", call.code if denied else ""
            )
        route = call.route
        named = route is not None and not route.guessed
        server = route.server if route else _UNKNOWN
        tool = route.tool if route and named else _UNKNOWN
        self._metrics.add(i.CALLS, server, tool, call.status)
        self._metrics.add(i.IN_DOUBT, server, tool, by=_is_in_doubt(call))
        name = call.call.name if named else _UNKNOWN
        error = call.code or ("" if call.status == "ok" else call.status)
        self._metrics.time(
            i.CALL_SECONDS, call.seconds, "execute_tool", server, name, error
        )

    def attempted(self, request: ToolRequest, seconds: float, error: str) -> None:
        """Note how long an MCP server took."""
        server = request.server
        tool = _UNKNOWN if request.guessed else request.tool
        if server != WEBHOOK:
            self._metrics.time(i.ATTEMPTS, seconds, "tools/call", server, tool, error)

    # -- of the host -----------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Count the starts of servers that were lost."""
        if isinstance(event, ServerRestarted):
            self._metrics.add(i.RESTARTS, event.server)

    def look_at(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Ask *servers* how tool servers do, whenever somebody wants to know."""
        self._metrics.servers = servers

    def committed(self, seconds: float, events: int, queued: int) -> None:
        """Note a commit of the event store."""
        self._metrics.time(i.APPENDS, seconds)
        self._metrics.add(i.APPENDED, by=events)
        self._metrics.put(i.QUEUED, queued)

    def anchor_failed(self) -> None:
        """Count a try to anchor a checkpoint that failed."""
        self._metrics.add(i.ANCHOR_FAILURES)

    def worker(self, what: str) -> None:
        """Count a worker that ``started``, or one that ``died``."""
        started = what == "started"
        self._metrics.add(i.WORKER_STARTS if started else i.WORKER_DEATHS)

    def lost(self, signal: str) -> None:
        """Count a batch of spans, logs or metrics that nobody took."""
        self._metrics.add(i.LOST, signal)


#: How runs end, or are left, without anything being wrong.
_WELL = frozenset({"completed", "suspended"})


def _is_in_doubt(call: OneCall) -> bool:
    """Return whether it may have had an effect that nobody saw."""
    again = call.route is not None and call.route.effect in REPEATABLE
    return call.status == "in_doubt" or (call.sent == "unknown" and not again)
