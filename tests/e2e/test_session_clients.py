"""Clients by others, each in a session with servers by others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from fastmcp import Client as FastClient
from fastmcp.client.transports import StreamableHttpTransport
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import PromptReference

from tests.answering import HERE, Answers, answering
from tests.others import NODE, Programs

from .serving import Host, client, served
from .shell import CAXTON, SOON, Shell, toml
from .test_examples import commit, git

PACKAGES = ("@modelcontextprotocol/client", "@modelcontextprotocol/sdk")
EVERYTHING = "mcp__everything__"
SECRET = "sk-everything-0123456789"  # noqa: S105
SESSION = """\
[sessions.{name}]
resources = ["everything/demo://resource/dynamic/text/*", "everything/demo://*/static/**"]
prompts = ["everything/args-prompt", "everything/completable-prompt"]
[[sessions.{name}.allow]]
tools = ["files/write_file", "files/read_text_file", "everything/*"]
[[sessions.{name}.deny]]
tools = ["everything/toggle-*"]
"""
#: The session over a pipe has what starts fast.
GRANTS = (
    SESSION.format(name="near")
    + SESSION.format(name="dev")
    + """\
[[sessions.dev.allow]]
tools = ["time/get_current_time", "git/git_log", "fetch/fetch"]
"""
)


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A served host with five servers by others, which all tests share."""

    shell: Shell
    host: Host
    folder: Path
    page: str

    def plan(self) -> dict[str, Any]:
        """Return what each client does."""
        note, git = str(self.folder / "files/note.txt"), str(self.folder / "git")
        long = f"{EVERYTHING}trigger-long-running-operation"
        return {
            "url": f"{self.host.said['mcp']}/dev",
            "token": self.host.token,
            "calls": {
                "mcp__time__get_current_time": {"timezone": "Etc/UTC"},
                "mcp__git__git_log": {"repo_path": git, "max_count": 1},
                "mcp__fetch__fetch": {"url": self.page},
                "mcp__files__write_file": {"path": note, "content": "a\nb"},
                "mcp__files__read_text_file": {"path": note, "tail": 1},
                f"{EVERYTHING}get-structured-content": {"location": "Chicago"},
                f"{EVERYTHING}get-env": {},
                f"{EVERYTHING}get-sum": {"a": "two"},
                "mcp__git__git_reset": {"repo_path": git},
            },
            "uri": "demo://resource/dynamic/text/7",
            "hidden": "demo://resource/dynamic/blob/7",
            "prompt": ("args-prompt", {"city": "Berlin"}),
            "complete": "completable-prompt",
            "slow": (long, {"duration": 0.1, "steps": 1}),
            "slowest": (long, {"duration": 900, "steps": 9000}),
        }


class Page(Answers):
    def respond(self) -> None:
        self.answer(b"A page of the loopback.", kind="text/plain")


@pytest.fixture(scope="module")
def desk(
    tmp_path_factory: pytest.TempPathFactory,
    compiled: Path,
    programs: Programs,
) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("clients")
    for name in ("git", "files"):
        (folder / name).mkdir()
    git(folder / "git", "init", "--initial-branch=main")
    commit(folder / "git", "Begin", readme="one\n")
    node, *files = programs("server-filesystem")
    _, *everything = programs("server-everything")
    python = {
        "time": ["mcp_server_time"],
        "git": ["mcp_server_git", "--repository", str(folder / "git")],
        "fetch": ["mcp_server_fetch", "--allow-private-ips"],
    }
    servers: dict[str, dict[str, object]] = {
        f"servers.{name}": {"command": sys.executable, "args": ["-m", *args]}
        for name, args in python.items()
    }
    files.append(str(folder / "files"))
    servers["servers.files"] = {"command": node, "args": files}
    own: dict[str, object] = {"command": node, "args": everything}
    servers["servers.everything"] = {**own, "env": {"API_TOKEN": SECRET}}
    with (
        pytest.MonkeyPatch.context() as patch,
        answering(ThreadingHTTPServer(HERE, Page)) as page,
    ):
        shell = Shell(folder, compiled, patch)
        shell.write("caxton.toml", toml(servers, GRANTS))
        words = ("serve", "token", "create", "--session", "dev", "--name", "mine")
        with served(shell, good=shell.typed(*words).out.strip()) as host:
            yield Desk(shell=shell, host=host, folder=folder, page=page)


#: What the text of each answer holds, and of each refusal how it begins.
ANSWERED = {
    "mcp__time__get_current_time": '"timezone": "Etc/UTC"',
    "mcp__git__git_log": "Begin",
    "mcp__fetch__fetch": "A page of the loopback.",
    "mcp__files__write_file": "note.txt",
    "mcp__files__read_text_file": "b",
    f"{EVERYTHING}get-structured-content": "conditions",
    f"{EVERYTHING}get-env": '"API_TOKEN": "[redacted]"',
}
REFUSED = {
    f"{EVERYTHING}get-sum": "denied (schema)",
    "mcp__git__git_reset": "denied (not_granted)",
}
STRUCTURE = {"temperature", "conditions", "humidity"}


def check(said: dict[str, Any]) -> None:
    """Hold what a client saw to what the session grants and the servers answer."""
    others = {name for name in said["tools"] if not name.startswith(EVERYTHING)}
    asked = {*said["calls"]} & {*ANSWERED}
    assert others == {name for name in asked if not name.startswith(EVERYTHING)}
    assert f"{EVERYTHING}echo" in said["tools"]
    assert not [name for name in said["tools"] if "toggle" in name]
    for name, (is_error, text, structure) in said["calls"].items():
        assert is_error is (name in REFUSED), text
        assert text.startswith(REFUSED.get(name, "")), text
        assert ANSWERED.get(name, "") in text
        if name.endswith("structured-content"):
            assert {*structure} == STRUCTURE
    assert said["resources"]
    assert all(uri.startswith("demo://resource/static/") for uri in said["resources"])
    assert said["templates"] == ["demo://resource/dynamic/text/{resourceId}"]
    assert said["read"].startswith("Resource 7: This is a plaintext resource")
    assert "denied (params)" in said["unread"]
    assert said["prompts"] == ["args-prompt", "completable-prompt"]
    assert said["prompt"] == "What's weather in Berlin?"
    assert said["completion"] == ["Sales", "Support"]
    assert said["progress"] == [1]
    assert said["left"] is True
    assert SECRET not in json.dumps(said)  # law 8


async def work(
    plan: dict[str, Any],
    it: Any,  # noqa: ANN401 -- of two libraries
    told: str,
    **more: bool,
) -> dict[str, Any]:
    """Do what is planned; *told* is how a library names who hears of progress."""

    def of(found: Any, key: str) -> Any:  # noqa: ANN401
        return getattr(found, key, found)

    said: dict[str, Any] = {"calls": {}, "progress": []}
    said["tools"] = [tool.name for tool in of(await it.list_tools(), "tools")]
    for name, params in plan["calls"].items():
        got = await it.call_tool(name, params, **more)
        text = got.content[0].text
        said["calls"][name] = (got.is_error, text, got.structured_content)
    resources = of(await it.list_resources(), "resources")
    said["resources"] = [str(one.uri) for one in resources]
    templates = of(await it.list_resource_templates(), "resource_templates")
    said["templates"] = [one.uri_template for one in templates]
    said["read"] = of(await it.read_resource(plan["uri"]), "contents")[0].text
    with pytest.raises(MCPError) as unread:
        await it.read_resource(plan["hidden"])
    said["unread"] = str(unread.value)
    said["prompts"] = [one.name for one in of(await it.list_prompts(), "prompts")]
    said["prompt"] = (await it.get_prompt(*plan["prompt"])).messages[0].content.text
    ref = PromptReference(name=plan["complete"])
    found = await it.complete(ref, {"name": "department", "value": "S"})
    said["completion"] = of(found, "completion").values

    async def tell(progress: float, *_: object) -> None:
        said["progress"].append(progress)

    await it.call_tool(*plan["slow"], **{told: tell})
    with anyio.CancelScope() as leaving:

        async def leave(*_: object) -> None:
            leaving.cancel()

        await it.call_tool(*plan["slowest"], **{told: leave})
    said["left"] = leaving.cancelled_caught
    return said


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_in_python(
    desk: Desk, mode: Literal["auto", "legacy"]
) -> None:
    async with client(desk.host, session="dev", mode=mode) as it:
        check(await work(desk.plan(), it, "progress_callback"))


async def test_the_client_in_python_over_a_pipe(desk: Desk) -> None:
    server = StdioServerParameters(
        command=CAXTON,
        args=["mcp", "connect", "near"],
        env=desk.shell.environ,
        cwd=desk.shell.folder,
    )
    plan = desk.plan()
    near = (EVERYTHING, "mcp__files__")
    plan["calls"] = {k: v for k, v in plan["calls"].items() if k.startswith(near)}
    async with Client(server) as it:
        check(await work(plan, it, "progress_callback"))


async def test_the_client_of_fastmcp(desk: Desk) -> None:
    plan = desk.plan()
    transport = StreamableHttpTransport(plan["url"], auth=plan["token"])
    async with FastClient(transport) as it:
        check(await work(plan, it, "progress_handler", raise_on_error=False))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_client_in_typescript(desk: Desk, programs: Programs, package: str) -> None:
    script = Path(__file__).parents[1] / "npm" / "client.mjs"
    words = [str(script), str(programs.folder), package, json.dumps(desk.plan())]
    check(json.loads(printed([NODE, *words])))


def printed(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SOON, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_inspector(desk: Desk, programs: Programs) -> None:
    plan = desk.plan()

    def inspect(method: str, *words: str) -> dict[str, Any]:
        head = [*programs.inspector(), "--cli", plan["url"], "--transport", "http"]
        bearer = f"Authorization: Bearer {plan['token']}"
        said = printed([*head, "--header", bearer, "--method", method, *words])
        assert SECRET not in said
        found: dict[str, Any] = json.loads(said)
        return found

    tools = [tool["name"] for tool in inspect("tools/list")["tools"]]
    assert {*ANSWERED} <= {*tools}
    name = f"{EVERYTHING}get-structured-content"
    words = ("--tool-name", name, "--tool-arg", "location=Chicago")
    assert {*inspect("tools/call", *words)["structuredContent"]} == STRUCTURE
    (read,) = inspect("resources/read", "--uri", plan["uri"])["contents"]
    assert read["text"].startswith("Resource 7")
