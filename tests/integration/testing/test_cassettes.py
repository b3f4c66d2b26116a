"""Runs that are recorded once, on real servers, and replayed without any."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.limits import Limits
from caxton_host.errors import UnexpectedRun, UsageError
from caxton_host.pytest_plugin import CaxtonCassette
from caxton_host.testing import Harness, cassette
from tests import standin
from tests.canaries import found_in
from tests.e2e.guests import SPINS, TRAPS, call, guest, log
from tests.e2e.shell import toml

from .support import WEATHER, batch

LIMA: dict[str, JSON] = {"location": "Lima"}
DEMO = standin.command()
GRANTS = """
[agents.weather]
names = { weather = "demo/get_weather" }
limits = { total_calls = 20 }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
[agents.agent]
limits = { fuel = 1_000_000 }
[[agents.agent.allow]]
tools = ["demo/*"]
"""
CANARY = Path(__file__).parents[2] / "e2e" / "canary_server.py"
ECHO = "mcp__demo__echo"


class Tape:
    """A cassette, and what records and replays it."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness, self.folder = harness, folder
        self.path = folder / "tape.json"
        self.configure(toml({"servers.demo": DEMO}, GRANTS))

    def configure(self, text: str) -> None:
        (self.folder / "caxton.toml").write_text(text, encoding="utf-8")

    def record(self, module: bytes | Path, **given: Any) -> Any:  # noqa: ANN401
        return self.harness.record(module, self.path, cwd=self.folder, **given)

    def replay(self, module: bytes | Path, **given: Any) -> Any:  # noqa: ANN401
        return self.harness.replay(module, self.path, **given)

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        return found

    def differs(self, module: bytes | Path, **given: Any) -> str:  # noqa: ANN401
        """Replay what must not fit, and return why it does not."""
        with pytest.raises(UnexpectedRun) as error:
            self.replay(module, **given)
        (note,) = error.value.__notes__
        assert "pytest --caxton-record=all" in note
        return str(error.value)


@pytest.fixture
def tape(caxton_harness: Harness, tmp_path: Path) -> Tape:
    return Tape(caxton_harness, tmp_path)


def test_a_recorded_run_is_replayed_without_a_server(tape: Tape) -> None:  # law 6
    recorded = tape.record(WEATHER, input=LIMA)
    assert recorded.replies[0]["message"] == "Lima: 18 °C, fog"
    assert [reply["status"] for reply in recorded.replies[1:]] == ["denied"] * 2
    assert recorded.logs == [("info", "Lima: 18 °C, fog")]
    (tape.folder / "caxton.toml").unlink()
    assert tape.replay(WEATHER, input=LIMA) == recorded


def test_the_same_run_gives_the_same_text(tape: Tape) -> None:
    tape.record(WEATHER, input=LIMA)
    first = tape.path.read_bytes()
    tape.record(WEATHER, input=LIMA)
    assert tape.path.read_bytes() == first
    assert {path.name for path in tape.folder.iterdir()} == {"tape.json", "caxton.toml"}
    assert tape.path.stat().st_mode & 0o777 == 0o644
    text = first.decode()
    assert text.endswith("}\n")
    assert "18 °C" in text  # What a person can read is not escaped.
    assert re.findall("sha256|127.0.0.1|python|fuel", text) == []


def test_a_cassette_says_what_was_asked_and_answered(tape: Tape) -> None:
    tape.record(WEATHER, input=LIMA)
    document = tape.document
    assert document["$type"] == "caxton.cassette/v1"
    assert document["limits"] == {"total_calls": 20}
    (tool,) = document["tools"]
    assert (tool["name"], tool["tool"]) == ("weather", "demo/get_weather")
    asked, line, denied, _ = document["events"]
    assert (asked["call"], asked["params"]) == ("weather", LIMA)
    assert asked["reply"]["data"]["structuredContent"]["temperature"] == 18
    assert line == {"log": "info", "text": "Lima: 18 °C, fog"}
    assert denied["reply"] == {
        "status": "denied",
        "code": "not_granted",
        "message": "this agent has no grant for that tool",
    }
    assert document["end"]["output"]["summary"] == "Lima: 18 °C, fog"


def test_every_outcome_comes_back_as_it_was(tape: Tape) -> None:  # law 5
    agent = guest(
        call(ECHO, text="\u202eodd\u2028"),
        call("mcp__demo__fail", message="alas"),
        call("mcp__demo__large", bytes=2_000_000),
        call("mcp__demo__picture"),
        ("call", ECHO.encode(), b"\xc1"),
        call("no name!"),
        log("done"),
        output={"n": 1.0},
    )
    recorded = tape.record(agent)
    assert tape.replay(agent) == recorded
    assert [reply["status"] for reply in recorded.replies] == [
        *("ok", "tool_error", "failed", "ok", "bad_request", "bad_request")
    ]
    # A reviewer sees what is in the file, and where it is.
    assert r"\u202eodd\u2028" in tape.path.read_text("utf-8")


def test_an_agent_that_failed_is_recorded_too(tape: Tape) -> None:
    for end in (TRAPS, SPINS, "(i32.const 3)"):
        agent = guest(call(ECHO, text="a"), then=end)
        recorded = tape.record(agent)
        assert recorded.status == "failed"
        assert tape.replay(agent) == recorded


def test_a_batch_is_recorded_and_replayed(tape: Tape) -> None:
    agent = batch([ECHO, {"text": "a"}], [ECHO, {"text": "b"}], 7)
    recorded = tape.record(agent)
    assert [reply["message"] for reply in recorded.replies[:2]] == ["a", "b"]
    assert tape.replay(agent) == recorded
    more = batch([ECHO, {"text": "a"}], [ECHO, {"text": "b"}], 7, ["more", {"n": 1}])
    assert (
        "call 4 is one more than was recorded\n"
        "  recorded: nothing\n  now:      more {'n': 1}" in (tape.differs(more))
    )
    assert "call 1 is another one" in tape.differs(batch(["x"]))


RECORDED = guest(
    call(ECHO, text="a", n=[1, {"x": 1}]), call(ECHO, text="b"), output={"sum": 1}
)


@pytest.fixture(scope="module")
def recorded(caxton_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the text of the cassette of RECORDED."""
    tape = Tape(caxton_harness, tmp_path_factory.mktemp("recorded"))
    tape.record(RECORDED)
    return tape.path.read_text("utf-8")


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (
            guest(call(ECHO, text="a", n=[1, {"x": True}])),
            f"call 1, {ECHO}, $.params.n[1].x\n  recorded: 1\n  now:      True",
        ),
        (
            guest(call(ECHO, n=[1, {"x": 1}], text="a")),
            (
                ", has the same parameters in another order or encoding\n"
                "  recorded: {'text': 'a', 'n': [1, {'x': 1}]}\n"
                "  now:      {'n': [1, {'x': 1}], 'text': 'a'}"
            ),
        ),
        (
            guest(call(ECHO, text="a", n=[1, {"x": 1}]), call("other", text="b")),
            (
                f"call 2 is another one\n  recorded: {ECHO} {{'text': 'b'}}\n"
                "  now:      other {'text': 'b'}"
            ),
        ),
        (
            guest(call(ECHO, text="a", n=[1, {"x": 1}]), output="early"),
            (
                f"call 2 was not made\n  recorded: {ECHO} {{'text': 'b'}}\n"
                "  now:      completed, with 'early'"
            ),
        ),
        (
            guest(
                call(ECHO, text="a", n=[1, {"x": 1}]),
                call(ECHO, text="b"),
                call("more", text="c"),
            ),
            (
                "call 3 is one more than was recorded\n"
                "  recorded: nothing\n  now:      more {'text': 'c'}"
            ),
        ),
        (
            guest(
                call(ECHO, text="a", n=[1, {"x": 1}]),
                call(ECHO, text="b"),
                output={"sum": 2},
            ),
            "the end, $.output.sum\n  recorded: 1\n  now:      2",
        ),
        (
            guest(
                call(ECHO, text="a", n=[1, {"x": 1}]),
                call(ECHO, text="b"),
                then="(i32.const 4)",
            ),
            (
                "the end is another one\n  recorded: completed, with {'sum': 1}\n"
                "  now:      failed, agent_error: the agent returned 4"
            ),
        ),
        (
            guest(call(ECHO, text="a" * 5000)),
            "  recorded: 'a'\n  now:      'aaa",
        ),
    ],
)
def test_the_first_difference_is_shown(
    tape: Tape, recorded: str, agent: bytes, message: str
) -> None:
    tape.path.write_text(recorded, encoding="utf-8")
    told = tape.differs(agent)
    assert told.startswith("the agent differs from tape.json: ")
    assert message in told
    assert len(told) < 1000


def test_a_difference_is_no_other_than_that_of_the_journal(
    tape: Tape, recorded: str
) -> None:
    tape.path.write_text(recorded, encoding="utf-8")
    with pytest.raises(UnexpectedRun) as error:
        tape.replay(guest(call(ECHO, text="z", n=[1, {"x": 1}])))
    found = error.value.divergence
    assert found
    assert (found.path, found.recorded, found.replayed) == ("$.params.text", "a", "z")


def test_of_long_texts_the_place_is_shown_where_they_part(tape: Tape) -> None:
    tape.record(guest(call(ECHO, text="a" * 3000 + "b" + "c" * 3000)))
    told = tape.differs(guest(call(ECHO, text="a" * 3000 + "x" + "c" * 3000)))
    assert "a" * 100 + "b" + "c" * 100 in told
    assert "a" * 100 + "x" + "c" * 100 in told
    assert len(told) < 1200


def test_an_output_in_another_order_is_another_one(tape: Tape) -> None:
    tape.record(guest(output={"a": 1, "b": 2}))
    told = tape.differs(guest(output={"b": 2, "a": 1}))
    assert "the output has the same values in another order or encoding" in told


def test_log_lines_may_be_others(tape: Tape) -> None:
    tape.record(guest(log("one"), call(ECHO, text="a"), log("two")))
    run = tape.replay(guest(call(ECHO, text="a"), log("three")))
    assert run.logs == [("warning", "three")]


def test_a_cassette_is_of_one_task(tape: Tape) -> None:
    tape.record(WEATHER, input=LIMA, context={"who": "Ada"}, seed=3)
    told = tape.differs(WEATHER, input={"location": "Oslo"})
    assert told.endswith(
        "another task: $.input.location\n  recorded: 'Lima'\n  now:      'Oslo'"
    )
    assert "$.seed" in tape.differs(WEATHER, input=LIMA)
    given: dict[str, Any] = {"input": LIMA, "seed": 3}
    assert "$.context.who" in tape.differs(WEATHER, **given, context={"who": "Bob"})
    assert "$.entry" in tape.differs(WEATHER, **given, entry="start")
    assert tape.replay(WEATHER, **given, context={"who": "Ada"}).status == "completed"


def test_limits_are_those_of_the_recording_unless_a_test_says_more(tape: Tape) -> None:
    agent = guest(call(ECHO, text="a"), call(ECHO, text="b"))
    tape.record(agent, limits=Limits(total_calls=3))
    assert tape.document["limits"] == {"total_calls": 3}
    assert tape.replay(agent, limits=Limits()).status == "completed"
    assert "call 2 was not made" in tape.differs(agent, limits=Limits(fuel=8_000))


def test_variables_of_the_configuration_are_recorded(tape: Tape) -> None:
    variables = "[context]\nwho = { default = 'Ada' }\nwhere = { required = true }\n"
    tape.configure(toml({"servers.demo": DEMO}, GRANTS, variables))
    with pytest.raises(UsageError, match="'where' is required"):
        tape.record(WEATHER)
    run = tape.record(WEATHER, context={"where": "here"})
    assert tape.document["context"] == {"who": "Ada", "where": "here"}
    assert tape.replay(WEATHER, context={"where": "here"}) == run
    assert tape.replay(WEATHER) == run


def test_an_agent_that_is_not_configured_is_not_recorded(tape: Tape) -> None:
    with pytest.raises(
        UsageError, match=r"no agent 'wether'.*: agent, weather"
    ) as error:
        tape.record(WEATHER, agent="wether")
    assert error.value.fix == "pass agent='weather'"
    tape.configure("version = 1\n")
    with pytest.raises(UsageError, match="the configuration has: none"):
        tape.record(WEATHER)
    assert not tape.path.exists()


def test_an_answer_that_the_log_may_not_keep_is_no_cassette(tape: Tape) -> None:
    hashed = toml({"servers.demo": DEMO, "servers.demo.tools.echo": {"record": "hash"}})
    tape.configure(hashed + GRANTS)
    with pytest.raises(UsageError, match=r"call 1, demo/echo, .* a digest"):
        tape.record(guest(call(ECHO, text="a")))
    assert not tape.path.exists()


def test_a_run_that_a_clock_ended_is_no_cassette(tape: Tape) -> None:
    slow = guest(call("mcp__demo__slow", seconds=60))
    with pytest.raises(UsageError, match=r"did not end by itself.*wall"):
        tape.record(slow, limits=Limits(wall=0.5))
    assert not tape.path.exists()


def test_a_folder_that_takes_no_file_is_said(tape: Tape) -> None:
    (tape.folder / "full").write_text("")
    tape.path = tape.folder / "full" / "tape.json"
    with pytest.raises(UsageError, match=r"tape\.json cannot be written"):
        tape.record(guest())


def test_no_secret_is_in_a_cassette(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 8
    secrets = {
        "API_TOKEN": 'token"/&+~ü pass/word!',
        "PLAIN_NAME": "plain-name~8a7b!$&+/x",
        "ARGUMENT": "argument-8f2e9a/<x>",
    }
    environ = {"HOME": os.environ["HOME"], **secrets}
    monkeypatch.setattr(tape.harness, "_environ", environ)
    server = {
        "command": sys.executable,
        "args": [str(CANARY), "${env:ARGUMENT}"],
        "env": {name: f"${{env:{name}}}" for name in ("API_TOKEN", "PLAIN_NAME")},
    }
    allow = '[[agents.agent.allow]]\ntools = ["canary/*"]\n'
    tape.configure(toml({"servers.canary": server}, allow))
    names = ("echo", "fail", "refuse", "die")
    agent = guest(*(call(f"mcp__canary__{name}") for name in names))
    given = {"input": {"told": [secrets["API_TOKEN"]]}}
    run = tape.record(agent, **given)
    text = tape.path.read_bytes()
    assert found_in(secrets.values(), {"cassette": text}) == []
    assert text.count(b"[redacted]") > 100
    assert [reply["status"] for reply in run.replies] == [
        *("ok", "tool_error", "failed", "failed")
    ]
    # In CI, where nobody knows the secrets, it holds all the same.
    monkeypatch.undo()
    assert tape.replay(agent, **given) == run


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update({"$type": "caxton.cassette/v2"}), "of another version"),
        (lambda d: d.pop("seed"), r"\$ has no seed"),
        (lambda d: d.update(sede="0"), "unknown key 'sede'; did you mean seed"),
        (
            lambda d: d["limits"].update(memory=1 << 40),
            r"memory is not a limit of 0 to",
        ),
    ],
)
def test_a_file_that_is_no_cassette_is_refused(
    tape: Tape, recorded: str, change: Change, message: str
) -> None:  # law 9
    document = json.loads(recorded)
    change(document)
    tape.path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=message) as error:
        tape.replay(guest())
    assert "record it again" in error.value.fix


def test_no_terminal_obeys_a_cassette(tape: Tape, recorded: str) -> None:  # law 9
    document = json.loads(recorded)
    document["events"][0]["call"] = "\x1b[2J\u202e"
    tape.path.write_text(json.dumps(document), encoding="utf-8")
    told = tape.differs(RECORDED)
    assert r"'\x1b[2J\u202e'" in told
    assert told.replace("\n", "").isprintable()


def test_a_run_that_is_too_much_for_a_cassette_is_not_written(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassette, "MAX_FILE", 100)
    with pytest.raises(
        UsageError, match=r"too large for a cassette: .* of 100 allowed"
    ):
        tape.record(guest())
    assert not tape.path.exists()


def test_a_cassette_of_this_version_is_replayed_for_ever(
    caxton_cassette: CaxtonCassette,
) -> None:
    run = caxton_cassette(WEATHER, input=LIMA)
    assert run.logs == [("info", "Lima: 18 °C, fog")]
    assert run.calls[0] == ("weather", LIMA)


def test_without_a_cassette_the_way_to_one_is_said(tape: Tape) -> None:
    with pytest.raises(UsageError, match=r"there is no cassette tape\.json") as error:
        tape.replay(guest())
    assert "--caxton-record=once" in error.value.fix
