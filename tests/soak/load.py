"""The load of the soak test: servers, their configuration, agents that call them."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn from the seed that is printed
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from tests.e2e.guests import call, guest

__all__ = ["CALLS", "SOUND", "WARM", "WARM_CALLS", "agents", "config", "web_servers"]

#: Servers that answer every call, each over a different transport.
SOUND = ("pipe", "web", "old")
#: Number of calls per run.
CALLS = 20
_AGENTS = 60
_MOODS = (
    *("fine", "fine", "fine", "fine", "rants", "slow", "fails", "refuses"),
    *("dies", "silent", "babbles", "large"),
)
_LONGEST = 2000

#: Starts every server.
WARM = guest(
    *(call(f"mcp__{name}__echo", text="warm") for name in SOUND),
    call("mcp__moody__act", mood="fine"),
)
WARM_CALLS = len(SOUND) + 1

_CONFIG = """\
version = 1
[store]
url = "sqlite:///soak.db"
[servers.pipe]
command = "{python}"
args = ["-m", "caxton_host.demo_server"]
# This changes with each generation, so that the server restarts.
max_result = "{limit} B"
[servers.web]
url = "{web}"
transport = "http"
[servers.old]
url = "{old}"
transport = "sse"
tools.echo.description = "Says what it is told, in generation {generation}."
[servers.moody]
command = "{python}"
args = ["-I", "-S", "{moody}"]
restart = {{ max_restarts = 1_000_000, backoff = "50ms", reset_after = "1s" }}
breaker = {{ failures = 5, pause = "1s" }}
tools.act.timeout = "500ms"
[agents.soak]
[[agents.soak.allow]]
tools = ["pipe/echo", "web/echo", "old/echo", "moody/act"]
"""


def config(urls: dict[str, str], generation: int) -> str:
    """Return the text of `caxton.toml` for a generation."""
    return _CONFIG.format(
        python=sys.executable,
        moody=Path(__file__).with_name("moody_server.py"),
        limit=1_000_000 + generation % 2,
        generation=generation,
        **urls,
    )


def agents(seed: int, moody: float) -> list[bytes]:
    """
    Return agents with random calls: good ones, failing ones and denied ones.

    Args:
        moody: The share of the calls of the server that misbehaves.
    """
    chance = random.Random(seed)  # noqa: S311 -- not for secrets
    steps = (_step(chance, moody) for _ in range(CALLS * _AGENTS))
    return [guest(*islice(steps, CALLS)) for _ in range(_AGENTS)]


def _step(chance: random.Random, moody: float) -> tuple[str, bytes, bytes]:
    drawn = chance.random()
    if drawn < 0.05:
        return call("mcp__pipe__slow", seconds=9)
    if drawn < 0.05 + moody:
        return call("mcp__moody__act", mood=chance.choice(_MOODS))
    text = "x" * chance.randrange(1, _LONGEST)
    return call(f"mcp__{chance.choice(SOUND)}__echo", text=text)


@contextmanager
def web_servers() -> Generator[dict[str, str]]:
    """Start the servers that have a URL, and return their URLs."""
    words = (sys.executable, "-m", "caxton_host.demo_server")
    started = {
        name: subprocess.Popen(
            [*words, flag, "0"], stderr=subprocess.PIPE, text=True, bufsize=1
        )
        for name, flag in (("web", "--http"), ("old", "--sse"))
    }
    try:
        urls: dict[str, str] = {}
        for name, program in started.items():
            assert program.stderr is not None
            urls[name] = program.stderr.readline().strip()
        yield urls
    finally:
        for program in started.values():
            program.kill()
            program.communicate()
