"""Files of two other systems become tables of ``caxton.toml``."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.config.edit import append_servers
from caxton_host.config.importers import Foreign, import_foreign
from caxton_host.config.servers import server_keys
from caxton_host.config.tools import tool_keys
from caxton_host.core.text.toml_text import comment, value_text
from caxton_host.core.tools.servers import Restart
from caxton_host.errors import ConfigError, UsageError

from .conftest import Folder

#: As the documentation of SignalWire's client has it.
SIGNALWIRE = """
{
  "ai": {
    "prompt": { "text": "You are a helpful support agent." },
    "SWAIG": {
      "defaults": { "web_hook_url": "https://api.example.com/swaig" },
      "functions": [ { "function": "x", "description": "y", "parameters": { } } ],
      "mcp_servers": [
        {
          "url": "https://crm.example.com/mcp",
          "headers": { "Authorization": "Bearer ${global_data.crm_token}" },
          "resources": true,
          "resource_vars": { "customer_id": "${global_data.customer_id}" }
        }
      ]
    }
  }
}
"""

#: As AVA's proposal has it.
AVA = """
mcp:
  enabled: true
  servers:
    aviation_atis:
      transport: stdio
      command:
        - "python3"
        - "-m"
        - "src.mcp_servers.aviation_atis_server"
      env:
        METNO_USER_AGENT: "Asterisk-AI-Voice-Agent (+https://github.com/...)"
        ATIS_TOKEN: "${ATIS_TOKEN}"
      restart:
        enabled: true
        max_restarts: 5
        backoff_ms: 1000
      defaults:
        timeout_ms: 10000
        slow_response_threshold_ms: 2500
        slow_response_message: "Let me look that up for you, one moment..."
      tools:
        - name: get_atis
          expose_as: mcp_aviation_atis_get_atis
          description: "Get current ATIS for an airport"
          speech_field: atis_text
        - name: plain
          timeout_ms: 1500
contexts:
  aviation_support:
    provider: openai_realtime
    tools:
      - transfer
      - mcp_aviation_atis_get_atis
      - mcp_aviation_atis_plain
  demo: {}
"""


def translated(
    folder: Folder, kind: str, text: str, name: str | None = None
) -> Foreign:
    suffix = "json" if kind == "signalwire" else "yaml"
    path = folder.write(text, name or f"theirs.{suffix}")
    return import_foreign(kind, path, environ=folder.environ)


def swaig(*servers: dict[str, Any]) -> str:
    return json.dumps({"SWAIG": {"mcp_servers": servers}})


def servers_of(found: Foreign) -> dict[str, Any]:
    return dict(tomllib.loads(found.text)["servers"])


def test_a_document_of_signalwire_becomes_servers_by_name_of_their_host(
    folder: Folder,
) -> None:
    found = translated(folder, "signalwire", SIGNALWIRE)
    assert found.servers == ["crm"]
    assert servers_of(found) == {
        "crm": {
            "url": "https://crm.example.com/mcp",
            "headers": {"Authorization": "Bearer ${context.crm_token}"},
            "resources": True,
            "resource_vars": {"customer_id": "${context.customer_id}"},
        }
    }
    assert "# crm_token = { required = true }\n" in found.text
    [said] = found.notes
    assert "ai.SWAIG.functions" in said


@pytest.mark.parametrize(
    ("restart", "key"),
    [("{enabled: soon}", "enabled"), ("{max_restarts: many}", "max_restarts")],
)
def test_what_no_restart_can_be_is_refused_by_its_key(
    folder: Folder, restart: str, key: str
) -> None:
    text = f"mcp: {{servers: {{a: {{command: x, restart: {restart}}}}}}}"
    with pytest.raises(ConfigError, match=rf"mcp\.servers\.a\.restart\.{key}: wanted"):
        translated(folder, "ava", text)


def test_a_folder_is_no_file_and_is_named(folder: Folder) -> None:
    with pytest.raises(ConfigError, match=r"^\.: cannot be read"):
        import_foreign("ava", Path(), environ=folder.environ)


def test_the_sidecar_says_the_same_in_yaml(folder: Folder) -> None:
    sidecar = """
    ai_sidecar:
      SWAIG:
        mcp_servers:
          - url: https://crm.example.com/mcp
            headers: {Authorization: "Bearer ${global_data.crm_token}"}
            resources: true
            resource_vars: {customer_id: "${global_data.customer_id}"}
    """
    found = translated(folder, "signalwire", sidecar, "sidecar.yaml")
    assert servers_of(found) == servers_of(translated(folder, "signalwire", SIGNALWIRE))


def test_servers_are_found_at_any_depth_and_named_apart(folder: Folder) -> None:
    one = {"url": "https://mcp.example.com/a"}
    other = {"url": "https://example.org/b"}
    tree = {
        "sections": {
            "main": [
                {"ai": {"SWAIG": {"mcp_servers": [one, other]}}},
                {"ai_sidecar": {"SWAIG": {"mcp_servers": [one]}}},
            ]
        }
    }
    found = translated(folder, "signalwire", json.dumps(tree))
    assert servers_of(found) == {"example": one, "example-2": other}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://crm.example.com/mcp", "crm"),
        ("https://www.api.example.com", "example"),
        ("http://localhost:8080/mcp", "localhost"),
        ("http://127.0.0.1:8080/mcp", "127-0-0-1"),
        ("http://[2001:db8::1]/mcp", "2001-db8-1"),
        ("https://my_crm.example.com/", "my-crm"),
    ],
)
def test_the_name_of_a_server_comes_from_its_host(
    folder: Folder, url: str, name: str
) -> None:
    assert translated(folder, "signalwire", swaig({"url": url})).servers == [name]


def test_an_entry_without_a_url_is_left_out_and_told(folder: Folder) -> None:
    found = translated(
        folder, "signalwire", swaig({"url": ""}, {"url": "https://a.example.com"})
    )
    assert found.servers == ["a"]
    assert found.notes == [
        "theirs.json: SWAIG.mcp_servers.1 is left out: it has no url"
    ]


def test_a_file_of_ava_becomes_what_caxton_reads(folder: Folder) -> None:
    folder.environ |= {"ATIS_TOKEN": "canary-4711-canary"}
    found = translated(folder, "ava", AVA)
    append_servers(
        folder.path / "caxton.toml", found.servers, found.text, environ=folder.environ
    )
    config = folder.load()
    atis = config.servers["aviation_atis"]
    assert atis.command == ("python3", "-m", "src.mcp_servers.aviation_atis_server")
    assert atis.env["METNO_USER_AGENT"].startswith("Asterisk")
    assert atis.env["ATIS_TOKEN"] == "canary-4711-canary"  # noqa: S105 -- a canary
    assert "canary" not in found.text
    assert atis.restart == Restart(enabled=True, max_restarts=5, backoff=1.0)
    assert atis.timeout == 10
    tool = atis.tools["get_atis"]
    assert tool.expose_as == "mcp_aviation_atis_get_atis"
    assert tool.description == "Get current ATIS for an airport"
    assert tool.message_field == "atis_text"
    assert atis.tools["plain"].timeout == 1.5


def test_importing_grants_nothing(folder: Folder) -> None:
    # law 4
    found = translated(folder, "ava", AVA)
    assert "agents" not in tomllib.loads(found.text)
    proposal = found.text.partition("# The context aviation_support")[2]
    granted = tomllib.loads(re.sub(r"(?m)^.*nobody yet\.$|^# ", "", proposal))
    [rule] = granted["agents"]["aviation_support"]["allow"]
    assert rule == {"tools": ["aviation_atis/get_atis", "aviation_atis/plain"]}


def test_the_switch_for_all_servers_switches_each_one(folder: Folder) -> None:
    found = translated(folder, "ava", AVA.replace("enabled: true", "enabled: false", 1))
    assert servers_of(found)["aviation_atis"]["enabled"] is False
    assert found.notes == [
        "theirs.yaml: mcp.enabled is false, so its servers are off here"
    ]
    append_servers(
        folder.path / "caxton.toml", found.servers, found.text, environ=folder.environ
    )
    folder.environ |= {"ATIS_TOKEN": "canary-4711-canary"}
    assert folder.load().servers == {}


def test_a_server_of_ava_may_have_an_address(folder: Folder) -> None:
    found = translated(
        folder,
        "ava",
        """
        mcp:
          servers:
            old:
              transport: sse
              url: https://tools.example.com/sse
              headers: {Authorization: "Bearer ${TOKEN:-none}"}
              defaults: {timeout_ms: 0}
        """,
    )
    assert servers_of(found)["old"] == {
        "transport": "sse",
        "url": "https://tools.example.com/sse",
        "headers": {"Authorization": "Bearer ${env:TOKEN:-none}"},
    }
    [said] = found.notes
    assert "timeout_ms must be more than zero" in said


def test_what_this_version_does_not_know_is_a_comment(folder: Folder) -> None:
    found = translated(
        folder, "ava", "mcp: {servers: {a: {command: x, defaults: {odd: 1}, more: 2}}}"
    )
    assert "# not known here: odd = 1\n" in found.text
    assert found.notes == ["theirs.yaml: mcp.servers.a.more is not known and left out"]
    assert {"message_field", "timeout"} <= tool_keys()
    assert {"timeout", "enabled"} <= server_keys()


def test_a_secret_in_the_clear_is_not_copied(folder: Folder) -> None:
    # law 8
    entry = {
        "url": "https://crm.example.com/mcp",
        "headers": {"X-Key": "geheim-geheim", "Accept": "text/plain"},
    }
    found = translated(folder, "signalwire", swaig(entry))
    assert servers_of(found)["crm"]["headers"] == {
        "X-Key": "${env:CRM_X_KEY}",
        "Accept": "text/plain",
    }
    ava = "mcp: {servers: {7up: {command: x, env: {API_KEY: geheim-geheim, B: c}}}}"
    other = translated(folder, "ava", ava)
    assert servers_of(other)["7up"]["env"] == {
        "API_KEY": "${env:_7UP_API_KEY}",
        "B": "c",
    }
    for one in (found, other):
        assert "geheim" not in one.text + "".join(one.notes)
        assert "put it into the environment" in one.notes[0]


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("signalwire", "{}", "has no SWAIG.mcp_servers"),
        ("signalwire", '{"SWAIG": {"mcp_servers": {}}}', "wanted a list"),
        ("signalwire", swaig({"url": 5}), "wanted a text"),
        ("signalwire", swaig({"url": "https:///x"}), "names no host"),
        ("signalwire", swaig({"url": "https://a/${b"}), "no counterpart"),
        ("signalwire", swaig({"url": "https://a/${f(x)}"}), "no counterpart"),
        ("signalwire", '{"SWAIG": {"mcp_servers": [{"url": "\\ud800"}]}}', "UTF-8"),
        (
            "signalwire",
            swaig({"url": "https://a", "resources": "yes"}),
            "wanted true or false",
        ),
        ("ava", "a: 1", "has no mcp.servers"),
        ("ava", "mcp: {servers: {a__b: {}}}", "not a valid server name"),
        ("ava", "mcp: {servers: {a: {command: '${x y}'}}}", "no counterpart"),
        ("ava", "mcp: {servers: {a: {tools: [{}]}}}", "wanted a text"),
        ("ava", "mcp: {servers: {a: {defaults: {timeout_ms: no}}}}", "whole number"),
        # What YAML can do beyond JSON, and how much of it there may be (law 9).
        ("ava", "a: &x 1\nb: *x", "an anchor or a tag at line 1"),
        ("ava", "a: !!python/name:os.system x", "an anchor or a tag"),
        ("ava", "a: *x", "broken YAML at line 1"),
        ("ava", "a: 1\na: 2", "has a duplicate key"),
        ("ava", "on: 1", "not a text"),
        ("ava", "- 1", "is not a mapping"),
        ("ava", "a: [", "broken YAML at line 1, column 5"),
        ("ava", "a: 1\n---\nb: 1", "broken YAML at line 2"),
        ("ava", "a: \0", "broken YAML"),
        ("ava", "[" * 100_000, "too deep"),
        ("ava", "{a: " * 40 + "1" + "}" * 40, "deeper than 32"),
        ("ava", "a: " + "9" * 39 + "_" * 2, "has no mcp.servers"),
        ("ava", "mcp: {servers: {a: {command: 2001-99-99, b: !!set {c}}}}", "a tag"),
        ("ava", "a: [" + "1," * 20_001 + "]", "more than 20000 values"),
        ("ava", "a: '" + "x" * 1024 * 1024 + "'", "more than 1 MiB"),
    ],
)
def test_a_complaint_names_the_file_and_what_to_do(
    folder: Folder, kind: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        translated(folder, kind, text)
    assert str(caught.value).startswith("theirs.")
    assert caught.value.fix


def test_a_number_in_base_60_takes_no_time_by_its_square(folder: Folder) -> None:
    # law 9: PyYAML would take a minute for it.
    text = "a: " + "1:" * 400_000 + "1\nmcp: {servers: {b: {command: x}}}"
    assert translated(folder, "ava", text).servers == ["b"]


def test_yaml_without_its_parser_says_what_to_install(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match="PyYAML is not installed") as caught:
        translated(folder, "ava", AVA)
    assert "caxton-host[yaml]" in caught.value.fix
    assert translated(folder, "signalwire", SIGNALWIRE).servers == ["crm"]


def test_a_server_that_is_there_already_is_not_written_over(folder: Folder) -> None:
    path = folder.write("version = 1\n[servers.crm]\ncommand = 'x'\n")
    found = translated(folder, "signalwire", SIGNALWIRE)
    before = path.read_text()
    with pytest.raises(ConfigError, match=r"servers\.crm already exists"):
        append_servers(path, found.servers, found.text, environ=folder.environ)
    assert path.read_text() == before


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_as_it_was(value: object) -> None:
    line = value_text(value)
    assert line.isprintable()
    assert tomllib.loads(f"a = {line}") == {"a": value}


@given(st.text())
def test_a_comment_stays_one(text: str) -> None:
    assert tomllib.loads(f"{comment(text)}\na = 1") == {"a": 1}


def test_a_hostile_name_stays_in_its_comment(folder: Folder) -> None:
    text = json.dumps(
        {
            "mcp": {"servers": {"a": {"command": "x", "tools": [{"name": "t\n[b]"}]}}},
            "contexts": {"c\n[agents.evil]\x9b": {"tools": ["mcp_a_t\n[b]"]}},
        }
    )
    found = translated(folder, "ava", text, "theirs.json")
    assert set(tomllib.loads(found.text)) == {"servers"}
    assert all(line.isprintable() for line in found.text.split("\n"))
