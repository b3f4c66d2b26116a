"""Reads docs/reference/provenance.md, and judges what stands there."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from caxton_host.core.calls import JSON
from caxton_host.core.provenance import Found, Sources, Wanted
from tests.provenance.runs import completed, invoked, started

__all__ = ["PAGE", "Row", "judged", "rows"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "provenance.md"

_BLOCK = re.compile(r"```toml run\n(.*?)```", re.DOTALL)
_CELLS = re.compile(r"(?<!\\) \| ")
_TIMES = re.compile(r'(".*") \* ([0-9]+)')
_RESULTS = {True: "yes", False: "no", None: "unjudged"}


@dataclass(frozen=True)
class Row:
    """One line of a table, and the run that it is about."""

    title: str
    value: str
    result: str
    text: str = ""
    run: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.title}: {self.value} {self.text}"


def rows() -> Iterator[Row]:
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title = section.partition("\n")[0]
        block = _BLOCK.search(section)
        names: list[str] = []
        for line in section.splitlines():
            if not line.startswith("|"):
                names = []
            elif not names:
                names = _cells(line)
            elif "result" in names and not line.startswith("|---"):
                cells = dict(zip(names, _cells(line), strict=True))
                run = block[1] if block else ""
                yield Row(
                    title, cells["value"], cells["result"], cells.get("text", ""), run
                )


def _cells(line: str) -> list[str]:
    found = (
        cell.strip().replace("\\|", "|") for cell in _CELLS.split(f" {line[1:-1]} ")
    )
    return [cell.removeprefix("`").removesuffix("`") for cell in found]


def _value(text: str) -> JSON:
    if times := _TIMES.fullmatch(text):
        return str(json.loads(times[1])) * int(times[2])
    return cast("JSON", json.loads(text))


def judged(row: Row) -> str:
    """Return the result of a row, as the page writes it."""
    wanted, sources = _run(row.run, row.text)
    found: Found = sources.find(_value(row.value), wanted)
    place = found.places[0] if found.places and "," in row.result else None
    return _RESULTS[found.holds] + (
        f", call {place.call} {place.path}" if place else ""
    )


@cache
def _run(block: str, text: str) -> tuple[Wanted, Sources]:
    run: dict[str, Any] = tomllib.loads(block)
    wanted = Wanted.parse(
        run.get("from", ["input"]), run.get("mention"), ("from",), links="urls" in run
    )
    sources = Sources([wanted], run.get("sources", 2**26))
    given = _value(text) if text else run.get("input")
    sources.apply(started(given, run.get("context", {})))
    for number, call in enumerate(run.get("calls", []), 1):
        params = call.get("params", {})
        sources.apply(invoked(number, call["tool"], params, call.get("checked", ())))
        sources.apply(completed(number, _data(call), is_error="error" in call))
    return wanted, sources


def _data(call: dict[str, Any]) -> dict[str, JSON]:
    if "many" in call:
        return {"structuredContent": {"ids": [f"v{n}" for n in range(call["many"])]}}
    if "text" in call:
        return {"content": [{"type": "text", "text": call["text"]}]}
    return {"content": [], "structuredContent": call["answer"]}
