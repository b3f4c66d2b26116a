"""
Differences between two values, and between two runs.

The calls of two runs are compared by their order. Times, ids, keys and fuel are never
compared: two runs that made the same calls are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from ..calls import JSON, Completed, Denied, Failed, Outcome
from ..names import run_of
from .events import (
    ApprovalRequested,
    Event,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolInvoked,
    outcome_of,
)
from .runs import ENDS


@dataclass(frozen=True, slots=True)
class Place:
    """The event that records a call; of a fork, it may be in the parent run."""

    run: str
    seq: int

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {"run": self.run, "seq": self.seq}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDifference:
    """
    A call that differs.

    Attributes:
        call: Its number.

        name: Its name, in the run that made it.

        a: Its place in the first run, or ``None``.

        b: Its place in the second run, or ``None``.
    """

    call: int
    name: str
    a: Place | None
    b: Place | None
    differences: Sequence[Difference]

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "call": self.call,
            "name": self.name,
            "a": self.a.to_document() if self.a else None,
            "b": self.b.to_document() if self.b else None,
            "differences": [one.to_document() for one in self.differences],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """
    The differences between two runs.

    Attributes:
        a: The id of the first run.

        b: The id of the second run.

        calls: The calls that differ, in order.

        end: The differences of their ends.
    """

    a: str
    b: str
    calls: Sequence[CallDifference]
    end: Sequence[Difference]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.calls or self.end)

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.diff/v1`` document."""
        calls: list[JSON] = [one.to_document() for one in self.calls]
        end: list[JSON] = [one.to_document() for one in self.end]
        last: JSON = {"call": None, "differences": end} if end else None
        return {
            "$type": "caxton.diff/v1",
            "a": self.a,
            "b": self.b,
            "same": self.same,
            "first": calls[0] if calls else last,
            "calls": calls,
            "end": end,
        }


@dataclass(slots=True)
class _Call:
    """A call, or the request to approve it."""

    place: Place
    invoked: ToolInvoked | ApprovalRequested
    outcome: Outcome | None = None

    def told(self) -> dict[str, JSON]:
        call = self.invoked
        return {
            "name": call.name,
            "server": call.server,
            "tool": call.tool,
            "params": call.params,
            **(
                {"outcome": "waits for an approval"}
                if isinstance(call, ApprovalRequested)
                else _told(self.outcome)
            ),
        }


@dataclass(slots=True)
class _Run:
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    end: dict[str, JSON] = field(default_factory=dict[str, JSON])
    output_sha256: str | None = None


def diff(a: Sequence[Recorded], b: Sequence[Recorded]) -> Diff:
    """
    Return the differences between two runs.

    Args:
        a: The events of the first run; of a fork, after those that it inherited.

        b: The same of the second run.
    """
    one, other = _folded(a), _folded(b)
    return Diff(
        a=run_of(a[-1].stream),
        b=run_of(b[-1].stream),
        calls=[
            found
            for number in sorted(one.calls.keys() | other.calls.keys())
            if (found := _call(number, one.calls.get(number), other.calls.get(number)))
        ],
        end=_differences(one.end, other.end)
        or _by_digest("$.output_sha256", one.output_sha256, other.output_sha256),
    )


def _folded(history: Sequence[Recorded]) -> _Run:
    run, own = _Run(), history[-1].stream
    for recorded in history:
        event = recorded.event
        if isinstance(event, ApprovalRequested) and recorded.stream != own:
            continue  # A fork asks anew.
        if isinstance(event, (ToolInvoked, ApprovalRequested)):
            place = Place(run_of(recorded.stream), recorded.seq)
            run.calls[event.call] = _Call(place, event)
        elif event is not None and (settled := outcome_of(event)):
            if call := run.calls.get(settled[0]):
                call.outcome = settled[1]
        elif recorded.type in ENDS and recorded.stream == own:
            run.end = {"state": ENDS[recorded.type], **_end(event)}
        if isinstance(event, RunCompleted) and recorded.stream == own:
            run.output_sha256 = event.output_sha256
    return run


def _end(event: Event | None) -> dict[str, JSON]:
    match event:
        case RunCompleted():
            return {"output": event.output}
        case RunFailed():
            return {"kind": event.kind, "message": event.message}
        case RunCancelled():
            return {"message": event.reason}
        case RunSuspended():
            return {"reason": event.reason}
        case _:
            return {}


def _call(number: int, a: _Call | None, b: _Call | None) -> CallDifference | None:
    if a and b:
        found = _differences(a.told(), b.told())
        digests = a.invoked.params_sha256, b.invoked.params_sha256
        if not any(one.path.startswith("$.params") for one in found):
            found += _by_digest("$.params_sha256", *digests)
        if not found:
            return None
    else:
        names = (call.invoked.name if call else None for call in (a, b))
        found = [Difference("$.name", *names)]
    known = a or b
    assert known is not None  # noqa: S101 -- one of them has that number
    return CallDifference(
        call=number,
        name=known.invoked.name,
        a=a.place if a else None,
        b=b.place if b else None,
        differences=found,
    )


def _told(outcome: Outcome | None) -> dict[str, JSON]:
    match outcome:
        case None:
            return {"outcome": "in doubt"}
        case Completed():
            kind = "tool_error" if outcome.is_error else "ok"
            return {"outcome": kind, "message": outcome.message, "data": outcome.data}
        case Denied():
            return {
                "outcome": "denied",
                "code": outcome.code,
                "message": outcome.message,
            }
        case Failed():
            code: dict[str, JSON] = (
                {} if outcome.code is None else {"code": outcome.code}
            )
            return {
                "outcome": "failed",
                "kind": outcome.kind,
                "sent": outcome.sent,
                **code,
                "message": outcome.message,
            }
        case _:
            assert_never(outcome)


def _differences(a: dict[str, JSON], b: dict[str, JSON]) -> list[Difference]:
    """Return the first difference of each key."""
    found = (
        first_difference(
            {key: a[key]} if key in a else {}, {key: b[key]} if key in b else {}
        )
        for key in a | b
    )
    return [Difference(*one) for one in found if one]


def _by_digest(path: str, a: str | None, b: str | None) -> list[Difference]:
    """Return the difference of digests, where the shown values are equal."""
    return [] if a == b else [Difference(path, a, b)]


@dataclass(frozen=True, slots=True)
class Difference:
    """A JSON path, and its values in the two runs."""

    path: str
    a: JSON
    b: JSON

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {"path": self.path, "a": self.a, "b": self.b}


def changes(old: JSON, new: JSON, path: str = "$") -> Iterator[Difference]:
    """
    Return every place where two values differ, outermost first.

    A missing key counts as ``None``. Lists of different lengths differ as a whole,
    since their items cannot be matched.

    >>> [one.path for one in changes({"a": 1, "b": [1]}, {"b": [2], "c": None})]
    ['$.a', '$.b[0]', '$.c']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            if key in old and key in new:
                yield from changes(old[key], new[key], f"{path}.{key}")
            else:
                yield Difference(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, pair in enumerate(zip(old, new, strict=True)):
            yield from changes(*pair, f"{path}[{n}]")
    elif type(old) is not type(new) or old != new:
        yield Difference(path, old, new)


def first_difference(
    old: JSON, new: JSON, path: str = "$"
) -> tuple[str, JSON, JSON] | None:
    """
    Return path and values of the first place where two values differ.

    ``True``, ``1`` and ``1.0`` are three different values.

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]})
    ('$.a[1]', 2, 3)
    >>> first_difference({"n": 1}, {"n": True})
    ('$.n', 1, True)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            at = f"{path}{key}" if key.startswith("[") else f"{path}.{key}"
            if key not in old or key not in new:
                return at, old.get(key), new.get(key)
            if found := first_difference(old[key], new[key], at):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        return first_difference(
            {f"[{i}]": item for i, item in enumerate(old)},
            {f"[{i}]": item for i, item in enumerate(new)},
            path,
        )
    return None if type(old) is type(new) and old == new else (path, old, new)
