"""Files of other programs, read as they are."""

from __future__ import annotations

import json

import pytest

from caxton_host.config import Config

from .conftest import Folder

CANARY = "canary-4711-canary"


def imported(
    folder: Folder, content: object, name: str = ".mcp.json", more: str = ""
) -> Config:
    folder.write(content if isinstance(content, str) else json.dumps(content), name)
    return folder.load(f'import = ["{name}"]\n{more}')


def refusal(folder: Folder, content: object, more: str = "") -> str:
    folder.write(
        content if isinstance(content, str) else json.dumps(content), ".mcp.json"
    )
    return str(folder.refusal(f'import = [".mcp.json"]\n{more}'))


def one(values: object) -> dict[str, object]:
    return {"mcpServers": {"a": values}}


def test_claude_flat_shape_is_read(folder: Folder) -> None:
    folder.environ |= {"GITHUB_TOKEN": CANARY}
    home = folder.environ["HOME"]
    config = imported(
        folder,
        {
            "mcpServers": {
                "filesystem": {
                    "command": "npx",
                    "args": ["-y", "server-filesystem", "${HOME}/docs"],
                },
                "github": {
                    "type": "http",
                    "url": "https://api.example.com/mcp/",
                    "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                },
            }
        },
    )
    files, github = config.servers["filesystem"], config.servers["github"]
    assert files.command == ("npx", "-y", "server-filesystem", f"{home}/docs")
    assert files.cwd == str(folder.path)
    assert (github.transport, github.url) == ("http", "https://api.example.com/mcp/")
    assert config.secrets == {CANARY, f"Bearer {CANARY}"}
    assert config.warnings == ()


def test_nested_transport_with_the_environment_beside_it_is_read(
    folder: Folder,
) -> None:
    config = imported(
        folder,
        {
            "mcpServers": {
                "files": {
                    "transport": {
                        "type": "stdio",
                        "command": "npx",
                        "args": ["x"],
                        "env": {"A": "inner", "B": "inner"},
                    },
                    "env": {"A": "outer", "NODE_PATH": "/x"},
                },
                "events": {
                    "transport": {"type": "sse", "url": "http://h/sse", "headers": {}},
                    "env": {},
                },
            }
        },
    )
    files, events = config.servers["files"], config.servers["events"]
    assert files.command == ("npx", "x")
    assert files.env == {"A": "outer", "B": "inner", "NODE_PATH": "/x"}
    assert (events.transport, events.url) == ("sse", "http://h/sse")


def test_vs_code_shape_is_read_from_the_folder_of_the_project(folder: Folder) -> None:
    folder.environ |= {"CAXTON_INPUT_API_KEY": CANARY}
    config = imported(
        folder,
        """{
          // Servers of this project
          "inputs": [{"type": "promptString", "id": "api-key", "password": true}],
          "servers": {
            "crm": {
              "type": "stdio", /* local */
              "command": "${workspaceFolder}/bin/crm",
              "args": ["--url=http://h//x", "${userHome}", "${env:NONE:-d}",],
              "env": {"API_KEY": "${input:api-key}"},
            },
          },
        }""",
        ".vscode/mcp.json",
    )
    crm = config.servers["crm"]
    home = folder.environ["HOME"]
    assert crm.command == (f"{folder.path}/bin/crm", "--url=http://h//x", home, "d")
    assert crm.env == {"API_KEY": CANARY}
    assert crm.cwd == str(folder.path)
    assert config.secrets == {CANARY}


def test_input_that_nobody_gave_names_its_variable(folder: Folder) -> None:
    message = refusal(
        folder, {"servers": {"a": {"command": "x", "args": ["${input:my id}"]}}}
    )
    assert message == (
        ".mcp.json: servers.a.args.1: "
        "the environment variable CAXTON_INPUT_MY_ID is not set"
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${SET}", "set-value"),
        ("${env:SET}", "set-value"),
        ("${UNSET:-b c}", "b c"),
        ("${UNSET|b}", "b"),
        ("${SET|b}", "set-value"),
        ("a${SET}b${UNSET:-}", "aset-valueb"),
    ],
)
def test_variables_are_spelled_as_there(
    folder: Folder, text: str, expanded: str
) -> None:
    folder.environ["SET"] = "set-value"
    config = imported(folder, one({"command": "x", "args": [text]}))
    assert config.servers["a"].command == ("x", expanded)


def test_unset_variable_is_an_error(folder: Folder) -> None:
    message = refusal(folder, one({"url": "https://h/", "headers": {"A": "${T}"}}))
    assert message.startswith(".mcp.json: mcpServers.a.headers.A: ")
    assert "T is not set" in message


def test_imported_file_reads_no_files(folder: Folder) -> None:
    # law 9
    folder.write(CANARY, "key.txt")
    message = refusal(folder, one({"command": "x", "args": ["${file:key.txt}"]}))
    assert "unknown reference" in message


@pytest.mark.parametrize("spelling", ["http", "streamable-http", "streamableHttp"])
def test_names_of_transports_are_aliases(folder: Folder, spelling: str) -> None:
    config = imported(folder, one({"type": spelling, "url": "http://h/"}))
    assert config.servers["a"].transport == "http"


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
def test_names_of_addresses_are_aliases(folder: Folder, key: str) -> None:
    config = imported(folder, one({key: "http://h/", "timeout": 30000}))
    assert config.servers["a"].url == "http://h/"
    assert config.servers["a"].timeout == 30


def test_unknown_key_is_warned_of(folder: Folder) -> None:
    config = imported(
        folder, one({"command": "x", "alwaysAllow": ["y"], "\x1b[31m": 1})
    )
    assert config.servers["a"].command == ("x",)
    first, second = config.warnings
    assert first.startswith(".mcp.json: mcpServers.a.alwaysAllow: ")
    assert "\x1b" not in second


def test_importing_grants_nothing(folder: Folder) -> None:
    # law 4
    config = imported(
        folder,
        {**one({"command": "x"}), "agents": {"a": {"allow": [{"tools": ["a/*"]}]}}},
        more="[agents.b]",
    )
    assert [*config.agents] == ["b"]
    assert config.agents["b"].grant.allow == ()


@pytest.mark.parametrize("own", ["command = 'own'", "enabled = false"])
def test_own_server_wins_and_the_other_is_not_read(folder: Folder, own: str) -> None:
    config = imported(
        folder, one({"command": "${UNSET}"}), more=f"[servers.a]\n{own}\n"
    )
    if "a" in config.servers:
        assert config.servers["a"].command == ("own",)
    (warning,) = config.warnings
    assert warning.startswith(".mcp.json: mcpServers.a: ignored")


def test_first_import_wins(folder: Folder) -> None:
    for name in ("1.json", "2.json"):
        folder.write(json.dumps(one({"command": name})), name)
    config = folder.load('import = ["1.json", "2.json"]')
    assert config.servers["a"].command == ("1.json",)
    assert config.origins["a"] == folder.path / "1.json"
    assert len(config.warnings) == 1


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}])
def test_disabled_server_is_not_read(folder: Folder, off: dict[str, bool]) -> None:
    assert imported(folder, one({"command": "${UNSET}", **off})).servers == {}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("my server", "my-server"),
        ("a__b", "a_b"),
        ("@scope/pkg", "scope-pkg"),
        ("x" * 80, "x" * 64),
    ],
)
def test_name_that_no_server_may_have_is_fitted(
    folder: Folder, name: str, ours: str
) -> None:
    config = imported(folder, {"mcpServers": {name: {"command": "x"}}})
    assert [*config.servers] == [ours]
    assert config.warnings[0].endswith(f": is named {ours} here")


@pytest.mark.parametrize("name", ["", "webhook", "__", "日本"])
def test_name_that_cannot_be_fitted_is_refused(folder: Folder, name: str) -> None:
    message = refusal(folder, {"mcpServers": {name: {"command": "x"}}})
    assert "is not a valid server name" in message


def test_two_names_that_become_one_are_refused(folder: Folder) -> None:
    servers = {"a b": {"command": "x"}, "a-b": {"command": "y"}}
    assert "two servers have the name a-b" in refusal(folder, {"mcpServers": servers})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{\n  "mcpServers": }', "broken JSON at line 2, column 17"),
        ('{"a": // "\n /* \n */ }', "broken JSON at line 3, column 5"),
        ("[]", "not a JSON object"),
        ("{}", "neither mcpServers nor servers"),
        ('{"mcpServers": []}', "mcpServers: wanted a table, found a list"),
        ('{"mcpServers": {"a": null}}', "mcpServers.a: wanted a table, found null"),
        ('{"mcpServers": {"a": {}}}', "either a command or a url"),
        ('{"a": ' * 60 + "1" + "}" * 60, "deeper than"),
        ("[" * 100_000, "deeper than"),
        ('{"a": ' + "9" * 10_000 + "}", "too long"),
        ("{}" + " " * 1024 * 1024, "1 MiB"),
        ('{"mcpServers": {"a": {"command": "\\ud800"}}}', "not UTF-8"),
    ],
)
def test_broken_file_is_refused(folder: Folder, content: str, problem: str) -> None:
    assert problem in refusal(folder, content)


def test_crowd_is_refused(folder: Folder) -> None:
    # law 9
    servers = {f"s{n}": {"command": "x"} for n in range(1001)}
    assert "more than 1000" in refusal(folder, {"mcpServers": servers})


def test_file_in_the_home_folder(folder: Folder) -> None:
    folder.write(json.dumps(one({"command": "x"})), "../home/c.json")
    assert [*folder.load('import = ["~/c.json"]').servers] == ["a"]


def test_the_entry_of_this_host_is_no_server_of_its_own(folder: Folder) -> None:
    # Claude Code has both in one file: what it uses, and what it starts.
    def entry(config: str) -> dict[str, object]:
        args = ["--config", str(folder.path / config), "serve", "--stdio"]
        return {"command": "caxton", "args": args}

    servers = {"caxton": entry("caxton.toml"), "other": entry("other.toml")}

    config = imported(folder, {"mcpServers": servers})

    assert [*config.servers] == ["other"]
