"""Hostile clients of sessions: each thing that one sends, over HTTP and a pipe."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from caxton_host.core.names import PROMPT, READ, exposed_name
from tests.integration.web.test_hostile_clients import (
    GOOD,
    HARM,
    INVALID,
    LISTED,
    METHOD,
    PARAMS,
    PARSE,
    Harm,
    call,
    message,
    modern,
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
READS, PROMPTS = exposed_name("demo", READ), exposed_name("demo", PROMPT)
#: Bytes of an answer.
MOST = 1_000_000


def asking(method: str, **params: object) -> bytes:
    return json.dumps(message(method, **params)).encode()


def wrong(method: str, error: int = PARAMS, /, **params: object) -> Harm:
    return Harm(body=asking(method, **params), error=error)


def unread(method: str, **params: object) -> Harm:
    """Return a reading that is denied."""
    return Harm(body=asking(method, **params), error=-32000, attempts=1)


def denied(code: str, body: bytes, **headers: str) -> Harm:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Harm(body=body, headers=headers, denied=code, attempts=1)


def forged(key: str, value: object) -> Harm:
    """Return a call that says more than a client can, which counts for nothing."""
    meta = {key: value}
    body = asking("tools/call", name="mcp__demo__echo", arguments={}, _meta=meta)
    return Harm(body=body, attempts=1)


def searching(tool: str, attempts: int = 0, /, **arguments: object) -> Harm:
    code = "not_granted" if attempts else "bad_request"
    return Harm(
        body=call(tool, **arguments),
        path="/mcp/many",
        headers={"authorization": "Bearer sue"},
        denied=code,
        attempts=attempts,
    )


def completing(kind: str, name: str, value: str = "", **more: object) -> Harm:
    ref = {"type": f"ref/{kind}", "name" if kind == "prompt" else "uri": name}
    argument = {"name": "page", "value": value}
    body = asking("completion/complete", ref=ref, argument=argument, **more)
    return Harm(body=body)


def hello(version: str, name: str = "x") -> Harm:
    client = {"name": name, "version": "1"}
    able: dict[str, object] = {}
    params = {"protocolVersion": version, "capabilities": able, "clientInfo": client}
    return Harm(body=asking("initialize", **params))


def listing(status: int = 200, path: str = "/mcp/dev", **headers: str) -> Harm:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Harm(body=LISTED, status=status, path=path, headers=headers)


FOREIGN = call("mcp__shell__echo", text=1)
MANY = {str(number): "x" for number in range(5_000)}
WIDER = {"io.caxton/narrow": {"allow": [{"tools": ["shell/*"]}]}}
CLAIMED = {"x_caxton_principal": "bob", "caxton_session": "ops"}
#: What clients send besides `HARM`, to a host with real servers.
MORE: Mapping[str, Harm] = {
    "a resource outside the grant": unread(READ, uri="demo://secret/b"),
    "a resource beside the grant": unread(READ, uri="demo://public/../secret/b"),
    "an escaped resource": unread(READ, uri="demo://public/%2e%2e%2fsecret"),
    "a resource of another session": unread(READ, uri="shell://public/a"),
    "a resource with a line break": unread(READ, uri="demo://public/a\nb"),
    "a resource of 600 kB": unread(READ, uri="demo://public/" + "x" * 600_000),
    "a resource that is a number": wrong(READ, uri=7),
    "no resource": wrong(READ),
    "a subscription": wrong("resources/subscribe", METHOD, uri="demo://public/a"),
    "a prompt outside the grant": unread(PROMPT, name="only_demo"),
    "a prompt of another session": unread(PROMPT, name="shell/review"),
    "a prompt with a zero": unread(PROMPT, name="review\0"),
    "a prompt of numbers": wrong(PROMPT, name="review", arguments={"x": 1}),
    "a prompt of 5,000 texts": Harm(
        body=asking(PROMPT, name="review", arguments=MANY), attempts=1
    ),
    "a resource as a tool": denied("params", call(READS, uri="demo://secret/b")),
    "a prompt as a tool": denied("params", call(PROMPTS, name="only_demo")),
    "a foreign resource as a tool": denied(
        "not_granted", call(exposed_name("shell", READ), uri="shell://public/a")
    ),
    "a tool of another session": denied("not_granted", FOREIGN),
    "a tool by its server": denied("bad_request", call("shell/echo")),
    "a tool in other letters": denied("not_granted", call("MCP__DEMO__ECHO")),
    "a tool in letters that look alike": denied(
        "bad_request", call("mcp__demo__\u0435cho")
    ),
    "a tool that is turned round": denied("bad_request", call("mcp__demo__echo\u202e")),
    "a tool with an escape": denied("bad_request", call("\x1b[2Jmcp__demo__echo")),
    "a search where there is none": denied("not_granted", call("search_tools")),
    "completion of a hidden prompt": completing("prompt", "only_demo"),
    "completion of a foreign prompt": completing("prompt", "shell/review"),
    "completion of a hidden template": completing("resource", "demo://{area}/{page}"),
    "completion that leads outside": completing(
        "resource", "demo://public/{page}", "../secret/"
    ),
    "completion of no template": completing("resource", "{" * 10_000),
    "completion of 100 kB": completing(
        "resource", "demo://public/{page}", "x" * 100_000
    ),
    "completion of another kind": replace(completing("tool", "echo"), error=PARAMS),
    "completion with a context of numbers": replace(
        completing("prompt", "review", context={"arguments": {"x": 1}}), error=PARAMS
    ),
    "a cursor of another list": wrong("prompts/list", cursor="mcp__demo__echo"),
    "a cursor that is a map": wrong("resources/templates/list", cursor={}),
    "a level that is none": wrong("logging/setLevel", level="loudest"),
    "the run of another session": forged("io.caxton/run-id", "RUN"),
    "the key of another call": forged("io.caxton/idempotency-key", "x"),
    "that key again": forged("io.caxton/idempotency-key", "x"),
    "variables": forged("io.caxton/context", {"customer": "bob"}),
    "a task of another session": forged(
        "io.modelcontextprotocol/related-task", {"taskId": "RUN"}
    ),
    "a level in a call": forged("io.modelcontextprotocol/logLevel", "debug"),
    "a progress token": forged("progressToken", 1),
    "that progress token again": forged("progressToken", 1),
    "a progress token of 100 kB": forged("progressToken", "x" * 100_000),
    "a progress token that is a map": replace(
        forged("progressToken", {}), error=PARAMS, attempts=0
    ),
    "a trace that is none": forged("traceparent", "00-" + "f" * 70_000),
    "a wider grant": denied(
        "not_granted", asking("tools/call", name="mcp__shell__echo", _meta=WIDER)
    ),
    "metadata that is a list": wrong("tools/call", name="mcp__demo__echo", _meta=[]),
    "a client of 100 kB": hello("2025-06-18", "x" * 100_000),
    "the oldest version": hello("2024-11-05"),
    "a version of the past": hello("1999-12-31"),
    "a newer body under an older version": Harm(
        body=modern("tools/list"), headers={"mcp-protocol-version": "2025-06-18"}
    ),
    "an older body under a newer version": replace(
        listing(400, mcp_protocol_version="2026-07-28"), error=PARAMS
    ),
    "two versions": replace(
        listing(400, mcp_protocol_version="2025-06-18, 2026-07-28"), error=PARAMS
    ),
    "a principal in a header": denied("not_granted", FOREIGN, **CLAIMED),
    "a path in a header": denied("not_granted", FOREIGN, x_original_url="/mcp/ops"),
    "a method in a header": listing(x_http_method_override="DELETE"),
    "a token in the path": listing(401, "/mcp/ops?access_token=BOB", authorization=""),
    "a token in a cookie": listing(401, authorization="", cookie="token=BOB"),
    "another scheme": listing(401, authorization="Basic BOB"),
    "half a token": listing(401, authorization="Bearer HALF"),
    "no type": listing(415, content_type=""),
    "two types": listing(415, content_type="application/json, text/plain"),
    "an upgrade": listing(connection="upgrade", upgrade="websocket"),
    "a search of 10 kB": searching("search_tools", query="x" * 10_000),
    "a search for a number": searching("search_tools", query=7),
    "a search for a billion": searching("search_tools", query="x", limit=10**9),
    "a call with arguments of text": searching("call_tool", name="x", arguments="x"),
    "a call by a call": searching("call_tool", 1, name="call_tool"),
    "a call of a hidden tool": searching("call_tool", 1, name="mcp__demo__none"),
}


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
        else:  # What HTTP refuses before it is a message.
            assert error in {INVALID, PARSE} or (code, attempts) == ("bad_request", 1)


def test_a_line_that_says_something_twice_is_no_call() -> None:
    pass
