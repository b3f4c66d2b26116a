"""Alert rules, dashboard and runbook: they name what there is, and each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from caxton_host.telemetry.instruments import INSTRUMENTS

DOCS = Path(__file__).resolve().parents[3] / "docs"
RULES = DOCS / "how-to" / "deploy" / "alerts.yaml"
DASHBOARD = DOCS / "how-to" / "deploy" / "dashboard.json"
RUNBOOK = DOCS / "how-to" / "operate.md"

#: What Prometheus itself adds.
SCRAPED = {"job", "instance"}
_SERIES = re.compile(r"\b((?:caxton|http|mcp|gen_ai)_\w+)\s*(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return list(group["rules"])


def series() -> dict[str, set[str]]:
    """Return the labels of each series that Prometheus reads, from the table."""
    page = (DOCS / "reference" / "metrics.md").read_text("utf-8")
    names = dict(re.findall(r"^\| `(\S+)` \| `(\S+)` \|", page, re.MULTILINE))
    found: dict[str, set[str]] = {}
    for one in INSTRUMENTS:
        labels = {label.replace(".", "_") for label in one.labels}
        if one.kind != "histogram":
            found[names[one.name]] = labels
            continue
        for end in ("_bucket", "_sum", "_count"):
            found[names[one.name] + end] = labels | (
                {"le"} if end == "_bucket" else set()
            )
    return found


def asked() -> Iterator[tuple[str, str]]:
    """Yield each expression of the rules and the dashboard, with the texts about it."""
    for rule in rules():
        yield rule["expr"], " ".join(rule["annotations"].values())
    board = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target.get("legendFormat", "")
    yield from ((one["expr"], "") for one in board["annotations"]["list"])


def test_what_is_asked_of_prometheus_is_measured() -> None:
    known = series()
    names: set[str] = set()
    for expr, texts in asked():
        labels: set[str] = set()
        grouped = {w for text in _GROUPED.findall(expr) for w in text.split(", ")}
        for name, picked in _SERIES.findall(_GROUPED.sub("", expr)):
            names.add(name)
            used = set(re.findall(r"(\w+)\s*!?=", picked))
            assert used <= known[name] | SCRAPED, f"{name} in {expr}"
            labels |= known[name]
        said = set(re.findall(r"\$labels\.(\w+)|^\{\{(\w+)\}\}", texts))
        shown = {word for pair in said for word in pair if word}
        assert grouped | shown <= labels | SCRAPED, expr
    assert len(names) > len(rules())


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    page = RUNBOOK.read_text("utf-8")
    sections = re.findall(r"^### (Caxton\w+)$", page, re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]
    for rule in rules():
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook"}
        assert said["runbook"] == f"operate.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places: set[tuple[int, int]] = set()
    ids = []
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        at = panel["gridPos"]
        ids.append(panel["id"])
        mine = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not mine & places
        assert max(x for x, _ in mine) < 24
        places |= mine
    assert len({*ids}) == len(ids)
