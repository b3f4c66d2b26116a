"""Bytes from outside are bounded before anyone interprets them: law 9."""

from __future__ import annotations

import datetime as dt
import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.log.diff import first_difference
from caxton_host.errors import BadBytes
from caxton_host.lib import codec
from tests.scene import JSON_VALUES

LIMIT = 64 * 1024
BIG = 2**32 - 1


def nested(depth: int, leaf: bytes = b"\xc0") -> bytes:
    return b"\x91" * depth + leaf


# -- msgpack -------------------------------------------------------------------


@given(JSON_VALUES)
def test_what_was_encoded_is_decoded_with_its_types(value: JSON) -> None:
    data = codec.encode(value)

    for back in (codec.decode(data, limit=10**6), codec.decode_trusted(data)):
        assert first_difference(value, back) is None


@given(st.binary(max_size=200))
@example(b"\xd6\xff\x00\x00\x00\x00")
@example(b"\xd7\xff" + b"\xff" * 8)
@example(b"\xc7\x0c\xff" + b"\xff" * 12)
@example(b"\x81\xc4\x00\xc0")
@example(b"\x81\x90\xc0")
@example(b"\x81\x80\xc0")
def test_decode_of_any_bytes_gives_a_value_or_bad_bytes(data: bytes) -> None:
    try:
        value = codec.decode(data, limit=LIMIT)
    except BadBytes:
        return
    assert first_difference(value, codec.decode_trusted(codec.encode(value))) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\xc0\xc0", "not msgpack"),
        (b"\x92\xc0", "not msgpack"),
        (b"\xa1\xff", "not msgpack"),
        (b"\xa3\xed\xa0\x80", "not msgpack"),
        (b"\x82\xa1a\x01\xa1a\x02", "the same key twice"),
        (b"\x81\x01\x02", "not msgpack"),
        (b"\x81\xc0\x02", "not msgpack"),
        (b"\x81\xc4\x01a\x02", "not msgpack"),
        (b"\x81\xc4\x00\x02", "a key that is not text"),
        (b"\xc4\x00", "bytes and times are not"),
        (b"\xc4\x01a", "not msgpack"),
        (b"\xc7\x01\x05a", "extension type 5"),
        (b"\xd4\x05a", "extension type 5"),
        (b"\xd6\xff\x00\x00\x00\x00", "bytes and times are not"),
        (b"\x91\xd6\xff\x00\x00\x00\x00", "bytes and times are not"),
        (b"\xca\x7f\xc0\x00\x00", "nan is not a number"),
        (struct.pack(">Bd", 0xCB, float("inf")), "inf is not a number"),
        (struct.pack(">Bd", 0xCB, float("-inf")), "-inf is not a number"),
    ],
    ids=lambda part: part.hex() if isinstance(part, bytes) else None,
)
def test_bad_bytes_are_refused(data: bytes, reason: str) -> None:  # DESIGN, section 4
    # attacks 15, 16, 17 and 18
    with pytest.raises(BadBytes, match=reason):
        codec.decode(data, limit=LIMIT)


@pytest.mark.parametrize(
    "head",
    [
        b"\xdb" + struct.pack(">I", BIG),
        b"\xc6" + struct.pack(">I", BIG),
        b"\xdd" + struct.pack(">I", BIG),
        b"\xdf" + struct.pack(">I", BIG),
        b"\xc9" + struct.pack(">I", BIG) + b"\x05",
        (b"\xdd" + struct.pack(">I", LIMIT - 10_000)) * 2_000,
    ],
    ids=["str", "bin", "array", "map", "ext", "arrays in arrays"],
)
def test_claimed_length_is_not_believed(head: bytes) -> None:  # law 9
    # attack 13
    with pytest.raises(BadBytes):
        codec.decode(head, limit=LIMIT)


def test_bytes_over_the_limit_are_not_looked_at() -> None:
    with pytest.raises(BadBytes, match="9 bytes, of 8 allowed"):
        codec.decode(b"\xc1" * 9, limit=8)
    assert codec.decode(codec.encode("a" * 7), limit=8) == "a" * 7


def test_value_may_be_64_deep_and_no_deeper() -> None:
    # attack 12
    assert codec.decode(nested(63), limit=LIMIT)
    for depth in (64, 500, 5_000, 60_000):
        with pytest.raises(BadBytes):
            codec.decode(nested(depth), limit=LIMIT)


def test_maps_count_towards_the_depth() -> None:
    with pytest.raises(BadBytes, match="deeper than 64"):
        codec.decode(b"\x81\xa1a" * 64 + b"\xc0", limit=LIMIT)


def test_value_may_have_10_000_parts_and_no_more() -> None:
    # attack 14
    assert codec.decode(codec.encode([None] * 9_999), limit=LIMIT)
    with pytest.raises(BadBytes, match="more than 10000 values"):
        codec.decode(codec.encode([None] * 10_000), limit=LIMIT)
    with pytest.raises(BadBytes, match="more than 10000 values"):
        codec.decode(codec.encode([[None] * 99] * 101), limit=LIMIT)


def test_params_are_a_map() -> None:
    assert codec.decode_map(b"\x81\xa1a\x01", limit=LIMIT) == {"a": 1}
    with pytest.raises(BadBytes, match="params are not a map"):
        codec.decode_map(b"\x90", limit=LIMIT)


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, "\ud800", object(), dt.date(2026, 1, 1)]
)
def test_value_without_a_stored_form_is_refused(value: object) -> None:
    with pytest.raises(BadBytes, match="not a value that can be stored"):
        codec.encode(value)


def test_value_that_holds_itself_is_refused() -> None:
    endless: list[JSON] = []
    endless.append(endless)

    with pytest.raises(BadBytes):
        codec.encode(endless)


def test_each_part_has_its_shortest_form() -> None:
    assert codec.encode([1, -1, 200, "a", {}]).hex() == "9501ffcc" + "c8a16180"


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES))
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(
    value: dict[str, JSON],
) -> None:
    turned: JSON = [dict(reversed(value.items()))]

    assert codec.canonical([value]) == codec.canonical(turned)


# -- JSON ----------------------------------------------------------------------


@given(JSON_VALUES)
def test_json_text_is_loaded_with_its_types(value: JSON) -> None:
    text = json.dumps(value)

    for data in (text, text.encode()):
        assert first_difference(value, codec.load_json(data, limit=10**6)) is None


@given(st.binary(max_size=100) | st.text(max_size=100))
@example('"\\ud800"')
@example("[1e999]")
def test_load_of_anything_gives_a_value_or_bad_bytes(data: bytes | str) -> None:
    try:
        value = codec.load_json(data, limit=LIMIT)
    except BadBytes:
        return
    codec.encode(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} {}", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "inf is not a number"),
        ('{"a": 1, "a": 2}', "the same key twice"),
        ('{"a": {"b": 1, "b": 1}}', "the same key twice"),
        ('"\\ud800"', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        (b'"\xed\xa0\x80"', "half a character|not JSON"),
        (str(2**64), "more than 64 bits"),
        (str(-(2**63) - 1), "more than 64 bits"),
        ("9" * 4_000, "more than 64 bits"),
        ("9" * 5_000, "not JSON"),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_bad_json_is_refused(data: str | bytes, reason: str) -> None:
    with pytest.raises(BadBytes, match=reason):
        codec.load_json(data, limit=LIMIT)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_of_any_depth_is_refused_calmly(opening: str) -> None:  # law 9
    with pytest.raises(BadBytes):
        codec.load_json(opening * 100_000, limit=10**6)
    closing = "]" if opening == "[" else "}"
    with pytest.raises(BadBytes, match="deeper than 64"):
        codec.load_json(opening * 64 + "1" + closing * 64, limit=LIMIT)


def test_json_over_the_limit_is_not_looked_at() -> None:
    with pytest.raises(BadBytes, match="5 bytes, of 4 allowed"):
        codec.load_json("[1,2]", limit=4)
    with pytest.raises(BadBytes, match="6 bytes, of 5 allowed"):
        codec.load_json('"\u00f6\u00f6"', limit=5)


def test_json_of_too_many_parts_is_refused() -> None:
    with pytest.raises(BadBytes, match="more than 3 values"):
        codec.load_json("[1,2,3]", limit=LIMIT, nodes=3)


def test_digest_is_sha256_in_hex() -> None:
    assert codec.sha256(b"") == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_json_of_an_agent_becomes_the_msgpack_of_a_core_module() -> None:
    text = '{"a": [1, -1, 1.5, true, null, "é"]}'
    packed = codec.from_json(text.encode(), LIMIT)
    assert packed == codec.encode(json.loads(text))
    assert json.loads(codec.to_json(packed)) == json.loads(text)
    assert codec.to_json(packed) == '{"a":[1,-1,1.5,true,null,"é"]}'.encode()


@given(JSON_VALUES)
def test_json_and_msgpack_say_the_same(value: JSON) -> None:
    packed = codec.encode(value)
    assert codec.from_json(codec.to_json(packed), 10**6, 10**6) == packed


def test_json_of_an_agent_is_bounded() -> None:
    with pytest.raises(BadBytes, match="of 4 allowed"):
        codec.from_json(b"[1,2]", 4)
    with pytest.raises(BadBytes, match="values"):
        codec.from_json(b"[1,2,3]", LIMIT, 3)
    with pytest.raises(BadBytes, match="of 4 allowed"):
        codec.batch_from_json(b"[1,2]", 4)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'["\xff"]', b"[\0]", b"\xef\xbb\xbf[]"]
)
def test_bytes_that_are_no_json_are_no_batch(data: bytes) -> None:
    for read in (codec.from_json, codec.batch_from_json):
        with pytest.raises(BadBytes):
            read(data, LIMIT)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_batch_that_is_too_deep_is_none(opening: str) -> None:
    with pytest.raises(BadBytes):
        codec.batch_from_json(opening.encode() * 100_000, 10**6)


@pytest.mark.parametrize(
    "item",
    [
        '["b",{"n":NaN}]',
        '["b",{"n":-Infinity}]',
        '["b",{"n":1e999}]',
        '["b",{"x":1,"x":{"y":1,"y":NaN}}]',
        '["b",{"n":18446744073709551616}]',
        f'["b",{{"n":{"9" * 5000}}}]',
        '["b",{"t":"\\ud800"}]',
        f'["b",{"[" * 70}1{"]" * 70}]',
    ],
)
def test_bad_item_of_a_batch_in_json_spoils_only_itself(item: str) -> None:
    batch = f'[["a",{{"n":1}}],{item},["c",{{}}]]'.encode()
    (_, first), (name, bad), (_, last) = codec.split_batch(
        codec.batch_from_json(batch, 10**6)
    )
    assert name == b"b"
    assert codec.decode_map(first, limit=LIMIT) == {"n": 1}
    assert codec.decode_map(last, limit=LIMIT) == {}
    with pytest.raises(BadBytes):
        codec.decode_map(bad, limit=10**6)


def test_different_bad_items_differ() -> None:
    packed = {
        codec.batch_from_json(batch, LIMIT)
        for batch in (b'[{"a":1,"a":1}]', b'[{"a":1,"a":2}]', b"[NaN]", b"[Infinity]")
    }
    assert len(packed) == 4
