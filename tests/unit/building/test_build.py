from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from caxton_host.building import (
    build_agent,
    c,
    find_shared,
    languages,
    new_agent,
    source_of,
    tools,
)
from caxton_host.building.build import described_by
from caxton_host.errors import NotFoundError, UsageError
from caxton_host.runs.modules import read_manifest

AGENT = '#include "caxton.h"\nCX_RUN { return 0; }\n'


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "agent.c").write_text(AGENT)
    return folder


def test_a_template_becomes_an_agent_with_its_name(tmp_path: Path) -> None:
    folder = new_agent("hello", "c", tmp_path / "agents")
    assert folder == tmp_path / "agents" / "hello"
    assert {path.name for path in folder.iterdir()} == {
        "agent.c",
        "agent.toml",
        "README.md",
        ".gitignore",
    }
    for path in folder.iterdir():
        assert "{{" not in path.read_text()
    assert "# hello" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    "name", ["", "Hello", "1st", "../up", "a/b", "a b", ".hidden", "ö", "a" * 64]
)
def test_a_name_that_is_none_makes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a name") as caught:
        new_agent(name, "c", tmp_path)
    assert caught.value.fix
    assert not list(tmp_path.iterdir())


def test_an_unknown_language_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no template") as caught:
        new_agent("hello", "../c", tmp_path)
    assert caught.value.fix == f"use one of: {', '.join(languages())}"


def test_an_agent_is_never_written_over_another(tmp_path: Path) -> None:
    folder = new_agent("hello", "c", tmp_path)
    (folder / "agent.c").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        new_agent("hello", "c", tmp_path)
    assert (folder / "agent.c").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made") as caught:
        new_agent("hello", "c", tmp_path / "file")
    assert caught.value.fix


def test_a_build_says_what_it_made(agent: Path) -> None:
    built = build_agent(agent)
    data = built.path.read_bytes()
    assert built.path == agent / "mine.wasm"
    assert built.size == len(data)
    assert built.sha256 == hashlib.sha256(data).hexdigest()
    assert data.startswith(b"\0asm\1\0\0\0")


def test_a_build_is_the_same_each_time_and_ignores_the_environment(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_agent(agent, into=tmp_path)
    misleading = tmp_path / "include"
    misleading.mkdir()
    (misleading / "stdint.h").write_text("#error not this one\n")
    monkeypatch.setenv("CPATH", str(misleading))
    assert build_agent(agent, cache=tmp_path / "cache").sha256 == first.sha256


def test_a_relative_folder_is_named_by_where_it_is(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(agent)
    built = build_agent(Path(), into=Path(".."))
    assert built.path.resolve() == agent.parent / "mine.wasm"


def test_an_error_of_the_compiler_is_shown_and_the_old_module_kept(
    agent: Path,
) -> None:
    built = build_agent(agent)
    (agent / "agent.c").write_text(AGENT.replace("return 0", "return nothing"))
    with pytest.raises(UsageError, match="undeclared identifier 'nothing'") as caught:
        build_agent(agent)
    assert caught.value.fix
    assert hashlib.sha256(built.path.read_bytes()).hexdigest() == built.sha256


def test_a_long_error_is_cut(agent: Path) -> None:
    (agent / "agent.c").write_text(AGENT + f'#error "{"long " * 2000}"\n')
    with pytest.raises(UsageError, match="refused agent") as caught:
        build_agent(agent)
    assert len(str(caught.value)) < 4_200


def test_a_compiler_that_hangs_is_given_up(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_TIMEOUT_S", 0.001)
    with pytest.raises(UsageError, match="did not end"):
        build_agent(agent)


def test_a_folder_without_an_agent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no agent source") as caught:
        build_agent(tmp_path)
    assert caught.value.fix


def test_a_missing_compiler_is_answered_with_how_to_get_it(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        build_agent(agent)
    assert caught.value.fix == 'pip install "caxton-host[c]"'


def test_a_place_that_cannot_be_written_is_a_usage_error(
    agent: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot be written") as caught:
        build_agent(agent, into=tmp_path / "nowhere")
    assert caught.value.fix


def test_shipped_files_are_found_by_name() -> None:
    assert find_shared("agents/sdk/c/caxton.h").is_file()
    assert find_shared("migrations").is_dir()
    with pytest.raises(NotFoundError):
        find_shared("agents/nothing")


def test_a_folder_with_two_languages_needs_to_be_told_which(agent: Path) -> None:
    (agent / "mine.rs").touch()
    with pytest.raises(UsageError, match=r"agent\.c and mine\.rs") as caught:
        build_agent(agent)
    assert caught.value.fix == "say which, for example --lang c"
    assert source_of(agent, "rust") == ("rust", agent / "mine.rs")
    assert build_agent(agent, lang="c").lang == "c"


def test_a_language_that_nothing_builds_is_refused(agent: Path) -> None:
    with pytest.raises(UsageError, match="'cobol'") as caught:
        build_agent(agent, lang="cobol")
    assert "rust" in caught.value.fix


def test_the_page_about_languages_has_each_that_can_be_built() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "languages.md"
    rows = re.findall(r"^\| `(\w+)` \|", page.read_text("utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(languages())


# -- agent.toml ----------------------------------------------------------------


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
