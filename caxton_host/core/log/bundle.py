"""
A bundle: one run with the proof that it is part of a log. See docs/reference/bundle.md.

A bundle consists of lines of canonical JSON: the header, the events of each stream, the
blobs. Bundles are untrusted. The length of a line is checked before it is parsed, and
bounds its content.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import (
    Set as AbstractSet,
)
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, TypeVar, cast

from ...errors import BadBytes, UsageError
from ..names import RUN, stream_of
from .chain import SALT_SIZE

TYPE = "caxton.bundle/v1"
_LATER = [f"caxton.bundle/v{number}" for number in range(2, 10)]
MAX_HEADER = 1 << 20
#: A module of 32 MiB in Base64, with the rest of its line.
MAX_LINE = 48 << 20
MAX_STREAMS = 128
MAX_EARLIER = 64
MAX_EVENTS = 1_000_000
MAX_BLOBS = 100_000
MAX_PROOF = 64

_DIGEST = 32
_LARGEST = 2**63 - 1
_EVENT = frozenset({"at", "digest", "hash", "seq", "span", "trace", "type", "version"})

# ASCII only: which other characters are printable depends on the version of Unicode.
_TEXT = re.compile(r"[ -~]+")
_NOTE = re.compile(r"[ -~\n—]+")  # the dash begins a signature

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """
    An event as it is stored.

    Attributes:
        salt: 16 bytes, or ``None`` if its payload was erased.

        payload: Msgpack, or ``None`` if it was erased.

        digest: The digest of both, which is kept when they are erased.
    """

    seq: int
    type: str
    schema_version: int
    recorded_at: int
    trace_id: str | None
    span_id: str | None
    hash: bytes
    salt: bytes | None
    payload: bytes | None
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    The `RunErased` event of a stream, and its place in the log.

    Attributes:
        stream: The stream of the host that erased it.

        previous: The hash of the event before it in that stream; zeros if it is the
            first.

        index: Its leaf in the tree, from 0.

        proof: The inclusion proof.
    """

    stream: str
    previous: bytes
    index: int
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """
    The first events of a stream, and their place in the log.

    Attributes:
        stream: ``run/<uuid7>``.

        events: The number of its events in the bundle.

        index: The leaf of the last of them in the tree, from 0.

        proof: The inclusion proof.

        erased: The erasure, if its payloads were erased.
    """

    stream: str
    events: int
    index: int
    proof: tuple[bytes, ...]
    erased: Erasure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """
    An earlier checkpoint, and the consistency proof with the newest one.

    Attributes:
        checkpoint: A note.
    """

    checkpoint: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """
    The header of a bundle.

    Attributes:
        run: The run.

        checkpoint: A note.

        key: The public key of the signature. It is not trusted by that.

        parts: The streams: those that the run was forked from, the oldest first, and
            its own.

        blobs: The number of blobs.
    """

    run: str
    checkpoint: bytes
    key: bytes
    parts: tuple[Part, ...]
    earlier: tuple[Earlier, ...] = ()
    blobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """
    The content of a bundle.

    Attributes:
        events: The events of each part, in order.

        erasures: The ``RunErased`` event of each part, or ``None``.

        blobs: Digest in hex to bytes, in the order of the digests.
    """

    header: Header
    events: tuple[tuple[Sealed, ...], ...]
    erasures: tuple[Sealed | None, ...]
    blobs: Mapping[str, bytes]


# -- writing -------------------------------------------------------------------


def write_bundle(
    header: Header, events: Iterable[Sealed], blobs: Iterable[bytes]
) -> Generator[bytes]:
    """
    Yield the lines of a bundle.

    Args:
        header: Its first line.

        events: The events of each part, in order; after those of an erased part, its
            ``RunErased``.

        blobs: As many as in the header, in the order of their digests.
    """
    yield _line(
        {
            "$type": TYPE,
            "blobs": header.blobs,
            "checkpoint": header.checkpoint.decode(),
            "earlier": [
                {"checkpoint": one.checkpoint.decode(), "proof": _hexes(one.proof)}
                for one in header.earlier
            ],
            "key": header.key.hex(),
            "run": header.run,
            "streams": [_stream(part) for part in header.parts],
        }
    )
    for event in events:
        yield _line(_event(event))
    for data in blobs:
        yield _line(
            {"bytes": b64encode(data).decode(), "sha256": sha256(data).hexdigest()}
        )


def _stream(part: Part) -> dict[str, object]:
    line: dict[str, object] = {
        "events": part.events,
        "index": part.index,
        "proof": _hexes(part.proof),
        "stream": part.stream,
    }
    if (erased := part.erased) is not None:
        line["erased"] = {
            "index": erased.index,
            "previous": erased.previous.hex(),
            "proof": _hexes(erased.proof),
            "stream": erased.stream,
        }
    return line


def _event(event: Sealed) -> dict[str, object]:
    line: dict[str, object] = {
        "at": event.recorded_at,
        "digest": event.digest.hex(),
        "hash": event.hash.hex(),
        "seq": event.seq,
        "span": event.span_id,
        "trace": event.trace_id,
        "type": event.type,
        "version": event.schema_version,
    }
    if event.salt is not None and event.payload is not None:
        line["payload"] = b64encode(event.payload).decode()
        line["salt"] = event.salt.hex()
    return line


def _hexes(hashes: Iterable[bytes]) -> list[str]:
    return [one.hex() for one in hashes]


def _line(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{text}\n".encode("ascii")


# -- reading -------------------------------------------------------------------


def parse_bundle(lines: Iterator[bytes]) -> Bundle:
    """
    Parse a bundle. Its content is not verified.

    Args:
        lines: With line breaks. The caller makes sure that none is longer than
            `MAX_LINE`, and bounds their total size.

    Raises:
        BadBytes: It is not a bundle, or exceeds a limit of bundles.

        UsageError: It is a bundle of a later version.
    """
    header = _header(_object(next(lines, b""), MAX_HEADER, "the header"))
    numbered = enumerate(lines, 2)
    events: list[tuple[Sealed, ...]] = []
    erasures: list[Sealed | None] = []
    for part in header.parts:
        events.append(tuple(_next(numbered, _sealed) for _ in range(part.events)))
        erasures.append(_next(numbered, _sealed) if part.erased else None)
    blobs: dict[str, bytes] = {}
    last = ""
    for _ in range(header.blobs):
        digest, data = _next(numbered, _blob)
        if digest <= last:
            _bad(
                f"blob {digest}", "blobs come in the order of their digests, each once"
            )
        blobs[digest] = data
        last = digest
    for number, _ in numbered:
        _bad(f"line {number}", "more than the header announces")
    return Bundle(
        header=header, events=tuple(events), erasures=tuple(erasures), blobs=blobs
    )


def _next(
    numbered: Iterator[tuple[int, bytes]], read: Callable[[dict[str, Any], str], _T]
) -> _T:
    number, line = next(numbered, (0, b""))
    where = f"line {number}" if number else "the last line"
    return read(_object(line, MAX_LINE, where), where)


def _bad(where: str, what: str) -> NoReturn:
    raise BadBytes(f"{where} of the bundle: {what}")


def _object(line: bytes, limit: int, where: str) -> dict[str, Any]:
    if len(line) > limit:
        _bad(where, f"{len(line)} bytes, of {limit} allowed")
    if not line:
        _bad(where, "it is missing")
    try:
        value: object = json.loads(line)
        known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        same = _line(known) == line
    except (ValueError, RecursionError):
        same, known = False, {}
    if not same:
        _bad(where, "not JSON in the one form that it has here")
    return known


def _header(value: dict[str, Any]) -> Header:
    where, type_ = "the header", value.get("$type")
    if type_ in _LATER:
        raise UsageError(
            f"the file is a {type_}, which this version does not know",
            fix="use the later version of caxton-host that wrote it",
        )
    if type_ != TYPE:
        _bad(where, f"not {TYPE}")
    _keys(
        value,
        {"$type", "blobs", "checkpoint", "earlier", "key", "run", "streams"},
        where,
    )
    parts = _each(value["streams"], MAX_STREAMS, _part, where)
    if not parts or sum(part.events for part in parts) > MAX_EVENTS:
        _bad(where, f"no stream, or more than {MAX_EVENTS} events")
    run = _text(value["run"], where)
    if len({part.stream for part in parts}) < len(parts):
        _bad(where, "a stream twice")
    if parts[-1].stream != stream_of(run):
        _bad(where, "the last stream is that of the run")
    return Header(
        run=run,
        checkpoint=_text(value["checkpoint"], where, _NOTE).encode(),
        key=_hex(value["key"], _DIGEST, where),
        parts=parts,
        earlier=_each(value["earlier"], MAX_EARLIER, _earlier, where),
        blobs=_number(value["blobs"], MAX_BLOBS, where),
    )


def _part(value: dict[str, Any], where: str) -> Part:
    optional = {"erased"} & value.keys()
    _keys(value, {"events", "index", "proof", "stream"} | optional, where)
    events = _number(value["events"], MAX_EVENTS, where)
    if events == 0:
        _bad(where, "a stream without events")
    stream = _text(value["stream"], where)
    if not stream.startswith(RUN):
        _bad(where, "a stream that is not of a run")
    return Part(
        stream=stream,
        events=events,
        index=_number(value["index"], _LARGEST, where),
        proof=_proof(value["proof"], where),
        erased=_erasure(value["erased"], where) if optional else None,
    )


def _erasure(value: object, where: str) -> Erasure:
    known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    _keys(known, {"index", "previous", "proof", "stream"}, where)
    return Erasure(
        stream=_text(known["stream"], where),
        previous=_hex(known["previous"], _DIGEST, where),
        index=_number(known["index"], _LARGEST, where),
        proof=_proof(known["proof"], where),
    )


def _earlier(value: dict[str, Any], where: str) -> Earlier:
    _keys(value, {"checkpoint", "proof"}, where)
    return Earlier(
        checkpoint=_text(value["checkpoint"], where, _NOTE).encode(),
        proof=_proof(value["proof"], where),
    )


def _sealed(value: dict[str, Any], where: str) -> Sealed:
    salt = payload = None
    if "payload" in value:
        _keys(value, _EVENT | {"payload", "salt"}, where)
        salt = _hex(value["salt"], SALT_SIZE, where)
        payload = _base64(value["payload"], where)
    else:
        _keys(value, _EVENT, where)
    return Sealed(
        seq=_number(value["seq"], _LARGEST, where),
        type=_text(value["type"], where),
        schema_version=_number(value["version"], _LARGEST, where),
        recorded_at=_number(value["at"], _LARGEST, where),
        trace_id=_optional(value["trace"], where),
        span_id=_optional(value["span"], where),
        hash=_hex(value["hash"], _DIGEST, where),
        salt=salt,
        payload=payload,
        digest=_hex(value["digest"], _DIGEST, where),
    )


def _blob(value: dict[str, Any], where: str) -> tuple[str, bytes]:
    _keys(value, {"bytes", "sha256"}, where)
    data = _base64(value["bytes"], where)
    if sha256(data).hexdigest() != value["sha256"]:
        _bad(where, "a blob is not what its digest says")
    return str(value["sha256"]), data


def _keys(value: dict[str, Any], expected: AbstractSet[str], where: str) -> None:
    if value.keys() != expected:
        _bad(where, f"its keys are not {', '.join(sorted(expected))}")


def _each(
    value: object, limit: int, read: Callable[[dict[str, Any], str], _T], where: str
) -> tuple[_T, ...]:
    return tuple(
        read(cast("dict[str, Any]", item), where)
        if isinstance(item, dict)
        else _bad(where, "a list of something else")
        for item in _list(value, limit, where)
    )


def _proof(value: object, where: str) -> tuple[bytes, ...]:
    return tuple(_hex(one, _DIGEST, where) for one in _list(value, MAX_PROOF, where))


def _list(value: object, limit: int, where: str) -> Sequence[object]:
    if not isinstance(value, list):
        _bad(where, "something that is not a list")
    items = cast("list[object]", value)
    if len(items) > limit:
        _bad(where, f"a list of more than {limit}")
    return items


def _text(value: object, where: str, form: re.Pattern[str] = _TEXT) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        _bad(where, "not a valid text")
    return value


def _optional(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _number(value: object, largest: int, where: str) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        _bad(where, f"a number that is not one of 0 to {largest}")
    return value


def _hex(value: object, size: int, where: str) -> bytes:
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        data = b""
    if len(data) != size or data.hex() != value:
        _bad(where, f"not {size} bytes in hex")
    return data


def _base64(value: object, where: str) -> bytes:
    try:
        data = b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or b64encode(data).decode() != value:
        _bad(where, "not Base64")
    return data
