"""
Cassettes: one run as a text file that people can read, replayed without a tool.

A cassette is the log of a run without the hashes, ids, fuel, times and servers that a
replay does not need. The same run gives the same text. The reader trusts nothing in a
file: anyone may have written it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar, cast

from ..core.calls import JSON, Completed, Denied, Failed, Outcome
from ..core.grants.tool_catalog import listing
from ..core.limits import LARGE_MEMORY, Limits
from ..core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolInvoked,
    outcome_of,
    settled,
)
from ..core.names import is_server_name, nearest
from ..errors import BadBytes, FailureKind, Sent, UsageError
from ..lib import codec
from ..lib.files import replace_file

TYPE = "caxton.cassette/v1"

#: The fix for a cassette that does not suit the test.
ANEW = "record it again with pytest --caxton-record=all"

#: Failures that a replay repeats.
REPEATED = frozenset({"trap", "limit", "agent_error"})
#: Prefixes of messages of limits that differ each time.
_CLOCKS = ("wall:", "compute:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """
    A run that was recorded for a test.

    Attributes:
        started: Its first event.

        now: When that was recorded, in microseconds since 1970.

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
        UsageError: It did not end by itself, or the log does not have an answer.
    """
    started = history[0].event
    assert isinstance(started, RunStarted)  # noqa: S101 -- the log of a run
    if started.command is not None:
        raise UsageError(
            "a cassette has no files and arguments, which a WASI program gets",
            fix="test it with scripted tools",
        )
    events = [recorded.event for recorded in history if recorded.event]
    component = started.abi.startswith("component/")
    usual = replace(Limits(), memory=Limits().memory_of(large=component))
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
        "events": [*_events_of(events)],
        "end": _end(events[-1]),
    }
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    return f"{_printable(text)}\n"


def _differing(
    values: Mapping[str, JSON], usual: Mapping[str, JSON]
) -> dict[str, JSON]:
    # None stands for the default, whatever that is.
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


def _events_of(events: Sequence[Event]) -> Iterator[JSON]:
    """Yield each call with its reply, and each log line, in the order they came."""
    outcomes = dict(end for event in events if (end := outcome_of(event)))
    for event in events:
        if isinstance(event, LogWritten):
            yield {"log": event.level, "text": event.text}
        elif isinstance(event, ToolInvoked):
            called: dict[str, JSON] = {"call": event.name, "params": event.params}
            # The digest is written only if the values do not imply it: for bad bytes,
            # another spelling, or where a secret was redacted.
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
                f"the run did not end by itself, so it cannot be a cassette; {why}",
                fix="let the run end, and record it again",
            )


def _by_clock(end: RunFailed) -> bool:
    return end.kind == "limit" and end.message.startswith(_CLOCKS)


def _printable(text: str) -> str:
    """Escape characters that a reviewer would not see, or not in their place."""
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
        replace_file(path, text.encode(), mode=0o644)
    except OSError as exc:
        raise UsageError(
            f"the cassette {path.name} cannot be written: {exc.strerror}",
            fix="make its folder writable",
        ) from None


# -- reading -------------------------------------------------------------------

#: Bytes.
MAX_FILE = 16 * 1024 * 1024
_NODES = 1_000_000
_MAX_EVENTS = 200_000
#: Largest multiple of the default of a limit. For memory, 16 GiB: no guest has more.
_MAX_FACTOR = 64
_LARGEST = 2**63 - 1
_LEVELS = frozenset({"debug", "info", "warning", "error", "truncated"})
_FAILURES = frozenset(
    {
        "timeout",
        "transport",
        "protocol",
        "cancelled",
        "too_large",
        "invalid_result",
        "changed",
    }
)
_SENT = frozenset({"no", "yes", "unknown"})
_STATUS = frozenset({"ok", "tool_error", "failed", "denied"})
_ENDS = frozenset({"completed", "failed"})
_KEYS = (
    "$type",
    "agent",
    "entry",
    "now",
    "seed",
    "input",
    "context",
    "limits",
    "tools",
    "events",
    "end",
)

_T = TypeVar("_T")


def read(path: Path) -> Cassette:
    """
    Return the cassette in a file.

    Raises:
        UsageError: The file is missing, or breaks a bound or a rule of the format.
    """
    try:
        if not path.is_file():
            raise UsageError(
                f"there is no cassette {path.name} in {path.parent.name}",
                fix="record it with pytest --caxton-record=once, where its servers "
                "can be reached",
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        return parse(data)
    except OSError as exc:
        raise UsageError(
            f"the cassette {path.name} cannot be read: {exc.strerror}",
            fix="make it readable, or " + ANEW,
        ) from None
    except BadBytes as exc:
        raise UsageError(
            f"the cassette {path.name} is not one: {exc}", fix=ANEW
        ) from None


def parse(data: bytes | str) -> Cassette:
    """
    Parse the text of a cassette.

    Raises:
        BadBytes: It is not one.
    """
    root = _Table(codec.load_json(data, limit=MAX_FILE, nodes=_NODES), "$")
    if root.get("$type", str) != TYPE:
        raise BadBytes(f"$.$type is not {TYPE}: of another version, or not a cassette")
    root.check(_KEYS)
    catalogue, definitions = _catalogue(root.tables("tools"))
    if not is_server_name(agent := root.get("agent", str)):
        raise BadBytes("$.agent is not a valid name of an agent")
    started = RunStarted(
        agent=agent,
        actor={},
        module_sha256="",
        abi="",
        entry=root.get("entry", str),
        input=root.value("input"),
        context=root.table("context").values,
        limits=_limits(root.table("limits")),
        seed=root.digest("seed"),
        grants={},
        grants_sha256="",
        catalogue=catalogue,
        servers={},
        host=None,
        engine="",  # It equals no engine, so fuel is not compared.
    )
    return Cassette(
        started=started,
        now=root.number("now"),
        definitions=definitions,
        events=[*_events(root.tables("events")), _ended(root.table("end"))],
    )


class _Table:
    """An object of the file, whose values are checked before they are used."""

    def __init__(self, value: JSON, path: str) -> None:
        if not isinstance(value, dict):
            raise BadBytes(f"{path} is not an object")
        self.values, self.path = value, path

    def check(self, keys: Sequence[str]) -> None:
        """Refuse a key that is not known."""
        for key in self.values:
            if key not in keys:
                meant = nearest(key[:64], [*keys])
                hint = f"; did you mean {meant}?" if meant else ""
                raise BadBytes(f"{self.path} has the unknown key {key[:64]!r}{hint}")

    def value(self, key: str) -> JSON:
        """Return any value."""
        if key not in self.values:
            raise BadBytes(f"{self.path} has no {key}")
        return self.values[key]

    def get(self, key: str, kind: type[_T]) -> _T:
        """Return a value of a kind."""
        value = self.value(key)
        if type(value) is not kind:
            raise BadBytes(f"{self.path}.{key} is of the wrong kind")
        return value

    def maybe(self, key: str) -> str | None:
        """Return a text, or ``None`` if there is none."""
        return None if self.values.get(key) is None else self.get(key, str)

    def one_of(self, key: str, known: frozenset[str]) -> str:
        """Return one of some words."""
        if (word := self.get(key, str)) not in known:
            raise BadBytes(
                f"{self.path}.{key} is not one of {', '.join(sorted(known))}"
            )
        return word

    def number(self, key: str) -> int:
        """Return a time."""
        if not 0 <= (number := self.get(key, int)) <= _LARGEST:
            raise BadBytes(f"{self.path}.{key} is not a time")
        return number

    def digest(self, key: str) -> str:
        """Return 32 bytes in hex."""
        text = self.get(key, str)
        if not re.fullmatch(r"[0-9a-f]{64}", text):
            raise BadBytes(f"{self.path}.{key} is not 32 bytes in hex")
        return text

    def digest_of(self, key: str, value: JSON) -> str:
        """Return a digest, by default of *value* in the shortest msgpack."""
        if key in self.values:
            return self.digest(key)
        return codec.sha256(codec.encode(value))

    def table(self, key: str) -> _Table:
        """Return an object."""
        return _Table(self.value(key), f"{self.path}.{key}")

    def tables(self, key: str) -> list[_Table]:
        """Return a list of objects."""
        items = self.value(key)
        if not isinstance(items, list):
            raise BadBytes(f"{self.path}.{key} is not a list")
        if len(items) > _MAX_EVENTS:
            raise BadBytes(f"{self.path}.{key} has more than {_MAX_EVENTS} items")
        return [_Table(item, f"{self.path}.{key}[{i}]") for i, item in enumerate(items)]


def _limits(table: _Table) -> dict[str, JSON]:
    usual = Limits().to_payload()
    largest = usual | {"memory": LARGE_MEMORY}
    table.check([one.name for one in fields(Limits)])
    for key, value in table.values.items():
        most = cast("float", largest[key]) * _MAX_FACTOR
        fits = type(value) is int or (
            type(value) is float and isinstance(largest[key], float)
        )
        if not fits or not 0 <= cast("float", value) <= most:
            raise BadBytes(f"{table.path}.{key} is not a limit of 0 to {most:g}")
    return {**usual, **table.values}


def _catalogue(
    tables: Sequence[_Table],
) -> tuple[dict[str, JSON], dict[str, bytes]]:
    catalogue: dict[str, JSON] = {}
    definitions: dict[str, bytes] = {}
    for table in tables:
        table.check(("name", "tool", "description", "input_schema"))
        name, description = table.get("name", str), table.maybe("description")
        server, _, tool = table.get("tool", str).partition("/")
        definition = codec.encode(
            {"description": description, "inputSchema": table.value("input_schema")}
        )
        digest = codec.sha256(definition)
        definitions[digest] = definition
        catalogue[name] = {
            "server": server,
            "tool": tool,
            "definition_sha256": digest,
            "effect": "unsafe",
            "visible": True,
        }
    return catalogue, definitions


def _events(tables: Sequence[_Table]) -> Iterator[Event]:
    calls = lines = 0
    for table in tables:
        if "log" in table.values:
            lines += 1
            table.check(("log", "text"))
            level, text = table.one_of("log", _LEVELS), table.get("text", str)
            yield LogWritten(n=lines, level=level, text=text)
            continue
        calls += 1
        table.check(("call", "params", "params_sha256", "reply"))
        known = table.value("params") is not None
        params = table.table("params").values if known else None
        yield ToolInvoked(
            call=calls,
            name=table.get("call", str),
            server=None,
            tool=None,
            params=params,
            params_sha256=table.digest_of("params_sha256", params),
            effect="unsafe",
            rule=None,
            idempotency_key="",
            fuel=0,
        )
        yield settled(calls, _outcome(table.table("reply")))


def _outcome(table: _Table) -> Outcome:
    status = table.one_of("status", _STATUS)
    message = table.get("message", str)
    if status == "failed":
        table.check(("status", "kind", "sent", "server_code", "message"))
        told = "server_code" in table.values
        return Failed(
            kind=cast("FailureKind", table.one_of("kind", _FAILURES)),
            sent=cast("Sent", table.one_of("sent", _SENT)),
            message=message,
            code=table.get("server_code", int) if told else None,
        )
    if status == "denied":
        table.check(("status", "code", "rule", "message"))
        code = table.get("code", str)
        return Denied(code=code, rule=table.maybe("rule"), message=message)
    table.check(("status", "message", "data"))
    data = table.value("data")
    return Completed(is_error=status == "tool_error", message=message, data=data)


def _ended(table: _Table) -> Event:
    if table.one_of("status", _ENDS) == "failed":
        table.check(("status", "kind", "message"))
        kind = table.one_of("kind", REPEATED)
        return RunFailed(kind=kind, message=table.get("message", str), fuel=None)
    table.check(("status", "output", "output_sha256"))
    output = table.value("output")
    digest = table.digest_of("output_sha256", output)
    return RunCompleted(output=output, output_sha256=digest, fuel=None)
