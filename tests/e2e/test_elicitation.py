"""What the user of a client of a session is asked, by clients of both revisions."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests import standin

from .serving import Host, served, token
from .shell import CAXTON, SOON, Shell

SERVER = Path(__file__).with_name("asking_server.py")
Mode = Literal["auto", "legacy"]
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])
CONFIG = """\
version = 1
[servers.demo]
{demo}
[sessions.dev]
[[sessions.dev.allow]]
tools = ["demo/echo"]
approve = {{ by = ["lead"] }}
"""
ECHO: dict[str, Any] = {"name": "mcp__demo__echo", "arguments": {"text": "hello"}}


class User:
    """Who sits before a client, and does as is asked."""

    def __init__(self, answer: Callable[[Any], types.ElicitResult]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:  # noqa: ANN401
        del context
        self.asked.append(params)
        return self.answer(params)


def consents(_: object) -> types.ElicitResult:
    return types.ElicitResult(action="accept")


@asynccontextmanager
async def connected(
    host: Host, token: str, mode: Mode, user: User | None = None
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SOON) as http,
        Client(
            streamable_http_client(f"{host.said['mcp']}/dev", http_client=http),
            mode=mode,
            elicitation_callback=user,
        ) as found,
    ):
        yield found


def text_of(found: types.CallToolResult) -> str:
    assert isinstance(found.content[0], types.TextContent)
    return found.content[0].text


@pytest.fixture
def desk(shell: Shell) -> Shell:
    demo = standin.toml(f"of={shell.folder}")
    shell.write("caxton.toml", CONFIG.format(demo=demo))
    return shell


def approved(host: Host, lead: str) -> str:
    """Approve what waits, as who has the role, and return its run."""
    while not (found := host.get("/api/v1/approvals", token=lead).json()["approvals"]):
        pass
    run, seq = found[0]["run_id"], found[0]["seq"]
    where = f"/api/v1/approvals/{run}/{seq}/approve"
    assert host.post(where, {}, token=lead).status_code == 202
    return str(run)


@BOTH
@pytest.mark.long
def test_a_client_that_can_is_shown_where_an_approval_is_decided(
    desk: Shell, mode: Mode
) -> None:  # laws 4 and 8
    mine = token(desk, "--session", "dev", "--name", "mine")
    lead = token(desk, "--scope", "decide", "--role", "lead")
    user = User(consents)

    async def use(host: Host) -> str:
        async with connected(host, mine, mode, user) as client:
            if mode == "legacy":
                with pytest.raises(MCPError) as required:
                    await client.call_tool(**ECHO)
                assert required.value.code == types.URL_ELICITATION_REQUIRED
                data = required.value.data
                (shown,) = data["elicitations"]
                assert shown["elicitationId"].startswith(data["io.caxton/run-id"])
                url = str(shown["url"])
            else:
                # It says that it has looked, which decides nothing.
                waits = text_of(await client.call_tool(**ECHO))
                assert waits.startswith("waits (approval)")
                (asked,) = user.asked
                url = str(asked.url)
            run = await anyio.to_thread.run_sync(approved, host, lead)
            assert url == f"{host.url}/ui/inbox?run={run}"
            assert text_of(await client.call_tool(**ECHO)) == "hello"
        return url

    with served(desk, good=mine) as host:
        url = anyio.run(use, host)
    assert not any(secret in url for secret in (mine, lead))
    assert len(user.asked) == (mode == "auto")
    assert desk.types().count("ApprovalDecided") == 1


@BOTH
def test_a_client_that_cannot_gets_the_answer_that_says_it(
    desk: Shell, mode: Mode
) -> None:
    mine = token(desk, "--session", "dev", "--name", "mine")

    async def use(host: Host) -> str:
        async with connected(host, mine, mode) as client:
            return text_of(await client.call_tool(**ECHO))

    with served(desk, good=mine) as host:
        assert anyio.run(use, host).startswith("waits (approval)")


ASKING = """\
version = 1
[servers.asking]
command = {command}
elicitation = "client"
timeout = "{timeout}"
[sessions.dev]
[[sessions.dev.allow]]
tools = ["asking/*"]
"""
SURE: dict[str, Any] = {"sure": True, "size": "small"}
ASKED = ("QuestionAsked", "QuestionAnswered")


def asking(shell: Shell, *words: str, timeout: str = "60s") -> Shell:
    command = json.dumps([sys.executable, str(SERVER), "calls.txt", *words])
    shell.write("caxton.toml", ASKING.format(command=command, timeout=timeout))
    return shell


def gives(**content: object) -> Callable[[Any], types.ElicitResult]:
    return lambda _: types.ElicitResult.model_validate(
        {"action": "accept", "content": content}
    )


def answers(
    shell: Shell, tool: str, mode: Mode, user: User | None
) -> Sequence[dict[str, Any]]:
    """Return what the tool was answered when a client called it."""
    mine = token(shell, "--session", "dev", "--name", "mine")

    async def use(host: Host) -> str:
        async with connected(host, mine, mode, user) as client:
            return text_of(await client.call_tool(f"mcp__asking__{tool}", {}))

    with served(shell, good=mine) as host:
        found: list[dict[str, Any]] = json.loads(anyio.run(use, host))
    return found


def events(shell: Shell, type_: str) -> list[dict[str, Any]]:
    found = shell("events", "list", "@last", "--json").document
    return [one["payload"] for one in found if one["type"] == type_]


@BOTH
@pytest.mark.parametrize("server", ["legacy", "2026"])
@pytest.mark.long
def test_a_question_of_a_tool_is_answered_by_the_user_of_the_client(
    shell: Shell, mode: Mode, server: str
) -> None:  # laws 2 and 3
    user = User(gives(**SURE))
    found = answers(asking(shell, server), "order", mode, user)
    assert found == [{"action": "accept", "content": SURE}]
    (asked,) = user.asked
    assert asked.message == "asking/order: Really?"
    assert asked.requested_schema["properties"]["size"]["enum"] == ["small", "large"]
    assert "\x1b" not in json.dumps(asked.requested_schema)
    again = () if server == "legacy" else ("ToolRetried",)
    assert shell.types() == [
        *("RunStarted", "ToolInvoked", *ASKED, *again, "ToolCompleted"),
    ]
    (answered,) = events(shell, "QuestionAnswered")
    assert answered["content"] == SURE
    assert answered["actor"]["kind"] == "token"


@BOTH
@pytest.mark.parametrize("server", ["legacy", "2026"])
@pytest.mark.long
def test_several_questions_of_a_call_are_rounds_of_the_same_call(
    shell: Shell, mode: Mode, server: str
) -> None:  # law 2
    user = User(gives(**SURE))
    assert len(answers(asking(shell, server), "twice", mode, user)) == 2
    assert [asked.message[-1] for asked in user.asked] == ["1", "2"]
    assert shell.types().count("ToolInvoked") == 1
    sent = (shell.folder / "calls.txt").read_text().split("\n")[:-1]
    assert len(sent) == 1 + shell.types().count("ToolRetried")
    assert events(shell, "ToolCompleted")[0]["attempts"] == len(sent)


_Answer = Callable[[Any], types.ElicitResult]
UNSOUND: Sequence[tuple[str, _Answer, str, str]] = [
    ("visit", gives(**SURE), "decline", "a server may not send people"),
    ("deep", gives(**SURE), "decline", "its form cannot be shown"),
    ("order", gives(sure="perhaps"), "decline", "is not what was asked: $.sure"),
    ("order", gives(sure=True, more="x"), "decline", "is not what was asked"),
    ("order", gives(sure=True, size="x" * 20_000), "decline", "16384 bytes"),
    ("order", lambda _: types.ElicitResult(action="decline"), "decline", ""),
    ("order", lambda _: types.ElicitResult(action="cancel"), "cancel", ""),
]


@BOTH
@pytest.mark.long
def test_what_is_not_asked_or_not_answered_soundly_is_declined_and_recorded(
    shell: Shell, mode: Mode
) -> None:  # law 9
    mine = token(asking(shell, "legacy"), "--session", "dev", "--name", "mine")
    user = User(consents)

    async def use(host: Host) -> None:
        async with connected(host, mine, mode, user) as client:
            for tool, user.answer, action, _ in UNSOUND:
                text = text_of(await client.call_tool(f"mcp__asking__{tool}", {}))
                assert json.loads(text) == [{"action": action, "content": None}]
            flood = text_of(await client.call_tool("mcp__asking__flood", {}))
            assert flood.count("cancel") == 5
            assert flood.count("decline") == 3
        async with connected(host, mine, mode) as client:
            text = text_of(await client.call_tool("mcp__asking__order", {}))
            assert json.loads(text) == [{"action": "decline", "content": None}]

    with served(shell, good=mine) as host:
        anyio.run(use, host)
    answered = events(shell, "QuestionAnswered")
    assert all(one["content"] is None for one in answered)
    for one, (_, _, _, why) in zip(answered, UNSOUND, strict=False):
        assert why in one["reason"]
    assert answered[-1]["reason"] == "the client cannot ask its user"
    assert len(answered) == len(UNSOUND) + 5 + 1
    assert len(user.asked) == len(UNSOUND) - 2 + 5
    assert "evil.example" in str(events(shell, "QuestionAsked")[0]["message"])


@BOTH
@pytest.mark.long
async def test_a_client_on_a_pipe_is_asked_too(shell: Shell, mode: Mode) -> None:
    user = User(gives(**SURE))
    params = StdioServerParameters(
        command=CAXTON,
        args=["mcp", "connect", "dev"],
        env=asking(shell, "legacy").environ,
        cwd=shell.folder,
    )
    async with Client(params, mode=mode, elicitation_callback=user) as client:
        text = text_of(await client.call_tool("mcp__asking__order", {}))
    assert json.loads(text) == [{"action": "accept", "content": SURE}]
    assert len(user.asked) == 1


def test_an_answer_counts_only_for_the_call_and_the_client_that_were_asked(
    shell: Shell,
) -> None:  # law 9
    desk = asking(shell, "legacy")
    mine, other = (
        token(desk, "--session", "dev", "--name", name) for name in ("mine", "other")
    )
    order = {"name": "mcp__asking__order", "arguments": {}}
    say = {"inputResponses": {"question": {"action": "accept", "content": SURE}}}

    def post(host: Host, token: str, **params: object) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": str(params["name"]),
        }
        body = {**message, "params": {**params, "_meta": meta}}
        answer = httpx.post(
            f"{host.said['mcp']}/dev", json=body, headers=headers, timeout=SOON
        )
        found: dict[str, Any] = answer.json()
        return found

    with served(shell, good=mine) as host:
        asked = post(host, mine, **order)["result"]
        assert asked["resultType"] == "input_required"
        state = {"requestState": asked["requestState"]}
        for token_, more in [
            (other, state),
            (mine, {"requestState": state["requestState"] + "x"}),
            (mine, {**state, "arguments": {"x": 1}}),
            (mine, {**state, "name": "mcp__asking__twice"}),
        ]:
            refused = post(host, token_, **(order | say | more))
            assert refused["error"]["code"] == types.INVALID_PARAMS
        # Without the answer it is asked again, under another state.
        again = post(host, mine, **(order | state))["result"]
        assert again["inputRequests"] == asked["inputRequests"]
        assert "error" in post(host, mine, **(order | say | state))
        state = {"requestState": again["requestState"]}
        done = post(host, mine, **(order | say | state))["result"]
        assert json.loads(done["content"][0]["text"])[0]["content"] == SURE
        assert "error" in post(host, mine, **(order | say | state))
    assert shell.types().count("ToolInvoked") == 1
