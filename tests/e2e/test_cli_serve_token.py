"""Tokens of those who may call, as typed."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from caxton_host.cli import caxton
from caxton_host.core.grants.principals import Token
from caxton_host.lib.machine import SystemClock
from caxton_host.store.sql import SqlStore
from caxton_host.web.edge.authentication import TokenIdentity, Unauthenticated

from .shell import Shell
from .test_docs import ROOT, type_in

APPROVED = """
[agents.bank]
module = "agents/weather.wasm"
[[agents.bank.allow]]
tools = ["demo/*"]
approve = { by = ["ops", "finance"] }
[sessions.dev]
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell("init")
    config = shell.folder / "caxton.toml"
    config.write_text(config.read_text("utf-8") + APPROVED, "utf-8")
    return shell


def create(shell: Shell, *words: str) -> str:
    done = shell("serve", "token", "create", *words)
    assert done.code == 0, done.err
    return done.out


def listed(shell: Shell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell("serve", "token", "list", "--json").document
    return found


def events(shell: Shell) -> list[dict[str, Any]]:
    lines = shell("events", "export", "--all").out.splitlines()
    return [json.loads(line) for line in lines]


def asked(shell: Shell, authorization: str) -> str:
    """Return the id of who has a token, or why nobody has."""

    async def ask() -> str:
        place = f"sqlite:///{shell.folder}/caxton.db"
        clock = SystemClock()
        async with SqlStore.open(
            place, clock=clock, entropy=bytes, write=False
        ) as store:
            try:
                return (
                    await TokenIdentity(store.tokens, clock).principal(authorization)
                ).id
            except Unauthenticated as exc:
                return str(exc)

    return asyncio.run(ask())


def test_token_is_all_that_is_printed_and_lets_its_owner_in(desk: Shell) -> None:
    out = create(desk, "--name", "laptop", "--scope", "run")

    token = Token.parse(out.removesuffix("\n"))
    assert token is not None
    assert asked(desk, f"Bearer {token.text}") == token.id


def test_what_a_token_is_good_for_is_told_beside_it(desk: Shell) -> None:
    done = desk("serve", "token", "create", "--scope", "run", "--agent", "b*")

    assert "run with b*, until 20" in done.err
    assert "shown this once" in done.err


def test_token_as_a_document(desk: Shell) -> None:
    words = ("--name", "desk", "--scope", "decide", "--scope", "run", "--role", "ops")
    out = create(desk, *words, "--agent", "bank", "--expires", "12h", "--json")

    document = json.loads(out)
    token = Token.parse(document.pop("token"))
    assert token is not None
    assert document == listed(desk)[0]
    assert document["expires_at"] - document["created_at"] == 12 * 3600 * 1_000_000
    del document["expires_at"], document["created_at"]
    assert document == {
        "$type": "caxton.token/v1",
        "id": token.id,
        "name": "desk",
        "scopes": ["decide", "run"],
        "agents": ["bank"],
        "roles": ["ops"],
        "tenant": None,
        "revoked_at": None,
        "state": "good",
    }


def test_a_token_of_a_tenant_says_so_in_lists_and_in_its_event(desk: Shell) -> None:
    create(desk, "--scope", "auditor", "--tenant", "acme")
    create(desk, "--scope", "run")

    assert [one["tenant"] for one in listed(desk)] == ["acme", None]
    made = [one["payload"] for one in events(desk) if one["type"] == "TokenCreated"]
    assert [one.get("tenant") for one in made] == ["acme", None]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--scope", "run", "--tenant", "a/b"), "--tenant 'a/b' is not the name"),
        (("--scope", "run", "--tenant", ""), "--tenant '' is not the name"),
        (("--scope", "auditor", "--scope", "run"), "an auditor has no other scope"),
    ],
)
def test_a_token_that_could_not_mean_anything_is_not_made(
    words: tuple[str, ...], problem: str, desk: Shell
) -> None:
    done = desk("serve", "token", "create", *words)

    assert (done.code, done.out) == (2, "")
    assert problem in done.err
    assert "To fix:" in done.err


def test_a_token_is_written_to_a_file_that_nobody_else_can_ever_read(
    desk: Shell,
) -> None:
    # law 8: with a redirection and chmod, others could read it in between
    before = os.umask(0)
    try:
        done = desk("serve", "token", "create", "--scope", "run", "-o", "token.txt")
    finally:
        os.umask(before)
    file = desk.folder / "token.txt"
    token = Token.parse(file.read_text().strip())
    assert (done.code, done.out) == (0, "")
    assert token is not None
    assert token.text not in done.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert asked(desk, f"Bearer {token.text}") == token.id

    again = desk("serve", "token", "create", "--scope", "run", "-o", "token.txt")
    (desk.folder / "link").symlink_to(desk.folder / "elsewhere")
    link = desk("serve", "token", "create", "--scope", "run", "-o", "link")
    assert (again.code, link.code) == (2, 2)
    assert "token.txt already exists" in again.err
    assert not (desk.folder / "elsewhere").exists()
    assert file.read_text().strip() == token.text
    assert len(listed(desk)) == 1
    as_json = desk("serve", "token", "create", "--scope=run", "-o", "b", "--json")
    assert "token" not in as_json.document


def test_a_token_that_is_not_made_leaves_no_file(desk: Shell) -> None:
    words = ("--name", "laptop", "--scope", "run", "-o")
    assert desk("serve", "token", "create", *words, "a.txt").code == 0
    twice = desk("serve", "token", "create", *words, "b.txt")
    assert twice.code == 2
    assert not (desk.folder / "b.txt").exists()


class Full(io.StringIO):
    """Stands for a stdout that cannot be written, as on a full disk."""

    def write(self, text: str) -> int:
        del text
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
def test_a_token_that_cannot_be_printed_is_good_for_nothing(
    desk: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    # no client has it, and it looks like tokens that clients have
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        lost = desk("serve", "token", "create", "--name=x", "--scope=run", *words)

    (row,) = listed(desk)
    assert (lost.code, row["state"]) == (2, "revoked")
    assert f"stdout cannot be written, so token {row['id']} is revoked" in lost.err
    assert "-o FILE" in lost.fix
    create(desk, "--name", "x", "--scope", "run")


def test_a_token_is_not_made_where_there_is_no_stdout(
    desk: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(desk, "--scope", "run")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        refused = desk("serve", "token", "create", "--scope=run")

    assert (refused.code, len(listed(desk))) == (2, 1)
    assert "stdout is closed" in refused.err


def test_tokens_end_after_some_months_unless_it_is_said_otherwise(desk: Shell) -> None:
    create(desk, "--scope", "run")
    create(desk, "--scope", "run", "--expires", "never")

    usual, endless = listed(desk)

    assert usual["expires_at"] - usual["created_at"] == 90 * 86400 * 1_000_000
    assert endless["expires_at"] is None
    columns = desk("serve", "token", "list").out.splitlines()[1].split("\t")
    assert columns[5:] == ["", "never", "good"]


def test_token_is_good_for_nothing_once_it_is_revoked(desk: Shell) -> None:
    text = create(desk, "--name", "laptop", "--scope", "run").strip()

    done = desk("serve", "token", "revoke", "laptop")

    assert done.code == 0
    assert asked(desk, f"Bearer {text}") == "the token is revoked"
    assert listed(desk)[0]["state"] == "revoked"
    again = desk("serve", "token", "revoke", "laptop", "--json")
    assert (again.code, again.fix) == (2, "caxton serve token list")


def test_a_token_that_was_revoked_is_not_taken_for_another(desk: Shell) -> None:
    # the advice, if followed, would revoke one that is in use
    for name in ("me", "me4"):
        create(desk, "--name", name, "--scope", "run")
    assert desk("serve", "token", "revoke", "me4").code == 0
    gone = next(row["id"] for row in listed(desk) if row["name"] == "me4")

    for word in ("me4", gone, f"caxton_{gone}_secret"):
        again = desk("serve", "token", "revoke", word)
        assert again.code == 2
        assert "was revoked already" in again.err
        assert again.fix == "caxton serve token list"
    unknown = desk("serve", "token", "revoke", "mee")
    assert "there is no token 'mee'" in unknown.err
    assert unknown.fix == "did you mean me?"


def test_token_that_has_expired_says_so(desk: Shell) -> None:
    text = create(desk, "--scope", "run", "--expires", "1ms").strip()

    assert asked(desk, f"Bearer {text}") == "the token has expired"
    assert listed(desk)[0]["state"] == "expired"


def test_a_name_that_a_token_has_which_is_good_is_refused(desk: Shell) -> None:
    create(desk, "--name", "ci", "--scope", "run")

    refused = desk("serve", "token", "create", "--name", "ci", "--scope", "run")

    (one,) = listed(desk)
    assert (refused.code, refused.out) == (2, "")
    assert refused.fix.endswith(f"caxton serve token revoke {one['id']}")
    assert desk("audit", "verify").code == 0


def test_one_of_several_of_a_name_is_revoked_by_its_id(desk: Shell) -> None:
    for until in ("1ms", "never"):
        create(desk, "--name", "ci", "--scope", "run", "--expires", until)
    one, other = (row["id"] for row in listed(desk))

    refused = desk("serve", "token", "revoke", "ci")
    assert refused.code == 2
    assert one in refused.fix
    assert other in refused.fix

    assert desk("serve", "token", "revoke", one, "--json").document["id"] == one
    assert desk("serve", "token", "revoke", "ci").out == f"revoked token {other} ci\n"


def test_who_made_and_who_revoked_a_token_is_in_the_log(desk: Shell) -> None:
    create(desk, "--name", "ci", "--scope", "decide", "--role", "ops")
    desk("serve", "token", "revoke", "ci")

    found = {one["type"]: one for one in events(desk)}

    created, revoked = found["TokenCreated"], found["TokenRevoked"]
    assert created["payload"]["scopes"] == ["decide"]
    assert created["payload"]["roles"] == ["ops"]
    assert created["payload"]["id"] == revoked["payload"]["id"]
    for one in (created, revoked):
        assert one["payload"]["actor"]["kind"] == "local"
    assert desk("audit", "verify").code == 0


def test_no_secret_is_anywhere_but_on_stdout(desk: Shell) -> None:  # law 8
    done = desk("serve", "token", "create", "--name", "ci", "--scope", "run")
    token = Token.parse(done.out.strip())
    assert token is not None
    errors = [
        desk("serve", "token", "revoke", f"caxton_{'0' * 16}_{token.secret}").err,
        desk("serve", "token", "revoke", token.text).err,
        desk("serve", "token", "revoke", token.text).err,
    ]

    kept = b"".join(path.read_bytes() for path in desk.folder.glob("caxton.db*"))
    said = done.err + "".join(errors) + desk("serve", "token", "list", "--json").out

    assert token.digest.encode() in kept
    assert token.secret.encode() not in kept
    assert token.secret not in said
    assert token.secret not in json.dumps(events(desk))
    assert token.digest not in json.dumps(events(desk))


@pytest.mark.parametrize(
    ("words", "problem", "fix"),
    [
        (["--scope", "walk"], "is not one of", "--help"),
        ([], "would allow nothing", "--session NAME"),
        (["--session", "dve"], "no session 'dve'", "dev?"),
        (["--session", "bank"], "no session 'bank'", "known are: dev"),
        (["--session", "dev", "--scope", "run"], "no scopes", "--session dev"),
        (["--session", "dev", "--agent", "bank"], "no scopes", "--session dev"),
        (["--scope", "run", "--agent", "wether"], "no agent", "weather?"),
        (["--scope", "run", "--agent", "[a-z]"], "no name of an agent", "*"),
        (["--scope", "run", "--agent", ""], "no name of an agent", "*"),
        (["--scope", "decide", "--role", "ops2"], "is in no rule", "ops?"),
        (["--scope", "decide", "--role", "sales"], "is in no rule", "finance, ops"),
        (["--scope", "run", "--role", "ops"], "approvals", "--scope decide"),
        (["--scope", "run", "--expires", "soon"], "30d or never", "--help"),
        (["--scope", "run", "--expires", "0d"], "30d or never", "--help"),
        (["--scope", "run", "--expires", "9999999d"], "100 years", "--help"),
        (["--scope", "run", "--name", "a\nb"], "name", "at most 64"),
        (["--scope", "run", "--name", 65 * "a"], "name", "at most 64"),
    ],
)
def test_token_that_means_nothing_is_not_made(
    words: Sequence[str], problem: str, fix: str, desk: Shell
) -> None:
    done = desk("serve", "token", "create", *words)

    assert done.code == 2
    assert problem in done.err
    assert fix in done.fix
    assert done.out == ""


def test_nobody_is_told_of_agents_where_there_are_none(shell: Shell) -> None:
    done = shell("serve", "token", "create", "--scope", "run", "--agent", "weather")

    assert (done.code, done.fix) == (2, "add it under [agents] first")


def test_ids_of_tokens_that_are_good_go_on_by_themselves(desk: Shell) -> None:
    create(desk, "--name", "old", "--scope", "run")
    desk("serve", "token", "revoke", "old")
    create(desk, "--name", "new", "--scope", "run")
    one = listed(desk)[1]["id"]
    complete = ShellComplete(caxton, {}, "caxton", "_CAXTON_COMPLETE")

    found = complete.get_completions(["serve", "token", "revoke"], "")
    assert [(item.value, item.help) for item in found] == [(one, "new")]
    assert not complete.get_completions(["serve", "token", "revoke"], "zz")


def test_where_there_is_no_store_nothing_goes_on(shell: Shell) -> None:
    complete = ShellComplete(caxton, {}, "caxton", "_CAXTON_COMPLETE")

    assert not complete.get_completions(["serve", "token", "revoke"], "")
    assert shell("serve", "token", "list").code in {1, 2}
    assert isinstance(caxton, click.Group)


def test_commands_of_the_page_do_what_it_says(desk: Shell) -> None:
    page = (ROOT / "docs" / "reference" / "serve.md").read_text("utf-8")
    lines = [line[2:] for line in page.splitlines() if line.startswith("$ caxton")]
    assert len(lines) == 3

    for line in lines:
        type_in(desk, line)

    assert Token.parse((desk.folder / "token.txt").read_text("utf-8").strip())
    assert [row["state"] for row in listed(desk)] == ["revoked"]


def test_configuration_of_the_page_is_one(desk: Shell) -> None:
    page = (ROOT / "docs" / "reference" / "serve.md").read_text("utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]

    (desk.folder / "caxton.toml").write_text(text, "utf-8")

    assert desk("config", "show").code == 0
