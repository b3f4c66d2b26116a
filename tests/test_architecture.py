"""The architecture page: its picture, and the files and functions that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from . import rooms

PAGE = rooms.ROOT / "docs" / "concepts" / "architecture.md"

#: A newcomer reads them in order, in one sitting.
_MOST_FILES = 12

#: ``| step | [file](link) | `function` |``
_ROW = re.compile(r"^\| (.+?) \| \[(.+?)\]\((\S+?)\) \| `(\S+?)` \|$", re.MULTILINE)


class Row(NamedTuple):
    """A row that says where something lives."""

    what: str
    named: str
    path: Path
    function: str


def rows(heading: str) -> list[Row]:
    """Return the rows below a heading of the page."""
    part = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2]
    return [
        Row(what, named, (PAGE.parent / link).resolve(), function)
        for what, named, link, function in _ROW.findall(part.partition("\n## ")[0])
    ]


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods that a file defines."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return {*re.findall(r"^(?:async )?function (\w+)", text, re.MULTILINE)}
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in _functions(node.body)}
            found.add(node.name)
    return found | _functions(ast.parse(text).body)


def _functions(body: list[ast.stmt]) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in body if isinstance(node, kinds)}


def test_the_picture_is_drawn_from_the_import_contract() -> None:
    assert rooms.PICTURE.read_text("utf-8") == rooms.drawn(), (
        "run python -m tests.rooms to draw docs/concepts/rooms.svg again"
    )


def test_the_table_of_rooms_has_every_room_of_the_contract() -> None:
    text = PAGE.read_text("utf-8").partition("| room |")[2].partition("\n\n")[0]
    named = {name for row in text.splitlines() for name in re.findall(r"`(\w+)`", row)}
    assert {room for floor in rooms.floors() for room in floor} - named <= {
        "__main__",
        "pytest_plugin",
        "demo_server",
    }


def test_the_path_of_a_call_names_at_most_twelve_files_that_define_its_functions() -> (
    None
):
    steps = rows("The path of a call")
    assert [int(step.what.partition(".")[0]) for step in steps] == [
        *range(1, len(steps) + 1)
    ]
    assert 8 <= len({step.path for step in steps}) <= _MOST_FILES
    assert [step for step in steps if step.function not in defined(step.path)] == []


def test_the_answers_of_the_exercise_name_what_exists() -> None:
    answers = rows("Exercise")
    assert len(answers) == 10
    assert [one for one in answers if one.function not in defined(one.path)] == []


def test_the_names_of_the_files_are_those_of_their_links() -> None:
    for row in [*rows("The path of a call"), *rows("Exercise")]:
        assert row.path == rooms.ROOT / rooms.PACKAGE / row.named
