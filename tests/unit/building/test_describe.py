"""agent.toml becomes the manifest, and what is wrong with it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.building import build_agent
from caxton_host.building.describe import described_by
from caxton_host.errors import UsageError
from caxton_host.runs.modules import read_manifest

AGENT = '#include "caxton.h"\nCX_RUN { return 0; }\n'


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "agent.c").write_text(AGENT)
    return folder


def test_what_the_author_says_is_in_the_module(agent: Path) -> None:
    (agent / "agent.toml").write_text(
        'description = "Ünïcode"\n[[tools]]\nname = "git/git_log"\n'
        "[input_schema]\nrequired = ['a']\n"
    )
    manifest = read_manifest(build_agent(agent).path.read_bytes())
    assert manifest is not None
    assert manifest.to_payload() == {
        "name": "mine",
        "description": "Ünïcode",
        "tools": [{"name": "git/git_log", "reason": ""}],
        "input_schema": {"required": ["a"]},
    }


def test_without_the_file_the_name_is_all_there_is(agent: Path) -> None:
    assert described_by(agent) == b'{"name":"mine"}'
    assert described_by(agent / "..") == b'{"name":"agent"}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "Invalid value"),
        ("names = 'x'", "unknown key names; did you mean name?"),
        ("colour = 'x'", "unknown key colour"),
        ("[[tools]]\nname = 'a'\nwhy = ''", r"unknown key tools\[0\]\.why"),
        ("tools = 'all'", "tools is not an array"),
        ("tools = ['all']", r"tools\[0\] is not a map"),
        ("name = 'No'", "name is not one"),
        ("version = 1.0", "version is not a text"),
        ("[input_schema]\ndefault = 2026-11-21", "not JSON serializable"),
        ("[input_schema]\nmaximum = inf", "not JSON compliant"),
        ("[input_schema]\ntype = 'text'", "input_schema: it is no JSON Schema"),
        ("[input_schema]\n'$ref' = '#'", "'#' refers to itself"),
        (f"[input_schema]\ntitle = '{'x' * 70_000}'", "of 65,536 allowed"),
        ("[input_schema]\nx = " + "[" * 70 + "]" * 70, "deeper than 64"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_before_anything_is_compiled(
    agent: Path, text: str, message: str
) -> None:
    (agent / "agent.toml").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        build_agent(agent)
    assert str(caught.value).startswith("agent.toml: ")
    assert caught.value.fix == "correct it; docs/reference/manifest.md has every key"
    assert not (agent / "mine.wasm").exists()
