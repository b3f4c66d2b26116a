"""What an agent is told about each outcome."""

from __future__ import annotations

from caxton_host.core.calls import Completed, Denied, Failed, Outcome, ToolCall, reply


def error(outcome: Outcome) -> object:
    return reply(outcome)[1]["error"]


def test_answer_is_status_0_without_an_error() -> None:
    assert reply(Completed(message="clear", data=[1])) == (
        0,
        {"status": "ok", "message": "clear", "data": [1]},
    )


def test_tool_error_is_status_1_and_keeps_its_data() -> None:
    status, body = reply(Completed(is_error=True, message="no city", data={"n": 1}))

    assert status == 1
    assert body == {
        "status": "tool_error",
        "message": "no city",
        "data": {"n": 1},
        "error": {"code": "tool_error", "message": "no city"},
    }


def test_denial_is_status_2_with_its_code_and_without_the_rule() -> None:
    outcome = Denied(code="budget", rule="allow[7]", message="spent")

    status, body = reply(outcome)

    assert (status, body["status"], body["data"]) == (2, "denied", None)
    assert body["error"] == {"code": "budget", "message": "spent"}
    assert "allow[7]" not in str(body)


def test_failure_is_status_3_with_its_kind() -> None:
    outcome = Failed(kind="timeout", sent="unknown", message="late")

    assert reply(outcome)[0] == 3
    assert reply(outcome)[1]["status"] == "failed"
    assert error(outcome) == {"code": "timeout", "message": "late"}


def test_bad_request_is_status_4() -> None:
    outcome = Denied(code="bad_request", rule=None, message="params are not a map")

    assert reply(outcome)[0] == 4
    assert reply(outcome)[1]["status"] == "bad_request"
    assert error(outcome) == {"code": "bad_request", "message": "params are not a map"}


def test_calls_are_the_same_by_number_name_and_digest() -> None:
    call = ToolCall(number=1, name="a", params={"n": 1}, digest="d", fuel=3)

    assert call == ToolCall(number=1, name="a", params={"n": True}, digest="d", fuel=4)
    assert call != ToolCall(number=1, name="a", params={"n": 1}, digest="e", fuel=3)
