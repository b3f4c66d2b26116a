"""docs/reference/logs.md has the keys and messages that lines have, and no others."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

from caxton_host.core.text.redact import Redactor
from caxton_host.lib.logs import Lines, of_host
from caxton_host.telemetry import lines

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/logs.md").read_text()


def first_cells(heading: str) -> set[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]
    return {cell for row in rows for cell in row.split("|")[1].split("`")[1::2]}


def calls(name: str, path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
            yield node


def test_the_keys_of_lines_are_on_the_page() -> None:
    fault = ValueError, ValueError("a fault"), None
    record = logging.LogRecord("caxton_host", 40, "", 1, "text", None, fault)
    with of_host(Redactor(), lambda: (32 * "a", 16 * "b")):
        keys = {*json.loads(Lines("json").format(record))}
    package = ROOT / "caxton_host"
    said = [one for path in package.rglob("*.py") for one in calls("about", path)]
    said += calls("_log", Path(lines.__file__))
    keys |= {str(word.arg) for one in said for word in one.keywords}
    assert keys == first_cells("Keys")


def test_the_messages_of_runs_and_calls_are_on_the_page() -> None:
    words = ast.walk(ast.parse(Path(lines.__file__).read_text()))
    said = {str(word.value) for word in words if isinstance(word, ast.Constant)}
    messages = {one for one in said if re.fullmatch("(run|call) [a-z ]+", one)}
    assert messages == first_cells("Messages of runs and calls")
