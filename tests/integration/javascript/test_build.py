"""Agents in JavaScript are built the same everywhere, and a bad one says where."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from caxton_host.building import build_agent, javascript
from caxton_host.errors import UsageError

from .machine import Machine, ok, problem

#: The engine is compiled first, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

Files = Callable[..., Path]
Build = Callable[[Path], Path]

NOTHING = "export function run() {}\n"
SEVERAL = {
    "agent.js": """\
import { greeting } from "./lib/words.js";
import { doubled } from "doubling";
import { output } from "caxton";

const cache = new Map([["a", 1]]);
export function run() {
  output([greeting("Ada"), doubled(21), cache.get("a")]);
}
""",
    "lib/words.js": "export const greeting = (name) => `Hello, ${name}!`;\n",
    "node_modules/doubling/package.json": '{"main": "main.js"}',
    "node_modules/doubling/main.js": "export const doubled = (n) => 2 * n;\n",
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Return what writes the files of an agent."""

    def write(texts: dict[str, str], folder: str = "agent") -> Path:
        for name, text in texts.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / folder

    return write


@pytest.fixture
def build(javascript_cache: Path) -> Build:
    return lambda folder: build_agent(folder, cache=javascript_cache).path


def test_an_agent_of_several_files_and_packages_is_built(
    files: Files, build: Build
) -> None:
    machine = Machine()
    assert machine.run(build(files(SEVERAL)).read_bytes()) is None
    assert machine.result() == ["Hello, Ada!", 42, 1]


def test_the_same_source_gives_the_same_bytes_in_another_folder(
    files: Files, build: Build
) -> None:
    one = build(files(SEVERAL, "one/mine"))
    other = files({"zzz.txt": "x", **dict(reversed(SEVERAL.items()))}, "two words/mine")
    (other / "agent.js").touch()
    os.utime(other / "lib" / "words.js", (1, 1))
    assert build(other).read_bytes() == one.read_bytes()


def test_the_template_asks_for_the_time_and_outputs_it(hello: bytes) -> None:
    machine = Machine(tool=lambda *_: ok("noon"))
    assert machine.run(hello) is None
    assert [name for name, _ in machine.calls] == ["mcp__time__get_current_time"]
    assert machine.sent() == {"timezone": "UTC"}
    assert machine.result() == {"time": "noon"}


def test_the_template_passes_on_why_there_is_no_answer(hello: bytes) -> None:
    machine = Machine(tool=lambda *_: problem("denied", "not_granted", "no"))
    assert machine.run(hello) is None
    assert machine.result() == {"error": "not_granted"}
    assert machine.logs == [("warning", "there is no answer")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "let a = ;",
            "unexpected token in expression: ';' (agent.js:1:9)\n  let a = ;",
        ),
        (
            "\nthrow new Error('top');",
            "Error: top (agent.js:2:11)\n  throw new Error('top');",
        ),
        ('import "./gone.js";', 'cannot find the module "./gone.js" (agent.js:1:9)'),
        ('import { x } from "caxton";', "Could not find export 'x' in module 'caxton'"),
        ("export const x = 1;", "the file has no `export function run()`"),
        (
            'import { mcpCall } from "caxton";\nmcpCall("x");',
            "mcpCall is not available during the build",
        ),
    ],
)
def test_what_is_wrong_with_an_agent_is_said_with_its_place(
    text: str, said: str, files: Files, build: Build
) -> None:
    folder = files({"agent.js": text})
    with pytest.raises(UsageError) as caught:
        build(folder)
    assert said in str(caught.value)
    assert "caxton-build" not in str(caught.value)
    assert caught.value.fix.startswith("change agent.js")
    assert not list(folder.glob("*.wasm"))


def test_a_missing_compiler_is_answered_with_the_extra_that_has_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.building.javascript.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="the compiler") as caught:
        build_agent(files({"agent.js": NOTHING}))
    assert caught.value.fix == 'pip install "caxton-host[programs]"'


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_BYTES"])
def test_a_folder_that_holds_far_too_much_is_not_copied(
    limit: str, files: Files, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(javascript, limit, 3)
    with pytest.raises(UsageError, match="more modules than an agent can") as caught:
        build(files(SEVERAL))
    assert caught.value.fix == "give the agent a folder of its own"
