"""``caxton --host URL``: the same commands, against a host that serves."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import replace
from http.server import HTTPServer

import pytest

from tests import standin
from tests.answering import HERE, Answers, answering
from tests.served import Served, served

from .guests import call, guest
from .shell import SOON, Done, Shell, toml
from .test_cli_process import until
from .test_docs import ROOT, blocks, commands, type_in

CANARY = "hunter2-hunter2"
MODULES = {
    "a": guest(
        call("mcp__demo__echo", text="one"),
        call("mcp__demo__fail", text="\x1b[31m"),
        call("mcp__other__rm", path="/"),
        output={"said": "\u202edone"},
    ),
    "waits": guest(call("mcp__demo__slow", seconds=60), output="never"),
    "asks": guest(call("mcp__demo__get_weather", location="Oslo"), output="asked"),
    "traps": guest(call("mcp__demo__echo", text="two"), then="(unreachable)"),
}
RULES = (
    "[[agents.a.allow]]\ntools = ['demo/*']",
    "[[agents.traps.allow]]\ntools = ['demo/*']",
    "[[agents.waits.allow]]\ntools = ['demo/*']",
    "[[agents.asks.allow]]\ntools = ['demo/*']\napprove = { by = ['ops'] }",
)


def configure(shell: Shell) -> None:
    server: dict[str, object] = {
        **standin.command(),
        "env": {"SESSION_TOKEN": CANARY},
    }
    tables: dict[str, dict[str, object]] = {"servers.demo": server}
    for name, module in MODULES.items():
        shell.write(f"{name}.wasm", module)
        tables[f"agents.{name}"] = {"module": f"{name}.wasm"}
    shell.write("caxton.toml", toml(tables, *RULES))


class Both:
    """Types the same here and there, over one log."""

    def __init__(self, shell: Shell, host: Served) -> None:
        self.shell, self.host = shell, host
        self.folder = shell.folder

    def here(self, *words: str) -> Done:
        return self.shell(*words)

    def there(self, *words: str) -> Done:
        return self.shell("--host", self.host.url, *words)

    def same(self, *words: str) -> Done:
        """Return what is printed, which is the same byte for byte."""
        there, seen, wanted = self._both(words)
        if seen != wanted:  # A read that the host records again after a minute.
            there, seen, wanted = self._both(words)
        assert seen == wanted
        return there

    def _both(self, words: tuple[str, ...]) -> tuple[Done, object, object]:
        here, there = self.here(*words), self.there(*words)
        err = there.err.replace(f"caxton --host {self.host.url}", "caxton")
        # Who speaks there is known by the token.
        typed_here = here.err.replace(" --as ops", "")
        return there, (there.code, there.out, err), (here.code, here.out, typed_here)


@pytest.fixture
def both(shell: Shell) -> Iterator[Both]:
    configure(shell)
    done = shell("serve", "token", "create", "--scope", "admin", "--role", "ops")
    shell.set(CAXTON_TOKEN=done.out.strip())
    with served(shell.folder) as host:
        yield Both(shell, host)


VARIES = re.compile(r"[0-9a-f-]{36}|\d+ ms")


def test_a_run_there_is_told_of_as_one_here(both: Both) -> None:
    here, there = both.here("run", "a"), both.there("run", "a")
    assert there.code == here.code == 0
    assert there.out == here.out == '{"said": "\\u202edone"}\n'
    assert VARIES.sub("", there.err) == VARIES.sub("", here.err)
    assert re.match(r"run [0-9a-f-]{36}  a\n", there.err)
    assert both.there("run", "a", "--fail-on-denied", "-q").err == ""


def test_a_run_there_is_narrowed_as_one_here(both: Both) -> None:
    both.folder.joinpath("less.toml").write_text(
        "[[allow]]\ntools = ['demo/echo']\nexpires = 2999-01-01T00:00:00Z\n", "utf-8"
    )
    less = ("--narrow", "less.toml", "--narrow", "{tools=['demo/slow'], calls=1}")
    here, there = both.here("run", "a", *less), both.there("run", "a", *less)
    assert VARIES.sub("", there.err) == VARIES.sub("", here.err)
    assert "as the run was narrowed, rule narrow" in there.err
    shown = both.same("runs", "show", "@last").out
    assert "  narrow.allow[2]  allow demo/slow  (narrow)\n" in shown
    both.same("runs", "explain", "@last", "call", "2")
    wrong = both.same("run", "a", "--narrow", "demo")
    assert (wrong.code, wrong.out) == (2, "")


def test_what_is_there_is_shown_as_here(both: Both) -> None:
    both.there("run", "a")
    both.same("replay", "@last")
    both.same("replay", "@last", "--until", "4", "--json")
    both.there("run", "traps", "-q")
    both.same("replay", "@last", "--against", "a.wasm")
    assert both.there("run", "asks").code == 3
    for words in (
        ("runs", "list"),
        ("runs", "list", "--agent", "a", "--state", "completed", "--json"),
        ("runs", "show", "@last"),
        ("runs", "show", "@last", "--json"),
        ("runs", "show", "nothing"),
        ("runs", "show", "0"),
        ("runs", "diff", "@last", "@last"),
        ("events", "list", "@last"),
        ("events", "list", "@last", "--json"),
        ("events", "tail", "@last"),
        ("events", "tail", "--json"),
        ("events", "tail", "--all", "--json"),
        ("events", "tail", "--after", "no cursor"),
        ("events", "export", "@last"),
        ("events", "export", "--all", "--json"),
        ("events", "export", "--agent", "a", "--outcome", "denied", "--since", "1h"),
        ("events", "export", "--tool", "demo/*", "--until", "2020-01-01"),
        ("approval", "list"),
        ("approval", "list", "--agent", "asks", "--json"),
        ("approval", "list", "--agent", "nobody"),
        ("approval", "show", "@last"),
        ("approval", "show", "@last", "2", "--json"),
        ("approval", "show", "@last", "7"),
        ("server", "list"),
        ("server", "list", "--json"),
        ("server", "test", "demo", "--json"),
        ("tool", "list"),
        ("tool", "list", "--server", "demo", "--json"),
        ("tool", "show", "demo/echo"),
        ("tool", "show", "echo"),
        ("tool", "stubs"),
        ("tool", "stubs", "demo", "--agent", "a", "--lang", "typescript", "--json"),
        ("tool", "stubs", "--agent", "nobody"),
        ("agent", "list"),
        ("agent", "list", "--json"),
        ("grant", "explain", "a", "demo/echo", "text=hi"),
        ("grant", "explain", "asks", "demo/get_weather", "--json"),
        ("grant", "explain", "asks", "other/rm"),
        ("grant", "explain", "asks", "dem/echo", "--json"),
        ("grant", "explain", "asks", "demo/ecko", "--json"),
        ("runs", "explain", "@last", "call", "1"),
    ):
        both.same(*words)


def test_runs_that_are_not_shown_are_not_counted(
    both: Both,
) -> None:
    for _ in range(2):
        both.here("run", "a")
    words = ("runs", "list", "-n", "1", "--json")
    here, there = both.here(*words), both.there(*words)
    assert there.out == here.out
    assert here.err == "there are more than 1 run; -n NUMBER shows more\n"
    assert there.err == here.err


def test_what_a_host_advises_is_told_as_it_is_typed(both: Both) -> None:
    for noun, words in {
        "agent": ("run", "nobody"),
        "server": ("server", "restart", "nobody"),
    }.items():
        done = both.there(*words)
        assert (done.code, done.out) == (2, "")
        assert done.fix == f"caxton --host {both.host.url} {noun} list"


def test_what_is_wrong_with_a_server_there_is_not_told_in_a_circle(
    shell: Shell,
) -> None:
    shell.write("caxton.toml", toml({"servers.gone": {"command": ["./gone"]}}))
    token = shell("serve", "token", "create", "--scope", "admin").out.strip()
    shell.set(CAXTON_TOKEN=token)
    with served(shell.folder) as host:
        tested, restarted = (
            shell("--host", host.url, "server", word, "gone")
            for word in ("test", "restart")
        )

    for done in (tested, restarted):
        assert done.fix.startswith("check the command or url of [servers.gone]")


def test_servers_that_are_off_are_not_told_to_be_unknown(shell: Shell) -> None:
    off: dict[str, dict[str, object]] = {
        "mcp": {"enabled": False},
        "servers.demo": {"command": ["demo"]},
    }
    shell.write("caxton.toml", toml(off))
    shell.set(
        CAXTON_TOKEN=shell("serve", "token", "create", "--scope=admin").out.strip()
    )
    with served(shell.folder) as host:
        listed = shell("server", "list")
        tested = shell("server", "test", "demo")
        there = shell("--host", host.url, "server", "test", "demo")

    assert (listed.code, tested.code, there.code) == (0, 2, 2)
    for done in (listed, tested, there):
        assert "[mcp] enabled = false turns every tool server off" in done.err
    assert tested.fix == there.fix == "remove enabled = false from [mcp]"


def test_a_path_that_is_no_hosts_is_told(both: Both) -> None:
    for path in ("/some/path", "/api/v1"):
        done = both.shell("--host", both.host.url + path, "run", "a")
        assert (done.code, done.out) == (2, "")
        assert "Error: --host names no host" in done.err
        assert done.fix.startswith("name the address that caxton serve prints")


def test_where_there_is_no_run_nobody_is_sent_to_the_demo(both: Both) -> None:
    # That one runs on this machine, and is not seen there.
    assert both.there("runs", "list").err == "no runs there that you may see\n"


def typed(done: Done, command: str) -> list[str]:
    """Return the words of a command that was printed."""
    lines = done.err.splitlines()
    line = next(line for line in lines if command in line)
    return shlex.split(line[line.index("caxton ") :])[1:]


def test_a_call_waits_for_a_word_and_the_printed_commands_say_it(both: Both) -> None:
    for verdict, output in (("approve", '"asked"\n'), ("deny", '"asked"\n')):
        asked = both.there("run", "asks")
        assert asked.code == 3
        words = typed(asked, f"approval {verdict}")
        assert words[:2] == ["--host", both.host.url]
        said = both.shell(*words)
        assert (said.code, said.out) == (0, output)
        assert f"{verdict} is recorded of call 1, demo/get_weather" in said.err
        assert ", resumed\n" in said.err
    decided = both.here("events", "list", "@last", "--json").document[3]
    assert decided["payload"]["actor"]["kind"] == "token"
    assert decided["payload"]["role"] == "ops"
    assert both.there("approval", "approve", "@last").code == 2


def test_what_is_said_to_a_host_is_what_it_can_hear(both: Both) -> None:
    unheard: tuple[tuple[str, ...], ...] = (
        ("run", "a", "--allow", "demo/*"),
        ("run", "a", "--entry", "other"),
        ("approval", "approve", "@last", "--as", "boss"),
        ("approval", "deny", "@last", "--no-resume"),
        ("runs", "resume", "--all"),
        ("runs", "resume", "@last", "--var", "k=v"),
        ("runs", "fork", "@last", "--at", "1", "--agent", "a.wasm"),
        ("server", "test", "demo", "--wire-log", "x"),
        ("tool", "list", "--var", "k=v"),
    )
    for words in unheard:
        done = both.there(*words)
        assert (done.code, done.out) == (2, ""), words
        assert "cannot be used with --host" in done.err
    elsewhere: tuple[tuple[str, ...], ...] = (
        ("init",),
        ("demo",),
        ("doctor",),
        ("db", "status"),
        ("serve",),
        ("agent", "new", "x"),
        ("audit", "verify"),
        ("config", "show"),
        ("server", "add", "x", "--", "y"),
        ("tool", "call", "demo/echo", "text=hi"),
        ("grant", "check"),
        ("events", "export", "--to-otlp", "@last"),
    )
    for words in elsewhere:
        done = both.there(*words)
        assert (done.code, done.out) == (2, ""), words
        assert f"caxton {words[0]}" in done.err
        assert "does not work with --host" in done.err
        assert "leave out --host" in done.fix
    assert not (both.folder / "x").exists()


def test_run_is_exported_from_there(both: Both) -> None:
    both.there("run", "a", "-q")
    done = both.there("audit", "export", "@last", "--html", "there.html", "--json")
    assert done.code == 0, done.err
    assert done.document["public_key"] is None
    both.here("audit", "export", "@last", "-o", "here.caxton")
    signed = (both.folder / "here.caxton").read_bytes().split(b"\n", 1)[1]
    page = (both.folder / "there.html").read_text()
    assert signed.decode().replace("<", "\N{NOT SIGN}") in page
    key = both.here("audit", "key", "--json").document["public_key"]
    both.there("audit", "export", "@last", "-o", "there.caxton")
    verified = both.here("audit", "verify", "--bundle", "there.caxton", "--key", key)
    assert verified.code == 0
    both.here("audit", "checkpoint", "-o", "kept.txt")
    refused = both.there("audit", "export", "@last", "-o", "x", "--since", "kept.txt")
    assert "--since cannot be used with --host" in refused.err


def test_agent_is_frozen_there_and_thawed(both: Both) -> None:
    assert both.there("freeze", "agent", "a", "--reason", "odd").code == 0
    listed = both.same("freeze", "list", "--json")
    assert '"reason": "odd"' in listed.out
    refused = both.there("run", "a")
    assert refused.code == 2
    assert re.search(r"To fix: caxton --host .* thaw agent a", refused.err)
    assert both.there("freeze", "agent", "b", "--reason", "odd").code == 2
    assert both.there("thaw", "agent", "a").code == 0
    assert both.there("thaw", "agent", "a").code == 2
    assert both.there("run", "a").code == 0


def test_run_is_held_there_and_released(both: Both) -> None:
    both.there("run", "a", "-q")
    run = both.there("runs", "show", "@last", "--json").document["run_id"]
    held = both.there("runs", "hold", run, "--reason", "odd", "--json")
    assert (held.code, held.document["hold"]["reason"]) == (0, "odd")
    both.same("runs", "show", "@last")
    assert both.here("audit", "erase", run, "--reason", "x").code == 2
    assert both.there("runs", "hold", run, "--reason", "odd").code == 2
    assert both.there("runs", "release", run, "--reason", "odd").code == 0
    assert "hold" not in both.same("runs", "show", "@last", "--json").document


def test_a_run_there_is_ended_forked_and_not_resumed(both: Both) -> None:
    both.there("run", "asks")
    assert both.same("runs", "resume", "@last").code == 3
    ended = both.there("runs", "cancel", "@last", "--reason", "a mistake", "--json")
    assert (ended.code, ended.document["state"]) == (0, "cancelled")
    assert ended.document["error"]["message"] == "a mistake"
    assert both.same("runs", "cancel", "@last").code == 2
    assert both.same("runs", "resume", "@last").code == 2

    both.there("run", "a", "-q")
    here = both.here("runs", "fork", "@last", "--at", "3")
    (parent,) = re.findall("forked from run (.*)", here.err)
    there = both.there("runs", "fork", parent, "--at", "3")
    assert (there.code, there.out) == (here.code, here.out)
    assert VARIES.sub("", there.err) == VARIES.sub("", here.err)
    answer = {"content": [{"type": "text", "text": "edited"}]}
    both.shell.write("answer.json", json.dumps(answer))
    edited = ("runs", "fork", parent, "--at", "3", "--set-result", "answer.json")
    assert both.there(*edited, "--json").document["forked_from"]["run"] == parent
    assert both.same("runs", "fork", parent, "--at", "99").code == 2
    less = ("runs", "fork", parent, "--at", "1", "--narrow", "none/*")
    bound, there = both.here(*less), both.there(*less)
    assert "warning: --narrow" in bound.err
    assert "as the run was narrowed, rule narrow" in there.err
    assert VARIES.sub("", there.err) in VARIES.sub("", bound.err)


def test_a_call_in_doubt_is_resolved_there(shell: Shell) -> None:
    configure(shell)
    shell("run", "a")
    shell("runs", "simulate-crash", "@last", "--at", "2", "-o", "crashed.db")
    crashed = f"sqlite:///{shell.folder}/crashed.db"
    with served(
        shell.folder,
        change=lambda config: replace(config, store_url=crashed),
        strangers=True,
    ) as host:
        both = Both(shell, host)
        listed = ("runs", "list", "--state", "suspended", "--json")
        until(lambda: both.there(*listed).document)  # The host takes it over first.
        (run,) = both.there(*listed).document
        assert run["calls"]["in_doubt"] == 1
        shown = both.there("runs", "show", run["run_id"])
        assert typed(shown, "runs resolve")[:2] == ["--host", host.url]
        assert both.there("runs", "resume", "@last").fix == (
            f"caxton --host {host.url} runs resolve {run['run_id']} 2 --retry "
            '--reason "..."'
        )
        said = ("runs", "resolve", "@last", "2", "--reason", "not sent")
        assert both.there(*said).code == 2
        assert both.there(*said, "--result", "none.json").code == 2
        done = both.there(*said, "--retry")
        assert (done.code, json.loads(done.out)) == (0, {"said": "\u202edone"})
        assert both.there(*said, "--abort").code == 2


def test_ctrl_c_cancels_the_run_there(both: Both) -> None:
    host = ("--host", both.host.url)
    with both.shell.started(*host, "run", "waits") as child:
        until(lambda: "ToolInvoked" in both.shell.types())
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SOON)
    assert (child.returncode, out) == (130, b"")
    assert b"\ncancelling " in err
    assert err.endswith(b"\ninterrupted\n")
    assert b"Traceback" not in err
    assert both.shell.types()[-1] == "RunCancelled"


def test_who_asks_is_who_the_token_says(both: Both) -> None:  # law 8
    made = both.here("serve", "token", "create", "--scope", "run", "--json")
    token = both.shell.write("token", made.document["token"])
    named = ("--token-file", "token")
    told = both.there(*named, "run", "a", "--json")
    assert "others may read token; chmod 600 token" in told.err
    assert told.document["actor"]["kind"] == "token"
    token.chmod(0o600)
    assert both.there(*named, "runs", "list").err == ""
    for words in ("server", "list"), ("approval", "deny", "@last"), ("replay", "@last"):
        assert both.there(*named, *words).code == 2
    token.write_text("caxton_wrong")
    wrong = both.there(*named, "runs", "list")
    assert wrong.code == 2
    assert (
        wrong.fix == "put a valid token into $CAXTON_TOKEN, or name --token-file FILE"
    )
    assert "caxton_wrong" not in wrong.err


NASTY: dict[str, object] = {
    "runs": [
        {
            "run_id": "0",
            "agent": "\x1b[31m\u202e",
            "started_at": 10**18,
            "duration_ms": 1e300,
        }
    ],
    "next": None,
    "servers": [{"name": "\x1b[2J", "live": [], "as_of": "now"}],
    "agents": [{"name": "a", "module": 7, "grants": {"allow": 3}}],
    "approvals": [{"run_id": "$(id)"}],
    "tools": [{"server": "a", "tool": ["\x1b]0;"], "on_change": {}}],
    "hosts": [{"host": "\x1b[31m", "outcome": {}}],
    "asks": 1,
    "problem": None,
    "events": [{"cursor": "1", "type": "RunStarted", "payload": {}}],
}


class Hostile(Answers):
    """Answers everything with the same."""

    def respond(self) -> None:
        self.body()
        self.answer(json.dumps(NASTY).encode())


def test_a_hostile_host_cannot_steer_the_terminal_or_break_a_command(
    shell: Shell,
) -> None:
    commands: tuple[tuple[str, ...], ...] = (
        ("run", "a"),
        ("runs", "list"),
        ("runs", "show", "@last"),
        ("runs", "explain", "0", "1"),
        ("runs", "cancel", "0"),
        ("replay", "0"),
        ("events", "list", "0"),
        ("events", "tail"),
        ("events", "export", "--all"),
        ("approval", "list"),
        ("approval", "approve", "0"),
        ("server", "list"),
        ("server", "test", "a"),
        ("server", "restart", "a"),
        ("tool", "list"),
        ("tool", "stubs"),
        ("agent", "list"),
        ("grant", "explain", "a", "b/c"),
        ("audit", "checkpoint"),
        ("audit", "export", "0", "-o", "x"),
    )
    with answering(HTTPServer(HERE, Hostile)) as host:
        for words in commands:
            done = shell("--host", host, *words)
            assert done.code == 6, (words, done)
            assert done.fix == "name the address that caxton serve prints"
            assert (done.out + done.err).replace("\n", "").isprintable(), words


def test_the_page_about_hosts(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "remote.md"
    lines = [line for b in blocks(page) for line in commands(b.language, b.text)]
    begin = lines.index("caxton serve")
    for line in lines[:begin]:
        type_in(shell, line)
    with served(shell.folder) as host:
        told = [
            type_in_there(shell, line.replace("http://127.0.0.1:8080", host.url))
            for line in lines[begin + 1 :]
        ]
    assert any("Seattle: 12 °C, rain" in out for out in told)
    assert any("verdict   not_granted" in out for out in told)


def type_in_there(shell: Shell, line: str) -> str:
    """Type a line; what it exports holds for those that follow."""
    exported = re.fullmatch("export (.*)=(.*)", line)
    if exported is None:
        return type_in(shell, line)
    shell.set(**{exported[1]: type_in(shell, f"printf %s {exported[2]}")})
    return ""


def test_a_host_is_named_once_and_not_beside_a_file(shell: Shell) -> None:
    shell.set(CAXTON_HOST="http://127.0.0.1:1")
    away = shell("runs", "list")
    assert away.code == 6
    assert "no host at http://127.0.0.1:1" in away.err
    assert shell("--db", "sqlite:///x.db", "runs", "list").code == 2
    assert shell("--host", "http://ann:hunter22@h", "runs", "list").code == 2
    assert shell("--host", "http://10.0.0.1", "runs", "list").fix.startswith(
        "use https"
    )
    assert shell("completion", "bash").code == 0
    assert shell("runs", "list", "--help").code == 0
