"""The scripts of a page and the host have one form for digests and values (law 5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.errors import BadBytes
from caxton_host.lib import codec
from tests.scene import JSON_VALUES

from .engine import Engine

_SEED = bytes(range(32))
#: Floats whose text depends on who writes it.
_FLOATS = (1.0, -0.0, 1e15, 1e16, 1e22, 1e-4, 1e-5, 5e-324, 0.1, 2.0**53, -1.5e300)
_TEXTS = (
    *(b"-0", b"1e400", b"01", b"1.", b".5", b"[1,]", b'{"a":1,"a":2}', b"NaN", b"- 1"),
    *(
        b"\xef\xbb\xbf1",
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\x01"',
        b"18446744073709551615",
    ),
    *(b"18446744073709551616", b"-9223372036854775809", b"1" * 5000, b"1 2", b'"\\x"'),
    *(
        b"[" * 63 + b"]" * 63,
        b"[" * 65 + b"]" * 65,
        b"",
        b"nul",
        b'{"1":1,"\\u0031":2}',
    ),
)


def _refusing(read: Callable[[bytes], bytes], data: bytes) -> str | None:
    try:
        return read(data).hex()
    except BadBytes:
        return None


def _parts(data: bytes) -> list[list[str]] | None:
    try:
        items = codec.split_batch(data)
    except BadBytes:
        return None
    return [[(name or b"").hex(), params.hex()] for name, params in items]


def _read(text: bytes) -> str | None:
    return _refusing(lambda it: codec.from_json(it, 10**6, codec.RESULT_NODES), text)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 119, 120, 127, 128, 10_000])
def test_a_digest_is_the_one_of_the_host(engine: Engine, size: int) -> None:
    data = hashlib.shake_128(_SEED).digest(size)
    found = engine.ask({"ask": "sha256", "given": [data]})
    assert found == hashlib.sha256(data).hexdigest()
    found = engine.ask({"ask": "shake256", "given": [_SEED, size]})
    assert found == hashlib.shake_256(_SEED).hexdigest(size)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES | st.sampled_from(_FLOATS), data=st.data())
def test_values_have_the_bytes_and_the_text_of_the_host(
    engine: Engine, value: JSON, data: st.DataObject
) -> None:
    packed = codec.encode(value)
    assert engine.ask({"ask": "repack", "given": [packed]}) == packed.hex()
    told = engine.ask({"ask": "toJSON", "given": [packed]})
    assert told == codec.to_json(packed).decode()
    text = bytearray(json.dumps(value, ensure_ascii=False).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.sampled_from(b'{}[],:"\\019.eE+-tnul \n\xc3\x00'))
    for one in (told.encode(), bytes(text)):
        assert engine.ask({"ask": "fromJSON", "given": [one]}) == _read(one)


@pytest.mark.parametrize("text", _TEXTS)
def test_a_text_is_json_for_both_or_for_none(engine: Engine, text: bytes) -> None:
    assert engine.ask({"ask": "fromJSON", "given": [text]}) == _read(text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    items=st.lists(
        st.tuples(st.text(max_size=40), JSON_VALUES).map(list) | JSON_VALUES, max_size=4
    ),
    data=st.data(),
)
def test_a_batch_has_the_same_items_whatever_its_bytes(
    engine: Engine, items: list[JSON], data: st.DataObject
) -> None:
    packed = bytearray(codec.encode(items))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(
            st.integers(0, 255)
        )
    batch = bytes(packed)
    assert engine.ask({"ask": "batch", "given": [batch]}) == _parts(batch)
