"""Events delivered to a sink that fails in every way, by a follower that is killed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import ThreadingHTTPServer

import pytest

from tests import standin
from tests.answering import HERE, Answers, answering

from .guests import call, guest
from .shell import SOON, Shell

TOKEN = "s3cret-token-of-the-sink"  # noqa: S105 -- to be looked for
AGENT = guest(call("mcp__demo__echo", text="hi"), call("mcp__demo__no", text="hi"))


class Taker(Answers):
    def respond(self) -> None:
        server = self.server
        assert isinstance(server, Sink)
        body = self.body()
        server.tokens.add(str(self.headers["authorization"]))
        server.kinds.add(str(self.headers["content-type"]))
        status = server.statuses.pop(0) if server.statuses else 200
        if status < 300:
            server.taken += [json.loads(one) for one in body.splitlines()]
        if status == 0:  # Taken, and never answered.
            server.held.set()
            server.release.wait(SOON)
            return
        self.answer(status=status)


class Sink(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__((HERE[0], port), Taker)
        self.statuses: list[int] = []
        self.taken: list[dict[str, object]] = []
        self.tokens: set[str] = set()
        self.kinds: set[str] = set()
        self.held, self.release = threading.Event(), threading.Event()

    @property
    def uids(self) -> list[str]:
        return [one["metadata"]["uid"] for one in self.taken]  # type: ignore[index]


def until(done: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def run(shell: Shell) -> None:
    shell.write("a.wasm", AGENT)
    server = ("--server", f"demo={standin.typed()}")
    assert shell("run", "a.wasm", *server, "--allow", "demo/echo").code == 0


def ended(shell: Shell) -> list[str]:
    """Return the hashes of the ends of all calls."""
    found = shell("events", "export", "--format", "ocsf").out.splitlines()
    return [json.loads(one)["metadata"]["uid"] for one in found]


def test_a_sink_loses_nothing_whatever_happens(shell: Shell) -> None:
    # law 10
    run(shell)
    expected = ended(shell)
    assert len(expected) == 2
    shell.write("token", TOKEN + "\n")
    with ExitStack() as stack:
        sink = Sink()
        url = stack.enter_context(answering(sink))
        command = (
            *("events", "export", "--format", "ocsf", "--follow", "--to", f"{url}/in"),
            *("--cursor", "calls.at", "--bearer-file", "token"),
        )
        sink.statuses = [0]
        with shell.started(*command) as killed:
            assert sink.held.wait(SOON)
            killed.kill()
            killed.wait(SOON)
        sink.release.set()
        assert sink.uids, "it was killed after they were taken, before it knew"

        sink.statuses = [500, 302, 429]
        log = shell.folder / "follower.log"
        with log.open("wb") as err, shell.started(*command, stderr=err) as follower:
            # Some may come twice; none is lost.
            until(lambda: len(sink.uids) > len(expected))
            until(lambda: [*dict.fromkeys(sink.uids)] == expected)
            stack.close()  # The sink is down, and nothing waits for it.
            run(shell)
            again = Sink(sink.server_port)
            stack.enter_context(answering(again))
            until(lambda: [*dict.fromkeys(sink.uids + again.uids)] == ended(shell))
            before = len(again.uids)
            follower.send_signal(signal.SIGINT)
            assert follower.wait(SOON) == 0
        assert sink.tokens == {f"Bearer {TOKEN}"}
        assert sink.kinds == {"application/x-ndjson"}
        said = log.read_text()
        assert "not delivered, trying again" in said
        assert "delivered again" in said
        assert TOKEN not in said  # law 8
        assert shell(*[one for one in command if one != "--follow"]).code == 0
        assert len(again.uids) == before


def test_a_file_takes_what_is_new(shell: Shell) -> None:
    run(shell)
    command = ("events", "export", "--all", "--to", "out.jsonl", "--cursor", "at")
    count = shell("events", "export", "--all").out.count("\n")
    assert shell(*command).err == f"sent {count} events\n"
    assert shell(*command).err == "sent 0 events\n"
    with (shell.folder / "out.jsonl").open("ab") as file:
        file.write(b'{"torn')
    run(shell)
    shell(*command)
    text = (shell.folder / "out.jsonl").read_text()
    assert text == shell("events", "export", "--all").out
    done = shell("events", "export", "--format", "ocsf", "--outcome", "denied")
    assert [json.loads(one)["action"] for one in done.out.splitlines()] == [
        "Denied"
    ] * 2


@pytest.mark.parametrize(
    "words",
    [
        ("--tool", "demo/*"),
        ("--outcome", "ok"),
        ("--agent", "other"),
        ("--since", "2h"),
        ("--until", "2h"),
        ("@last",),
    ],
)
def test_what_is_delivered_is_what_is_exported(
    shell: Shell, words: tuple[str, ...]
) -> None:
    run(shell)
    done = shell("events", "export", *words, "--to", "out", "--cursor", "at")
    assert done.code == 0
    path = shell.folder / "out"
    text = path.read_text() if path.exists() else ""
    assert text == shell("events", "export", *words).out


def test_the_end_of_a_call_knows_its_tool_wherever_it_goes_on(shell: Shell) -> None:
    run(shell)
    ends = shell("events", "export", "--format", "ocsf").out.splitlines(keepends=True)
    tailed = shell("events", "tail", "--all", "--json").out.splitlines()
    invoked = [one for one in map(json.loads, tailed) if one["type"] == "ToolInvoked"]
    for at, one in enumerate(invoked):
        shell.write("at", one["cursor"])
        (shell.folder / "out").unlink(missing_ok=True)
        where = ("--to", "out", "--cursor", "at")
        assert shell("events", "export", "--format", "ocsf", *where).code == 0
        assert (shell.folder / "out").read_text() == "".join(ends[at:])


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("--to", "http://example.com/", "--cursor", "at"), "--bearer-file"),
        (("--to", "https://a:b@example.com/", "--cursor", "at"), "--bearer-file"),
        (("--to", "ftp://example.com/", "--cursor", "at"), "--bearer-file"),
        (("--to", "out", "--cursor", "at", "--bearer-file", "token"), "leave it out"),
        (("--to", "https://example.com/", "--cursor", "at"), "is not a cursor"),
        (("--to", "https://example.com/", "--cursor", "."), ""),
        (("--to", "https://", "--cursor", "new"), "name another URL"),
        (("--to", "same", "--cursor", "./same"), "name another file with"),
        (("--to", "out"), "--cursor"),
        (("--follow",), "--to"),
        (("--to", "out", "--cursor", "at", "--outcome", "in_doubt"), "in_doubt"),
    ],
)
def test_a_delivery_that_cannot_be_is_refused(
    shell: Shell, words: tuple[str, ...], fix: str
) -> None:
    run(shell)
    shell.write("at", "nonsense\n")
    shell.write("token", "")
    done = shell("events", "export", "--format", "ocsf", *words)
    assert done.code == 2
    assert fix in done.err
