"""A server that somebody has restarted, whatever it was doing."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from caxton_host.core.log.events import (
    Event,
    ServerDisabled,
    ServerLost,
    ServerRestarted,
)
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Restart, ServerConfig
from caxton_host.mcp import McpTools, Pool

from .conftest import FAULTY, processes, request, until


def tools_of(
    pool: Pool, events: list[Event], *words: str, restart: Restart | None = None
) -> McpTools:
    config = ServerConfig(name="faulty", command=words, restart=restart or Restart())
    return McpTools(
        {"faulty": config}, redact=Redactor(), on_event=events.append, pool=pool
    )


async def test_a_server_is_another_process_after_a_restart(
    state: Path, events: list[Event]
) -> None:
    words = (sys.executable, "-S", str(FAULTY), "sound", str(state))
    pool = Pool()
    async with tools_of(pool, events, *words) as tools:
        await tools.call_tool(request("echo"))
        [before] = processes(str(state))
        assert await pool.restart("faulty") == "restarted"
        [after] = processes(str(state))
        assert before != after
        await tools.call_tool(request("echo"))
        assert await pool.restart("other") is None
        assert [(one.server, one.up) for one in pool.status()] == [("faulty", True)]
    assert pool.status() == []
    assert [e.reason for e in events if isinstance(e, ServerLost)] == [
        "it is restarted by hand"
    ]
    assert len([e for e in events if isinstance(e, ServerRestarted)]) == 1


async def test_a_server_that_was_given_up_is_tried_again(
    state: Path, events: list[Event], tmp_path: Path
) -> None:
    program = tmp_path / "server"
    pool = Pool()
    never = Restart(enabled=False)
    words = (sys.executable, "-S", str(program), "sound", str(state))
    async with tools_of(pool, events, *words, restart=never) as tools:
        assert str(await pool.restart("faulty")).startswith("failed: ")
        program.symlink_to(FAULTY)
        assert await pool.restart("faulty") == "restarted"
        [process] = processes(str(state))
        os.kill(process, signal.SIGKILL)
        await until(lambda: any(isinstance(e, ServerDisabled) for e in events))
        assert await pool.restart("faulty") == "restarted"
        # By hand it is restarted even so.
        assert await pool.restart("faulty") == "restarted"
        await tools.call_tool(request("echo"))
        assert len(processes(str(state))) == 1
