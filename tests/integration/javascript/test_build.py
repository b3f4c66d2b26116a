"""Agents in JavaScript are built the same everywhere, and a bad one says where."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared, javascript, new_agent
from caxton_host.errors import UsageError

from .component import Machine, ok, problem

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
def files(workshop: Path, tmp_path: Path) -> Files:
    """Return what writes the files of an agent, below the build tool."""
    (tmp_path / "node_modules").symlink_to(workshop / "node_modules")

    def write(texts: dict[str, str], folder: str = "agent") -> Path:
        for name, text in texts.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / folder

    return write


@pytest.fixture
def build(zig_cache: Path) -> Build:
    return lambda folder: build_agent(folder, cache=zig_cache).path


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
    assert machine.calls == [("mcp__time__get_current_time", '{"timezone":"UTC"}')]
    assert machine.result() == {"time": "noon"}


def test_the_template_passes_on_why_there_is_no_answer(hello: bytes) -> None:
    machine = Machine(tool=lambda *_: problem("denied", "not_granted", "no"))
    assert machine.run(hello) is None
    assert machine.result() == {"error": "not_granted"}
    assert machine.logs == [("warning", "there is no answer")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("let a = ;", "unexpected token in expression: ';'\n    at agent.js:1:9"),
        (
            "\nthrow new Error('top');",
            "top\n    at <anonymous> (agent.js:2:11)",
        ),
        ('import "./gone.js";', "'./gone.js' from 'agent.js'"),
        ('import { x } from "caxton";', "'x'"),
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


def test_a_missing_build_tool_is_answered_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new_agent("hello", "javascript", tmp_path)
    with pytest.raises(UsageError, match="componentize-qjs is not installed") as caught:
        build_agent(Path("hello"))
    assert caught.value.fix == "(cd hello && npm ci)"
    (tmp_path / "hello" / "package-lock.json").unlink()
    monkeypatch.chdir("hello")
    with pytest.raises(UsageError) as caught:
        build_agent(Path())
    assert caught.value.fix == "npm install componentize-qjs@0.4.5"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UsageError) as caught:
        build_agent(tmp_path / "hello")
    assert caught.value.fix.startswith(f"(cd {tmp_path / 'hello'} && npm install ")


@pytest.mark.parametrize(
    ("version", "said"),
    [("v16.20.2", "Node.js 16.20.2 is too old"), ("what", "Node.js what is too old")],
)
def test_an_old_node_is_named(
    version: str, said: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files({"agent.js": NOTHING})
    node = files({"node": f"#!/bin/sh\necho {version}\n"}, "bin") / "node"
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{node.parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=said) as caught:
        build_agent(folder)
    assert caught.value.fix == "apt-get install nodejs npm"


@pytest.mark.parametrize(("there", "missing"), [("", "Node.js"), ("node", "npm")])
def test_a_missing_program_is_answered_with_the_package_that_has_it(
    there: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.js").write_text(NOTHING)
    if there:
        node = shutil.which("node")
        assert node
        (tmp_path / there).symlink_to(node)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=f"{missing} is not installed") as caught:
        build_agent(tmp_path)
    assert caught.value.fix == "apt-get install nodejs npm"


def test_a_missing_compiler_is_answered_with_the_extra_that_has_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.building.javascript.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="a compiler") as caught:
        build_agent(files({"agent.js": NOTHING}))
    assert caught.value.fix == 'pip install "caxton-host[javascript]"'


def test_a_system_that_cannot_preload_builds_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert javascript.frozen(tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_a_tool_that_hangs_is_not_blamed_on_the_agent(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(*_: object, **options: object) -> str:
        if options.get("failed") == "componentize-qjs failed":
            raise UsageError("node did not end within 300 s", fix="try again")
        return "v20.0.0"

    monkeypatch.setattr(javascript, "call", hangs)
    monkeypatch.setattr(javascript, "frozen", lambda *_: {})
    with pytest.raises(UsageError, match="did not end") as caught:
        build_agent(files({"agent.js": NOTHING}))
    assert caught.value.fix == "try again"


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_BYTES"])
def test_a_folder_that_holds_far_too_much_is_not_copied(
    limit: str, files: Files, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(javascript, limit, 3)
    with pytest.raises(UsageError, match="more modules than an agent can") as caught:
        build(files(SEVERAL))
    assert caught.value.fix == "give the agent a folder of its own"


def test_the_lock_has_a_digest_for_each_package_of_linux() -> None:
    template = find_shared("agents/templates/javascript")
    text = (template / "package-lock.json").read_text()
    assert "resolved" not in text
    assert "://" not in text
    blocks = re.findall(r'"(node_modules/[^"]+)": (\{.*?\n    \})', text, re.DOTALL)
    without = {name for name, block in blocks if '"integrity": "sha512-' not in block}
    assert not {name for name in without if "linux" in name and "musl" not in name}
    assert f'"componentize-qjs": "{javascript._VERSION}"' in text


def test_the_npm_of_the_workshop_holds_packages_against_the_lock(
    workshop: Path, tmp_path: Path
) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(workshop / name, tmp_path)
    lock = tmp_path / "package-lock.json"
    lock.write_text(re.sub(r"sha512-....", "sha512-AAAA", lock.read_text()))
    done = subprocess.run(
        ["npm", "ci"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode
    assert "EINTEGRITY" in done.stderr
