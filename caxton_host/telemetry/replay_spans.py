"""
The spans of a replay, with the times of its log and with ids that follow from it.

They are those of the calls that were replayed, up to a divergence. Replaying a run
twice gives the same spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ..core.log.events import ApprovalRequested, ToolInvoked, outcome_of
from .export import resource, with_content
from .observer import Observer
from .sending import send
from .spans import Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from ..runs.recording import Recording
    from .sinks import ObservedCall, ObservedRun


class ReplaySpans(Spans):
    """
    Makes the spans of a replay of a *recording*, and keeps them.

    Args:
        environ: Names the host, and says whether content is wanted.

    Attributes:
        trace_id: Of the newest replay, in hex.
    """

    def __init__(self, recording: Recording, environ: Mapping[str, str]) -> None:
        self._made: list[ReadableSpan] = []
        super().__init__(
            self._made.append,
            ALWAYS_ON,
            resource(environ),
            content=with_content(environ),
            clock=self._then,
        )
        self.trace_id = ""
        history = recording.history
        self._first, self._last = history[0].recorded_at, history[-1].recorded_at
        self._now = self._first
        self._began, self._ended = dict[int, int](), dict[int, int]()
        for recorded in history:
            match recorded.event:
                case ToolInvoked(call=call) | ApprovalRequested(call=call):
                    self._began[call] = recorded.recorded_at
                case event if event and (end := outcome_of(event)):
                    self._ended[end[0]] = recorded.recorded_at
                case _:
                    pass

    def _then(self) -> int:
        return self._now * 1000

    def run_began(self, run: ObservedRun) -> None:
        """Begin the span of the replay when the run began."""
        of, self._now = run.execution, self._first
        digest = sha256(f"replay {of.run_id} {of.module_sha256}".encode()).digest()
        self.trace_id = digest[:16].hex()
        self._runs[run] = self.open_run(
            of,
            trace_id=int.from_bytes(digest[:16], "big"),
            span_id=int.from_bytes(digest[16:24], "big"),
        ).__enter__()

    def run_ended(self, run: ObservedRun) -> None:
        """End it when the run ended, or with the last call before a divergence."""
        if run.verdict == "identical":
            self._now = self._last
        super().run_ended(run)

    def call_began(self, call: ObservedCall) -> None:
        """Begin the span of a call when its intent was recorded."""
        self._now = self._began.get(call.number, self._now)
        super().call_began(call)

    def call_ended(self, call: ObservedCall) -> None:
        """End it when its outcome was recorded."""
        self._now = self._ended.get(call.number, self._now)
        super().call_ended(call)

    def observer(self) -> Observer:
        """Return what observes the replay."""
        return Observer(self)

    def deliver(self, url: str) -> int:
        """Send what was made to *url*, in full. See `sending.send`."""
        return send(self._made, url)
