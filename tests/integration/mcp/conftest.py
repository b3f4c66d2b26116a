"""Servers that misbehave, and a look for what they leave behind."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp import McpTools
from caxton_host.ports.tools import ToolRequest

FAULTY = Path(__file__).with_name("faulty_server.py")
SECRET = "hunter2-hunter2"  # noqa: S105 -- a canary

Faulty: TypeAlias = Callable[..., McpTools]


def request(
    tool: str,
    params: dict[str, JSON] | None = None,
    *,
    pin: str | None = None,
    server: str = "faulty",
) -> ToolRequest:
    return ToolRequest(
        run_id="run",
        call=1,
        server=server,
        tool=tool,
        params=params or {},
        definition_sha256=pin,
        idempotency_key="key",
    )


def processes(mark: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark.encode() in (
                (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def noted(state: Path, start: str) -> list[str]:
    """Return what the server wrote down after those words."""
    lines = state.read_text().splitlines() if state.exists() else []
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody tells."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- another process makes it true
            await asyncio.sleep(0.01)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Where the server writes down what happens to it. Nothing may outlive it."""
    yield tmp_path / "state"
    until = time.monotonic() + 5
    while processes(str(tmp_path)) and time.monotonic() < until:
        time.sleep(0.02)
    assert processes(str(tmp_path)) == []


@pytest.fixture
def faulty(state: Path, events: list[Event]) -> Faulty:
    def tools(mode: str, *, logs: Path | None = None, **options: Any) -> McpTools:  # noqa: ANN401
        given: dict[str, Any] = {"timeout": 10.0, "env": {"SECRET": SECRET}}
        config = ServerConfig(
            name="faulty",
            command=(sys.executable, "-S", str(FAULTY), mode, str(state)),
            **(given | options),
        )
        return McpTools(
            {"faulty": config},
            redact=Redactor([SECRET]),
            on_event=events.append,
            logs=logs,
        )

    return tools
