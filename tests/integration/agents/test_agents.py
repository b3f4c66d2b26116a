"""What the shipped agents do, whatever their tools say."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared, new_agent
from caxton_host.core.calls import JSON
from caxton_host.lib import codec

from .conftest import CORE
from .engine import Machine, ok, problem


def _module(path: str) -> bytes:
    return find_shared(path).read_bytes()


def _demo(name: str, params: dict[str, JSON]) -> tuple[int, bytes]:
    match name:
        case "weather":
            return ok(f"{params['location']}: 12 C, rain")
        case "mcp__webhook__forecast":
            return ok("rain tomorrow")
        case _:
            return problem(2, "denied", "not_granted", "no grant for that tool")


def test_weather_asks_for_seattle_and_tells_what_it_was_denied(weather: bytes) -> None:
    machine = Machine(tool=_demo)
    assert machine.run(weather) == 0
    assert machine.calls == [
        ("weather", {"location": "Seattle"}),
        ("mcp__webhook__forecast", {"location": "Seattle"}),
        ("mcp__demo__echo", {"text": "is anybody there?"}),
    ]
    assert machine.logs == [(1, "Seattle: 12 C, rain")]
    assert machine.result() == {
        "summary": "Seattle: 12 C, rain",
        "forecast": {"status": "ok", "message": "rain tomorrow"},
        "denied": True,
        "echo": {"status": "denied", "message": "no grant for that tool"},
    }


def test_weather_asks_for_the_place_it_is_given(weather: bytes) -> None:
    machine = Machine(tool=_demo, input=codec.encode({"location": "Lima"}))
    assert machine.run(weather) == 0
    assert machine.calls[0] == ("weather", {"location": "Lima"})
    assert machine.calls[1] == ("mcp__webhook__forecast", {"location": "Lima"})


@pytest.mark.parametrize("entry", [None, [], {"location": 7}, {"place": "Lima"}])
def test_weather_takes_seattle_for_any_other_input(entry: JSON, weather: bytes) -> None:
    machine = Machine(tool=_demo, input=codec.encode(entry))
    assert machine.run(weather) == 0
    assert machine.calls[0] == ("weather", {"location": "Seattle"})


def test_weather_goes_on_when_every_tool_fails(weather: bytes) -> None:
    machine = Machine(
        tool=lambda *_: problem(3, "failed", "transport", "the server is down")
    )
    assert machine.run(weather) == 0
    assert machine.logs == [(2, "the server is down")]
    result = machine.result()
    assert result["summary"] == "the server is down"
    assert result["forecast"]["status"] == "failed"
    assert result["denied"] is False


def test_weather_says_when_the_answers_are_too_long() -> None:
    machine = Machine(tool=lambda *_: ok("x" * 30_000))
    assert machine.run(_module("agents/weather/weather.wasm")) == 1
    assert machine.output is None
    assert machine.logs[-1] == (3, "the answers are too long to pass on")


def test_echo_calls_one_tool_as_often_as_it_is_told() -> None:
    wanted = {"tool": "mcp__demo__echo", "n": 3, "text": "x" * 100}
    machine = Machine(
        tool=lambda _, params: ok(params["text"]), input=codec.encode(wanted)
    )
    assert machine.run(_module("agents/echo/echo.wasm")) == 0
    assert machine.calls == [("mcp__demo__echo", {"text": "x" * 100})] * 3
    assert machine.result() == 3


@pytest.mark.parametrize(
    "wanted",
    [
        {"tool": "t" * 129, "n": 1, "text": ""},
        {"tool": "t", "n": 1, "text": "x" * 65_537},
    ],
)
def test_echo_refuses_what_it_has_no_room_for(wanted: JSON) -> None:
    machine = Machine(input=codec.encode(wanted))
    assert machine.run(_module("agents/echo/echo.wasm")) == 1
    assert machine.calls == []


@pytest.mark.parametrize("lang", CORE)
def test_a_new_agent_asks_for_the_time(
    lang: str, tmp_path: Path, zig_cache: Path
) -> None:
    folder = new_agent("hello", lang, tmp_path)
    module = build_agent(folder, cache=zig_cache).path.read_bytes()

    machine = Machine(tool=lambda *_: ok('{"datetime": "2026-11-21T10:00:00"}'))
    assert machine.run(module) == 0
    assert machine.calls == [("mcp__time__get_current_time", {"timezone": "UTC"})]
    assert machine.result() == {"time": '{"datetime": "2026-11-21T10:00:00"}'}

    denied = Machine(tool=lambda *_: problem(2, "denied", "not_granted", "no grant"))
    assert denied.run(module) == 0
    assert denied.result() == {"error": "not_granted"}


def test_the_example_in_the_header_works(tmp_path: Path, zig_cache: Path) -> None:
    header = find_shared("agents/sdk/c/caxton.h").read_text()
    lines = header.partition("*/")[0].splitlines()
    example = [line.removeprefix(" *") for line in lines if line.startswith(" *     ")]
    folder = tmp_path / "example"
    folder.mkdir()
    source = "\n".join(example).partition("python -m ziglang")[0]
    (folder / "agent.c").write_text(source)
    module = build_agent(folder, cache=zig_cache).path.read_bytes()
    machine = Machine(tool=_demo)
    assert machine.run(module) == 0
    assert machine.result() == {"summary": "Seattle: 12 C, rain"}


@pytest.mark.debian
def test_the_example_in_the_rust_sdk_works(tmp_path: Path) -> None:
    text = find_shared("agents/sdk/rust/caxton.rs").read_text()
    example = text.partition("```ignore\n")[2].partition("//! ```")[0]
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "agent.rs").write_text(example.replace("//!", ""))
    machine = Machine(tool=_demo)
    assert machine.run(build_agent(folder).path.read_bytes()) == 0
    assert machine.result() == {"summary": "Seattle: 12 C, rain"}
