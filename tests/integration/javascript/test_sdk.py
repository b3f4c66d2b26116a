"""What authors in JavaScript are told, by a module that was built from it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .machine import BEGAN, Machine, ok, problem, stream

#: The engine is compiled first, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)


def done(module: bytes, action: str, **asked: Any) -> tuple[Any, Machine]:  # noqa: ANN401 -- JSON
    """Return what *action* of the probe output, and the machine it ran in."""
    machine = asked.pop("machine", None) or Machine()
    machine.input = {"action": action, **asked}
    assert machine.run(module) is None
    return machine.result(), machine


def test_a_call_returns_what_the_tool_answered(probe: bytes) -> None:
    machine = Machine(tool=lambda *_: ok("sunny", {"content": [{"text": "sunny"}]}))
    params = {"z": [1, 2.5, None, True, "ü\0𝄞"], "a": {"": {}}}
    reply, _ = done(probe, "call", machine=machine, name="weather", params=params)
    assert reply == ok("sunny", {"content": [{"text": "sunny"}]})
    [(name, _)] = machine.calls
    assert name == "weather"
    assert machine.sent() == params
    assert [*machine.sent()] == [*params]


def test_params_are_a_map_where_there_are_none(probe: bytes) -> None:
    _, machine = done(probe, "without")
    assert machine.calls == [("weather", b"\x80")]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        ("tool_error", "ToolError", "tool_error"),
        ("denied", "Denied", "not_granted"),
        ("failed", "Failed", "timeout"),
        ("bad_request", "BadRequest", "bad_request"),
    ],
)
def test_a_call_without_an_answer_throws_an_error_of_its_kind(
    status: str, kind: str, code: str, probe: bytes
) -> None:
    machine = Machine(tool=lambda *_: problem(status, code, "no", {"content": []}))
    error, _ = done(probe, "call", machine=machine, name="x", params={})
    assert error == {
        "kinds": [kind],
        "agent": True,
        "said": f"{kind}: no",
        "status": status,
        "code": code,
        "data": {"content": []},
    }


def test_a_batch_returns_replies_and_errors_in_the_order_of_the_calls(
    probe: bytes,
) -> None:
    def tool(name: str, _params: object) -> object:
        return ok(name) if name == "a" else problem("denied", "not_granted", name)

    calls = [["b", {"x": 1}], ["a", {}], ["a"]]
    answers, machine = done(probe, "many", machine=Machine(tool=tool), calls=calls)
    assert answers == [[True, "denied", "b"], [False, "ok", "a"], [False, "ok", "a"]]
    assert machine.sent() == [["b", {"x": 1}], ["a", {}], ["a", {}]]


def test_a_batch_may_be_whatever_can_be_gone_through(probe: bytes) -> None:
    answers, machine = done(probe, "generator")
    assert answers == 2
    assert machine.sent() == [["one", {}], ["two", {"a": 1}]]


def test_a_batch_that_is_none_throws(probe: bytes) -> None:
    machine = Machine(many=problem("bad_request", "bad_request", "over 64 calls"))
    error, _ = done(probe, "tooMany", machine=machine)
    assert error["said"] == "BadRequest: over 64 calls"


def test_whole_numbers_of_64_bits_come_and_go_unchanged(probe: bytes) -> None:
    numbers = [9007199254740991, 9007199254740993, -(2**63), 2**64 - 1, 0.1, 1e300]
    kinds, machine = done(
        probe, "numbers", machine=Machine(tool=lambda *_: ok("", numbers))
    )
    assert kinds == [
        "number 9007199254740991",
        "bigint 9007199254740993",
        "bigint -9223372036854775808",
        "bigint 18446744073709551615",
        "number 0.1",
        "number 1e+300",
    ]
    sent = machine.sent().items()
    assert {name: (type(value), value) for name, value in sent} == {
        "small": (int, -7),
        "half": (float, 0.5),
        "whole": (float, 2.0**60),  # A number so large is not exact: no integer.
        "huge": (float, 1e300),
        "big": (int, 2**64 - 1),
        "low": (int, -(2**63)),
    }


def test_digits_in_a_text_are_no_number(probe: bytes) -> None:
    data = {"text": "12345678901234567890", "pi": 3.14159265358979312}
    reply, _ = done(
        probe, "call", machine=Machine(tool=lambda *_: ok("", data)), name="x"
    )
    assert reply["data"] == data


def test_what_no_tool_can_be_told_throws_before_anything_is_asked(probe: bytes) -> None:
    said, machine = done(probe, "noNumber")
    assert said == [
        "TypeError: value is NaN, which JSON does not have",
        "TypeError: value is Infinity, which JSON does not have",
    ]
    assert done(probe, "circle")[0].startswith("TypeError: ")
    assert not machine.calls


def test_half_a_character_does_not_end_the_run(probe: bytes) -> None:
    said, machine = done(probe, "halves")
    assert machine.logs == [("info", "a\ufffdb"), ("info", "\ufffd")]
    # Half a character has no UTF-8, so the host refuses these params.
    half = b"\xa3\xed\xa0\x80"
    assert machine.calls == [("\ufffd", b"\x81" + 2 * half)]
    assert said == ["bad_request", None]


def test_the_tools_and_variables_of_the_run_can_be_asked_for(probe: bytes) -> None:
    assert done(probe, "tools")[0] == [{"name": "weather"}]
    machine = Machine(variables={"user": "Ada", "list": [1]})
    assert done(probe, "context", machine=machine)[0] == ["Ada", [1], "undefined"]


def test_the_last_output_counts_and_keys_keep_their_order(probe: bytes) -> None:
    _, machine = done(probe, "outputs")
    assert machine.outputs == [1, "text", None, 3]
    _, machine = done(probe, "order")
    # JavaScript itself puts keys that are numbers first.
    assert [*machine.result().items()] == [("10", 3), ("z", 1), ("a", 2), ("", 4)]


def test_an_agent_that_outputs_nothing_completes(probe: bytes) -> None:
    machine = Machine(input={"action": "levels"})
    machine.run(probe)
    levels = ("debug", "info", "warning", "error")
    assert machine.logs == [(level, level) for level in levels]


def test_what_goes_to_the_console_is_in_the_log(probe: bytes) -> None:
    machine = Machine(input={"action": "console"})
    assert machine.run(probe) is None
    assert not machine.outputs
    assert machine.logs == [
        ("debug", "a 1 2 null undefined true"),
        ("info", '{"a":[1,2]} [1]'),
        ("info", "TypeError: wrong"),
        ("warning", "TypeError: circular reference Symbol(s) () => 1"),
        ("error", ""),
    ]


# law 4


def test_every_clock_of_the_language_is_the_hosts(probe: bytes) -> None:
    times, _ = done(probe, "time")
    second = 1_500_000
    asked = [BEGAN + second * n for n in range(20)]
    assert times == [
        asked[0],
        asked[1] // 1000,
        "2026-01-01T00:00:03.123Z",
        "Thu Jan 01 2026 00:00:04 GMT+0000",
        "Wed Jan 01 2020 12:00:00 GMT+0000",
        True,
        True,
        asked[6] // 1000,
        0,
        1500,
        asked[7] / 1000,
    ]


def test_all_chance_of_the_language_is_the_hosts(probe: bytes) -> None:
    drawn, machine = done(probe, "chance")
    # One seed of 12 bytes for all numbers up to the next call.
    assert machine.drawn == 12 + 6 + 6 + 16
    bytes_ = stream(machine.drawn)
    assert 0 <= drawn[0] < 1
    assert 0 <= drawn[1] < 1
    assert drawn[0] != drawn[1]
    assert bytes(drawn[2]) == bytes_[12:18]
    filled = b"".join(number.to_bytes(2, "little") for number in drawn[3])
    assert filled == bytes_[18:24]
    form = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert re.fullmatch(form, drawn[4])
    assert drawn[4].startswith(bytes_[24:28].hex())
    assert done(probe, "chance")[0] == drawn


def test_random_numbers_are_in_range_and_differ(probe: bytes) -> None:
    assert done(probe, "fair")[0] == 200


def test_what_runs_while_the_agent_is_built_has_no_clock(probe: bytes) -> None:
    built, _ = done(probe, "built")
    assert built == {
        "date": 0,
        "early": "Error: now is not available during the build: call it in run()",
    }


def test_there_is_no_network(probe: bytes) -> None:
    assert done(probe, "exits")[0] == "ReferenceError: fetch is not defined"


def test_what_an_asynchronous_run_resolves_to_is_the_output(probe: bytes) -> None:
    assert done(probe, "promise")[0] == 1


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (
            "throwError",
            r"TypeError: cannot read property 'location' of null \(probe\.js:\d+:\d+\)",
        ),
        ("throwDenied", r"Denied: not yours \(probe\.js:\d+:\d+\)"),
        ("throwText", "text \ufffd"),
        ("throwNothing", "undefined"),
        (
            "never",
            r"Error: what the program awaits never settles: .*",
        ),
    ],
)
def test_a_run_that_throws_has_failed_and_says_where(
    action: str, said: str, probe: bytes
) -> None:
    machine = Machine(
        input={"action": action},
        tool=lambda *_: problem("denied", "not_granted", "not yours"),
    )
    told = machine.run(probe)
    assert told
    assert re.fullmatch(said + r"(\n  at .*)*", told)


def test_a_run_continues_a_conversation_and_makes_an_image(probe: bytes) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert done(probe, "continued")[0] == [[], image]
    said = {"role": "assistant", "content": "It is noon."}
    answer = {"message": "", "data": {"structuredContent": said}}
    known = {"run": "r1", "messages": [{"role": "user"}], "answer": answer}
    machine = Machine(variables={"conversation": known})
    assert done(probe, "continued", machine=machine)[0][0] == [{"role": "user"}, said]
