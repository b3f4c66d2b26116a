"""What a configuration says, and where it is found."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from caxton_host.config import Agent, Config, Paths, describe, load, load_parts
from caxton_host.config.model import ContextVar, TelemetrySettings
from caxton_host.config.sections import store_mistake
from caxton_host.core.calls import Retry
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.limits import Limits, Places
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import (
    BreakerOptions,
    Rate,
    Resources,
    Restart,
    ServerConfig,
    ToolOptions,
)
from caxton_host.errors import ConfigError

from .conftest import Folder

EXAMPLE = r"""
version = 1
import = [".mcp.json"]

[store]
url = "sqlite:///caxton.db"

[servers.demo]
env = { LOG_LEVEL = "warning" }
command = "python"
args = ["-m", "caxton_host.demo_server"]
timeout = "10s"
restart = { enabled = true, max_restarts = 5, backoff = "1s" }

[servers.crm]
url = "https://crm.example.com/mcp"
headers = { Authorization = "Bearer ${env:CRM_TOKEN}" }
resources = true
resource_vars = { customer_id = "${context.customer_id}" }
[servers.crm.tools.lookup_customer]
expose_as = "lookup"
effect = "read"
message_field = "customer.name"

[context]
user_name = { default = "there" }
customer_id = { required = true }

[agents.weather]
module = "agents/weather/weather.wasm"
limits = { total_calls = 20, wall = "60s" }
names = { weather = "demo/get_weather" }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
[[agents.weather.allow]]
tools = ["crm/lookup_*"]
calls = "5/run"
[[agents.weather.deny]]
tools = ["crm/delete_*"]
"""


@pytest.fixture
def example(folder: Folder) -> Config:
    folder.environ |= {"CRM_TOKEN": "canary-4711-canary"}
    folder.write('{"mcpServers": {"time": {"command": "uvx"}}}', ".mcp.json")
    return folder.load(EXAMPLE)


def test_ten_seconds_to_connect_and_thirty_in_all_are_the_defaults(
    folder: Folder,
) -> None:
    config = folder.load(
        """
        version = 1
        [servers.usual]
        url = "https://tools.example.com/mcp"
        [servers.quick]
        url = "https://tools.example.com/sse"
        transport = "sse"
        connect_timeout = "2s"
        timeout = "5s"
        """
    )
    usual, quick = config.servers["usual"], config.servers["quick"]
    assert (usual.connect_timeout, usual.timeout) == (10, 30)
    assert (quick.transport, quick.connect_timeout, quick.timeout) == ("sse", 2, 5)


def test_a_login_needs_no_word_about_the_client(folder: Folder) -> None:
    config = folder.load(
        """
        version = 1
        [servers.crm]
        url = "https://crm.example.com/mcp"
        [servers.crm.oauth]
        flow = "code"
        """
    )
    oauth = config.servers["crm"].oauth
    assert oauth
    assert (oauth.flow, oauth.client_id, oauth.issuer) == ("code", "", "")
    shown = json.loads(json.dumps(describe(config)))["servers"]["crm"]["oauth"]
    assert "client_secret" not in shown


def test_credentials_of_a_client_are_read_and_are_secrets(folder: Folder) -> None:
    folder.environ["CRM_SECRET"] = "canary/4711 canary"  # noqa: S105 -- a canary
    config = folder.load(
        """
        version = 1
        [servers.crm]
        url = "https://crm.example.com/mcp"
        [servers.crm.oauth]
        client_id = "caxton"
        client_secret = "${env:CRM_SECRET}"
        issuer = "https://login.example.com"
        scope = "read write"
        method = "post"
        """
    )
    oauth = config.servers["crm"].oauth
    assert oauth
    assert (oauth.client_id, oauth.issuer) == ("caxton", "https://login.example.com")
    assert (oauth.scope, oauth.method, oauth.allow_private) == (
        "read write",
        "post",
        False,
    )
    assert config.secrets >= {"canary/4711 canary", "canary%2F4711%20canary"}
    for text in (repr(config), json.dumps(describe(config))):  # law 8
        assert "canary" not in text


def test_the_key_of_a_client_is_read_from_its_file_and_never_shown(
    folder: Folder,
) -> None:
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder.path / "client.pem").write_bytes(key)
    config = folder.load(
        """
        [servers.crm]
        url = "https://crm.example.com/mcp"
        [servers.crm.oauth]
        flow = "exchange"
        client_id = "caxton"
        private_key = "${file:client.pem}"
        issuer = "https://login.example.com"
        endpoints = ["https://tokens.example.net"]
        """
    )
    shown = json.dumps(describe(config)["servers"])
    assert '"endpoints": ["https://tokens.example.net"]' in shown
    line = key.decode().splitlines()[1]
    assert line not in shown + repr(config)  # law 8
    assert line not in Redactor(config.secrets).text(f"it said {line}")


def test_servers_are_read(example: Config, folder: Folder) -> None:
    demo, crm = example.servers["demo"], example.servers["crm"]
    assert demo.command == ("python", "-m", "caxton_host.demo_server")
    assert demo.env == {"LOG_LEVEL": "warning"}
    assert (demo.transport, demo.timeout, demo.cwd) == ("stdio", 10, str(folder.path))
    assert demo.restart == Restart(enabled=True, max_restarts=5, backoff=1.0)
    assert (crm.transport, crm.url) == ("http", "https://crm.example.com/mcp")
    assert crm.headers == {"Authorization": "Bearer canary-4711-canary"}
    assert crm.tools == {
        "lookup_customer": ToolOptions(
            expose_as="lookup", effect="read", message_field="customer.name"
        )
    }


def test_retries_are_those_of_the_tool_of_the_server_or_of_the_effect(
    folder: Folder,
) -> None:
    config = folder.load(
        """
        [servers.a]
        command = "a"
        retry = { attempts = 5, backoff = "1s" }
        [servers.a.tools.once]
        retry = { attempts = 1 }
        [servers.a.tools.slowly]
        retry = { backoff_ms = 50 }
        [servers.b]
        command = "b"
        [webhooks.hook]
        url = "https://example.com/"
        retry = { attempts = 2 }
        """
    )
    a, b = config.servers["a"], config.servers["b"]
    assert a.options("any").retrying("unsafe") == Retry(attempts=5, backoff=1.0)
    assert a.options("once").retrying("read") == Retry(attempts=1)
    assert a.options("slowly").retrying("read") == Retry(attempts=3, backoff=0.05)
    assert b.options("any").retrying("read") == Retry(attempts=3)
    assert b.options("any").retrying("unsafe") == Retry(attempts=1)
    assert config.webhooks["hook"].retry == Retry(attempts=2)


def test_what_is_too_large_is_said_for_server_and_tool(folder: Folder) -> None:
    config = folder.load(
        """
        [servers.a]
        command = "a"
        blobs_over = false
        [servers.a.tools.big]
        over_limit = "cut"
        [servers.b]
        command = "b"
        over_limit = "cut"
        blobs_over = "1 MiB"
        """
    )
    a, b = config.servers["a"], config.servers["b"]
    assert (a.blobs_over, b.blobs_over) == (None, 1024 * 1024)
    assert [s.options("any").over_limit for s in (a, b)] == ["fail", "cut"]
    assert a.options("big").over_limit == "cut"
    assert (a.cuts, b.cuts, ServerConfig(name="c").cuts) == (True, True, False)


def test_slow_calls_are_told_as_tool_or_server_say(folder: Folder) -> None:
    config = folder.load(
        """
        [servers.a]
        command = "a"
        slow_response_threshold_ms = 500
        slow_response_message = "One moment"
        [servers.a.tools.never]
        slow_response_threshold_ms = 0
        [servers.a.tools.late]
        slow_response_threshold = "5s"
        [servers.a.tools.silent]
        slow_response_threshold = false
        """
    )
    a = config.servers["a"]
    thresholds = [
        a.options(tool).slow_response_threshold
        for tool in ("any", "never", "late", "silent")
    ]
    assert thresholds == [0.5, 0, 5, 0]
    assert a.options("late").slow_response_message == "One moment"
    assert ServerConfig(name="b").options("any").slow_response_threshold == 2


def test_what_is_said_of_changes_is_read(folder: Folder) -> None:
    schema = '{ type = "object", required = ["id"] }'
    tool = f"[servers.a.tools.look]\ninput_schema = {schema}"
    server = '[servers.a]\ncommand = "x"\non_tool_change = "accept"'
    folder.write('{"mcpServers": {}}', ".mcp.json")
    config = folder.load(f'watch = true\nimport = [".mcp.json"]\n{server}\n{tool}')
    one = config.servers["a"]
    assert (config.watch, one.on_tool_change) == (True, "accept")
    assert one.tools["look"].input_schema == {"type": "object", "required": ["id"]}
    assert [path.name for path in config.files] == ["caxton.toml", ".mcp.json"]


def test_origin_of_each_server_is_known(example: Config, folder: Folder) -> None:
    assert {name: path.name for name, path in example.origins.items()} == {
        "demo": "caxton.toml",
        "crm": "caxton.toml",
        "time": ".mcp.json",
    }
    assert example.path == folder.path / "caxton.toml"


def test_agent_is_read(example: Config, folder: Folder) -> None:
    agent = example.agents["weather"]
    assert agent.module == folder.path / "agents/weather/weather.wasm"
    assert agent.limits == Limits(total_calls=20, wall=60.0)
    assert agent.names == {"weather": ("demo", "get_weather")}
    assert (agent.entry, agent.description) == ("run", "")


@pytest.mark.parametrize(
    "when",
    ["{ params.amount = { min = 5 } }", "{ 'params.amount' = { min = 5 } }"],
)
def test_rule_says_who_has_to_approve_what_and_until_when(
    folder: Folder, when: str
) -> None:
    config = folder.load(
        "[[agents.a.allow]]\ntools = ['bank/pay']\n"
        "approve = { by = ['ops'], within = '15m', otherwise = 'deny', "
        f"when = {when} }}"
    )
    (found,) = config.agents["a"].grant.allow
    conditions = Conditions.parse({"amount": {"min": 5}}, deny=True)
    assert found.approve == Approve(by=("ops",), within=900.0, when=conditions)


def test_rule_says_how_fresh_the_sign_in_of_who_approves_has_to_be(
    folder: Folder,
) -> None:
    config = folder.load(
        "[[agents.a.allow]]\ntools = ['bank/pay']\napprove.fresh = '5m'"
    )
    (found,) = config.agents["a"].grant.allow
    assert found.approve == Approve(fresh=300.0)


def test_rules_are_named_by_their_order_and_line(example: Config) -> None:
    # law 4
    grant = example.agents["weather"].grant
    lines = [n for n, line in enumerate(EXAMPLE.split("\n"), 1) if line[:2] == "[["]
    assert grant.to_payload() == {
        "allow": [
            {
                "id": "allow[1]",
                "tools": ["demo/get_weather"],
                "source": f"caxton.toml:{lines[0]}",
            },
            {
                "id": "allow[2]",
                "tools": ["crm/lookup_*"],
                "calls": 5,
                "source": f"caxton.toml:{lines[1]}",
            },
        ],
        "deny": [
            {
                "id": "deny[1]",
                "tools": ["crm/delete_*"],
                "source": f"caxton.toml:{lines[2]}",
            }
        ],
    }


def test_rules_in_a_list_have_their_line(folder: Folder) -> None:
    config = folder.load('agents.a.allow = [{ tools = ["demo/x"], calls = 2 }]')
    (rule,) = config.agents["a"].grant.allow
    assert (rule.source, rule.calls) == ("caxton.toml:1", 2)


def test_agent_without_rules_may_do_nothing(folder: Folder) -> None:
    # law 4
    agent = folder.load("[agents.a]").agents["a"]
    assert agent == Agent(name="a")
    assert agent.grant.allow == ()


def test_context_is_read(example: Config) -> None:
    assert example.context == {
        "user_name": ContextVar(default="there"),
        "customer_id": ContextVar(required=True),
    }


def test_resources_are_read_only_where_that_is_said(example: Config) -> None:
    assert example.servers["crm"].resources == Resources()
    assert example.servers["crm"].resource_vars == {
        "customer_id": "${context.customer_id}"
    }
    assert example.servers["demo"].resources is None


def test_a_table_says_which_resources_are_read(folder: Folder) -> None:
    folder.write(
        """
        [servers.crm]
        command = "crm"
        [servers.crm.resources]
        include = ["crm://*"]
        exclude = ["*secret*"]
        merge = "flat"
        max_count = 3
        max_bytes = "4KiB"
        lenient = true
        required = true
        [servers.other]
        command = "other"
        resources = false
        """,
    )
    servers = folder.load().servers
    assert servers["crm"].resources == Resources(
        include=("crm://*",),
        exclude=("*secret*",),
        merge="flat",
        max_count=3,
        max_bytes=4096,
        lenient=True,
        required=True,
    )
    assert servers["other"].resources is None


def test_a_variable_says_who_gives_it(folder: Folder) -> None:
    config = folder.load(
        "[context]\ntone = { caller = true }\n"
        "who = { from = 'claim:https://a.test/id' }\n"
    )

    assert config.context["tone"].caller
    assert config.context["who"].claim == "https://a.test/id"
    assert "claim:https://a.test/id" in str(describe(config))


def test_private_variables_are_secrets_of_the_configuration(folder: Folder) -> None:
    folder.write(
        '[context]\npin = { default = "pin-0123456789", private = true }\n',
    )
    config = folder.load()
    assert config.context["pin"].private
    assert "pin-0123456789" in config.secrets
    assert "pin-0123456789" not in repr(config)
    assert "pin-0123456789" not in str(describe(config))  # law 8


@pytest.mark.parametrize("name", ["prompt", "resources"])
def test_names_that_the_host_gives_values_itself_are_refused(
    folder: Folder, name: str
) -> None:
    folder.write(f"[context]\n{name} = {{}}\n")
    with pytest.raises(ConfigError, match="host sets"):
        folder.load()


def test_placeholders_that_will_stay_are_warned_of(folder: Folder) -> None:
    folder.write(
        """
        [context]
        user = { default = "you" }
        pin = { private = true }
        [agents.a]
        prompt = "{user} {user.name} {run_id} {resources.crm.x} {pin} {usr}"
        """,
    )
    config = folder.load()
    assert config.agents["a"].prompt is not None
    assert [warning.partition("prompt: ")[2] for warning in config.warnings] == [
        "{pin} is not replaced: that variable is private",
        "{usr} is not replaced: there is no such variable",
    ]


def test_digest_is_of_the_bytes(example: Config) -> None:
    assert example.sha256 == hashlib.sha256(EXAMPLE.encode()).hexdigest()


def test_values_are_frozen(example: Config) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.version = 2  # type: ignore[misc]  # as it should


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("sqlite:///caxton.db", "sqlite:///{}/caxton.db"),
        ("sqlite:///a/b.db?mode=ro", "sqlite:///{}/a/b.db?mode=ro"),
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite://", "sqlite://"),
        ("postgresql+psycopg://h/n", "postgresql+psycopg://h/n"),
    ],
)
def test_database_is_relative_to_the_file(
    folder: Folder, written: str, read: str
) -> None:
    config = folder.load(f'[store]\nurl = "{written}"')
    assert config.store_url == read.format(folder.path)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sekrit", "is not a database URL"),
        ("mysql://h/sekrit", "names mysql, which is not supported"),
        ("postgres://h/sekrit", "names postgres, which is not supported"),
        (
            "postgresql+asyncpg://h/sekrit",
            "names postgresql+asyncpg, which is not supported",
        ),
        ("sqlite://sekrit.db", "names a host"),
        ("postgresql://h:99999/sekrit", "has an invalid port"),
        ("postgresql://h:0/sekrit", "has an invalid port"),
        ("postgresql://h:/sekrit", "has an invalid port"),
        ("postgresql://h:sekrit/db", "has an invalid port"),
        ("postgresql://[::1/sekrit", "names no host"),
        ("postgresql://u:sek@rit@h/db", "has more than one @"),
    ],
)
def test_address_of_no_database_is_refused_where_it_comes_from(
    folder: Folder, url: str, problem: str
) -> None:
    in_file = folder.refusal(f"agents = 1\n[store]\nurl = '{url}'")
    wanted = ["agents: wanted a table, found a number", f"store.url: {problem}"]
    assert [str(one) for one in in_file.each] == [f"caxton.toml: {t}" for t in wanted]

    folder.environ["CAXTON_STORE_URL"] = url
    variable = folder.refusal("agents = 1\n")
    assert str(variable.each[0]) == f"the variable CAXTON_STORE_URL {problem}"
    assert variable.each[1:]
    with pytest.raises(ConfigError, match="CAXTON_STORE_URL"):
        where(folder)

    environ, cwd = folder.environ, folder.path
    with pytest.raises(ConfigError, match=f"^--db {re.escape(problem)}$") as given:
        load_parts(None, (), environ=environ, cwd=cwd, store_url=url)
    if url.startswith("postgres"):
        assert "sqlite" not in given.value.fix


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///log",
        "postgresql:///log?host=/var/run/postgresql",
        "postgresql://[::1]:5432/log",
        "postgresql+psycopg://u:a/b?c:d@h",
        "postgresql://u@h/log?options=a@b",
        "sqlite+pysqlite:////var/a:b@c.db",
    ],
)
def test_address_that_the_database_understands_is_taken(url: str) -> None:
    assert store_mistake(url) is None
    sa.make_url(url)


def test_state_folder_that_is_a_file_is_refused_by_name(folder: Folder) -> None:
    folder.environ["CAXTON_STATE_DIR"] = str(folder.write("", "keys"))
    assert str(folder.refusal("")) == "the variable CAXTON_STATE_DIR names a file"


def test_folder_is_no_configuration_file(folder: Folder) -> None:
    folder.environ["CAXTON_CONFIG"] = str(folder.path)
    with pytest.raises(ConfigError, match=f"^{folder.path}: is a folder$"):
        folder.load()


def test_default_of_a_variable_stays_as_it_is_written(folder: Folder) -> None:
    config = folder.load("[context.a]\ndefault = '${env:HOME}'")
    assert config.context["a"].default == "${env:HOME}"


def test_database_is_beside_the_file_by_default(folder: Folder) -> None:
    assert folder.load("").store_url == f"sqlite:///{folder.path}/caxton.db"


def test_without_a_file_the_database_is_in_the_data_folder(folder: Folder) -> None:
    config = folder.load()
    home = folder.environ["HOME"]
    assert config == Config(store_url=f"sqlite:///{home}/.local/share/caxton/caxton.db")
    assert config.path is None


def test_search_order(folder: Folder, tmp_path: Path) -> None:
    def found(named: Path | None = None) -> str:
        config = load(named, environ=folder.environ, cwd=folder.path)
        return next(iter(config.agents))

    folder.write("[agents.user]", "../home/.config/caxton/caxton.toml")
    assert found() == "user"
    folder.write("[agents.here]")
    assert found() == "here"
    folder.write("[agents.variable]", "variable.toml")
    folder.environ["CAXTON_CONFIG"] = "variable.toml"
    assert found() == "variable"
    named = folder.write("[agents.named]", "named.toml")
    assert found(named) == "named"
    assert found(Path("named.toml")) == "named"
    folder.environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert Paths.of(folder.environ).config == tmp_path / "xdg/caxton"


@pytest.mark.parametrize("by_variable", [False, True])
def test_file_that_was_asked_for_has_to_be_there(
    folder: Folder, *, by_variable: bool
) -> None:
    named = Path("nothing.toml")
    if by_variable:
        folder.environ["CAXTON_CONFIG"] = str(named)
    with pytest.raises(ConfigError, match=r"nothing\.toml") as caught:
        load(None if by_variable else named, environ=folder.environ, cwd=folder.path)
    assert caught.value.fix


def test_folders_follow_the_xdg_specification() -> None:
    paths = Paths.of({"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "rel"})
    assert paths.state == Path("/s/caxton")
    assert paths.cache == Path("/h/.cache/caxton")
    assert paths.data == Path("/h/.local/share/caxton")
    assert Paths.of({}).config == Path.home() / ".config/caxton"


def test_paths_are_relative_to_their_file(folder: Folder) -> None:
    folder.write(
        '[servers.a]\ncommand = "./serve.py"\ncwd = "data"\n'
        '[servers.b]\ncommand = ["bin/serve", "./x"]\n'
        '[servers.c]\ncommand = "~/serve"\n'
        '[agents.a]\nwasm = "a.wasm"\n',
        "sub/caxton.toml",
    )
    config = load(Path("sub/caxton.toml"), environ=folder.environ, cwd=folder.path)
    sub = folder.path / "sub"
    assert config.servers["a"].command == (f"{sub}/serve.py",)
    assert config.servers["a"].cwd == f"{sub}/data"
    assert config.servers["b"].command == (f"{sub}/bin/serve", "./x")
    assert config.servers["c"].command == (f"{folder.environ['HOME']}/serve",)
    assert config.agents["a"].module == sub / "a.wasm"
    assert config.store_url == f"sqlite:///{sub}/caxton.db"


def test_spellings_of_other_systems_are_aliases(folder: Folder) -> None:
    config = folder.load(
        "[servers.a]\ncommand = 'x'\ntimeout_ms = 1500\nrestart.backoff_ms = 250\n"
        "[servers.a.tools.t]\nspeech_field = 'f'\nspeech_template = '{f}'\n"
        "timeout_ms = 100\n"
    )
    server = config.servers["a"]
    assert (server.timeout, server.restart.backoff) == (1.5, 0.25)
    assert server.tools["t"] == ToolOptions(
        message_field="f", message_template="{f}", timeout=0.1
    )


def test_a_server_says_how_it_is_watched(folder: Folder) -> None:
    config = folder.load(
        "[servers.a]\ncommand = 'x'\nbreaker = { failures = 2, pause = '1m' }\n"
        "health = '5s'\nrate = '60/min'\n"
        "restart.reset_after = '10s'\n[servers.b]\ncommand = 'x'\nhealth = 'off'\n"
        "[servers.web]\nurl = 'https://x'\n[servers.net]\nurl = 'https://x'\n"
        "health = '1m'\n"
    )
    server = config.servers["a"]
    assert {n: s.health for n, s in config.servers.items()} == {
        "a": 5.0,
        "b": 0.0,
        "web": 0.0,
        "net": 60.0,
    }
    assert server.restart == Restart(reset_after=10.0)
    assert server.rate == Rate(number=60, seconds=60.0)
    assert config.servers["b"].rate is None
    assert server.breaker == BreakerOptions(failures=2, pause=60.0)


def test_every_limit_can_be_set(folder: Folder) -> None:
    written = {
        field.name: {"int": "7", "int | None": "7", "float": '"7s"'}[str(field.type)]
        for field in dataclasses.fields(Limits)
    }
    sizes = ("module", "compile_memory", "memory", "params", "input", "result")
    for name in (*sizes, "output", "log", "recorded", "sources", "files", "scratch"):
        written[name] = '"7B"'
    lines = "\n".join(f"{name} = {value}" for name, value in written.items())
    limits = folder.load(f"[agents.a.limits]\n{lines}").agents["a"].limits
    assert set(dataclasses.asdict(limits).values()) == {7}


def test_what_a_program_is_given_is_read(folder: Folder) -> None:
    config = folder.load(
        """
        [agents.a]
        args = ["one", "two"]
        env = { MODE = "fast", API_KEY = "hunter2hunter2" }
        files = ["./data/", "one.txt"]
        """
    )
    agent = config.agents["a"]
    assert agent.args == ("one", "two")
    assert agent.env["MODE"] == "fast"
    assert [*agent.files] == ["data", "one.txt"]
    assert agent.files["data"] == folder.path / "data"
    assert "hunter2hunter2" in config.secrets


def test_fuel_may_be_written_as_a_power(folder: Folder) -> None:
    config = folder.load("[agents.a]\nlimits = { fuel = 2e10, memory = '64 KiB' }")
    limits = config.agents["a"].limits
    assert (limits.fuel, limits.memory) == (20_000_000_000, 65536)
    assert isinstance(limits.fuel, int)


def test_disabled_server_is_not_read(folder: Folder) -> None:
    config = folder.load(
        "[servers.a]\nenabled = false\nurl = 'https://${env:NOWHERE}/'\n"
    )
    assert config.servers == {}


def test_further_options_of_a_server(folder: Folder) -> None:
    config = folder.load(
        "[servers.a]\nurl = 'http://h/'\ntype = 'sse'\nrequired = true\n"
        "start = 'eager'\ntrust_annotations = true\nmax_result = '2MiB'\n"
        "concurrency = 3\nstart_timeout = '1m'\n"
        "[servers.b]\nurl = 'http://h/'\ntransport = 'streamable-http'\n"
        "[servers.c]\ncommand = 'x'\nstart = 'lazy'\n"
        "[http]\nproxy = 'http://proxy:3128'\n"
        "[telemetry]\nendpoint = 'http://localhost:4318'\n"
        "trace_url = 'https://jaeger.test/trace/{trace_id}'\n"
        "baggage = ['tenant', 'plan']\n"
        "[sandbox]\nruns = 9\nworkers = 2\nguests = 3\ncompute = 1\n"
    )
    assert config.places == Places(runs=9, workers=2, guests=3, compute=1)
    server = config.servers["a"]
    assert (server.transport, server.required, server.eager) == ("sse", True, True)
    assert (server.trust_annotations, server.max_result) == (True, 2 * 1024**2)
    assert (server.concurrency, server.start_timeout) == (3, 60.0)
    assert config.servers["b"].transport == "http"
    assert not config.servers["c"].eager
    assert config.proxy == "http://proxy:3128"
    assert config.telemetry == TelemetrySettings(
        endpoint="http://localhost:4318",
        trace_url="https://jaeger.test/trace/{trace_id}",
        baggage=("tenant", "plan"),
    )


def test_a_url_of_a_trace_says_where_the_id_is(folder: Folder) -> None:
    with pytest.raises(
        ConfigError, match=r"telemetry\.trace_url.* has no \{trace_id\}"
    ):
        folder.load("[telemetry]\ntrace_url = 'https://jaeger.test/trace'\n")


def test_webhook_is_read(folder: Folder) -> None:
    config = folder.load(
        "[webhooks.forecast]\nmethod = 'GET'\n"
        "url = 'https://api.example.com/{city}?days={days}'\n"
        "description = 'The weather'\neffect = 'read'\nexpose_as = 'forecast'\n"
        "timeout = '3s'\nmax_result = '1KB'\nallow_private = true\n"
        "message_field = 'text'\nconcurrency = 1000\n"
        "headers = { Accept = 'application/json' }\n"
        "[webhooks.note]\nurl = 'https://api.example.com/notes'\n"
        "params.properties.text = { type = 'string', maxLength = 10 }\n"
    )
    forecast, note = config.webhooks["forecast"], config.webhooks["note"]
    assert (forecast.method, forecast.body) == ("GET", "none")
    assert forecast.params == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "string"}},
        "required": ["city", "days"],
    }
    assert (forecast.timeout, forecast.max_result) == (3.0, 1000)
    assert (forecast.concurrency, note.concurrency) == (1000, 16)
    assert (forecast.effect, forecast.allow_private) == ("read", True)
    assert (note.method, note.body, note.name) == ("POST", "json", "note")
    assert note.params == {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 10}},
    }


def test_word_of_the_operator_is_found_for_webhooks_and_servers(
    folder: Folder,
) -> None:
    config = folder.load(
        "[webhooks.w]\nurl = 'https://h/'\nmessage_field = 'a.b'\n"
        "[servers.crm]\ncommand = 'x'\n"
        "[servers.crm.tools.look]\nmessage_template = '{a}'\n"
    )
    assert config.options("webhook", "w").message_field == "a.b"
    assert config.options("crm", "look").message_template == "{a}"
    assert config.options("crm", "other").message_template is None
    assert config.options("webhook", "other") == ToolOptions()
    assert config.options("", "") == ToolOptions()


def test_answers_of_a_tool_that_reads_may_be_kept(folder: Folder) -> None:
    config = folder.load(
        "[webhooks.w]\nurl = 'https://h/'\neffect = 'read'\ncache = { ttl = '5s' }\n"
        "[servers.crm]\nurl = 'https://h/'\nheaders = { X = '1' }\n"
        "[servers.crm.tools.look]\neffect = 'read'\ncache.ttl = '1m'\n"
        "[servers.run]\nurl = 'https://h/'\nheaders = { X = '${context.x}' }\n"
        "[servers.run.tools.look]\neffect = 'read'\n"
    )
    assert config.webhooks["w"].cache == 5.0
    assert config.options("crm", "look").cache == 60.0
    assert config.options("run", "look").cache is None


def test_rule_that_speaks_of_no_server_is_warned_of(folder: Folder) -> None:
    config = folder.load(
        "[servers.demo]\ncommand = 'x'\n[webhooks.w]\nurl = 'https://h/'\n"
        "[agents.a]\nnames = { w = 'demmo/x', ok = 'webhook/w' }\n"
        "[[agents.a.allow]]\ntools = ['dmeo/x', 'webhook/w', 'd*/x']\n"
        "[[agents.a.deny]]\ntools = ['zzz/x']\n"
        "[sessions.s]\nresources = ['zzz/*']\n"
    )
    place = "caxton.toml: agents.a"
    assert config.warnings == (
        f"{place}.allow[1]: no server matches dmeo/x; did you mean demo?",
        f"{place}.deny[1]: no server matches zzz/x",
        f"{place}.names.w: no server matches demmo/x; did you mean demo?",
        "caxton.toml: sessions.s.resources[1]: no server matches zzz/resources/read",
    )


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://tools.example/mcp", True),
        ("https://tools.example/mcp", False),
        ("http://127.0.0.1:8080/mcp", False),
        ("http://localhost/mcp", False),
    ],
)
def test_headers_sent_in_the_clear_are_warned_of(
    folder: Folder, url: str, *, warned: bool
) -> None:
    said = f"[servers.web]\nurl = '{url}'\n"
    assert folder.load(said).warnings == ()
    config = folder.load(said + "headers = { Authorization = 'Bearer 12345678' }")
    assert bool(config.warnings) == warned
    assert all("servers.web.url" in warning for warning in config.warnings)


# -- where the log is, for those who only look at it ---------------------------


def where(folder: Folder) -> str:
    return load_parts(None, (), environ=folder.environ, cwd=folder.path).store_url


def test_log_is_found_without_reading_anything_else(folder: Folder) -> None:  # law 6
    folder.write(
        'import = ["none.json"]\n[servers.a]\nurl = "${env:UNSET}"\n[agents.a]\nb = 1'
    )

    assert where(folder) == f"sqlite:///{folder.path}/caxton.db"


def test_log_that_is_configured_is_found(folder: Folder) -> None:
    folder.write('[store]\nurl = "postgresql://u:${env:WORD}@host/db"')

    with pytest.raises(ConfigError, match="WORD is not set"):
        where(folder)
    folder.environ["WORD"] = "hunter2hunter2"
    config = load_parts(None, (), environ=folder.environ, cwd=folder.path)
    assert config.store_url == "postgresql://u:hunter2hunter2@host/db"
    assert config.secrets == {"hunter2hunter2"}
    folder.write("[store]\nurl = 1")
    with pytest.raises(ConfigError, match=r"store\.url"):
        where(folder)


def test_log_without_a_configuration_is_where_runs_leave_it(folder: Folder) -> None:
    assert (
        where(folder) == load(None, environ=folder.environ, cwd=folder.path).store_url
    )


def test_what_the_log_keeps_of_answers_is_read(folder: Folder) -> None:
    config = folder.load(
        "[servers.crm]\ncommand = 'x'\n[servers.crm.tools.look_up]\nrecord = 'hash'\n"
        "[webhooks.w]\nurl = 'https://h/'\nrecord = 'hash'\n"
    )
    assert config.servers["crm"].tools["look_up"].record == "hash"
    assert config.webhooks["w"].record == "hash"
    with pytest.raises(ConfigError, match="record: is not one of the known values"):
        folder.load("[webhooks.w]\nurl = 'https://h/'\nrecord = 'none'\n")


def test_conditions_of_a_rule_are_read(folder: Folder) -> None:
    config = folder.load(
        """
        [[agents.a.allow]]
        tools = ["demo/x"]
        only_after = ["db/read"]
        unless_after = ["web/*"]
        expires = 1970-01-01T01:00:01+01:00
        max_params = "16 KiB"
        timeout = "500ms"
        max_result = "1 KiB"
        redact_result = ["$.user.email", "$..secret"]
        """
    )

    [rule] = config.agents["a"].grant.allow
    assert [p.text for p in (*rule.only_after, *rule.unless_after)] == [
        "db/read",
        "web/*",
    ]
    assert (rule.expires, rule.max_params) == (1_000_000, 16384)
    assert (rule.timeout, rule.max_result) == (0.5, 1024)
    assert [path.text for path in rule.redact_result] == ["$.user.email", "$..secret"]


OFF = "[mcp]\nenabled = false\n"


def test_one_switch_turns_every_tool_server_off(folder: Folder) -> None:
    folder.write('{"mcpServers": {"b": {"command": "${UNSET}"}}}', "theirs.json")
    config = folder.load(
        "import = ['theirs.json']\n" + OFF + "[servers.a]\nurl = '${env:UNSET}'\n"
        "[webhooks.w]\nurl = 'https://h/'\n"
        "[[agents.x.allow]]\ntools = ['a/b', 'webhook/w']\n"
    )

    assert (config.mcp, [*config.servers], [*config.webhooks]) == (False, [], ["w"])
    assert config.warnings == ("caxton.toml: mcp.enabled: all tool servers are off",)
    assert describe(config)["mcp"] == {"enabled": False}


@pytest.mark.parametrize("said", ["", "[mcp]\n", "[mcp]\nenabled = true\n"])
def test_tool_servers_are_on_if_nothing_else_is_said(folder: Folder, said: str) -> None:
    config = folder.load(said + "[servers.a]\ncommand = 'x'\n")
    assert (config.mcp, [*config.servers]) == (True, ["a"])
