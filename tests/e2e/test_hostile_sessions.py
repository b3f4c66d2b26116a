"""Hostile clients of sessions: each thing that one sends, over HTTP and a pipe."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harm import (
    FOREIGN,
    GOOD,
    HARM,
    INVALID,
    MORE,
    MOST,
    PARSE,
    Harm,
    asking,
    call,
    hello,
    message,
)

from .serving import Host, served
from .shell import SOON, Shell
from .test_session_content import KEY, library

CONFIG = """\
version = 1
serve = {{ rate = "100000/min", body = "1MB" }}
{servers}
[sessions.dev]
resources = ["demo/demo://public/*"]
prompts = ["demo/review"]
[[sessions.dev.allow]]
tools = ["demo/echo"]
[sessions.ops]
resources = ["shell/**"]
prompts = ["shell/*"]
[[sessions.ops.allow]]
tools = ["shell/echo"]
[sessions.many]
search_above = 1
[[sessions.many.allow]]
tools = ["demo/echo", "shell/echo"]
"""
#: What nobody else may see of the session of bob.
CANARY = "bobs-canary-4711"


@dataclass(frozen=True, kw_only=True)
class Desk:
    """
    A host that all rows share, with three sessions, one a client.

    Attributes:
        tokens: By the name of a client.

        run: The stream of bob's session.
    """

    shell: Shell
    host: Host
    http: httpx.Client
    tokens: Mapping[str, str]
    run: str

    def attempts(self) -> int:
        return self.shell.types().count("ToolInvoked")

    def ask(self, harm: Harm) -> httpx.Response:
        """Send a request as it is written."""
        said = {"authorization": "Bearer ann", "content-type": "application/json"}
        said |= {"accept": "application/json", **harm.headers}
        headers = [(name, self._filled(text)) for name, text in said.items() if text]
        path = self._filled(harm.path).encode()
        url = httpx.URL(self.host.url).copy_with(raw_path=path)
        body = harm.body.replace(b"RUN", self.run.encode())
        return self.http.request(harm.method, url, content=body, headers=headers)

    def _filled(self, text: str) -> str:
        scheme, _, name = text.partition(" ")
        if own := self.tokens.get(name):
            return f"{scheme} {own}"
        half = self.tokens["ann"][:-4]
        return text.replace("BOB", self.tokens["bob"]).replace("HALF", half)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Iterator[Desk]:
    with pytest.MonkeyPatch.context() as patch:
        shell = Shell(tmp_path_factory.mktemp("hostile"), compiled, patch)
        servers = library(shell, "demo", "echo") + library(shell, "shell", "echo")
        shell.write("caxton.toml", CONFIG.format(servers=servers))
        sessions = {"ann": "dev", "bob": "ops", "sue": "many"}
        words = {name: ("--session", it) for name, it in sessions.items()}
        words["boss"] = ("--scope", "admin")
        create = ("serve", "token", "create", "--name")
        tokens = {
            name: shell.typed(*create, name, *more).out.strip()
            for name, more in words.items()
        }
        with (
            httpx.Client(timeout=SOON) as http,
            served(shell, good=tokens["ann"]) as host,
        ):
            told = message(
                "tools/call", name="mcp__shell__echo", arguments={"text": CANARY}
            )
            assert CANARY in host.post("/mcp/ops", told, token=tokens["bob"]).text
            run = shell.runs()[0].removeprefix("run/")
            yield Desk(shell=shell, host=host, http=http, tokens=tokens, run=run)


def check(said: str) -> None:
    """Nothing of another session, of a server's secrets or of the host is told."""
    assert len(said) < MOST
    for secret in (CANARY, KEY, "Traceback", "of shell", "secret"):
        assert secret not in said


ROWS = {**HARM, **MORE}


@pytest.mark.parametrize("name", [*ROWS])
@pytest.mark.long
def test_what_a_client_sends_is_bounded_and_harms_itself_alone(
    desk: Desk, name: str
) -> None:  # laws 2, 4, 8 and 9
    harm, before = ROWS[name], desk.attempts()
    answer = desk.ask(harm)
    attempts = desk.attempts() - before
    found: Any = {}
    with contextlib.suppress(ValueError):
        found = answer.json()

    error = found.get("error", {}).get("code")
    assert (answer.status_code, error) == (harm.status, harm.error), answer.text
    assert attempts == harm.attempts
    result = found.get("result", {})
    code = result.get("_meta", {}).get("io.caxton/code")
    assert (code, result.get("isError", False)) == (harm.denied, bool(harm.denied))
    values = result.get("completion", {}).get("values", [])
    assert not values or name == "completion of 100 kB"
    check(answer.text)
    # A problem names the address that was asked for.
    assert "ops" not in answer.text or "ops" in harm.path
    assert desk.ask(GOOD).json()["result"]["isError"] is False


def raw(
    *lines: str, line: str = "POST /mcp/dev HTTP/1.1", body: bytes = FOREIGN
) -> bytes:
    """Return a request as it is on the wire, with these lines in its head."""
    told = ("Host: localhost", "Connection: close", "Authorization: Bearer ANN")
    types = ("Content-Type: application/json", "Accept: application/json")
    head = "\r\n".join((line, *told, *types, *lines, "", ""))
    return head.encode("latin-1") + body


LENGTH = f"Content-Length: {len(FOREIGN)}"
CHUNKED = "Transfer-Encoding: chunked"
INNER = raw(LENGTH, line="POST /mcp/ops HTTP/1.1")
WIRE: Mapping[str, bytes] = {
    "two lengths": raw(LENGTH, "Content-Length: 2"),
    "a length and chunks": raw(LENGTH, CHUNKED),
    "chunks twice": raw(CHUNKED, CHUNKED),
    "chunks in other words": raw("Transfer-Encoding: xchunked"),
    "a chunk that has no size": raw(CHUNKED, body=b"zz\r\n" + FOREIGN),
    "a length below zero": raw("Content-Length: -1"),
    "a length with a plus": raw(f"Content-Length: +{len(FOREIGN)}"),
    "a length of 40 digits": raw("Content-Length: " + "9" * 40),
    "a request in a request": raw("Content-Length: 0", body=INNER),
    "a request after a request": raw("Content-Length: 2", body=b"{}" + INNER),
    "a folded header": raw(LENGTH, "X-A: b", " Authorization: Bearer BOB"),
    "a header with a zero": raw(LENGTH, "X-A: b\0c"),
    "a space before a colon": raw("Content-Length : 2"),
    "a line feed in a header": raw(LENGTH, "X-A: b\nMcp-Session-Id: c"),
    "two hosts": raw(LENGTH, "Host: evil.example"),
    "another host in the address": raw(
        LENGTH, line="POST http://evil.example/mcp/ops HTTP/1.1"
    ),
    "a version that nobody knows": raw(LENGTH, line="POST /mcp/dev HTTP/9.9"),
    "no version": raw(LENGTH, line="POST /mcp/dev"),
    "a method with a line": raw(LENGTH, line="POST\t/mcp/dev HTTP/1.1"),
}


READ_AS_ONE = {
    "a folded header",
    "a line feed in a header",
    "a version that nobody knows",
}
STATUS = dict.fromkeys(READ_AS_ONE, 200) | {"another host in the address": 403}


@pytest.mark.parametrize("name", [*WIRE])
def test_a_request_that_can_be_read_in_two_ways_reaches_no_other_session(
    desk: Desk, name: str
) -> None:  # laws 4 and 9
    data, before = WIRE[name], desk.shell.types()
    for word, own in ((b"ANN", "ann"), (b"BOB", "bob")):
        data = data.replace(word, desk.tokens[own].encode())
    url = httpx.URL(desk.host.url)
    with socket.create_connection((url.host, url.port), timeout=SOON) as wire:
        wire.sendall(data)
        said = b"".join(iter(lambda: wire.recv(65_536), b"")).decode()

    assert re.findall(r"HTTP/1.1 (\d+)", said) == [str(STATUS.get(name, 400))]
    check(said)
    after = desk.shell.types()
    assert after.count("ToolDenied") - before.count("ToolDenied") == (
        name in READ_AS_ONE
    )
    assert after.count("ToolCompleted") == before.count("ToolCompleted")


@dataclass(slots=True)
class Pipe:
    """The session of a local user, over a pipe that all rows share."""

    child: subprocess.Popen[bytes]
    said: int = 0

    def write(self, line: bytes) -> None:
        assert self.child.stdin
        self.child.stdin.write(line + b"\n")
        self.child.stdin.flush()

    def ask(self, line: bytes, *, answers: int) -> list[dict[str, Any]]:
        """Send a line, and a good call after it; return what answers the line."""
        self.said += 1
        good = f"good-{self.said}"
        self.write(line)
        self.write(call("mcp__demo__echo", good))
        found: list[dict[str, Any]] = []
        alive = False
        while not alive or len(found) < answers:
            assert self.child.stdout
            text = self.child.stdout.readline()
            assert text, "the host has ended"
            check(text.decode())
            one = json.loads(text)
            if one.get("id") == good:
                alive = one["result"]["isError"] is False
            elif "method" not in one:
                found.append(one)
        return found


@pytest.fixture(scope="module")
def pipe(desk: Desk) -> Iterator[Pipe]:
    log = desk.shell.folder / "pipe.log"
    with (
        log.open("wb") as stderr,
        desk.shell.started(
            *("mcp", "connect", "dev"), stdin=subprocess.PIPE, stderr=stderr
        ) as child,
    ):
        it = Pipe(child)
        (told,) = it.ask(hello("2025-06-18").body, answers=1)
        assert told["result"]["serverInfo"]["name"] == "caxton"
        it.write(asking("notifications/initialized").replace(b'"id": 1, ', b""))
        yield it


LINES = {
    name: harm
    for name, harm in ROWS.items()
    if harm.body
    and (harm.method, harm.path) == ("POST", "/mcp/dev")
    and not harm.headers
}


@pytest.mark.parametrize("name", [*LINES])
def test_what_a_client_writes_into_a_pipe_is_refused_alike(
    desk: Desk, pipe: Pipe, name: str
) -> None:  # laws 2, 4, 8 and 9
    harm, before = LINES[name], desk.attempts()
    has_answer = harm.status != httpx.codes.ACCEPTED
    found = pipe.ask(harm.body, answers=int(has_answer))
    attempts = desk.attempts() - before - 1

    assert len(found) == has_answer
    for one in found:
        error, result = one.get("error", {}).get("code"), one.get("result", {})
        code = result.get("_meta", {}).get("io.caxton/code")
        if harm.status == httpx.codes.OK:
            assert (error, code, attempts) == (harm.error, harm.denied, harm.attempts)
        elif name == "a giant body":  # A line may be longer.
            assert (code, attempts) == ("bad_request", 1)
        else:
            assert error in {INVALID, PARSE}
            assert attempts == 0
