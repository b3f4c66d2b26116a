"""Bundles that are changed at random, most of them still lines in the one form."""

from __future__ import annotations

import json
import random  # noqa: TID251 -- seeded: what to change
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from caxton_host.core.log.bundle import Sealed
from caxton_host.core.log.chain import GENESIS, envelope, event_hash, payload_digest
from caxton_host.lib import codec

from .logs import FORGER, OLD, Log, small, vectors

BASES = ("fork", "run-since", "run-of-two-keys", "erased", "erased-parent", "run")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 1.0, -1, 0.5, -0.0, 1e400, 2**63, 2**64, 10**25),
    *("", "1", "a", "run/a", "\n", "\0", "é", "\u200b", "\ud800", "٣", "—", "\x7f"),
    *([], {}, [[]], [[[[1]]]], {"a": 1}, [None], "00" * 32, "AA==", "A" * 300),
)

Lines = list[bytes]


def mutations(seed: int) -> Iterator[bytes]:
    """Yield bundles without end; the same ones for the same seed."""
    chance = random.Random(seed)  # noqa: S311
    sources = {name: vectors()[name][0] for name in BASES}
    while True:
        if chance.random() < 0.25:
            yield resigned(chance)
            continue
        lines = sources[chance.choice(BASES)].splitlines(keepends=True)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            at = chance.randrange(len(lines)) if chance.random() < 0.7 else 0
            chance.choice(CHANGES)(chance, lines, at)
            if not lines:
                break
        yield b"".join(lines)


def _value(chance: random.Random, lines: Lines, at: int) -> None:
    """Change a value somewhere in a line, and write it in the one form again."""
    try:
        line = json.loads(lines[at])
    except (ValueError, RecursionError):
        return
    root: dict[str, Any] = {"": line}
    holder: Any = root
    key: Any = ""
    while (
        isinstance(holder[key], list | dict) and chance.random() < 0.8 and holder[key]
    ):
        holder = holder[key]
        keys = range(len(holder)) if isinstance(holder, list) else holder
        key = chance.choice([*keys])
    holder[key] = chance.choice(VALUES)(chance, holder[key])
    if chance.random() < 0.15:
        del holder[key]
    text = json.dumps(root.get(""), sort_keys=True, separators=(",", ":"))
    lines[at] = text.encode() + b"\n"


def _other(chance: random.Random, _: object) -> object:
    return chance.choice(ODD)


def _near(chance: random.Random, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        return _other(chance, value)
    return chance.choice((value + 1, value - 1, float(value), str(value), bool(value)))


def _shape(chance: random.Random, value: Any) -> object:  # noqa: ANN401 -- of JSON
    """Return the same in another shape: a map for a list, say."""
    if isinstance(value, list):
        items: list[Any] = value
        texts = {str(item): item for item in items}
        return chance.choice((texts, items[:-1], items * 2, items[::-1], [*texts]))
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return chance.choice(([known], [*known], {**known, "extra": 1}))
    return chance.choice(([value], {"": value}, str(value)))


def _letters(chance: random.Random, value: object) -> object:
    if not isinstance(value, str):
        return _near(chance, value)
    at = chance.randrange(len(value) + 1)
    odd = chance.choice(("", " ", "\n", "é", "\u200b", "\ud83d", "0", "=", "—", "\x1b"))
    return chance.choice(
        (value[:at] + odd + value[at + 1 :], value.upper(), odd, value * 2)
    )


VALUES = (_other, _near, _shape, _letters)


def _bytes(chance: random.Random, lines: Lines, at: int) -> None:
    line = lines[at]
    place, other = chance.randrange(len(line)), bytes([chance.randrange(256)])
    lines[at] = chance.choice(
        (
            line[:place] + other + line[place + 1 :],
            line[:place] + other + line[place:],
            line[:place] + line[place + 1 :],
            line[:place],
            line.replace(b"\n", b"\r\n"),
            b"\xef\xbb\xbf" + line,
            line.decode(errors="replace").encode("utf-16"),
            line.replace(b'"seq":', b'"seq":1,"seq":'),
            line.replace(b":", b": ", 1),
            b"[" * 2000 + line,
        )
    )


def _order(chance: random.Random, lines: Lines, at: int) -> None:
    other = chance.randrange(len(lines))
    how = chance.randrange(5)
    if how == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        del lines[at]
    elif how == 3:
        del lines[at:]
    else:
        lines.append(chance.choice((b"\n", b"{}\n", b"x", lines[at])))


def _payloads(chance: random.Random, lines: Lines, at: int) -> None:
    """Remove payloads, or all that says that they were erased."""
    every = chance.random() < 0.3
    gone = chance.choice((["payload", "salt"], ["payload"], ["salt"], ["erased"]))
    for number in range(len(lines)) if every else [at]:
        try:
            line = json.loads(lines[number])
            parts = [line, *line["streams"]] if "streams" in line else [line]
            for part in parts:
                for key in gone:
                    part.pop(key, None)
        except (ValueError, RecursionError, TypeError, AttributeError):
            continue
        text = json.dumps(line, sort_keys=True, separators=(",", ":"))
        lines[number] = text.encode() + b"\n"


CHANGES: tuple[Callable[[random.Random, Lines, int], None], ...] = (
    *(_value, _value, _value, _value),
    *(_bytes, _order, _payloads),
)


# -- by a holder of the key, who signs what no host would write ----------------


def resigned(chance: random.Random) -> bytes:
    """Return the bundle of a log that was changed before it was signed."""
    log = small()
    erased = chance.random() < 0.6
    if erased:
        log.erase("run/a")
    at = chance.choice(
        [n for n, (name, _) in enumerate(log.events) if name in {"run/a", "host/1"}]
    )
    stream, event = log.events[at]
    changed = _changed(chance, event)
    log.events[at] = stream, changed
    chain(log)
    if erased:
        log.erasures["run/a"] = log.of("host/1")[-1]
    which = chance.choice(("run/a", ("run/a", 2), ("run/a", 3)))
    return log.bundle(which, by=(chance.choice((OLD, OLD, FORGER)),))


def _changed(chance: random.Random, event: Sealed) -> Sealed:
    if event.payload is None:
        return replace(event, digest=bytes([chance.randrange(256)]) * 32)
    known = codec.decode_trusted(event.payload)
    known[chance.choice([*known])] = chance.choice((*SIGNABLE, dict(known)))
    return chance.choice(
        (
            replace(event, payload=codec.encode(known)),
            replace(event, payload=codec.encode(known)),
            replace(event, payload=chance.randbytes(chance.randrange(1, 9))),
            replace(event, payload=codec.encode(known) + b"\xc0"),
            replace(event, payload=None, salt=None),
            replace(
                event, type=chance.choice(("RunStarted", "RunErased", "é", "x" * 255))
            ),
            replace(event, trace_id=chance.choice(("\x1b", "x", "\u200b", "٣"))),
            replace(event, schema_version=chance.choice((0, 2, 2**63 - 1, 2**63))),
            replace(event, recorded_at=chance.choice((0, 127, 128, 65536, 2**32))),
        )
    )


SIGNABLE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 1.0, 4, 4.0, 3, 2, -1, -200, 200, 70_000, 2**32, 2**63),
    *(-(2**31), -(2**63), "", "a", "é", [], {}, {"run": "a"}, ["x"], "x" * 300),
)


def chain(log: Log) -> None:
    heads: dict[str, bytes] = {}
    for number, (stream, event) in enumerate(log.events):
        digest = event.digest
        if event.salt is not None and event.payload is not None:
            digest = payload_digest(event.salt, event.payload)
        head = envelope(
            stream,
            event.seq,
            event.type,
            event.schema_version,
            event.recorded_at,
            event.trace_id,
            event.span_id,
        )
        hash_ = event_hash(heads.get(stream, GENESIS), head, digest)
        heads[stream] = hash_
        log.events[number] = stream, replace(event, digest=digest, hash=hash_)
