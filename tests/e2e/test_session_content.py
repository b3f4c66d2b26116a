"""Resources and prompts of servers, as the client of a session has them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from .serving import client as over_http
from .serving import served
from .shell import CAXTON, Shell
from .test_sessions_http import opening

LIBRARY = Path(__file__).parents[1] / "library.py"
KEY = "sk-library-0123456789"
HEAD = "version = 1\nwatch = true\n{servers}\n[sessions.dev]\n"
CONFIG = f"""\
{HEAD}
resources = ["docs/docs://public/*", "docs/shared://*", "wiki/*"]
prompts = ["docs/*", "wiki/*"]
[[sessions.dev.allow]]
tools = ["docs/*", "wiki/*"]
"""
SERVER = """\
[servers.{name}]
command = {python}
args = ["-IS", {library}, {folder}{words}]
env = {{ LIBRARY_KEY = "{key}" }}
"""


def library(shell: Shell, name: str, *words: str) -> str:
    folder = shell.folder / name
    folder.mkdir(exist_ok=True)
    return SERVER.format(
        name=name,
        python=json.dumps(sys.executable),
        library=json.dumps(str(LIBRARY)),
        folder=json.dumps(str(folder)),
        words="".join(f", {json.dumps(word)}" for word in words),
        key=KEY,
    )


def configured(shell: Shell, config: str = CONFIG) -> None:
    servers = library(shell, "docs") + library(shell, "wiki")
    shell.write("caxton.toml", config.format(servers=servers))


@asynccontextmanager
async def connected(
    shell: Shell,
    mode: Literal["auto", "legacy"] = "auto",
    **options: Any,  # noqa: ANN401
) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=CAXTON,
        args=["mcp", "connect", "dev"],
        env=shell.environ,
        cwd=shell.folder,
    )
    async with Client(server, mode=mode, **options) as client:
        yield client


async def exported(shell: Shell) -> str:
    done = await anyio.to_thread.run_sync(shell, "events", "export", "--all")
    return done.out


async def refused(client: Client, uri: str) -> str:
    with pytest.raises(MCPError) as refusal:
        await client.read_resource(uri)
    return refusal.value.message


PUBLIC = ["docs://public/a", "shared://both", "wiki://public/a", "wiki://secret/b"]
TEMPLATES = ["docs://public/{page}", "wiki://public/{page}", "wiki://{area}/{page}"]
REVIEWS = ["docs/review", "only_docs", "only_wiki", "wiki/review"]


async def shown(client: Client) -> tuple[list[str], list[str], list[str]]:
    templates = (await client.list_resource_templates()).resource_templates
    return (
        [str(one.uri) for one in (await client.list_resources()).resources],
        [one.uri_template for one in templates],
        [one.name for one in (await client.list_prompts()).prompts],
    )


async def text_of(client: Client, uri: str) -> str:
    return (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_reads_what_its_grant_names_and_each_reading_is_a_call(
    shell: Shell, mode: Literal["auto", "legacy"]
) -> None:  # law 2
    configured(shell)
    async with connected(shell, mode) as client:
        able = client.server_capabilities
        assert able.resources is not None
        assert able.resources.subscribe is False
        assert able.prompts is not None
        assert able.completions is not None
        if mode == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.set_logging_level("warning")

        assert await shown(client) == (PUBLIC, TEMPLATES, REVIEWS)
        assert (await client.list_tools()).tools == []
        page = ResourceTemplateReference(uri="docs://public/{page}")
        some = await client.complete(page, {"name": "page", "value": "a"})
        assert some.completion.values == ["a1", "a2"]
        hidden = ResourceTemplateReference(uri="docs://{area}/{page}")
        none = await client.complete(hidden, {"name": "page", "value": ""})
        assert none.completion.values == []
        review = PromptReference(name="wiki/review")
        found = await client.complete(review, {"name": "text", "value": "b"})
        assert found.completion.values == ["b1", "b2", "../secret/b"]
        assert shell.types() == ["RunStarted"]

        told = await text_of(client, "docs://public/asks")
        assert told == "docs://public/asks of docs [redacted]"
        assert "of docs" in await text_of(client, "shared://both")
        assert "of wiki" in await text_of(client, "wiki://public/else")
        got = await client.get_prompt("wiki/review", {"text": "x"})
        assert got.messages[0].content.text == "review of wiki: {'text': 'x'}"  # type: ignore[union-attr]
        read = await client.read_resource("wiki://public/blob")
        assert base64.b64decode(read.contents[0].blob) == b"\x00\x01\xff" * 30_000  # type: ignore[union-attr]
        log = await exported(shell)

    # Nobody answers a server that asks for sampling or roots.
    asked = (shell.folder / "docs" / "asked").read_text()
    assert asked.count("not supported") == 2
    assert shell.types() == [
        "RunStarted",
        *("ToolInvoked", "ToolCompleted") * 5,
        "RunCompleted",
    ]
    assert KEY not in log
    assert "image/png" in log
    assert len(log) < 90_000


ONLY_DOCS = f"""\
{HEAD}
resources = ["docs/docs://public/*"]
[[sessions.dev.allow]]
tools = ["docs/prompts/get"]
params.name = {{{{ const = "only_docs" }}}}
other_params = "allow"
calls = "1/run"
[[sessions.dev.allow]]
tools = ["docs/prompts/get"]
params.name = {{{{ const = "review" }}}}
other_params = "allow"
approve = {{{{ by = ["lead"] }}}}
[[sessions.dev.deny]]
tools = ["docs/resources/read"]
params.uri = {{{{ const = "docs://public/a" }}}}
"""


async def test_rules_deny_limit_and_hold_what_a_client_reads(
    shell: Shell,
) -> None:  # law 4
    configured(shell, ONLY_DOCS)
    async with connected(shell) as client:
        assert await shown(client) == ([], TEMPLATES[:1], ["only_docs", "review"])
        assert (await refused(client, "docs://secret/b")).startswith("denied (params)")
        assert (await refused(client, "docs://public/../x")).startswith("denied")
        assert (await refused(client, "docs://public/a")).startswith("denied (denied)")
        gone = await refused(client, "docs://public/nothing")
        assert gone == "failed (protocol): the server refused resources/read: no such"
        odd = await refused(client, "docs://public/odd")
        assert odd == "failed (invalid_result): the answer has no list of contents"
        await client.get_prompt("only_docs")
        with pytest.raises(MCPError, match=r"denied \(budget\): all 1 calls"):
            await client.get_prompt("only_docs")
        with pytest.raises(MCPError, match=r"waits \(approval\)") as waits:
            await client.get_prompt("review")
    assert "io.caxton/approval" in waits.value.data
    assert shell.types().count("ToolDenied") == 4


async def test_a_star_in_a_rule_for_tools_allows_no_reading(
    shell: Shell,
) -> None:  # law 4
    configured(shell, HEAD + '[[sessions.dev.allow]]\ntools = ["docs/*"]\n')
    async with connected(shell) as client:
        able = client.server_capabilities
        assert (able.resources, able.prompts, able.completions) == (None, None, None)
        assert await shown(client) == ([], [], [])
        assert "denied (not_granted)" in await refused(client, "docs://public/a")


WORDS = ["giant", "loops", "none", "odd"]


async def test_hostile_servers_are_left_out_and_the_others_are_shown(
    shell: Shell,
) -> None:  # law 9
    servers = library(shell, "docs") + "".join(library(shell, it, it) for it in WORDS)
    granted = json.dumps([f"{name}/*" for name in ("docs", *WORDS)])
    keys = f"resources = {granted}\nprompts = {granted}\n"
    shell.write("caxton.toml", HEAD.format(servers=servers) + keys)
    async with connected(shell) as client:
        resources, templates, prompts = found = await shown(client)
        with pytest.raises(MCPError, match="invalid_result"):
            await client.get_prompt("only_odd")
        ref = PromptReference(name="only_odd")
        values = await client.complete(ref, {"name": "x", "value": "y"})
    of_docs = ["docs://public/a", "docs://secret/b", "odd://public/a", "odd://secret/b"]
    assert resources == [*of_docs, "shared://both"]
    assert len(templates) == 4
    assert prompts == ["docs/review", "odd/review", "only_docs", "only_odd"]
    assert values.completion.values == []
    assert KEY not in str(found)


async def test_the_lists_follow_the_grant_and_lack_a_server_that_is_down(
    shell: Shell,
) -> None:
    told: set[str] = set()
    heard = anyio.Event()

    async def hear(message: object) -> None:
        told.add(type(message).__name__)
        if len(told) > 2:
            heard.set()

    configured(shell)
    async with connected(shell, "legacy", message_handler=hear) as client:
        before = await shown(client)
        configured(shell, CONFIG.replace("public/*", "**"))
        text = (shell.folder / "caxton.toml").read_text()
        head, wiki = text.split("[servers.wiki]")
        wiki = wiki.replace(sys.executable, "/nowhere", 1)
        shell.write("caxton.toml", f"{head}[servers.wiki]{wiki}")
        await heard.wait()
        after = await shown(client)
        assert "failed (transport)" in await refused(client, "wiki://public/a")
    assert before == (PUBLIC, TEMPLATES, REVIEWS)
    assert after[0] == ["docs://public/a", "docs://secret/b", "shared://both"]
    assert after[2] == ["only_docs", "review"]


@pytest.mark.long
def test_clients_over_http_read_too(shell: Shell) -> None:
    configured(shell)
    mine = opening(shell, "mine")

    async def read(mode: Literal["auto", "legacy"]) -> None:
        async with over_http(host, session="dev", token=mine, mode=mode) as client:
            assert await shown(client) == (PUBLIC, TEMPLATES, REVIEWS)
            assert "of docs" in await text_of(client, "docs://public/a")
            assert (await client.get_prompt("only_docs")).messages
            assert client.server_capabilities.resources is not None

    with served(shell, good=mine) as host:
        for mode in ("auto", "legacy"):
            anyio.run(read, mode)
    assert shell.types().count("ToolCompleted") == 4
