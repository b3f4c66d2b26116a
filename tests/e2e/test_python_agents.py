"""The example agents in Python: run as programs, with real servers, and replayed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from caxton_host.building import find_shared
from tests import standin
from tests.others import Programs

from .shell import Shell, toml

MODEL = find_shared("agents/assistant/model_server.py")


def _program(name: str) -> Path:
    return find_shared(f"agents/{name}/agent.py")


#: The runtime is built and compiled once for all tests.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="session")
def filesystem(programs: Programs) -> list[str]:
    return programs("server-filesystem")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "alpha.md").write_text("# Alpha\n\nWeather, weather and water.\n")
    (folder / "beta.txt").write_text("Beta begins.\nWater follows.\n")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "deeper").mkdir()
    (folder / "bad.md").symlink_to("/etc/hostname")
    return folder


def research(shell: Shell, command: list[str], notes: Path, *, writing: bool) -> Any:  # noqa: ANN401 -- the output
    allow = ["files/list_directory", "files/read_text_file"]
    write = "[[agents.researcher.allow]]\ntools = ['files/write_file']\ncalls = '1/run'"
    text = toml(
        {
            "servers.files": {"command": command[0], "args": [command[1], str(notes)]},
            "agents.researcher": {"program": str(_program("researcher"))},
        },
        f"[[agents.researcher.allow]]\ntools = {allow}",
        write if writing else "",
    )
    shell.write("caxton.toml", text)
    done = shell("run", "researcher", "-i", f'{{"folder": "{notes}"}}', "--json")
    assert done.code == 0, done.err
    return done.document["output"]


@pytest.mark.long
def test_the_researcher_reads_a_folder_and_writes_one_file(
    runtimes: Shell, filesystem: list[str], notes: Path
) -> None:
    output = research(runtimes, filesystem, notes, writing=True)
    path = notes / "SUMMARY.md"
    assert output == {
        "read": ["alpha.md", "beta.txt"],
        "unread": {"bad.md": "tool_error"},
        "written": str(path),
    }
    title, _, often, _, *files = path.read_text().splitlines()
    assert title == "# notes"
    assert often.startswith("2 files on ")
    assert often.endswith("often: water, weather, alpha, begins, beta.")
    assert files == [
        "- alpha.md: Alpha (3 lines)",
        "- beta.txt: Beta begins. (2 lines)",
    ]
    shutil.rmtree(notes)
    replayed = runtimes("replay", "@last")  # law 3
    assert replayed.out.startswith("identical")


def test_a_researcher_that_may_not_write_says_what_it_would_have(
    runtimes: Shell, filesystem: list[str], notes: Path
) -> None:
    output = research(runtimes, filesystem, notes, writing=False)
    assert output["problem"] == "not_granted"
    assert output["summary"].startswith("# notes\n")
    assert not (notes / "SUMMARY.md").exists()


@pytest.mark.parametrize("mailing", [False, True])
@pytest.mark.long
def test_the_assistant_answers_in_rounds_and_takes_no_for_an_answer(
    runtimes: Shell, *, mailing: bool
) -> None:
    shell = runtimes
    demo = standin.command()
    agent = {"program": str(_program("assistant"))}
    more = {"names": {"mcp__mail__send": "demo/echo"}} if mailing else {}
    allow = ["model/complete", "demo/get_weather"] + ["demo/echo"] * mailing
    text = toml(
        {
            "servers.model": {"command": sys.executable, "args": [str(MODEL)]},
            "servers.demo": demo,
            "agents.assistant": {**agent, **more},
        },
        f"[[agents.assistant.allow]]\ntools = {allow}",
    )
    shell.write("caxton.toml", text)
    question = '{"question": "What is it like in Lima and Tokyo?"}'
    done = shell("run", "assistant", "-i", question, "--json")
    assert done.code == 0, done.err
    output = done.document["output"]
    weather = {"tool": "mcp__demo__get_weather", "status": "ok"}
    assert output["rounds"] == 3
    assert output["used"][:2] == [weather, weather]
    assert output["used"][2]["tool"] == "mcp__mail__send"
    assert output["answer"].startswith("Lima: 18 °C, fog; Tokyo: 16 °C, clear; and ")
    if not mailing:
        assert output["used"][2]["status"] == "denied"
        assert output["answer"].endswith("I was not allowed to tell anybody.")
        assert shell.types().count("ToolDenied") == 1
    shell.write("caxton.toml", text.replace("model_server.py", "gone.py"))
    assert shell("replay", "@last").out.startswith("identical")  # law 3
