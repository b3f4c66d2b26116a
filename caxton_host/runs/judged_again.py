"""Sessions judged again: the calls of a client, by the grant that was recorded."""

from __future__ import annotations

from ..core.analysis.rejudge import RejudgedCall, Rejudger
from ..core.grants.bounds import grant_of
from ..core.grants.grants import Grant
from ..errors import Divergence
from ..lib.codec import encode
from ..lib.json_schema import fits
from .recording import Recording

#: Denials that the log of one run does not decide: a schema, a person, other runs.
_ELSEWHERE = frozenset({"schema", "approval", "budget", "rate", "busy"})


def judged_again(recording: Recording) -> tuple[int, Divergence | None]:
    """
    Judge the calls of a session by the grant that was recorded.

    Returns:
        How many calls were judged, and the first whose recorded verdict is another. A
        call whose parameters the log does not keep is not judged.
    """
    rejudger = Rejudger(
        grant=Grant.from_payload(recording.started.grants),
        matches=fits,
        measure=lambda params: len(encode({**params})),
    )
    judged = 0
    for one in recording.own:
        if one.event is None:
            continue
        call = rejudger.take(one.event, one.recorded_at, one.seq)
        if call is None or call.invoked.params is None:
            continue
        judged += 1
        if _differs(call):
            return judged, Divergence(
                seq=call.seq, path="$.verdict", recorded=call.was, replayed=call.code
            )
    return judged, None


def _differs(call: RejudgedCall) -> bool:
    # Other grants bind a run, too, and what they deny the recorded one may allow.
    own = grant_of(call.rule) == ""
    return own and call.changed and call.was not in _ELSEWHERE
