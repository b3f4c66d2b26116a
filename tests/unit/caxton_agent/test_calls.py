"""What an author sees of calls, against the host that the SDK ships for tests."""

from __future__ import annotations

import datetime as dt
import json

import caxton_agent as ca
import pytest
from caxton_agent.testing import FakeHost


def test_an_answer_is_a_reply() -> None:
    data = {"content": [{"type": "text", "text": "rain"}], "structuredContent": [12]}
    with FakeHost({"weather": ca.Reply("rain", data)}) as host:
        reply = ca.mcp_call("weather", {"location": "Lima", "days": [1, 2.5, None]})
    assert (reply.status, reply.message, reply.data) == ("ok", "rain", data)
    assert reply.content == data["content"]
    assert reply.structured == [12]
    assert host.calls == [("weather", {"location": "Lima", "days": [1, 2.5, None]})]


def test_an_answer_without_data_has_no_content() -> None:
    with FakeHost({"weather": ca.Reply("rain")}):
        reply = ca.mcp_call("weather")
    assert (reply.content, reply.structured) == ([], None)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (ca.Denied, "denied"),
        (ca.ToolError, "tool_error"),
        (ca.Failed, "failed"),
        (ca.BadRequest, "bad_request"),
    ],
)
def test_what_goes_wrong_is_an_exception_of_its_kind(
    kind: type[ca.AgentError], status: str
) -> None:
    data = {"content": [{"type": "text", "text": "why"}]}
    with FakeHost({"x": kind("a_code", "why", data)}), pytest.raises(kind) as caught:
        ca.mcp_call("x")
    error = caught.value
    assert isinstance(error, ca.AgentError)
    assert (error.status, error.code, error.message) == (status, "a_code", "why")
    assert error.content == data["content"]
    assert str(error) == "why (a_code)"


def test_a_tool_that_is_not_scripted_is_not_granted() -> None:
    with FakeHost() as host, pytest.raises(ca.Denied) as caught:
        ca.mcp_call("anything", {"a": 1})
    assert caught.value.code == "not_granted"
    assert host.calls == [("anything", {"a": 1})]


def test_a_scripted_tool_may_decide_by_its_parameters() -> None:
    def double(params: dict[str, ca.JSON]) -> str | ca.AgentError:
        number = params.get("number")
        return str(2 * number) if number else ca.ToolError("tool_error", "no number")

    with FakeHost({"double": double}):
        assert ca.mcp_call("double", {"number": 21}).message == "42"
        with pytest.raises(ca.ToolError, match="no number"):
            ca.mcp_call("double")


def test_a_batch_is_answered_in_order_and_one_error_spoils_only_itself() -> None:
    with FakeHost({"a": "one", "c": ca.Failed("timeout", "late")}) as host:
        first, second, third = ca.mcp_call_many(
            [("a", {"n": 1}), ("b", None), ("c", {})]
        )
    assert isinstance(first, ca.Reply)
    assert first.message == "one"
    assert isinstance(second, ca.Denied)
    assert isinstance(third, ca.Failed)
    assert third.code == "timeout"
    assert host.calls == [("a", {"n": 1}), ("b", {}), ("c", {})]


def test_an_empty_batch_has_no_answers() -> None:
    with FakeHost():
        assert ca.mcp_call_many([]) == []


def test_a_batch_that_is_none_raises() -> None:
    with FakeHost() as host, pytest.raises(ca.BadRequest):
        ca.mcp_call_many([("a", {})] * 65)
    assert host.calls == []


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"bytes", TypeError),
        ({1, 2}, TypeError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("\ud800", ValueError),
    ],
)
def test_what_json_cannot_say_is_not_sent(
    value: object, error: type[Exception]
) -> None:
    with FakeHost({"x": "never"}) as host:
        with pytest.raises(error, match="params of x: "):
            ca.mcp_call("x", {"value": value})
        with pytest.raises(error, match="a batch: "):
            ca.mcp_call_many([("x", {"value": value})])
        with pytest.raises(error, match="the output: "):
            ca.output(value)
    assert host.calls == []
    assert host.output is None


def test_values_cross_with_their_keys_in_order_and_their_text_as_it_is() -> None:
    value = {"z": 1, "a": {"ö": "🙂", "m": [True, None, -(2**63), 0.5]}}
    with FakeHost({"x": "ok"}, input=value, context={"user": value}) as host:
        assert json.dumps(ca.input()) == json.dumps(value)
        assert ca.context("user") == value
        assert ca.context("nobody") is None
        assert ca.context("nobody", "else") == "else"
        ca.mcp_call("x", value)
        ca.output(value)
    assert list(host.calls[0][1]) == ["z", "a"]
    assert json.dumps(host.output) == json.dumps(value)


def test_the_granted_tools_are_listed() -> None:
    tool = ca.Tool("files__read", "Reads a file.", {"type": "object"})
    with FakeHost(tools=[tool]):
        assert ca.tools() == [tool]
    with FakeHost({"a": "one"}):
        assert [each.name for each in ca.tools()] == ["a"]


def test_now_is_when_the_host_says_in_utc() -> None:
    with FakeHost(now=1_700_000_000_123_456):
        assert ca.now() == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)


def test_random_numbers_are_those_of_the_run() -> None:
    def drawn(seed: int) -> list[object]:
        with FakeHost(seed=seed):
            values = [
                ca.random.random(),
                ca.random.getrandbits(70),
                ca.random_bytes(11),
            ]
            return [*values, ca.random.sample(range(100), 5), ca.random.gauss()]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    with FakeHost():
        assert len(ca.random_bytes(11)) == 11
        assert ca.random_bytes(0) == b""
        assert all(0 <= ca.random.random() < 1 for _ in range(100))
        assert ca.random.getrandbits(0) == 0
        assert all(ca.random.getrandbits(3) < 8 for _ in range(100))
        with pytest.raises(ValueError, match="non-negative"):
            ca.random.getrandbits(-1)


def test_a_seed_does_not_change_the_random_numbers_of_the_run() -> None:
    with FakeHost():
        ca.random.seed(1)
        first = ca.random.random()
        ca.random.seed(1)
        assert ca.random.random() != first


def test_lines_of_the_log_have_levels_and_are_text() -> None:
    with FakeHost() as host:
        ca.log.debug("one")
        ca.log.info(2)
        ca.log.warning("\ud800")
        ca.log.error("four")
    assert host.logs == [
        ("debug", "one"),
        ("info", "2"),
        ("warning", "?"),
        ("error", "four"),
    ]


def test_without_a_host_the_error_says_where_there_is_one() -> None:
    with FakeHost():
        pass
    with pytest.raises(ca.NoHostError, match="FakeHost"):
        ca.mcp_call("x")


def test_hosts_may_be_nested() -> None:
    with FakeHost(input=1):
        with FakeHost(input=2):
            assert ca.input() == 2
        assert ca.input() == 1
