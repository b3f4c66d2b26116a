"""Reads docs/reference/decisions.md, and judges what stands there."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from caxton_host.config import load
from caxton_host.core.calls import Denied, Route
from caxton_host.core.grants.decisions import Attempt, Tally, decide
from caxton_host.core.grants.grants import Grant
from caxton_host.lib.json_schema import fits, input_check

from .lived import lived

__all__ = ["PAGE", "Row", "judged", "rows"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "decisions.md"

_BLOCK = re.compile(r"```(toml|json)\n(.*?)```", re.DOTALL)
_TOLD = re.compile(r"\*(.*?)\*(?:; .*)?")
#: What happened before is a call, a word, or time.
_LIVED = re.compile(r"`|later|\b(?:yes|no)\b")
_CELLS = re.compile(r"(?<!\\) \| ")


@dataclass(frozen=True)
class Row:
    """One line of a table, and what stands above it."""

    title: str
    grant: str
    schema: str
    before: str
    call: str
    verdict: str
    rule: str
    told: str

    def __str__(self) -> str:
        return f"{self.title}: {self.before} {self.call}"


def rows() -> Iterator[Row]:
    for section in PAGE.read_text().split("\n## ")[1:]:
        title = section.partition("\n")[0]
        blocks = dict(_BLOCK.findall(section))
        header, _, *lines = [x for x in section.splitlines() if x.startswith("|")]
        names = _cells(header)
        for line in lines:
            cells = dict(zip(names, _cells(line), strict=True))
            told = _TOLD.fullmatch(cells["why"])
            yield Row(
                title,
                blocks["toml"],
                blocks.get("json", ""),
                cells.get("before", ""),
                cells["call"].strip("`"),
                cells["verdict"],
                cells["rule"],
                told[1] if told else "",
            )


def _cells(line: str) -> list[str]:
    return [
        cell.strip().replace("\\|", "|") for cell in _CELLS.split(f" {line[1:-1]} ")
    ]


def judged(grant: str, schema: str, before: str, call: str) -> tuple[str, str, str]:
    """Return the verdict, the rule that made it, and what the agent is told."""
    if _LIVED.search(before):
        return lived(_grant(grant), before, call)
    name, _, params = call.partition(" ")
    server, slash, tool = name.partition("/")
    tally, size, now = _history(before)
    attempt = Attempt(
        route=Route(server=server, tool=tool) if slash else None,
        params=json.loads(params),
        size=size,
        now=now,
        matches=fits,
        schema=input_check(json.loads(schema)) if schema else None,
    )
    verdict = decide(_grant(grant), attempt, tally)
    if isinstance(verdict, Denied):
        return verdict.code, verdict.rule or "", verdict.message
    return "asked" if verdict.approves else "allowed", verdict.rule.id, ""


@cache
def _grant(text: str) -> Grant:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "caxton.toml").write_text(text)
        return load(None, environ={"HOME": folder}, cwd=Path(folder)).agents["a"].grant


def _history(before: str) -> tuple[Tally, int, int]:
    """Return what a run did: calls, ``N by RULE``; or a time; or a size in bytes."""
    tally, size, now = Tally(), 0, 0
    for word in filter(None, before.split(", ")):
        if found := re.fullmatch(r"([0-9]+) by (\S+)", word):
            tally.used[found[2]] = int(found[1])
        elif found := re.fullmatch(r"([0-9]+) bytes", word):
            size = int(found[1])
        elif found := re.fullmatch(r"(\S+)/(\S+)( failed)?", word):
            tally.called.add((found[1], found[2]))
            if not found[3]:
                tally.done.add((found[1], found[2]))
        else:
            at = datetime.fromisoformat(word).astimezone(UTC)
            now = int(at.timestamp() * 1e6)
    return tally, size, now
