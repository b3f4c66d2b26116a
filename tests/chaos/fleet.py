"""
Hosts that share a log and a queue, their clients, and the faults between them.

Each host is a process of `caxton serve` with a proxy of its own to the database. What
clients were told and what was done to whom is noted here, and `history` compares it
with the log and with the effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import random  # noqa: TID251 -- drawn from the seed that is printed
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import httpx

from tests.e2e.guests import call, guest

from .database import Database
from .proxy import Proxy
from .scene import SERVER

CAXTON = str(Path(sys.executable).with_name("caxton"))
LAUNCHER = str(Path(__file__).with_name("launcher.py"))
AGENTS = ("payer", "sender")
#: Runs of one host at once, and milliseconds that a tool takes at most.
_PLACES, _LONGEST = 4, 50
_CONFIG = """\
version = 1
[placement]
engine = "procrastinate"
[serve]
runs = {places}
queue = 100000
concurrency = 100000
rate = "1000000/min"
drain = "hand_over"
[servers.world]
command = {python}
args = ["-I", "-S", {server}, {counter}, "{longest}"]
tools.look.effect = "read"
tools.pay.effect = "keyed"
[agents.payer]
module = "payer.wasm"
[[agents.payer.allow]]
tools = ["world/look"]
[[agents.payer.allow]]
tools = ["world/pay"]
name = "pay"
sum = {{ of = "n", max = 1000000, per = "month" }}
[agents.sender]
module = "sender.wasm"
[[agents.sender.allow]]
tools = ["world/look", "world/pay"]
[[agents.sender.allow]]
tools = ["world/send"]
name = "send"
concurrency = 12
"""
_CALLS = {
    "payer": ("look", "pay", "pay", "look", "pay"),
    "sender": ("look", "send", "pay", "send", "look"),
}
#: Seconds: until a host is ready, between two tries or looks, and for one answer.
_READY, _PAUSE, _ANSWER = 240.0, 0.3, 15.0
#: Seconds in which all runs must have ended once nothing is done to the fleet any more.
_CALM = 240.0
_UNSETTLED = """\
SELECT count(*) FROM runs WHERE state IN ('queued', 'running') OR state = 'suspended'
  AND (SELECT position('in_doubt'::bytea IN payload) FROM events
       JOIN payloads USING (position)
       WHERE stream = 'run/' || run_id AND type = 'RunSuspended'
       ORDER BY seq DESC LIMIT 1) = 0"""
_DEATH_SIGNAL = 1
_FINAL = {"completed", "failed", "cancelled"}
_ACCEPTED = (httpx.codes.OK, httpx.codes.CREATED, httpx.codes.ACCEPTED)


def _end_with_us() -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


@dataclass(eq=False)
class Host:
    """
    One host.

    Attributes:
        stream: Its name in the log, once it is ready.

        busy: Something is done to it.

        ends: It is expected to end.
    """

    number: int
    proxy: Proxy
    url: str = ""
    stream: str = ""
    busy: bool = False
    ends: bool = False
    process: asyncio.subprocess.Process | None = None

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            assert self.process is not None
            self.process.send_signal(number)


@dataclass
class Fleet:
    """
    Hosts, and what is known of them.

    Attributes:
        lease: Seconds; 15 is what hosts have by themselves.

        said: What clients were told of each key: `runs`, and the final states `read`.

        faults: When what was done to whom, in microseconds.

        answers: What clients got instead of a run.
    """

    folder: Path
    database: Database
    chance: random.Random
    lease: float
    hosts: list[Host] = field(default_factory=list[Host])
    said: dict[str, dict[str, list[str]]] = field(
        default_factory=dict[str, dict[str, list[str]]]
    )
    faults: list[tuple[int, str, str]] = field(
        default_factory=list[tuple[int, str, str]]
    )
    answers: Counter[str] = field(default_factory=Counter[str])
    exits: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    token: str = ""
    _over: bool = False

    @property
    def counter(self) -> Path:
        """The file of effects."""
        return self.folder / "counter"

    def note(self, kind: str, host: str = "") -> None:
        """Note a fault, before it happens."""
        self.faults.append((time.time_ns() // 1000, kind, host))

    async def caxton(self, *words: str) -> str:
        """Run a command, which must succeed, and return its output."""
        async with self.command(Proxy(lambda: self.database.socket), *words) as child:
            out, err = await child.communicate()
        if child.returncode:
            self.wrong.append(f"{words}: {child.returncode} {err.decode()}")
        return out.decode()

    async def sql(
        self, statement: LiteralString, *values: object
    ) -> list[tuple[Any, ...]]:
        """Ask the database, while the proxies go on."""
        return await asyncio.to_thread(self.database.execute, statement, *values)

    @contextlib.asynccontextmanager
    async def command(
        self, proxy: Proxy, *words: str, log: Path | None = None
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        """Run a command behind *proxy*."""
        async with contextlib.AsyncExitStack() as stack:
            if not proxy.port:
                proxy = await stack.enter_async_context(Proxy.listening(proxy.target))
            lease = [str(self.lease)]
            begin = [CAXTON] if self.lease == 15 else [sys.executable, LAUNCHER, *lease]
            environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
            stderr: Any = asyncio.subprocess.PIPE
            if log:
                stderr = stack.enter_context(log.open("ab"))
            yield await asyncio.create_subprocess_exec(
                *(*begin, "--db", self.database.through(proxy.port), *words),
                cwd=self.folder,
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                preexec_fn=_end_with_us,
            )

    @contextlib.asynccontextmanager
    async def running(self, count: int) -> AsyncGenerator[None]:
        """Keep *count* hosts running until the block is left; then all must stop."""
        self._write()
        await self.caxton("db", "migrate")
        made = await self.caxton("serve", "token", "create", "--scope", "admin")
        self.token = made.strip()
        async with contextlib.AsyncExitStack() as stack:
            for number in range(count):
                proxy = await stack.enter_async_context(
                    Proxy.listening(lambda: self.database.socket)
                )
                self.hosts.append(Host(number, proxy))
            keeping = [asyncio.create_task(self._keep(host)) for host in self.hosts]
            try:
                await asyncio.gather(*(self.ready(host) for host in self.hosts))
                yield
                self._over = True
                for host in self.hosts:
                    host.ends = True
                    host.signal(signal.SIGTERM)
                async with asyncio.timeout(_READY):
                    await asyncio.gather(*keeping)
            finally:
                for host, task in zip(self.hosts, keeping, strict=True):
                    task.cancel()
                    if host.process and host.process.returncode is None:
                        host.signal(signal.SIGKILL)

    def _write(self) -> None:
        for agent, tools in _CALLS.items():
            steps = [call(f"mcp__world__{tool}", n=n) for n, tool in enumerate(tools)]
            (self.folder / f"{agent}.wasm").write_bytes(guest(*steps, output=agent))
        text = _CONFIG.format(
            places=_PLACES,
            longest=_LONGEST,
            python=json.dumps(sys.executable),
            server=json.dumps(str(SERVER)),
            counter=json.dumps(str(self.counter)),
        )
        (self.folder / "caxton.toml").write_text(text)
        self.counter.touch()

    async def ready(self, host: Host) -> None:
        """Wait until a host is ready."""
        async with asyncio.timeout(_READY):
            while not host.stream:  # noqa: ASYNC110 -- of another task
                await asyncio.sleep(_PAUSE / 3)

    async def _keep(self, host: Host) -> None:
        """Start a host again whenever it has ended."""
        log = self.folder / f"host{host.number}.log"
        words = ("serve", "--port", "0", "--json")
        while not self._over:
            host.ends = False
            async with self.command(host.proxy, *words, log=log) as child:
                host.process = child
                assert child.stdout is not None
                if line := await child.stdout.readline():
                    said = json.loads(line)
                    host.url, host.stream = said["url"], said["host"]
                code = await child.wait()
            if host.stream:
                self.exits[f"{code} {'asked' if host.ends else 'by itself'}"] += 1
                if not host.ends or code not in {0, -signal.SIGKILL}:
                    self.wrong.append(f"host {host.number} ended by itself: {code}")
            else:
                self.exits[f"{code} before it was ready"] += 1
            host.url = host.stream = ""
            await asyncio.sleep(self.chance.uniform(0, 2))

    # -- clients ---------------------------------------------------------------

    async def submit(self, http: httpx.AsyncClient, key: str, agent: str) -> None:
        """Ask hosts for the run of a key until one has accepted it."""
        said = self.said[key] = {"runs": [], "read": []}
        while not said["runs"]:
            # Some clients are impatient, and ask two hosts at once.
            for _ in range(1 + (self.chance.random() < 0.1)):
                asking = [self._submit_once(http, key, agent)]
                if self.chance.random() < 0.1:
                    asking.append(self._submit_once(http, key, agent))
                found = await asyncio.gather(*asking)
                said["runs"] += [run for run in found if run]
            if not said["runs"]:
                await asyncio.sleep(self.chance.uniform(0, 2 * _PAUSE))

    async def _submit_once(
        self, http: httpx.AsyncClient, key: str, agent: str
    ) -> str | None:
        body, headers = {"agent": agent, "input": key}, {"Idempotency-Key": key}
        answer = await self._asked(http, "POST", "", json=body, headers=headers)
        return answer["run_id"] if answer else None

    async def _asked(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        **options: Any,  # noqa: ANN401
    ) -> dict[str, Any] | None:
        host = self.chance.choice(self.hosts)
        if not host.url:
            return None
        try:
            url = f"{host.url}/api/v1/runs{path}"
            answer = await http.request(method, url, **options)
        except httpx.TransportError as exc:
            self.answers[type(exc).__name__] += 1
            return None
        said: dict[str, Any] = answer.json()
        if answer.status_code in _ACCEPTED:
            return said
        self.answers[f"{answer.status_code} {said.get('detail')}"[:100]] += 1
        return None

    async def follow(self, http: httpx.AsyncClient, key: str) -> None:
        """Ask hosts for the state of a run until it is final, or waits for a person."""
        said, suspended = self.said[key], 0
        while not said["read"] and suspended < 3:
            await asyncio.sleep(2 * _PAUSE)
            found = await self._asked(http, "GET", f"/{said['runs'][0]}")
            state = found["state"] if found else ""
            suspended += state == "suspended"
            if state in _FINAL:
                said["read"].append(state)

    async def work(self, keys: Iterator[str], clients: int) -> None:
        """Submit a run for each key, from so many clients."""
        headers = {"Authorization": f"Bearer {self.token}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            headers=headers, timeout=_ANSWER, limits=limits
        ) as http:

            async def client() -> None:
                for key in keys:
                    agent = AGENTS[len(self.said) % len(AGENTS)]
                    await self.submit(http, key, agent)
                    await self.follow(http, key)

            await asyncio.gather(*(client() for _ in range(clients)))

    async def tell(self, every: float = 30.0) -> None:
        """Tell from time to time how far it is."""
        while True:
            await asyncio.sleep(every)
            kinds = Counter(kind for _, kind, _ in self.faults)
            done = sum(bool(one["runs"]) for one in self.said.values())
            sys.stderr.write(f"{done} runs, {dict(kinds)} {self.wrong}\n")

    async def settle(self) -> float:
        """Wait until nothing is queued or driven; return how many seconds it took."""
        began = time.monotonic()
        while left := (await self.sql(_UNSETTLED))[0][0]:
            if time.monotonic() - began > _CALM:
                self.wrong.append(f"{left} runs are left, {_CALM} s after the faults")
                break
            await asyncio.sleep(_PAUSE)
        return time.monotonic() - began
