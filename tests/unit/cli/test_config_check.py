"""``caxton config check``, ``schema`` and ``show``, as people and programs use them."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from caxton_host.cli import execute
from caxton_host.config import json_schema
from caxton_host.config.sections import TOP
from caxton_host.config.show import SETTINGS
from caxton_host.core.tools.manifest import section

WRONG = """\
[serve]
port = "x"

[servers.a]
command = "x"
env = { A = "${env:UNSET}" }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("UNSET", *SETTINGS.values()):
        monkeypatch.delenv(name, raising=False)


def written(text: str) -> Path:
    path = Path("caxton.toml")
    path.write_text(text)
    return path


def checked(
    capsys: pytest.CaptureFixture[str], *words: str, code: int
) -> dict[str, Any]:
    assert execute(["config", "check", "--json", *words]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_check_lists_every_mistake_with_its_line_and_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(WRONG)

    assert execute(["config", "check"]) == 2
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "caxton.toml:2: serve.port: wanted a whole number, found a text",
        "  To fix: write it like: 20",
        "caxton.toml:6: servers.a.env.A: the environment variable UNSET is not set",
        "  To fix: run: export UNSET=...; or write ${env:UNSET:-default}",
    ]
    assert "2 mistakes" in told.err


def test_a_check_for_programs_is_one_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(WRONG)

    found = checked(capsys, code=2)

    assert (found["$type"], found["ok"]) == ("caxton.config-check/v1", False)
    assert found["mistakes"][0] == {
        "file": "caxton.toml",
        "line": 2,
        "key": "serve.port",
        "problem": "wanted a whole number, found a text",
        "fix": "write it like: 20",
    }
    assert len(found["mistakes"]) == 2


def test_a_check_tells_what_takes_a_restart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("version = 1")

    found = checked(capsys, code=0)

    assert (found["ok"], found["mistakes"]) == (True, [])
    assert {"store", "serve", "audit"} < {*found["restart"]}
    assert {"servers", "agents"} < {*found["reload"]}
    assert {*found["restart"], *found["reload"]} == {*TOP}


def test_variables_that_are_unset_can_be_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(WRONG.replace('"x"\n\n', "1\n\n"))

    found = checked(capsys, "--allow-unset", code=0)
    assert found["mistakes"] == []
    assert any("UNSET is not set" in text for text in found["warnings"])
    checked(capsys, code=2)


def test_a_check_without_a_file_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    [warning] = checked(capsys, code=0)["warnings"]
    assert "no configuration file" in warning


def test_a_check_starts_no_server_and_connects_to_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        "[store]\nurl = 'postgresql://h/x'\n[servers.a]\ncommand = 'x'\n"
        "start = 'eager'\n[servers.b]\nurl = 'https://b.example'\n"
    )

    def touched(*_args: object, **_options: object) -> None:
        raise AssertionError

    for owner, name in (
        (socket.socket, "connect"),
        (socket, "getaddrinfo"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(owner, name, touched)

    checked(capsys, code=0)


def test_a_check_warns_of_input_without_a_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = {
        "properties": {"place": {"description": "x"}, "days": {"type": "integer"}}
    }
    manifest = {"name": "mine", "input_schema": schema}
    module = b"\0asm\1\0\0\0" + section(json.dumps(manifest).encode())
    Path("mine.wasm").write_bytes(module)
    written(
        "[agents.mine]\nmodule = 'mine.wasm'\n[agents.gone]\nmodule = 'gone.wasm'\n"
        "[agents.own]\nmodule = 'own.wasm'\n"
        "[agents.own.expose.input_schema]\ntype = 'object'\n"
        "properties.way = {}"
    )

    gone, mine, own = sorted(checked(capsys, code=0)["warnings"])
    assert "agents.gone.module: cannot read the module" in gone
    assert "agents.mine: input_schema says no type of place," in mine
    assert "agents.own: input_schema says no type of way," in own


def test_what_a_module_calls_its_properties_is_told_in_one_harmless_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # law 9
    names = "".join(f'properties."\\u001b[2J{n}" = {{}}\n' for n in range(500))
    written(f"[agents.own.expose.input_schema]\ntype = 'object'\n{names}")

    assert execute(["config", "check"]) == 0
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "and 490 more" in told
    assert len(told) < 1000


def test_the_schema_is_printed_for_editors(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_an_error_of_any_command_says_that_there_is_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(WRONG)
    assert execute(["server", "list"]) == 2
    assert "caxton config check lists all 2" in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert execute([*words, "config", "show"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_setting_comes_from_an_option_a_variable_the_file_or_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("[store]\nurl = 'sqlite:///a.db'\n[serve]\nport = 1\n")

    found = shown(capsys)
    assert found["origins"]["store.url"] == "caxton.toml:2"
    assert found["origins"]["serve.port"] == "caxton.toml:4"
    assert found["origins"]["serve.host"] == found["origins"]["state"] == "default"

    monkeypatch.setenv("CAXTON_STORE_URL", "postgresql://me:hunter2hunter2@h/b")
    monkeypatch.setenv("CAXTON_SERVE_PORT", "2")
    monkeypatch.setenv("CAXTON_SERVE_HOST", "192.0.2.1")
    monkeypatch.setenv("CAXTON_STATE_DIR", "/keys")
    found = shown(capsys)
    assert found["store"]["url"] == "postgresql://me:***@h/b"
    assert (found["serve"]["host"], found["serve"]["port"]) == ("192.0.2.1", 2)
    assert found["state"]["folder"] == "/keys"
    for setting in ("store.url", "serve.port", "serve.host", "state"):
        assert found["origins"][setting] == SETTINGS[setting]

    found = shown(capsys, "--db", "sqlite:///c.db", "--config", "caxton.toml")
    assert found["store"]["url"] == "sqlite:///c.db"
    assert found["origins"]["store.url"] == "--db"
    assert found["origins"]["config"] == "--config"


def test_the_log_is_found_by_its_variable_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert execute(["--db", f"sqlite:///{tmp_path}/there.db", "db", "migrate"]) == 0
    monkeypatch.setenv("CAXTON_STORE_URL", f"sqlite:///{tmp_path}/there.db")
    written("[broken")

    assert execute(["runs", "list"]) == 0
    assert execute(["db", "status"]) == 0
    assert "there.db" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CAXTON_SERVE_PORT", "http"),
        ("CAXTON_SERVE_PORT", "65536"),
        ("CAXTON_SERVE_PORT", "-1"),
        ("CAXTON_SERVE_HOST", "a b"),
        ("CAXTON_SERVE_UI", "maybe"),
        ("CAXTON_STATE_DIR", "keys"),
    ],
)
def test_a_variable_that_cannot_be_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
) -> None:
    monkeypatch.setenv(name, text)
    for content in ("version = 1", ""):
        written(content)
        assert execute(["config", "show"]) == 2
        assert f"the variable {name} " in capsys.readouterr().err


def test_an_agent_that_names_no_module_is_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("[agents.bare]\ndescription = 'x'\n")
    assert execute(["config", "check"]) == 0
    assert "warning: agents.bare: names no module" in capsys.readouterr().err
