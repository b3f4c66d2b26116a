"""``caxton program lock``: a program with dependencies runs on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import make_wheel

from .shell import Shell

REPORT = """\
# /// script
# dependencies = ["greeting"]
# ///
from importlib.metadata import version

import greeting

def run():
    return [greeting.text, version("words")]
"""


@pytest.fixture
def author(runtimes: Shell) -> Shell:
    """A shell with a program, and all that pip is configured to use."""
    index = runtimes.folder / "index"
    files: dict[str, str | bytes] = {
        "greeting/__init__.py": "from words import WORDS\ntext = ' '.join(WORDS)\n",
        "greeting/old.py": "print 'Python 2'\n",
    }
    make_wheel(index, "greeting", files, "words")
    make_wheel(index, "words", {"words.py": "WORDS = 'hello', 'you'\n"}, version="2.5")
    runtimes.set(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))
    runtimes.write("report.py", REPORT)
    return runtimes


def test_a_program_runs_with_what_was_locked(author: Shell) -> None:
    missing = author("run", "report.py")
    assert missing.code == 2
    assert "report.py names dependencies, and report.py.lock does not" in missing.err
    assert missing.fix == "caxton program lock report.py"

    done = author("program", "lock", "report.py")
    assert done.code == 0, done.err
    assert [line.split("\t")[:2] for line in done.out.splitlines()[:-1]] == [
        ["greeting", "1.0"],
        ["words", "2.5"],
    ]
    assert done.out.splitlines()[-1].startswith("report.py.lock  4 modules, ")
    assert "warning: greeting/old.py is not valid Python 3.14" in done.err

    # law 5
    made = Path(author.folder, "report.py.packages").read_bytes()
    again = author("program", "lock", "report.py", "--json").document
    assert Path(author.folder, "report.py.packages").read_bytes() == made
    assert again["size"] == len(made)

    ran = author("run", "report.py", "-q")
    assert (ran.code, ran.out) == (0, '["hello you", "2.5"]\n'), ran.err
    Path(author.folder, "report.py.lock").unlink()
    assert author("replay", "@last").code == 0


def test_what_cannot_be_locked_is_named(author: Shell) -> None:
    for name, text, error in (
        ("plain.py", "print(1)", "plain.py names no dependencies"),
        ("plain.js", "print(1)", "plain.js is not a program in Python"),
        ("odd.py", REPORT.replace("greeting", "-r x", 1), "dependencies[0], '-r x'"),
    ):
        author.write(name, text)
        done = author("program", "lock", name)
        assert done.code == 2
        assert error in done.err
        assert done.fix
        assert not Path(author.folder, f"{name}.lock").exists()
