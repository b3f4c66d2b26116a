"""Where values come from, and which of them nobody may see."""

from __future__ import annotations

import base64
import json

import pytest
import sqlalchemy as sa

from caxton_host.config import describe
from caxton_host.config.sections import passwords
from caxton_host.core.text.redact import Redactor

from .conftest import Folder

CANARY = "canary-4711-canary"
CRM = "[servers.crm]\nurl = 'https://h/'\n"
RUN = "[servers.run]\ncommand = 'x'\n"


def test_variable_is_filled_in_and_is_a_secret(folder: Folder) -> None:
    # law 8
    folder.environ["API"] = CANARY
    config = folder.load(RUN + 'args = ["--key=${env:API}", "${env:API}"]')
    assert config.servers["run"].command == ("x", f"--key={CANARY}", CANARY)
    assert config.secrets == {CANARY}


def test_file_is_read_without_its_last_newline(folder: Folder) -> None:
    folder.write(f"{CANARY}\n", "key.txt").chmod(0o600)
    config = folder.load(RUN + 'args = ["${file:key.txt}"]')
    assert config.servers["run"].command == ("x", CANARY)
    assert config.secrets == {CANARY}
    assert config.warnings == ()


def test_file_that_others_can_read_is_warned_of(folder: Folder) -> None:
    folder.write(CANARY, "key.txt").chmod(0o644)
    config = folder.load(RUN + 'args = ["${file:key.txt}"]')
    (warning,) = config.warnings
    assert "servers.run.args.1" in warning
    assert "chmod 600 key.txt" in warning
    assert CANARY not in warning


@pytest.mark.parametrize("content", [None, b"\xff", b"x" * 70_000])
def test_file_that_is_no_secret_is_refused(
    folder: Folder, content: bytes | None
) -> None:
    if content:
        folder.write(content, "key.txt")
    error = folder.refusal(RUN + 'args = ["${file:key.txt}"]')
    assert "caxton.toml: servers.run.args.1: the file key.txt" in str(error)


def test_unset_variable_is_an_error(folder: Folder) -> None:
    error = folder.refusal(CRM + 'headers = { Authorization = "${env:CRM_TOKEN}" }')
    assert str(error) == (
        "caxton.toml: servers.crm.headers.Authorization: "
        "the environment variable CRM_TOKEN is not set"
    )
    assert "export CRM_TOKEN" in error.fix


@pytest.mark.parametrize("value", [None, ""])
def test_default_takes_the_place_of_nothing(folder: Folder, value: str | None) -> None:
    if value is not None:
        folder.environ["LEVEL"] = value
    config = folder.load(RUN + 'args = ["${env:LEVEL:-info:warn}", "${env:LEVEL:-}"]')
    assert config.servers["run"].command == ("x", "info:warn", "")
    assert config.secrets == set()


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("${HOME}", "${env:HOME}"),
        ("${HOME:-x}", "$${"),
        ("${secret:X}", "${env:NAME}"),
        ("${env:}", "${env:NAME}"),
        ("${}", "${env:NAME}"),
        ("${input:x}", "${env:NAME}"),
    ],
)
def test_other_references_are_refused(folder: Folder, text: str, fix: str) -> None:
    error = folder.refusal(RUN + f'args = ["{text}"]')
    assert "contains an unknown reference" in str(error)
    assert fix in error.fix


def test_reference_without_an_end_is_refused(folder: Folder) -> None:
    error = folder.refusal(RUN + 'args = ["${env:A", "}"]')
    assert "without a closing brace" in str(error)


def test_two_dollars_stand_for_one(folder: Folder) -> None:
    config = folder.load(RUN + 'args = ["$${X}", "$X", "${context.x}", "$${"]')
    assert config.servers["run"].command == ("x", "${X}", "$X", "${context.x}", "${")


def test_value_of_a_variable_is_not_read_again(folder: Folder) -> None:
    folder.environ |= {"A": "${env:B}", "B": CANARY}
    config = folder.load(RUN + 'args = ["${env:A}"]')
    assert config.servers["run"].command == ("x", "${env:B}")


def test_every_header_of_a_server_is_a_secret(folder: Folder) -> None:
    # law 8
    config = folder.load(
        CRM
        + f"headers = {{ Authorization = 'Bearer {CANARY}', X-Any = 'any-thing' }}\n"
        "[webhooks.w]\nurl = 'https://h/'\nheaders = { X-Hook = 'hook-value' }\n"
    )
    assert config.secrets == {f"Bearer {CANARY}", CANARY, "any-thing", "hook-value"}


def test_headers_that_everybody_sends_are_none(folder: Folder) -> None:
    config = folder.load(CRM + "headers = { Accept = 'application/json' }")
    assert config.secrets == set()


@pytest.mark.parametrize(
    "name",
    ["API_TOKEN", "apiKey", "DB_PASSWORD", "X_SECRET", "MY_CREDENTIALS", "COOKIE_JAR"],
)
def test_variable_whose_name_says_so_is_a_secret(folder: Folder, name: str) -> None:
    # law 8
    config = folder.load(RUN + f"env = {{ {name} = '{CANARY}' }}")
    assert config.secrets == {CANARY}


@pytest.mark.parametrize("name", ["LOG_LEVEL", "GIT_AUTHOR_NAME", "PATH", "HOME"])
def test_other_variables_are_none(folder: Folder, name: str) -> None:
    assert folder.load(RUN + f"env = {{ {name} = '{CANARY}' }}").secrets == set()


@pytest.mark.parametrize("name", ["HOME", "USER", "PWD", "TMPDIR", "PATH"])
def test_variables_of_the_system_are_no_secrets(folder: Folder, name: str) -> None:
    folder.environ[name] = f"/usr/{CANARY}"
    assert folder.load(RUN + f'args = ["${{env:{name}}}"]').secrets == set()


def test_short_value_is_no_secret_that_could_be_looked_for(folder: Folder) -> None:
    folder.environ["PIN"] = "1234567"
    config = folder.load(RUN + 'args = ["${env:PIN}"]')
    assert config.secrets == set()
    assert config.short_secrets == {"1234567"}


def test_operator_can_say_that_a_value_is_no_secret(folder: Folder) -> None:
    folder.environ["REGION_KEY"] = "eu-central-1"
    config = folder.load(
        "[servers.a]\ncommand = 'x'\npublic = ['MAX_TOKENS', 'REGION_KEY']\n"
        'env = { MAX_TOKENS = "unlimited", REGION = "${env:REGION_KEY}" }\n'
        "[servers.b]\nurl = 'https://h/'\npublic = ['x-tenant']\n"
        "headers = { X-Tenant = 'acme corporation', X-Other = 'secret-other' }\n"
    )
    assert config.secrets == {"secret-other"}


def test_password_of_a_database_or_proxy_is_a_secret(folder: Folder) -> None:
    # law 8
    config = folder.load(
        "[store]\nurl = 'postgresql://u:pass%2Fword-1@h/n'\n"
        "[http]\nproxy = 'http://u:proxy-word@h:1'\n"
    )
    assert config.secrets == {"pass%2Fword-1", "pass/word-1", "proxy-word"}


def test_secret_is_in_no_repr_and_no_description(folder: Folder) -> None:
    # law 8
    folder.environ |= {"API": CANARY, "PIN": "1234567"}
    folder.write(f"{CANARY}-file", "key.txt").chmod(0o600)
    config = folder.load(
        "[store]\nurl = 'postgresql://u:${env:API}@h/n'\n"
        "[http]\nproxy = 'http://u:${env:API}@h:1'\n"
        "[telemetry]\nendpoint = 'http://h/${env:API}'\n"
        "[servers.a]\ncommand = 'x'\nargs = ['--k=${env:API}', '--p=${env:PIN}']\n"
        "env = { PLAIN = '${env:PIN}', TOKEN = 'abc', F = '${file:key.txt}' }\n"
        "[servers.b]\nurl = 'https://h/${env:API}'\n"
        "headers = { Authorization = 'Basic ${env:API}' }\n"
        "[webhooks.w]\nurl = 'https://h/?k=${env:API}'\nheaders = { X = 'zz' }\n"
    )
    shown = json.dumps(describe(config))
    for text in (repr(config), repr(config.webhooks["w"]), shown):
        assert CANARY not in text
        assert "1234567" not in text
    assert '"***"' in shown
    assert '"abc"' not in shown
    assert '"zz"' not in shown
    assert Redactor(config.secrets).text(f"x{CANARY}-file") == "x[redacted]"


def test_basic_credentials_are_secrets_in_plain_too(folder: Folder) -> None:
    # law 8
    basic = base64.b64encode(f"me:{CANARY}".encode()).decode()
    config = folder.load(CRM + f"headers = {{ Authorization = 'Basic {basic}' }}")
    assert config.secrets == {f"Basic {basic}", basic, f"me:{CANARY}", CANARY}
    odd = folder.load(CRM + "headers = { Authorization = 'basic not-base-64!' }")
    assert odd.secrets == {"basic not-base-64!", "not-base-64!"}


def test_password_of_a_store_is_a_secret_wherever_it_stands(folder: Folder) -> None:
    # law 8
    place = f"postgresql://postgres:{CANARY}-1@db/log?password={CANARY}-2&host=database"
    config = folder.load(f"[store]\nurl = '{place}'\n")
    assert config.secrets == {f"{CANARY}-1", f"{CANARY}-2"}
    named = folder.load("[store]\nurl = 'postgresql://postgres-user@db/log'\n")
    assert named.secrets == set()


def test_token_of_a_proxy_is_a_secret(folder: Folder) -> None:
    # law 8
    config = folder.load(f"[http]\nproxy = 'http://{CANARY}@proxy:3128'\n")
    assert config.secrets == {CANARY}


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("postgresql://u:hunter22@h/db", "hunter22"),
        ("postgresql+psycopg://u:sek/rit@127.0.0.1:9/db", "sek/rit"),
        ("postgresql://u:/secret@h/db", "/secret"),
        ("postgresql://u:hunter?22@h/db", "hunter?22"),
        ("postgresql://u:hunter#22@h/db", "hunter#22"),
        ("postgresql://u:hunter:22@h/db", "hunter:22"),
        ("postgresql://:hunter22@h/db", "hunter22"),
        ("postgresql://u%40h:hunter%2022@h/db", "hunter 22"),
        ("postgresql://u:hunter%2022@[::1]:5432/db", "hunter%2022"),
        ("postgresql://u%3Ahunter22@h/db", "hunter22"),
        ("postgresql://u%3ahunter/22@h/db", "hunter/22"),
        ("postgresql://u@x:hunter22@h/db", "hunter22"),
        ("postgresql://u:hunter@22@h/db", "hunter@22"),
        ("postgresql://h/db?user=u&password=hunter22", "hunter22"),
        ("postgresql://h/db?password=hunter#22", "hunter#22"),
        ("postgresql://h/db?password=hunter+22", "hunter 22"),
        ("postgresql://h/db?p%61ssword=hunter22", "hunter22"),
        ("mysql://u:sek/rit@h/db", "sek/rit"),
        ("http://u:hunter22@proxy:8080", "hunter22"),
    ],
)
def test_password_in_an_address_is_what_the_database_takes_for_it(
    url: str, secret: str
) -> None:
    # law 8
    found = passwords(url)
    assert secret in found
    parsed = sa.make_url(url)
    assert {parsed.password, parsed.query.get("password")} - {None} <= found


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/a:b@c/x.db",
        "postgresql://h:5432/db",
        "postgresql://u@h/db",
        "http://h:80/x@y",
    ],
)
def test_address_without_a_password_holds_no_secret(url: str) -> None:
    assert passwords(url) == set()


@pytest.mark.parametrize("named", ["variable", "file"])
def test_password_of_the_store_is_shown_nowhere(folder: Folder, named: str) -> None:
    # law 8
    url = "postgresql+psycopg://u:sek/rit99@127.0.0.1:9/db"
    if named == "variable":
        folder.environ["CAXTON_STORE_URL"] = url
        config = folder.load("")
    else:
        config = folder.load(f"[store]\nurl = '{url}'")
    assert "sek/rit99" in config.secrets
    shown = "postgresql+psycopg://u:***@127.0.0.1:9/db"
    assert describe(config)["store"] == {"url": shown}
