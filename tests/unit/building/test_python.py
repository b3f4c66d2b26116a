"""What a Python agent's author is told, and which files are the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.building import build_agent, python
from caxton_host.building.componentize import readable
from caxton_host.errors import UsageError

FRAMES = """\
Traceback (most recent call last):
  File "/1/caxton_component.py", line 5, in <module>
    WitWorld = load("agent")
  File "/python/importlib/__init__.py", line 88, in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
           ~~~~~~~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
MINE = """\
  File "/0/agent.py", line 4, in <module>
    f()
    ~^^
  File "/0/helping/words.py", line 2, in f
    1/0
"""
RUST = """

Caused by:
    ZeroDivisionError: division by zero

Stack backtrace:
   0: <anyhow::Error>::msg::<alloc::string::String>
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "agent.py").write_text("def run(): ...\n")
    return folder


def test_an_error_shows_the_authors_frames_and_no_others() -> None:
    said = readable(f"{FRAMES}{MINE}ZeroDivisionError: division by zero\n{RUST}")
    assert said == (
        "Traceback (most recent call last):\n"
        '  File "agent.py", line 4, in <module>\n'
        "    f()\n"
        "    ~^^\n"
        '  File "helping/words.py", line 2, in f\n'
        "    1/0\n"
        "ZeroDivisionError: division by zero"
    )


def test_an_error_that_chains_shows_both() -> None:
    first = f"{FRAMES}{MINE}KeyError: 'a'\n"
    between = (
        "\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    said = readable(f"{first}{between}{FRAMES}{MINE}ValueError: two\nlines\n{RUST}")
    assert "KeyError: 'a'" in said
    assert "During handling" in said
    assert said.endswith("ValueError: two\nlines")
    assert "caxton_component" not in said


def test_an_error_that_is_no_traceback_is_shown_as_it_is() -> None:
    assert readable("failed to parse the WIT\n\nStack backtrace:\n 0: x") == (
        "failed to parse the WIT"
    )


@pytest.mark.parametrize("missing", ["componentize_py", "ziglang"])
def test_a_missing_tool_is_answered_with_how_to_get_it(
    agent: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        python, "find_spec", lambda name: None if name == missing else 1
    )
    with pytest.raises(UsageError, match="not installed") as caught:
        build_agent(agent)
    assert caught.value.fix == 'pip install "caxton-host[programs]"'


def test_a_folder_with_too_much_in_it_is_refused(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "_MAX_FILES", 1)
    (agent / "other.py").touch()
    with pytest.raises(UsageError, match="more than 1 Python files") as caught:
        build_agent(agent)
    assert caught.value.fix == "give the agent a folder of its own"


def test_an_agent_is_the_python_files_of_its_folder_and_no_others(
    agent: Path, tmp_path: Path
) -> None:
    (agent / "notes.txt").write_text("not a part of it")
    for name in ("helping", "__pycache__", ".git", ".venv", "lib"):
        (agent / name).mkdir()
        (agent / name / "other.py").touch()
    (agent / "lib" / "pyvenv.cfg").touch()
    python._copy(agent, tmp_path / "copy")
    copied = {
        str(path.relative_to(tmp_path / "copy"))
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert copied == {"agent.py", "helping/other.py"}
