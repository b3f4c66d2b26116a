"""``caxton support-bundle`` says what helps, and nothing that is secret."""

from __future__ import annotations

import json
import tarfile
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from caxton_host.core.log.events import RunFailed
from tests.answering import HERE, Answers, answering
from tests.canaries import found_in
from tests.integration.store.support import opened
from tests.unit.store.fakes import line, run_started

from .shell import Done, Shell
from .test_docs import ROOT, blocks, commands, type_in

SECRETS = {
    place: f"{place}-canary-{number}471/x+y"
    for number, place in enumerate(
        (
            *("variable", "named", "argument", "header", "url", "default", "limit"),
            *("prompt", "pattern", "reference", "file", "db", "output", "bearer"),
            *("token", "broken", "word"),
        )
    )
}
CONFIG = """\
version = 1
[servers.files]
command = "python"
args = ["-m", "server", "--key={argument}"]
timeout = "7s"
env = {{ PLAIN = "{variable}", API_TOKEN = "{named}", GIVEN = "${{env:REFERENCE}}" }}
[servers.crm]
url = "https://crm.example.com/mcp?key={url}"
headers = {{ Authorization = "Bearer {header}", X-Other = "${{file:kept}}" }}
[context]
customer = {{ default = "{default}" }}
[agents.a]
module = "a.wasm"
prompt = "{prompt}"
[[agents.a.allow]]
tools = ["files/read_*"]
params.path = {{ pattern = "{pattern}" }}
params.pin = {{ one_of = ["{limit}", 90274411] }}
calls = "5/run"
"""
LOG = """\
{"level": "warning", "message": "crm answered 401 to Bearer {bearer}"}
the store postgresql://me:{db}@db.example/log is away
a token caxton_{token} was refused; {reference} and {header} too
"""


@pytest.fixture
def host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Return a host with a secret in every place, of which one run has failed."""
    shell = Shell(tmp_path, tmp_path, monkeypatch, capsys)
    shell.write("caxton.toml", CONFIG.format(**SECRETS))
    shell.write("kept", SECRETS["file"]).chmod(0o600)
    shell.set(REFERENCE=SECRETS["reference"], MY_PASSWORD=SECRETS["word"])
    written = LOG
    for name, secret in SECRETS.items():
        written = written.replace(
            f"{{{name}}}", secret.replace("/x+y", "") if name == "token" else secret
        )
    shell.write("host.log", written)

    async def write() -> None:
        failed = RunFailed(kind="trap", message=SECRETS["output"], fuel=None)
        async with opened(f"sqlite:///{shell.database}") as store:
            said = line(1, SECRETS["output"])
            await store.create("run/a").append(run_started("payer"), said, failed)

    anyio.run(write)
    return shell


def unpacked(
    shell: Shell, *words: str, before: tuple[str, ...] = ()
) -> tuple[Done, dict[str, Any]]:
    """Return what the command said, and the parts: as JSON, or as lines."""
    done = shell(*before, "support-bundle", "-o", "s.tar.gz", *words)
    assert done.code == 0, done.err
    file = shell.folder / "s.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    places = {"stdout": done.out.encode(), "stderr": done.err.encode()}
    parts: dict[str, Any] = {}
    with tarfile.open(file) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content
            name = entry.name.removeprefix("caxton-support/")
            places[name] = content.read()
            is_json = places[name].startswith(b"{")
            text = places[name].decode()
            parts[name] = json.loads(text) if is_json and name != "log.txt" else text
    file.unlink()
    # Of a token, what is before the secret is its id.
    assert (
        found_in([one.removesuffix("/x+y") for one in SECRETS.values()], places) == []
    )
    return done, parts


def test_a_bundle_has_what_helps_and_no_secret(host: Shell) -> None:  # law 8
    done, parts = unpacked(host, "--log", "host.log")

    assert [*parts] == [*(row.split("\t")[0] for row in done.out.splitlines()[:-1])]
    assert (
        parts["about.json"]["packages"]["caxton-host"] == parts["about.json"]["version"]
    )
    assert parts["doctor.json"]["guards"]
    config = parts["config.json"]
    assert config["servers"] == {
        "files": {
            "command": "python",
            "args": ["<removed>"] * 3,
            "timeout": "7s",
            "env": {
                "PLAIN": "<removed>",
                "API_TOKEN": "<removed>",
                "GIVEN": "${env:REFERENCE}",
            },
        },
        "crm": {
            "url": "<text>",
            "headers": {"Authorization": "<removed>", "X-Other": "<removed>"},
        },
    }
    (rule,) = config["agents"]["a"]["allow"]
    assert (rule["tools"], rule["calls"]) == (["files/read_*"], "5/run")
    assert rule["params"]["pin"] == {"one_of": ["<removed>", "<removed>"]}
    database = parts["database.json"]
    assert database["schema"] == database["wanted"]
    assert database["runs"] == [{"state": "failed", "reason": "trap", "runs": 1}]
    (failed,) = database["failed"]
    assert (failed["run_id"], failed["agent"]) == ("a", "payer")
    assert parts["log.txt"].count("[redacted]") == 5
    assert "crm answered 401" in parts["log.txt"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("version = 1\n[servers.x]\nurl = '{broken}'\n", ""),
        ("= {broken}", "config.json"),
    ],
)
def test_a_bundle_is_made_where_nothing_works(
    host: Shell, text: str, missing: str
) -> None:
    # law 8
    host.write("caxton.toml", text.format(**SECRETS))
    place = f"postgresql://me:{SECRETS['db']}@127.0.0.1:1/log"
    done, parts = unpacked(
        host,
        "--log",
        "none.log",
        "--url",
        "http://127.0.0.1:1",
        "--json",
        before=("--db", place),
    )
    gone = [one["name"] for one in done.document["parts"] if one["missing"]]
    assert gone == [*filter(None, [missing]), "database.json", "metrics.txt", "log.txt"]
    assert "cannot be opened" in parts["database.json"]["missing"]
    assert parts["about.json"]["version"]


def test_a_bundle_says_that_the_named_configuration_is_not_there(host: Shell) -> None:
    _, parts = unpacked(host, before=("--config", "none.toml"))
    for name in ("config.json", "database.json"):
        assert parts[name]["missing"] == "none.toml: there is no such file"


def test_a_line_that_is_cut_shows_no_part_of_a_secret(host: Shell) -> None:
    # law 8
    rest = b"\n" + b"x" * (1 << 20)
    secret = SECRETS["word"].encode()
    half = len(secret) // 2
    (host.folder / "host.log").write_bytes(secret + rest[: (1 << 20) - half])
    _, parts = unpacked(host, "--log", "host.log")
    assert secret[-half:].decode() not in parts["log.txt"]


def test_a_log_without_an_end_is_not_read(host: Shell) -> None:
    _, parts = unpacked(host, "--log", "/dev/zero")
    assert "zero is no ordinary file" in parts["log.txt"]


def test_the_page_about_help(host: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "get-help.md"
    typed = [
        one
        for block in blocks(page)
        if block.language == "sh"
        for one in commands("sh", block.text)
    ]
    make, look = typed
    type_in(host, make)
    assert '"wanted"' in type_in(host, look)


def test_metrics_come_from_the_host_that_is_named(host: Shell) -> None:
    asked: list[str | None] = []

    class Handler(Answers):
        def respond(self) -> None:
            asked.append(self.headers["authorization"])
            self.answer(b"caxton_calls_total 7\n" * 90_000, 200, "text/plain")

    host.write("token", "caxton_0011_secret").chmod(0o600)
    server = ThreadingHTTPServer(HERE, Handler)
    with answering(server):
        words = ("--url", f"http://127.0.0.1:{server.server_port}", "--token", "token")
        _, parts = unpacked(host, *words)
    assert asked == ["Bearer caxton_0011_secret"]
    # What is longer than a part may be is refused, not read.
    assert "missing" in parts["metrics.txt"]


def test_a_bundle_replaces_no_file_and_needs_a_name(host: Shell) -> None:
    host.write("s.tar.gz", "mine")
    done = host("support-bundle", "-o", "s.tar.gz")
    assert (done.code, done.fix) == (2, "name a new one")
    assert host("support-bundle").code == 2
