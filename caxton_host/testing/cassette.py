"""
Cassettes: one run as a text file, to be read by people and replayed without a tool.

A cassette is the log of a run, without what a replay does not need: hashes, ids, fuel,
times, servers. The same run gives the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import cast

from ..core.calls import JSON, Completed, Denied, Failed, Outcome
from ..core.grants.tool_catalog import listing
from ..core.limits import Limits
from ..core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolInvoked,
    outcome_of,
)
from ..errors import UsageError
from ..lib import codec

TYPE = "caxton.cassette/v1"

#: What to do with a cassette that is not what a test needs.
ANEW = "record it anew with pytest --caxton-record=all"

#: Ends that come again if the run is executed again.
REPEATED = frozenset({"trap", "limit", "agent_error"})
#: How the message of a limit begins that is another one each time.
_CLOCKS = ("wall:", "compute:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """
    A run that was recorded for a test.

    Attributes:
        started: How it began.

        now: When.

        definitions: Digest to definition, of each tool that the agent may see.

        events: Its calls with their outcomes, its log lines and its end.
    """

    started: RunStarted
    now: int
    definitions: Mapping[str, bytes] = field(repr=False)
    events: Sequence[Event] = field(repr=False)

    @property
    def limits(self) -> Limits:
        """The bounds of the run."""
        return Limits.from_payload(self.started.limits)


def write(history: Sequence[Recorded], blobs: Mapping[str, bytes]) -> str:
    """
    Return the text of a cassette.

    Args:
        history: The events of a run that has ended.

        blobs: What its log keeps by digest.

    Raises:
        UsageError: It did not end by itself, or the log lacks an answer.
    """
    started = history[0].event
    assert isinstance(started, RunStarted)  # noqa: S101 -- the log of a run
    events = [recorded.event for recorded in history if recorded.event]
    component = started.abi.startswith("component/")
    usual = replace(Limits(), memory=Limits().memory_of(component=component))
    document: dict[str, JSON] = {
        "$type": TYPE,
        "agent": started.agent,
        "entry": started.entry,
        "now": history[0].recorded_at,
        "seed": started.seed,
        "input": started.input,
        "context": started.context,
        "limits": _differing(started.limits, usual.to_payload()),
        "tools": _tools(started, blobs),
        "events": [*_told(events)],
        "end": _end(events[-1]),
    }
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    return f"{_printable(text)}\n"


def _differing(
    values: Mapping[str, JSON], usual: Mapping[str, JSON]
) -> dict[str, JSON]:
    # None is what is usual, whatever that is.
    return {
        key: value
        for key, value in values.items()
        if value is not None and value != usual.get(key)
    }


def _tools(started: RunStarted, blobs: Mapping[str, bytes]) -> list[JSON]:
    known = {
        digest: codec.decode_trusted(blobs[digest])
        for entry in started.catalogue.values()
        if isinstance(entry, dict) and entry.get("visible")
        for digest in [str(entry["definition_sha256"])]
    }
    tools: list[JSON] = []
    for tool in listing(started.catalogue, known):
        entry = cast("dict[str, JSON]", tool)
        route = cast("dict[str, JSON]", started.catalogue[str(entry["name"])])
        tools.append({**entry, "tool": f"{route['server']}/{route['tool']}"})
    return tools


def _told(events: Sequence[Event]) -> Iterator[JSON]:
    """Yield each call with its reply, and each log line, in the order they came."""
    outcomes = dict(end for event in events if (end := outcome_of(event)))
    for event in events:
        if isinstance(event, LogWritten):
            yield {"log": event.level, "text": event.text}
        elif isinstance(event, ToolInvoked):
            called: dict[str, JSON] = {"call": event.name, "params": event.params}
            # The digest is there only if the values are not enough: of bad bytes, of
            # another spelling, or where a secret was taken out.
            if event.params_sha256 != codec.sha256(codec.encode(event.params)):
                called["params_sha256"] = event.params_sha256
            yield {**called, "reply": _reply(event, outcomes[event.call])}


def _reply(call: ToolInvoked, outcome: Outcome) -> JSON:
    match outcome:
        case Completed():
            if outcome.cut:
                raise UsageError(
                    f"of call {call.call}, {call.server}/{call.tool}, the log keeps a "
                    "digest and not the answer",
                    fix='its tool has record = "hash"; a cassette needs "full"',
                )
            status = "tool_error" if outcome.is_error else "ok"
            return {
                "status": status,
                "message": outcome.message,
                "data": outcome.data,
            }
        case Failed():
            code: dict[str, JSON] = {}
            if outcome.code is not None:
                code["server_code"] = outcome.code
            return {
                "status": "failed",
                "kind": outcome.kind,
                "sent": outcome.sent,
                **code,
                "message": outcome.message,
            }
        case Denied():
            by: dict[str, JSON] = {} if outcome.rule is None else {"rule": outcome.rule}
            return {
                "status": "denied",
                "code": outcome.code,
                **by,
                "message": outcome.message,
            }


def _end(end: Event) -> JSON:
    match end:
        case RunCompleted():
            told: dict[str, JSON] = {"status": "completed", "output": end.output}
            if end.output_sha256 != codec.sha256(codec.encode(end.output)):
                told["output_sha256"] = end.output_sha256
            return told
        case RunFailed() if end.kind in REPEATED and not _by_clock(end):
            return {"status": "failed", "kind": end.kind, "message": end.message}
        case _:
            why = f"{end.kind}: {end.message}" if isinstance(end, RunFailed) else ""
            raise UsageError(
                f"the run did not end by itself, so there is no cassette of it; {why}",
                fix="let it come to its end, and record it once more",
            )


def _by_clock(end: RunFailed) -> bool:
    return end.kind == "limit" and end.message.startswith(_CLOCKS)


def _printable(text: str) -> str:
    """Escape what a reviewer would not see, or see in another place."""
    return re.sub(r"[^\x00-\x7f]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def save(path: Path, text: str) -> None:
    """
    Write a cassette, whole or not at all.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".", delete=False
        ) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as exc:
        raise UsageError(
            f"the cassette {path.name} cannot be written: {exc.strerror}",
            fix="make its folder writable",
        ) from None
