"""A host on fakes, whose guest is a script."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Event, Recorded
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports import Answer, Door, Ending, Guest, Telemetry, ToolSource
from caxton_host.runs.host import Host
from caxton_host.runs.replay import Replayed, replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeSandbox, FakeTools, Script

ANSWERS: Mapping[tuple[str, str], JSON | ToolError | Completed] = {
    ("demo", "get_weather"): {"sky": "clear"},
    ("demo", "echo"): "echoed",
    ("demo", "fail"): ToolError("timeout", "unknown", "no answer in 5 s"),
    ("shell", "exec"): "root",
}

#: Every value that JSON can say and the log can hold.
JSON_VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner)
    ),
    max_leaves=12,
)


def rule(*tools: str, calls: int | None = None, name: str = "allow[1]") -> Rule:
    return Rule(id=name, tools=tuple(map(Pattern.parse, tools)), calls=calls)


DEMO = Grant(allow=(rule("demo/*"),))


def pack(**params: JSON) -> bytes:
    return codec.encode(params)


def ended(output: JSON = None, *, code: int = 0, fuel: int | None = 100) -> Ending:
    return Ending(kind="returned", code=code, output=codec.encode(output), fuel=fuel)


def calling(*names: str) -> Script:
    """Return a guest that makes these calls and outputs their statuses."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        statuses: list[JSON] = []
        for fuel, name in enumerate(names, 1):
            answer = await door.call(name.encode(), pack(city="Oslo"), fuel)
            statuses.append(answer.status)
        return ended(statuses)

    return script


@dataclass(slots=True)
class Scene:
    """
    A host on fakes.

    Attributes:
        request: What `run` starts.
    """

    script: Script
    tools: ToolSource = field(default_factory=lambda: FakeTools(ANSWERS))
    telemetry: Telemetry = field(default_factory=NoTelemetry)
    redact: Redactor = field(default_factory=Redactor)
    clock: FakeClock = field(default_factory=FakeClock)
    entropy: FakeEntropy = field(default_factory=FakeEntropy)
    store: MemoryStore = field(init=False)
    sandbox: FakeSandbox = field(init=False)
    host: Host = field(init=False)
    request: RunRequest = field(init=False)
    run_id: str = ""

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock, entropy=self.entropy)
        self.sandbox = FakeSandbox(self.script)
        self.host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=self.sandbox,
            clock=self.clock,
            entropy=self.entropy,
            telemetry=self.telemetry,
            stream="host/1",
            servers=["demo", "shell"],
            redact=self.redact,
        )
        self.request = RunRequest(
            agent="weather",
            module=b"\0asm",
            actor={"kind": "local", "id": "ann", "authenticated": False},
            grant=DEMO,
            names={"weather": ("demo", "get_weather"), "rm": ("shell", "exec")},
        )

    def limit(self, **limits: float) -> None:
        """Change limits of the run to come."""
        self.request = replace(
            self.request, limits=Limits.from_payload(Limits().to_payload() | limits)
        )

    async def run(self) -> list[Event]:
        """Run the guest to its end, and return what was recorded."""
        await self.host.start(self.request, on_started=self._began)
        return await self.events()

    def _began(self, run_id: str) -> None:
        self.run_id = run_id

    async def recorded(self) -> list[Recorded]:
        """Return the stream of the run."""
        return await self.store.reader.read(f"run/{self.run_id}")

    async def events(self) -> list[Event]:
        """Return the events of the run."""
        return [r.event for r in await self.recorded() if r.event is not None]

    async def cancelled_after(self, count: int) -> None:
        """Run the guest, and cancel the run once it has so many events."""
        task = asyncio.create_task(self.run())
        async with asyncio.timeout(10):
            while len(await self.events()) < count:  # noqa: ASYNC110 -- or its end
                await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    async def replay(
        self, script: Script | None = None, *, engine: str = "fake"
    ) -> Replayed:
        """Replay the run, by default with the same guest."""
        return await replay(
            self.run_id,
            store=self.store.reader,
            sandbox=FakeSandbox(script or self.script, engine=engine),
            telemetry=self.telemetry,
        )


def types(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


@dataclass(slots=True)
class Watched:
    """A guest that keeps what it was given."""

    script: Script
    guests: list[Guest] = field(default_factory=list[Guest])
    answers: list[Answer] = field(default_factory=list[Answer])

    async def __call__(self, door: Door, guest: Guest) -> Ending:
        self.guests.append(guest)
        return await self.script(_Listening(door, self.answers), guest)


@dataclass(slots=True)
class _Listening:
    door: Door
    answers: list[Answer]

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        answer = await self.door.call(name, params, fuel)
        self.answers.append(answer)
        return answer

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        answer = await self.door.call_many(batch, fuel)
        self.answers.append(answer)
        return answer

    def log(self, level: int, text: bytes) -> None:
        self.door.log(level, text)
