"""
Bytes from outside become values here, bounded before anyone interprets them.

The only owner of msgpack. A value is what JSON can say: no byte strings, no
extension types, no NaN; maps have text keys, each once.
"""

from __future__ import annotations

import hashlib
import json
import math
from itertools import pairwise
from typing import Any, NoReturn, cast

import msgpack  # noqa: TID251 -- this is its owner

from ..core.calls import JSON
from ..errors import BadBytes

DEPTH = 64
NODES = 10_000
RESULT_NODES = 200_000
BATCH_ITEMS = 64
BATCH_BYTES = 1024 * 1024

#: Texts of up to 2^8, 2^16 and 2^32 bytes: tag, and how long it is with its length.
_TEXTS = {0xD9: 2, 0xDA: 3, 0xDB: 5}
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_LONGEST = 20


def encode(value: Any) -> bytes:  # noqa: ANN401 -- events may carry tuples too
    """
    Return *value* as msgpack, each part in its shortest form.

    >>> encode({"location": "Seattle"}).hex()
    '81a86c6f636174696f6ea753656174746c65'

    Raises:
        BadBytes: A part of it has no such form.
    """
    try:
        return msgpack.packb(value)
    except (ValueError, TypeError, OverflowError, UnicodeEncodeError) as exc:
        raise BadBytes(f"not a value that can be stored: {exc}") from None


def canonical(value: JSON) -> bytes:
    """
    Return the same bytes for equal values: like `encode`, with keys in order.

    >>> canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})
    True
    """
    return encode(_ordered(value))


def _ordered(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def sha256(data: bytes) -> str:
    """Return the digest of *data*, in hex."""
    return hashlib.sha256(data).hexdigest()


def decode_trusted(data: bytes) -> Any:  # noqa: ANN401 -- whatever was encoded
    """Return what `encode` was given. For bytes this host wrote and verified."""
    return msgpack.unpackb(data, strict_map_key=False)


def decode(data: bytes, *, limit: int, nodes: int = NODES) -> JSON:
    """
    Return the value that *data* holds.

    Args:
        data: Bytes from an agent.

        limit: The most bytes to look at.

        nodes: The most values to build.

    Raises:
        BadBytes: They are too many, not one msgpack value, deeper than 64, or
            hold what JSON cannot say.
    """
    if len(data) > limit:
        raise BadBytes(f"{len(data)} bytes, of {limit} allowed")
    try:
        value = msgpack.unpackb(
            data,
            object_pairs_hook=_map,
            ext_hook=_no_extension,
            timestamp=0,
            max_bin_len=0,
        )
    except BadBytes:
        raise
    except (ValueError, TypeError, UnicodeDecodeError, OverflowError) as exc:
        raise BadBytes(f"not msgpack: {_reason(exc)}") from None
    _bounded(value, nodes)
    return cast("JSON", value)


def decode_map(data: bytes, *, limit: int) -> dict[str, JSON]:
    """
    Return the map that *data* holds: the parameters of a call.

    Raises:
        BadBytes: See `decode`; or the value is not a map.
    """
    value = decode(data, limit=limit)
    if not isinstance(value, dict):
        raise BadBytes("params are not a map")
    return value


def split_batch(data: bytes) -> list[tuple[bytes | None, bytes]]:
    r"""
    Return name and params of each item of a batch, as the agent's own bytes.

    Nothing is built: what an item holds is for `decode_map` to judge. One that is
    not ``[name, params]`` has no name, and all of it for params.

    >>> split_batch(encode([["echo", {"n": 1}], 7]))
    [(b'echo', b'\x81\xa1n\x01'), (None, b'\x07')]

    Raises:
        BadBytes: More than 1 MiB, not an array, more than 64 items, or no telling
            where one of them ends.
    """
    if len(data) > BATCH_BYTES:
        raise BadBytes(f"{len(data)} bytes, of {BATCH_BYTES} allowed")
    return [_item(item) for item in _parts(data, BATCH_ITEMS)]


def _item(data: bytes) -> tuple[bytes | None, bytes]:
    try:
        parts = _parts(data, 2)
    except BadBytes:
        return None, data
    head = _head(parts[0][0]) if len(parts) == 2 else 0  # noqa: PLR2004 -- a pair
    return (parts[0][head:], parts[1]) if head else (None, data)


def _head(tag: int) -> int:
    """Return how many bytes of a text come before its own, or 0 if it is none."""
    return 1 if tag & 0xE0 == 0xA0 else _TEXTS.get(tag, 0)  # noqa: PLR2004 -- fixstr


def _parts(data: bytes, most: int) -> list[bytes]:
    """Return the bytes of each value of an array."""
    reader = msgpack.Unpacker(max_buffer_size=len(data))
    try:
        reader.feed(data)
        count = reader.read_array_header()
        if count > most:
            raise BadBytes(f"{count} items, of {most} allowed")
        ends = [reader.tell()]
        for _ in range(count):
            reader.skip()
            ends.append(reader.tell())
    except (ValueError, msgpack.UnpackException) as exc:
        raise BadBytes(f"not an array: {_reason(exc)}") from None
    if ends[-1] < len(data):
        raise BadBytes("not an array: bytes after it")
    return [data[start:end] for start, end in pairwise(ends)]


def load_json(
    data: bytes | str, *, limit: int, nodes: int = RESULT_NODES, depth: int = DEPTH
) -> JSON:
    """
    Return the value of a JSON text, under the same rules as `decode`.

    Bytes are UTF-8 without a byte order mark: RFC 8259, section 8.1.

    >>> load_json(b'{"sky": "clear"}', limit=100)
    {'sky': 'clear'}

    Raises:
        BadBytes: Too long, too deep, not JSON, or a number, key or text that the
            log could not hold.
    """
    size = len(data.encode(errors="replace") if isinstance(data, str) else data)
    if size > limit:
        raise BadBytes(f"{size} bytes, of {limit} allowed")
    try:
        value = _strict(_utf8(data) if isinstance(data, bytes) else data)
    except BadBytes:
        raise
    except (ValueError, RecursionError) as exc:
        raise BadBytes(f"not JSON: {_reason(exc)}") from None
    _bounded(value, nodes, depth)
    return cast("JSON", value)


def from_json(data: bytes, limit: int, nodes: int = NODES) -> bytes:
    r"""
    Return the msgpack of the JSON text of an agent.

    >>> from_json(b'{"n": 1}', 100)
    b'\x81\xa1n\x01'

    Args:
        data: UTF-8.

        limit: The most bytes to look at.

        nodes: The most values to build.

    Raises:
        BadBytes: See `load_json`.
    """
    return encode(load_json(data, limit=limit, nodes=nodes))


def to_json(data: bytes) -> bytes:
    r"""
    Return the JSON text of msgpack that this host wrote.

    >>> to_json(b"\x81\xa1n\x01")
    b'{"n":1}'
    """
    return _to_json(decode_trusted(data)).encode()


def batch_from_json(data: bytes, limit: int) -> bytes:
    r"""
    Return the msgpack of a batch in JSON. A bad item spoils only itself.

    What is wrong in it becomes bytes that no reader of a value takes.

    >>> batch_from_json(b'[["echo", {"n": 1}], ["echo", {"n": NaN}]]', 100)[-5:]
    b'\xc4\x03NaN'

    Raises:
        BadBytes: Too long, too deep, or no JSON at all.
    """
    if len(data) > limit:
        raise BadBytes(f"{len(data)} bytes, of {limit} allowed")
    try:
        items = _lenient(_utf8(data))
        return msgpack.packb(items, use_bin_type=True, unicode_errors="surrogatepass")
    except (ValueError, RecursionError) as exc:
        raise BadBytes(f"not JSON: {_reason(exc)}") from None


def _utf8(data: bytes) -> str:
    # The bytes alone may pass for UTF-16, to the reader of JSON.
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadBytes("not JSON: not UTF-8") from None


def _map_or_bytes(pairs: list[tuple[str, Any]]) -> dict[str, Any] | bytes:
    built = dict(pairs)
    if len(built) == len(pairs):
        return built
    return json.dumps(pairs, default=bytes.decode).encode()


def _number_or_bytes(text: str) -> int | bytes:
    if len(text) <= _LONGEST and _SMALLEST <= (number := int(text)) <= _LARGEST:
        return number
    return text.encode()


def _reason(exc: Exception) -> str:
    return (str(exc) or type(exc).__name__)[:120]


def _map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise BadBytes("a map has the same key twice")
    for key in built:
        if type(key) is not str:
            raise BadBytes("a map has a key that is not text")
    return built


def _no_extension(code: int, _: bytes) -> NoReturn:
    raise BadBytes(f"extension type {code}")


def _no_constant(name: str) -> NoReturn:
    raise BadBytes(f"{name} is not a number")


def _bounded(value: JSON, nodes: int, most: int = DEPTH) -> None:
    """Walk in levels: as deep as the value, and no deeper than allowed."""
    level, depth, seen = [value], 0, 0
    while level:
        depth += 1
        seen += len(level)
        if depth > most:
            raise BadBytes(f"deeper than {most}")
        if seen > nodes:
            raise BadBytes(f"more than {nodes} values")
        below: list[JSON] = []
        for item in level:
            if isinstance(item, dict):
                for key in item:
                    if not key.isascii():
                        _check(key)
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif not isinstance(item, str) or not item.isascii():
                _check(item)
        level = below


def _check(item: object) -> None:
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, str):
        try:
            item.encode()
        except UnicodeEncodeError:
            raise BadBytes("a text has half a character (surrogate)") from None
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise BadBytes(f"{item} is not a number")
    elif isinstance(item, int):
        if not _SMALLEST <= item <= _LARGEST:
            raise BadBytes("a number has more than 64 bits")
    else:
        raise BadBytes("bytes and times are not values")


# Made once: to make one takes longer than to read a short text with it.
_strict = json.JSONDecoder(object_pairs_hook=_map, parse_constant=_no_constant).decode
_lenient = json.JSONDecoder(
    object_pairs_hook=_map_or_bytes,
    parse_int=_number_or_bytes,
    parse_constant=str.encode,
).decode
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
