"""Reading a cassette: nobody knows where the file came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TypeVar, cast

from ..core.calls import JSON, Completed, Denied, Failed, Outcome
from ..core.limits import COMPONENT_MEMORY, Limits
from ..core.log.events import (
    Event,
    LogWritten,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolInvoked,
    settled,
)
from ..core.names import is_server_name, nearest
from ..errors import BadBytes, FailureKind, Sent, UsageError
from ..lib import codec
from .cassette import ANEW, REPEATED, TYPE, Cassette

MAX_FILE = 16 * 1024 * 1024
_NODES = 1_000_000
_MAX_EVENTS = 200_000
#: How many times the default a limit may be. Of memory, that is all there can be.
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
        UsageError: There is none, or it breaks a bound or a rule of the format.
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
    Return the cassette that a text is.

    Raises:
        BadBytes: It is none.
    """
    root = _Table(codec.load_json(data, limit=MAX_FILE, nodes=_NODES), "$")
    if root.get("$type", str) != TYPE:
        raise BadBytes(f"$.$type is not {TYPE}: of another version, or no cassette")
    root.check(_KEYS)
    catalogue, definitions = _catalogue(root.tables("tools"))
    if not is_server_name(agent := root.get("agent", str)):
        raise BadBytes("$.agent is no name for an agent")
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
        engine="",  # None is the same, so no fuel counts.
    )
    return Cassette(
        started=started,
        now=root.number("now"),
        definitions=definitions,
        events=[*_events(root.tables("events")), _ended(root.table("end"))],
    )


class _Table:
    """An object of the file, whose values are looked at before they are used."""

    def __init__(self, value: JSON, path: str) -> None:
        if not isinstance(value, dict):
            raise BadBytes(f"{path} is no object")
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
            raise BadBytes(f"{self.path}.{key} is none of {', '.join(sorted(known))}")
        return word

    def number(self, key: str) -> int:
        """Return a time."""
        if not 0 <= (number := self.get(key, int)) <= _LARGEST:
            raise BadBytes(f"{self.path}.{key} is no time")
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
            raise BadBytes(f"{self.path}.{key} is no list")
        if len(items) > _MAX_EVENTS:
            raise BadBytes(f"{self.path}.{key} has more than {_MAX_EVENTS} items")
        return [_Table(item, f"{self.path}.{key}[{i}]") for i, item in enumerate(items)]


def _limits(table: _Table) -> dict[str, JSON]:
    usual = Limits().to_payload()
    largest = usual | {"memory": COMPONENT_MEMORY}
    table.check([one.name for one in fields(Limits)])
    for key, value in table.values.items():
        most = cast("float", largest[key]) * _MAX_FACTOR
        fits = type(value) is int or (
            type(value) is float and isinstance(largest[key], float)
        )
        if not fits or not 0 <= cast("float", value) <= most:
            raise BadBytes(f"{table.path}.{key} is no limit of 0 to {most:g}")
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
