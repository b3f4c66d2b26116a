"""The SDKs read and write what the codec does, and nothing past the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.errors import BadBytes
from caxton_host.lib import codec

from .engine import Machine, no_tool, ok, problem

pytestmark = pytest.mark.no_cover

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=300)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(max_size=40), inner, max_size=20)
    ),
    max_leaves=30,
)


_TREE: JSON = {
    "a": [1, {"b": "x"}],
    "c.d": 1,
    "10": "ten",
    "é": 2,
    "n": [*range(100)],
}


def _ask(probe: bytes, **task: JSON) -> Machine:
    machine = Machine(input=codec.encode(task))
    assert machine.run(probe) == 0
    return machine


@given(value=_VALUES)
def test_an_sdk_and_the_codec_write_the_same_bytes(probe: bytes, value: JSON) -> None:
    machine = Machine(input=codec.encode(value))
    assert machine.run(probe) == 0
    assert machine.output == codec.encode(value)


@pytest.mark.parametrize("size", [31, 32, 255, 256, 65_535, 65_536])
def test_long_texts_and_containers_are_read_and_written(
    probe: bytes, size: int
) -> None:
    for value in ("x" * size, [None] * size, {str(n): n for n in range(size)}):
        machine = Machine(input=codec.encode(value))
        assert machine.run(probe) == 0
        assert machine.output == codec.encode(value)


@given(data=st.binary(max_size=400))
def test_bytes_that_are_no_value_never_trap_the_guest(  # law 9
    probe: bytes, data: bytes
) -> None:
    Machine(input=data).run(probe)


@given(tail=st.binary(min_size=1, max_size=64))
def test_nothing_is_read_past_the_last_byte_of_memory(  # law 9
    probe: bytes, tail: bytes
) -> None:
    # A reply of just one page is put at the end of the guest's memory.
    nils = 65_536 - 5 - len(tail)
    data = b"\xdd" + (nils + 1).to_bytes(4, "big") + b"\xc0" * nils + tail
    Machine(input=data).run(probe)


def test_a_lying_length_ends_where_the_bytes_end(probe: bytes) -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff"):
        assert Machine(input=head).run(probe) in {0, 1}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", _TREE),
        ("a.1.b", "x"),
        ("a.0", 1),
        ("10", "ten"),
        ("é", 2),
        ("a.2", None),
        ("a.b", None),
        ("a.1.b.c", None),
        ("nothing", None),
        ("a.4294967297", None),
        ("a.99999999999999999999", None),
        ("n.99", 99),
        ("n.b", None),
        ("n.", [*range(100)]),
        ("n..", None),
    ],
)
def test_a_path_finds_a_value_or_nothing(probe: bytes, path: str, found: JSON) -> None:
    assert _ask(probe, task="find", path=path, value=_TREE).result() == found


def test_a_reply_that_did_not_fit_is_taken_and_not_asked_for_again(
    probe: bytes,
) -> None:
    machine = Machine(input=codec.encode("x" * 200_000))
    assert machine.run(probe) == 0
    assert machine.taken == 1
    assert machine.result() == "x" * 200_000


def test_tools_context_time_and_randomness_come_from_the_host(probe: bytes) -> None:
    assert _ask(probe, task="host").result() == {
        "tools": "weather",
        "name": "Ada",
        "unknown": True,
        "now": 1_700_000_000_000_000,
        "random": int.from_bytes(bytes(range(8)), "little"),
    }


def test_params_that_do_not_fit_are_never_sent(probe_c: bytes) -> None:
    machine = Machine(input=codec.encode({"task": "full"}), tool=no_tool)
    assert machine.run(probe_c) == 0
    assert machine.calls == []
    assert machine.result() is True


def test_one_text_can_be_the_output(probe_c: bytes) -> None:
    assert _ask(probe_c, task="text").result() == "one text"


def test_batch_is_built_made_and_taken_apart(probe_c: bytes) -> None:
    def tool(name: str, _params: object) -> tuple[int, bytes]:
        if name == "one":
            return problem(3, "failed", "timeout", "no answer")
        return ok("second")

    machine = Machine(input=codec.encode({"task": "batch"}), tool=tool)
    assert machine.run(probe_c) == 0
    assert machine.calls == [("one", {}), ("two", {"n": 2})]
    # The batch that is refused, the one that is full, the third and its answers:
    # the one after the last is nothing.
    assert machine.result() == [4, 5, 0, 3, 0, 4, "second"]


@pytest.mark.debian
def test_errors_of_calls_are_values_in_rust(probe_rust: bytes) -> None:
    def tool(name: str, _params: object) -> tuple[int, bytes]:
        match name:
            case "denied":
                return problem(2, "denied", "not_granted", "no grant")
            case "failed":
                return problem(3, "failed", "timeout", "no answer")
            case "tool_error":
                return problem(1, "tool_error", "tool_error", "no such city")
            case "bad_request":
                return problem(4, "bad_request", "bad_request", "no params")
            case _:
                return ok("fine", {"content": [{"text": "fine"}]})

    names = ["denied", "failed", "tool_error", "bad_request", "works"]
    machine = Machine(input=codec.encode({"task": "calls", "names": names}), tool=tool)
    assert machine.run(probe_rust) == 0
    told = [
        "denied: no grant (not_granted)",
        "failed: no answer (timeout)",
        "tool_error: no such city (tool_error)",
        "bad_request: no params (bad_request)",
        "fine",
    ]
    assert machine.result() == {"alone": told, "together": told}
    assert machine.calls == [(name, {"n": 1}) for name in names] * 2


@pytest.mark.debian
def test_a_batch_that_is_refused_is_one_error_in_rust(probe_rust: bytes) -> None:
    # The machine refuses an empty batch.
    result = _ask(probe_rust, task="calls", names=[]).result()
    assert result["together"] == "bad_request: no (bad_request)"


@pytest.mark.debian
def test_an_error_and_a_panic_end_the_run_with_a_word_in_the_log(
    probe_rust: bytes,
) -> None:
    machine = Machine(input=codec.encode({"task": "error"}))
    assert machine.run(probe_rust) == 1
    assert machine.logs == [(3, "it is over")]
    machine = Machine(input=codec.encode({"task": "panic"}))
    with pytest.raises(wasmtime.Trap):
        machine.run(probe_rust)
    (level, text) = machine.logs[0]
    assert level == 3
    assert "index out of bounds" in text
    assert "agent/agent.rs:" in text  # and no path of the machine
    machine = Machine(input=codec.encode({"task": "memory"}))
    with pytest.raises(wasmtime.Trap):
        machine.run(probe_rust)
    assert machine.logs == [(3, "out of memory")]


@pytest.mark.debian
def test_the_macro_of_rust_makes_any_value(probe_rust: bytes) -> None:
    assert _ask(probe_rust, task="json").result() == {
        "nothing": None,
        "list": [1, -2, 2.5, True, None, "x", [], {}, [1, [2]], {"a": {"b": [None]}}],
        "sum": 3,
        "made": "key",
        "some": 1,
        "none": None,
        "shown": '{"a":[null,true,-1,0.5,"\\"\\\\\\n\\u0001é"],"b":{}}',
    }


def _parse(probe_rust: bytes, text: str) -> Any:  # noqa: ANN401 -- JSON
    return _ask(probe_rust, task="parse", text=text).result()


@pytest.mark.debian
@given(value=_VALUES, indent=st.sampled_from([None, 1]), ascii_=st.booleans())
def test_rust_reads_and_writes_json_without_a_loss(
    probe_rust: bytes,
    value: JSON,
    indent: int | None,
    ascii_: bool,  # noqa: FBT001 -- drawn
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    assert _parse(probe_rust, text) == {"value": value, "again": True}


@pytest.mark.debian
@given(text=st.text(alphabet='{}[]",:\\u0d8e+-.19tfnrl \n\x00é', max_size=30))
def test_rust_takes_for_json_what_the_json_of_python_takes(  # law 9
    probe_rust: bytes, text: str
) -> None:
    try:
        value = json.loads(text)
        codec.encode(value)
    except (ValueError, BadBytes):
        assert "error" in _parse(probe_rust, text)
    else:
        answer = _parse(probe_rust, text)
        assert answer.get("value") == value or "twice" in answer["error"]


@pytest.mark.debian
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "line 1, column 1: a value is expected"),
        ("nul", "line 1, column 1: a value is expected"),
        ("[1,\n é]", "line 2, column 2: a value is expected"),
        ("[1 2]", "line 1, column 4: a comma or ] is expected"),
        ("[1,]", "line 1, column 4: a value is expected"),
        ('{"é" 1}', "line 1, column 6: a colon is expected"),
        ("{a: 1}", "line 1, column 2: a key in double quotes is expected"),
        ('{"a": 1 "b"', "line 1, column 9: a comma or } is expected"),
        ('{"a": 1,\n"a": 2}', "line 2, column 1: the key occurs twice"),
        ('["a', "line 1, column 2: the text has no closing quote"),
        ('"a\n"', "line 1, column 3: a control character must be escaped"),
        (r'"é\x"', "line 1, column 3: an unknown escape"),
        ('"\\', "line 1, column 2: an unknown escape"),
        (r'"\u12g4"', "line 1, column 2: four hexadecimal digits are expected"),
        (r'"\u12é"', "line 1, column 2: four hexadecimal digits are expected"),
        (r'"\ud800"', "line 1, column 2: half of a surrogate pair"),
        (r'"\ud800\u0041"', "line 1, column 2: half of a surrogate pair"),
        ("01", "line 1, column 1: a number must not begin with 0"),
        ("-", "line 1, column 2: a digit is expected"),
        ("1.", "line 1, column 3: a digit is expected"),
        ("1e+", "line 1, column 4: a digit is expected"),
        ("NaN", "line 1, column 1: a value is expected"),
        (" 18446744073709551616", "line 1, column 2: an integer has more than 64 bits"),
        ("-9223372036854775809", "line 1, column 1: an integer has more than 64 bits"),
        ("9" * 100_000, "line 1, column 1: an integer has more than 64 bits"),
        ("1e400", "line 1, column 1: a number is too large"),
        ("1 2", "line 1, column 3: the end of the text is expected"),
        ("[" * 129 + "]" * 129, "line 1, column 129: more than 128 levels"),
        ("[" * 1_000_000, "line 1, column 129: more than 128 levels"),
    ],
)
def test_rust_says_where_a_text_is_not_json(
    probe_rust: bytes, text: str, error: str
) -> None:
    assert _parse(probe_rust, text) == {"error": error}
