"""A host that serves, in a process of its own, and who calls it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from .shell import SOON, Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    A host that is up.

    Attributes:
        said: Its document.

        log: The file that it writes on.

        token: One that may do everything.
    """

    child: subprocess.Popen[bytes]
    said: dict[str, Any]
    log: Path
    token: str

    @property
    def url(self) -> str:
        url: str = self.said["url"]
        return url

    def get(self, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        return self.ask("GET", path, **options)

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:  # noqa: ANN401
        return self.ask("POST", path, json=body, **options)

    def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> httpx.Response:
        headers = {
            "Authorization": f"Bearer {token or self.token}",
            "Content-Type": "application/json",
        }
        return httpx.request(
            method, f"{self.url}{path}", headers=headers, timeout=SOON, **options
        )

    def start(self, agent: str) -> str:
        """Start a run in the background, and return its id."""
        answer = self.post("/api/v1/runs", {"agent": agent})
        assert answer.status_code < httpx.codes.BAD_REQUEST, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def stop(self, number: int) -> tuple[int, str]:
        """Send a signal, and return the exit code and what was said at the end."""
        self.child.send_signal(number)
        return self.child.wait(timeout=SOON), self.log.read_text()


def token(shell: Shell, *words: str) -> str:
    done = shell("serve", "token", "create", *(words or ("--scope", "admin")))
    assert done.code == 0, done.err
    return done.out.strip()


@contextmanager
def served(shell: Shell, *words: str, good: str = "") -> Generator[Host]:
    """Serve until the block is left, at any port that is free."""
    good = good or token(shell)
    command = ("serve", "--port", "0", "--json", *words)
    # A file, for who writes on a pipe that nobody reads waits for ever.
    log = shell.folder / "host.log"
    with log.open("wb") as stderr, shell.started(*command, stderr=stderr) as child:
        yield Host(child=child, said=document(child.stdout), log=log, token=good)


def document(out: IO[bytes] | None) -> dict[str, Any]:
    assert out is not None
    found: dict[str, Any] = json.loads(out.readline())
    return found


@asynccontextmanager
async def client(
    host: Host,
    *,
    session: str = "",
    token: str = "",
    mode: Literal["auto", "legacy"] = "auto",
) -> AsyncGenerator[Client]:
    """Connect to the agents of a host, or to a session, by one's own token if given."""
    headers = {"Authorization": f"Bearer {token or host.token}"}
    url = f"{host.said['mcp']}/{session}".rstrip("/")
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SOON) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as found,
    ):
        yield found
