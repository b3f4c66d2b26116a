"""
The hash that binds an event to all before it in its stream.

    digest = SHA-256(salt || payload)
    hash   = SHA-256(previous hash || envelope || digest)

The envelope is the msgpack array ``[1, stream, seq, type, schema version,
recorded_at, trace id, span id]``: one fixed form, so written here byte by byte
(https://github.com/msgpack/msgpack/blob/master/spec.md). The first event of a
stream follows 32 zero bytes. Salt and payload can be deleted; digest and hash
stay, and still verify.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

GENESIS = bytes(32)
SALT_SIZE = 16

_BEGIN = bytes((0x98, 1))
_NIL = b"\xc0"
_NILS = _NIL + _NIL
_LONG = struct.Struct(">BQ").pack
_LATE = 1 << 32  # what takes eight bytes: a time, as a rule


def payload_digest(salt: bytes, payload: bytes) -> bytes:
    """Return the digest that stands for a payload, even once it is deleted."""
    return hashlib.sha256(salt + payload).digest()


def event_hash(previous: bytes, head: bytes, digest: bytes) -> bytes:
    """Return the hash of an event from the one before it."""
    return hashlib.sha256(previous + head + digest).digest()


def envelope(  # noqa: PLR0913, PLR0917 -- its fields are what it binds
    stream: str,
    seq: int,
    type_: str,
    schema_version: int,
    recorded_at: int,
    trace_id: str | None = None,
    span_id: str | None = None,
) -> bytes:
    """
    Return the bytes of an envelope.

    >>> envelope("run/1", 1, "RunStarted", 1, 0).hex()
    '9801a572756e2f3101aa52756e537461727465640100c0c0'
    """
    ids = _NILS
    if trace_id or span_id:
        ids = (_text(trace_id) if trace_id else _NIL) + (
            _text(span_id) if span_id else _NIL
        )
    at = _LONG(0xCF, recorded_at) if recorded_at >= _LATE else _number(recorded_at)
    return b"".join(
        (_begin(stream), _number(seq), _kind(type_, schema_version), at, ids)
    )


# Streams and types come again with every event.
@lru_cache(maxsize=2048)
def _begin(stream: str) -> bytes:
    return _BEGIN + _text(stream)


# By type as well: what is read from a database may be a version of the same value, and
# was never written so.
@lru_cache(maxsize=256, typed=True)
def _kind(type_: str, schema_version: int) -> bytes:
    return _text(type_) + _number(schema_version)


def _text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) < 32:  # noqa: PLR2004 -- fixstr
        return bytes((0xA0 | len(raw),)) + raw
    if len(raw) < 256:  # noqa: PLR2004 -- str 8
        return bytes((0xD9, len(raw))) + raw
    raise ValueError("an envelope holds short names only")


def _number(value: int) -> bytes:
    if value >= _LATE:
        return _LONG(0xCF, value)
    if value < 0x80:  # noqa: PLR2004 -- positive fixint
        return bytes((value,))
    if value < 0x100:  # noqa: PLR2004 -- uint 8
        return struct.pack(">BB", 0xCC, value)
    if value < 0x10000:  # noqa: PLR2004 -- uint 16
        return struct.pack(">BH", 0xCD, value)
    return struct.pack(">BI", 0xCE, value)
