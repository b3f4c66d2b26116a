"""The page about restoring a log: each of its commands, on both databases."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import psycopg

from tests import standin
from tests.postgres import Server, name_of

from .guests import call, guest
from .shell import Shell, toml
from .test_cli_cancel import until
from .test_docs import ROOT, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "restore.md"
#: The second call is under way while the copy is made.
AGENT = guest(
    call("mcp__demo__echo", text="one"),
    call("mcp__demo__slow", seconds=0),
    call("mcp__demo__echo", text="three"),
    output="done",
)


def lines_of(language: str) -> Sequence[str]:
    return [
        line
        for block in blocks(PAGE)
        if block.language == language
        for line in commands(language, block.text)
    ]


def prepare(shell: Shell, **store: str) -> None:
    # What the server is sent is seen by a third. The slow call waits for the copy.
    wait = "case $line in *slow*) until [ -e copied ]; do sleep 0.05; done;; esac"
    pass_on = f"while IFS= read -r line; do {wait}; printf '%s\\n' \"$line\"; done"
    command = f"tee -a sent | {pass_on} | exec {standin.typed()}"
    tables: dict[str, dict[str, object]] = {
        "servers.demo": {"command": "sh", "args": ["-c", command]},
        # It may be repeated, so that nothing is in doubt.
        "servers.demo.tools.slow": {"effect": "read"},
        "agents.a": {"module": "a.wasm"},
    }
    if store:
        tables["store"] = {**store}
    allow = '[[agents.a.allow]]\ntools = ["demo/*"]'
    shell.write("caxton.toml", toml(tables, allow))
    shell.write("a.wasm", AGENT)


def typed(shell: Shell, line: str) -> str:
    done = shell(*shlex.split(line)[1:])
    assert done.code == 0, done.err
    return done.out


def sent(shell: Shell) -> int:
    file = shell.folder / "sent"
    return file.read_text().count('"tools/call"') if file.exists() else 0


def test_the_page_about_restoring(shell: Shell) -> None:  # law 7
    prepare(shell)
    backup, restore, away, put, verify, accept, *runs = lines_of("sh")
    listing, show, resume = runs
    with shell.started("run", "a") as host:
        until(lambda: sent(shell) == 2)
        typed(shell, backup)
        (shell.folder / "copied").touch()
        assert host.wait() == 0
    assert sent(shell) == 3

    restored = typed(shell, restore)
    assert "suspended: 1 run" in restored
    assert "\nlost: " in restored

    type_in(shell, away)
    type_in(shell, put)
    assert shell("run", "a").fix == "caxton db accept-copy"
    refused = shell("--config", "caxton.toml", "runs", "resume", "--all")
    assert refused.code == 5
    assert refused.fix == "caxton --config caxton.toml db accept-copy"
    assert shell("audit", "verify").code == 5
    assert "copy: it lags " in typed(shell, verify)
    assert "suspended: 1 run" in typed(shell, accept)
    assert "suspended, restored" in typed(shell, listing)
    typed(shell, show)

    left = shell("runs", "resume", "--all")
    assert left.code == 0
    assert "1 run suspended since the log was restored from a copy" in left.err
    assert "caxton runs resume --all --restored" in left.err
    refused = shell("runs", "resume", "@last")
    assert refused.fix.endswith(
        f"caxton runs resume --restored {shell.runs()[0].removeprefix('run/')}"
    )
    for words in (("runs", "show", "@last"), ("runs", "explain", "@last", "2")):
        assert "may have taken effect" in shell(*words).err
    assert sent(shell) == 3
    assert typed(shell, resume) == '"done"\n'
    assert (sent(shell), shell.types()[-1]) == (5, "RunCompleted")
    assert shell("audit", "verify").code == 0


def test_the_page_about_restoring_postgresql(
    shell: Shell, postgres: Server, postgres_url: str
) -> None:  # law 7
    prepare(shell, url=postgres_url)
    (shell.folder / "copied").touch()
    assert shell("run", "a").code == 0
    name = name_of(postgres_url)
    new = f"{name}_restored"
    # As its host left it that died before the last call.
    with psycopg.connect(postgres.url(name), autocommit=True) as connection:
        connection.execute("UPDATE runs SET state = 'running'")
    known = psycopg.conninfo.conninfo_to_dict(postgres_url)
    query = "SELECT setting FROM pg_config WHERE name = 'BINDIR'"
    ((programs,),) = postgres.execute(query)
    where = f"export PATH={programs}:$PATH PGHOST={known['host']} PGUSER=postgres"
    *copying, accept, listing = lines_of("console")
    for line in copying:
        told = line.replace("restored", new).replace(" caxton", f" {name}")
        type_in(shell, f"{where}; {told}")

    prepare(shell, url=postgres.url(new))
    document = json.loads(typed(shell, f"{accept} --json"))

    assert (document["accepted"], document["had_size"]) == (True, None)
    assert document["runs"] == 1
    assert "suspended, restored" in typed(shell, listing)
