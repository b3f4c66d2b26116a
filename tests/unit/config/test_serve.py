"""Who may call, and what is offered to them, as a file says it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from caxton_host.config import OAuth, Serve, agents, describe, serve
from caxton_host.config.model import Expose

from .conftest import Folder

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "serve.md"
OAUTH = "[serve.oauth]\nissuer = 'https://id.test'\naudience = 'https://a.test/mcp'\n"


def test_host_is_served_on_this_machine_unless_it_is_said(folder: Folder) -> None:
    assert folder.load().serve == folder.load("version = 1").serve == Serve()


def test_every_key_is_read(folder: Folder) -> None:
    found = folder.load(
        """
        [serve]
        host = "0.0.0.0"
        port = 0
        mcp = false
        api = true
        allowed_hosts = ["Agents.example.com", "10.0.0.1:8080", "[::1]:80"]
        allowed_origins = ["https://App.example.com", "http://localhost:3000"]
        runs = 10
        queue = 0
        concurrency = 2
        rate = "10/s"
        body = "1 MiB"
        drain = "1m"

        [serve.oauth]
        issuer = "https://id.example.com/realms/a"
        audience = "https://agents.example.com/mcp"
        algorithms = ["ES256"]
        jwks = "https://id.example.com/keys"
        tenant_claim = "org"
        client_id = "console"
        scope = "openid caxton:read"
        """
    ).serve

    assert found == Serve(
        host="0.0.0.0",  # noqa: S104 -- only read
        port=0,
        mcp=False,
        allowed_hosts=("agents.example.com", "10.0.0.1:8080", "[::1]:80"),
        allowed_origins=("https://app.example.com", "http://localhost:3000"),
        runs=10,
        queue=0,
        concurrency=2,
        rate=600,
        body=1024 * 1024,
        drain=60.0,
        oauth=OAuth(
            issuer="https://id.example.com/realms/a",
            audience="https://agents.example.com/mcp",
            algorithms=("ES256",),
            jwks="https://id.example.com/keys",
            tenant_claim="org",
            client_id="console",
            scope="openid caxton:read",
        ),
    )


@pytest.mark.parametrize(
    ("said", "number"), [("600/min", 600), ("1/s", 60), ("30/10s", 180), ("90/h", 2)]
)
def test_rate_is_one_of_minutes(said: str, number: int, folder: Folder) -> None:
    assert folder.load(f"[serve]\nrate = '{said}'").serve.rate == number


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("[serve]\nhots = 'x'", "serve.hots", "unknown key"),
        ("serve = 3", "serve", "wanted a table"),
        ("[serve]\nhost = 3", "serve.host", "wanted a text"),
        ("[serve]\nhost = ''", "serve.host", "not an address to listen on"),
        ("[serve]\nhost = 'http://x/'", "serve.host", "not an address to listen on"),
        ("[serve]\nport = 65536", "serve.port", "not a valid port"),
        ("[serve]\nport = '80'", "serve.port", "wanted a whole number"),
        ("[serve]\nmcp = 'yes'", "serve.mcp", "true or false"),
        ("[serve]\nallowed_hosts = ['*']", "serve.allowed_hosts.1", "not a valid"),
        (
            "[serve]\nallowed_hosts = ['http://a']",
            "serve.allowed_hosts.1",
            "not a valid",
        ),
        ("[serve]\nallowed_hosts = ['']", "serve.allowed_hosts.1", "not a valid"),
        (
            "[serve]\nallowed_origins = ['*']",
            "serve.allowed_origins.1",
            "not a valid origin",
        ),
        (
            "[serve]\nallowed_origins = ['null']",
            "serve.allowed_origins.1",
            "not a valid origin",
        ),
        (
            "[serve]\nallowed_origins = ['https://a.test/']",
            "serve.allowed_origins.1",
            "not a valid origin",
        ),
        ("[serve]\nruns = 0", "serve.runs", "at least 1"),
        ("[serve]\nconcurrency = 0", "serve.concurrency", "at least 1"),
        ("[serve]\nrate = 600", "serve.rate", "wanted a rate"),
        ("[serve]\nrate = 'often'", "serve.rate", "not a rate"),
        ("[serve]\nrate = '1/h'", "serve.rate", "less than one per minute"),
        ("[serve]\nbody = 4", "serve.body", "wanted a size"),
        ("[serve]\ndrain = 30", "serve.drain", "wanted a duration"),
        (
            "[serve]\nhost = '0.0.0.0'\nallow_unauthenticated = true",
            "serve.allow_unauthenticated",
            "accept unauthenticated requests",
        ),
        (
            "[serve.oauth]\nissuer = 'https://id.test'",
            "serve.oauth",
            "needs its audience",
        ),
        ("[serve.oauth]\naudience = 'x'", "serve.oauth", "needs its issuer"),
        (
            "[serve.oauth]\nissuer = 'http://id.test'",
            "serve.oauth.issuer",
            "is not https",
        ),
        (
            "[serve.oauth]\nissuer = 'https://u:p@id.test'",
            "serve.oauth.issuer",
            "user name",
        ),
        (OAUTH + "tenant_claim = ''", "serve.oauth.tenant_claim", "not the name of a"),
        (OAUTH + "client_id = ''", "serve.oauth.client_id", "is empty"),
        (OAUTH + 'scope = "a\\nb"', "serve.oauth.scope", "characters that cannot"),
        (OAUTH + "jwks = 'http://id.test'", "serve.oauth.jwks", "is not https"),
        (OAUTH + "algorithms = []", "serve.oauth.algorithms", "is empty"),
        (OAUTH + "algorithms = ['HS256']", "serve.oauth.algorithms.1", "known values"),
        (OAUTH + "algorithms = ['none']", "serve.oauth.algorithms.1", "known values"),
        (OAUTH + "secret = 'x'", "serve.oauth.secret", "unknown key"),
        (
            OAUTH.replace("'https://a.test/mcp'", "'a\"b'"),
            "serve.oauth.audience",
            "not a valid audience",
        ),
        (
            OAUTH.replace("'https://a.test/mcp'", "'https://[a'"),
            "serve.oauth.audience",
            "not a valid audience",
        ),
        (
            OAUTH.replace("'https://a.test/mcp'", "''"),
            "serve.oauth.audience",
            "not a valid audience",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    text: str, place: str, problem: str, folder: Folder
) -> None:
    said = str(folder.refusal(text))

    assert said.startswith(f"caxton.toml: {place}: ")
    assert problem in said


def test_this_machine_may_do_without_tokens_if_it_is_said(folder: Folder) -> None:
    found = folder.load("[serve]\nhost = 'localhost'\nallow_unauthenticated = true")

    assert found.serve.allow_unauthenticated


# -- variables of the environment ----------------------------------------------


@pytest.mark.parametrize("text", [None, "[serve]\nmcp = true\napi = false"])
def test_environment_comes_before_the_file(text: str | None, folder: Folder) -> None:
    folder.environ |= {
        "CAXTON_SERVE_MCP": "false",
        "CAXTON_SERVE_API": "True",
        "CAXTON_SERVE_PORT": "tcp://10.0.0.1:80",  # as Kubernetes sets it
    }

    assert folder.load(text).serve == Serve(mcp=False)


@pytest.mark.parametrize(("name", "text"), [("MCP", "maybe"), ("API", "2")])
def test_variable_that_says_what_cannot_be_is_named(
    name: str, text: str, folder: Folder
) -> None:
    folder.environ[f"CAXTON_SERVE_{name}"] = text

    assert f"CAXTON_SERVE_{name}" in str(folder.refusal("version = 1"))


def test_an_address_from_a_variable_lets_nobody_in_without_a_token(
    folder: Folder,
) -> None:
    folder.environ["CAXTON_SERVE_HOST"] = "192.0.2.1"

    refusal = folder.refusal("[serve]\nallow_unauthenticated = true")
    assert "CAXTON_SERVE_HOST" in str(refusal)
    assert folder.load("version = 1").serve.host == "192.0.2.1"


def test_no_variable_lets_callers_in_without_tokens(folder: Folder) -> None:
    folder.environ["CAXTON_SERVE_ALLOW_UNAUTHENTICATED"] = "true"

    assert folder.load("version = 1").serve == Serve()


# -- what is offered -----------------------------------------------------------


def test_agents_are_offered_as_it_is_said(folder: Folder) -> None:
    agents = folder.load(
        """
        [agents.weather.expose]
        mcp = true
        mcp_name = "get_sky"
        input_schema = { type = "object", properties = { city = { type = "string" } } }
        output_schema = { type = "object" }

        [agents.bank]
        """
    ).agents

    assert agents["weather"].tool == "get_sky"
    assert agents["weather"].expose == Expose(
        mcp=True,
        name="get_sky",
        input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
        output_schema={"type": "object"},
    )
    assert agents["bank"].expose == Expose()
    assert agents["bank"].tool is None


@pytest.mark.parametrize(
    ("table", "place", "problem"),
    [
        ("mpc = true", "expose.mpc", "unknown key"),
        ("mcp = 1", "expose.mcp", "true or false"),
        ("name = 'a.b'", "expose.name", "not a valid tool name"),
        ("name = ''", "expose.name", "not a valid tool name"),
        ("name = 'a'\nmcp_name = 'b'", "expose.mcp_name", "sets the same value"),
        ("input_schema = true", "expose.input_schema", "wanted a table"),
        ("input_schema = {}", "expose.input_schema", "not a JSON Schema of an object"),
        (
            "output_schema = { type = 'array' }",
            "expose.output_schema",
            "not a JSON Schema of an object",
        ),
        (
            "input_schema = { type = 'object', properties = 3 }",
            "expose.input_schema",
            "no JSON Schema",
        ),
        (
            "input_schema = { type = 'object', '$ref' = 'https://a.test/x' }",
            "expose.input_schema",
            "",
        ),
    ],
)
def test_what_cannot_be_offered_is_refused(
    table: str, place: str, problem: str, folder: Folder
) -> None:
    said = str(folder.refusal(f"[agents.a.expose]\n{table}"))

    assert said.startswith(f"caxton.toml: agents.a.{place}: ")
    assert problem in said


def test_no_two_agents_are_offered_by_one_name(folder: Folder) -> None:
    text = "[agents.a.expose]\nmcp = true\n[agents.b.expose]\nmcp = true\nname = 'a'\n"

    said = str(folder.refusal(text))

    assert said.startswith("caxton.toml: agents.b.expose: ")
    assert folder.load(text.replace("[agents.a.expose]\nmcp = true", "")).agents


def test_agent_whose_name_clients_cannot_say_needs_another(folder: Folder) -> None:
    text = "[agents.'a.b'.expose]\nmcp = true\n"

    assert "not a valid tool name" in str(folder.refusal(text))
    assert folder.load(text + "name = 'a_b'").agents["a.b"].tool == "a_b"


def test_all_of_it_is_shown(folder: Folder) -> None:
    config = folder.load(f"{OAUTH}[agents.a.expose]\nmcp = true\n")

    shown: Any = describe(config)

    assert shown["serve"]["oauth"]["issuer"] == "https://id.test"
    assert shown["serve"]["oauth"]["jwks"] is None
    assert shown["serve"]["rate"] == 6000
    assert shown["agents"]["a"]["expose"] == {"mcp": True, "tasks": "optional"}


def test_every_key_stands_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    for heading, table in {
        "Keys of `[serve]`": "_SERVE",
        "Keys of `[serve.oauth]`": "_OAUTH",
        "Keys of `[agents.NAME.expose]`": "_EXPOSE",
    }.items():
        section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        cells = [
            line.split("|")[1] for line in section.splitlines() if line[:3] == "| `"
        ]
        found = {key for cell in cells for key in re.findall("`([^`]+)`", cell)}
        assert found == {*(vars(agents) | vars(serve))[table]}, heading
