"""The keys of log lines: those that the page names, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "how-to" / "monitor.md"


def said() -> Iterator[str]:
    """Yield the names of what lines are about, and of the fields of their own."""
    for path in (ROOT / "caxton_host").rglob("*.py"):
        text = path.read_text("utf-8")
        if "about(" not in text and "_log(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in {"about", "_log"}:
                yield from (each.arg for each in node.keywords if each.arg)


def test_page_names_each_key_of_a_line() -> None:
    _, table = PAGE.read_text("utf-8").split("| field | meaning |\n")
    rows = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()[1:]]
    named = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    begins = {"ts", "level", "logger", "message"}
    assert named == {*said()} | begins | {"trace_id", "span_id", "exception"}
