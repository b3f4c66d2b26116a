"""What a model may cost, as docs/how-to/bound-costs.md says it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from .guests import call, guest
from .shell import Shell, toml
from .test_docs import ROOT, blocks, transcript

PAGE = blocks(ROOT / "docs" / "how-to" / "bound-costs.md")
SERVER = str(Path(__file__).with_name("model_server.py"))
CALLS = [("m-small", 1200), ("m-new", 1), ("m-large", 4000), ("m-small", 1)]
_TIME = re.compile(r", \d+ m?s$")


@pytest.fixture
def writer(shell: Shell) -> Shell:
    """Return a shell with the configuration of the page."""
    asked = [
        call("mcp__model__complete", model=model, prompt=str(tokens))
        for model, tokens in CALLS
    ]
    shell.write("writer.wasm", guest(*asked))
    model: dict[str, object] = {"command": sys.executable, "args": ["-I", "-S", SERVER]}
    agent: dict[str, object] = {"module": "writer.wasm"}
    tables = {"servers.model": model, "agents.writer": agent}
    (grants,) = (block.text for block in PAGE if block.language == "toml")
    shell.write("caxton.toml", toml(tables, grants))
    return shell


def test_the_page_about_costs(writer: Shell) -> None:
    (console,) = (block.text for block in PAGE if block.language == "console")
    told = {
        line: (writer(*line.split()[1:]), shown.splitlines())
        for line, shown in transcript(console)
    }

    done, _ = told["caxton run writer"]
    assert done.code == 0, done.err
    assert "that grant has no price for this 'model'" in done.err
    done, shown = told["caxton runs show @last"]
    calls = [line for line in done.out.splitlines() if line.startswith("  call")]
    assert [
        _TIME.sub("", line).replace("mcp__model__", "model/") for line in calls
    ] == (shown)
    done, shown = told["caxton grant budgets writer"]
    assert [line.rpartition("\t")[0] for line in done.out.splitlines()] == shown


def test_answers_are_counted_again_replayed_and_judged_under_other_prices(
    writer: Shell,
) -> None:
    writer("run", "writer")
    before = writer("grant", "budgets").out

    assert writer("replay", "@last").code == 0  # law 6
    assert writer("db", "recount").out == "1 budget, 0 calls under way\n"
    assert writer("grant", "budgets").out == before

    text = (writer.folder / "caxton.toml").read_text()
    cheaper = text.replace("0.00003", "0.000003").replace("0.000002,", "0.00001,")
    writer.write("new.toml", cheaper)
    done = writer("grant", "what-if", "new.toml", "--json")
    *changes, total = (json.loads(line) for line in done.out.splitlines())
    # 0.012 and 0.012 are spent then, and the fourth call finds room for 0.02.
    assert (total["changed"], [one["call"] for one in changes]) == (1, [4])
