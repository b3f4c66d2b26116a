"""Servers that nobody here wrote, confined, each driven by an agent in the sandbox."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from tests.others import Programs

from .guests import call, guest
from .shell import SOON, Shell, toml
from .test_examples import commit, git

_ENDS = ("ToolCompleted", "ToolDenied", "ToolFailed")


def drive(
    shell: Shell,
    server: Mapping[str, object],
    *calls: tuple[str, dict[str, JSON]],
    allow: Sequence[str],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """
    Have an agent make *calls* to the one server that there is.

    Returns what the log has of the server, and how it says that each call ended.
    """
    steps = (call(f"mcp__real__{tool}", **params) for tool, params in calls)
    shell.write("a.wasm", guest(*steps, output="done"))
    tables = {"servers.real": server, "agents.a": {"module": "a.wasm"}}
    rule = f"[[agents.a.allow]]\ntools = {[f'real/{tool}' for tool in allow]}"
    shell.write("caxton.toml", toml(tables, rule))
    done = shell("run", "a")
    assert (done.code, done.out) == (0, '"done"\n'), done.err
    log = [*shell("events", "list", "@last", "--json").document]
    asked = [event["payload"] for event in log if event["type"] == "ToolInvoked"]
    assert [one["params"] for one in asked] == [params for _, params in calls]
    assert shell("replay", "@last").out.startswith("identical")  # law 3
    ended = [
        {"type": event["type"], **event["payload"]}
        for event in log
        if event["type"] in _ENDS
    ]
    assert [one["call"] for one in ended] == [one["call"] for one in asked]
    return log[0]["payload"]["servers"]["real"], ended


def said(ended: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what tools answered, all of which must have worked."""
    assert {(one["type"], one["is_error"]) for one in ended} == {
        ("ToolCompleted", False)
    }
    return [one["message"] for one in ended]


def python(module: str, *args: str, confine: object = "strict") -> dict[str, object]:
    command = {"command": sys.executable, "args": ["-m", module, *args]}
    return {**command, "confine": confine}


def node(
    command: Sequence[str], *args: str, confine: object = "strict"
) -> dict[str, object]:
    return {"command": command[0], "args": [*command[1:], *args], "confine": confine}


def test_time(shell: Shell) -> None:
    server, [utc, bad, denied] = drive(
        shell,
        python("mcp_server_time"),
        ("get_current_time", {"timezone": "Etc/UTC"}),
        ("get_current_time", {"timezone": "Nowhere"}),
        ("convert_time", {}),
        allow=["get_current_time"],
    )
    assert (server["name"], server["protocol"]) == ("mcp-time", "2026-07-28")
    [answer] = said([utc])
    assert json.loads(answer)["timezone"] == "Etc/UTC"
    assert (bad["type"], bad["is_error"]) == ("ToolCompleted", True)
    assert (denied["type"], denied["code"]) == ("ToolDenied", "not_granted")


def test_git(shell: Shell) -> None:
    folder = shell.folder / "repository"
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    commit(folder, "Begin", readme="one\n")
    server, ended = drive(
        shell,
        python(
            "mcp_server_git",
            *("--repository", str(folder)),
            confine={"write": [str(folder)]},
        ),
        ("git_log", {"repo_path": str(folder), "max_count": 1}),
        ("git_create_branch", {"repo_path": str(folder), "branch_name": "more"}),
        ("git_reset", {"repo_path": str(folder)}),
        allow=["git_log", "git_create_branch"],
    )
    assert server["name"] == "mcp-git"
    log, created = said(ended[:2])
    assert "Begin" in log
    assert "'more'" in created
    assert (folder / ".git/refs/heads/more").exists()
    assert ended[2]["type"] == "ToolDenied"


def test_fetch(shell: Shell) -> None:
    # It reaches no machine that may be the host's own, whoever asks it.
    with socket.create_server(("127.0.0.1", 0)) as near:
        port = near.getsockname()[1]
        server, [refused] = drive(
            shell,
            python("mcp_server_fetch", confine={"network": "host"}),
            ("fetch", {"url": f"http://127.0.0.1:{port}/secret"}),
            allow=["fetch"],
        )
        near.settimeout(0)
        with pytest.raises(BlockingIOError):
            near.accept()
    assert server["name"] == "mcp-fetch"
    assert (refused["type"], refused["is_error"]) == ("ToolCompleted", True)


def test_filesystem(shell: Shell, programs: Programs) -> None:
    folder = shell.folder / "files"
    folder.mkdir()
    outside = shell.write("secret", "hunter2")
    note = str(folder / "note.txt")
    server, ended = drive(
        shell,
        node(
            programs("server-filesystem"),
            str(folder),
            confine={"write": [str(folder)]},
        ),
        ("write_file", {"path": note, "content": "first\nsecond"}),
        ("read_text_file", {"path": note, "tail": 1}),
        ("read_text_file", {"path": str(outside)}),
        ("move_file", {"source": note, "destination": note + "x"}),
        allow=["write_file", "read_text_file"],
    )
    assert server["name"] == "secure-filesystem-server"
    _, read = said(ended[:2])
    assert read == "second"
    assert (folder / "note.txt").read_text() == "first\nsecond"
    assert ended[2]["is_error"]
    assert "hunter2" not in str(ended)
    assert ended[3]["type"] == "ToolDenied"


def test_memory(shell: Shell, programs: Programs) -> None:
    ada: JSON = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    graph = shell.folder / "graphs" / "graph.jsonl"
    graph.parent.mkdir()
    command = node(programs("server-memory"), confine={"write": [str(graph.parent)]})
    server, ended = drive(
        shell,
        {**command, "env": {"MEMORY_FILE_PATH": str(graph)}},
        ("create_entities", {"entities": [ada]}),
        ("search_nodes", {"query": "counts"}),
        ("delete_entities", {"entityNames": ["Ada"]}),
        allow=["create_entities", "search_nodes"],
    )
    assert server["name"] == "memory-server"
    said(ended[:2])
    assert ended[1]["data"]["structuredContent"]["entities"] == [ada]
    assert ended[2]["type"] == "ToolDenied"
    assert '"Ada"' in graph.read_text()


@contextmanager
def listening(command: Sequence[str], folder: Path) -> Generator[int]:
    """Start a server that wants to be told its port, and return that."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {"PORT": str(port)}
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as server,
    ):
        try:
            until = time.monotonic() + SOON
            while time.monotonic() < until and server.poll() is None:
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.05)
            yield port
        finally:
            server.kill()


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_everything(shell: Shell, programs: Programs, transport: str) -> None:
    command = programs("server-everything")
    if transport == "stdio":
        everything(shell, node(command), "stdio")
        return
    way, path = {"http": ("streamableHttp", "mcp"), "sse": ("sse", "sse")}[transport]
    with listening([*command, way], shell.folder) as port:
        url = f"http://127.0.0.1:{port}/{path}"
        everything(shell, {"url": url, "transport": transport}, transport)


def everything(shell: Shell, server: Mapping[str, object], transport: str) -> None:
    found, ended = drive(
        shell,
        server,
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 40}),
        ("get-tiny-image", {}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-sum", {"a": "two"}),
        ("get-env", {}),
        allow=["echo", "get-s*", "get-tiny-image", "trigger-*"],
    )
    assert (found["name"], found["transport"]) == ("mcp-servers/everything", transport)
    assert found["protocol"] == "2025-11-25"
    echo, total, image, long, _ = said(ended[:5])
    assert echo == "Echo: hello"
    assert total == "The sum of 2 and 40 is 42."
    assert "The image above is" in image
    assert long.startswith("Long running operation completed")
    structured = ended[4]["data"]["structuredContent"]
    assert set(structured) == {"temperature", "conditions", "humidity"}
    refused, denied = ended[5:]
    assert (refused["type"], refused["code"]) == ("ToolDenied", "schema")
    assert (denied["type"], denied["code"]) == ("ToolDenied", "not_granted")
