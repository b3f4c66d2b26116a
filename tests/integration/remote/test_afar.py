"""Runs on a host, seen from here while they last."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from caxton_host.cli import remote_host
from caxton_host.cli.context import RunOptions
from caxton_host.cli.overrides import Overrides
from caxton_host.cli.remote_host import RemoteHost
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Recorded, event_document
from caxton_host.core.log.projection import Projection, summarise
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import ServerUnavailable
from caxton_host.remote import log
from tests.integration.webhooks.conftest import Server
from tests.scene import Scene, calling

JSON_TYPE, SSE, PROBLEM = (
    "application/json",
    "text/event-stream",
    "application/problem+json",
)


class Told:
    """
    A host that answers by the beginning of what it is asked.

    Attributes:
        answers: Status, media type and body, by that.

        asked: What it was.

        ready: It answers once this is set.
    """

    def __init__(self, server: Server) -> None:
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.asked: list[str] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self._server = server
        server.script = self._script

    async def _script(self, writer: asyncio.StreamWriter) -> None:
        head, _ = self._server.requests[-1]
        self.asked.append(head.split("\r\n")[0].removesuffix(" HTTP/1.1"))
        await self.ready.wait()
        known = [start for start in self.answers if self.asked[-1].startswith(start)]
        status, media, body = self.answers[max(known, key=len)]
        lines = (
            f"HTTP/1.1 {status} X",
            f"Content-Type: {media}",
            f"Content-Length: {len(body)}",
        )
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


@pytest.fixture
async def ended() -> list[Recorded]:
    scene = Scene(calling("mcp__demo__get_weather"))
    await scene.run()
    return await scene.recorded()


def document(events: list[Recorded]) -> bytes:
    run_id = events[0].stream.removeprefix("run/")
    return json.dumps(summarise(run_id, events).to_document()).encode()


def page(events: list[Recorded]) -> bytes:
    found: list[JSON] = [
        event_document(one) | {"cursor": str(one.seq)} for one in events
    ]
    return json.dumps({"events": found, "more": False}).encode()


def stream(events: list[Recorded]) -> bytes:
    return b"".join(
        f"id: {one.seq}\ndata: {json.dumps(event_document(one))}\n\n".encode()
        for one in events
    )


async def start(host: RemoteHost) -> None:
    options = RunOptions(given=Overrides(), quiet=True, as_json=True)
    async with host.history() as log:
        await remote_host._start(host._report(options), log, {"agent": "a"})


async def test_a_start_that_is_interrupted_is_cancelled_once_it_has_a_name(
    server: Server, ended: list[Recorded]
) -> None:
    host = Told(server)
    host.answers["POST /api/v1/runs"] = 202, JSON_TYPE, document(ended)
    host.ready.clear()
    starting = asyncio.create_task(start(RemoteHost(url=server.url)))
    while not host.asked:  # noqa: ASYNC110 -- of the client
        await asyncio.sleep(0.01)
    starting.cancel()
    await asyncio.sleep(0.05)
    host.ready.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    run_id = ended[0].stream.removeprefix("run/")
    assert host.asked[-1] == f"POST /api/v1/runs/{run_id}/cancel"


async def test_a_host_that_goes_while_a_run_is_waited_for_leaves_the_run(
    server: Server, ended: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:  # law 10
    monkeypatch.setattr(log, "_PATIENCE", 0.2)
    run_id = ended[0].stream.removeprefix("run/")
    host = Told(server)
    host.answers["POST /api/v1/runs"] = 202, JSON_TYPE, document(ended)
    host.answers[f"GET /api/v1/runs/{run_id}"] = 200, SSE, b""
    with pytest.raises(ServerUnavailable) as gone:
        await start(RemoteHost(url=server.url))
    assert f"run {run_id} is recorded, and the next host goes on" in str(gone.value)
    assert f"caxton runs show {run_id}" in gone.value.fix


async def test_a_run_that_another_host_drives_is_waited_for(
    server: Server, ended: list[Recorded], capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = ended[0].stream.removeprefix("run/")
    path = f"/api/v1/runs/{run_id}"
    known = Projection(run_id)
    for one in ended:
        known.apply(one.type, one.event, one.recorded_at, one.trace_id)
    assert known.row
    runs = {"runs": [known.row.to_document()], "next": None}
    refusal = {"type": "/problems/conflict", "detail": "it is asked"}
    Told(server).answers |= {
        "GET /api/v1/runs?": (200, JSON_TYPE, json.dumps(runs).encode()),
        f"POST {path}/cancel": (409, PROBLEM, json.dumps(refusal).encode()),
        f"GET {path}/events": (200, SSE, stream(ended)),
        f"GET {path}/events?": (200, JSON_TYPE, page(ended)),
    }
    async with RemoteHost(url=server.url).history() as log:
        found, history = await remote_host._cancelled(log, "@last", "why")
    assert (found, history) == (run_id, ended)
    assert "it is asked" in capsys.readouterr().err
    assert json.loads(server.requests[1][1]) == {"reason": "why"}


async def test_a_token_file_is_read_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(b'{"runs": [], "next": null}', f"Content-Type: {JSON_TYPE}")
    file = tmp_path / "token"
    file.write_text("cx_one")
    file.chmod(0o644)
    host = RemoteHost(url=server.url, token_file=str(file))
    for _ in range(2):
        async with host.history() as log:
            assert await log.runs(1, RunFilter()) == []
        file.write_text("cx_two")
    assert server.sent_headers["authorization"] == "Bearer cx_one"
    assert capsys.readouterr().err.count("warning: others may read") == 1
