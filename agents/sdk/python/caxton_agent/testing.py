"""
Run an agent on your machine, with scripted tools.

    from caxton_agent.testing import FakeHost

    import agent


    def test_it_passes_the_weather_on() -> None:
        host = FakeHost({"weather": "rain"}, input={"location": "Lima"})
        assert host.run(agent.run) is None
        assert host.calls == [("weather", {"location": "Lima"})]
        assert host.output == {"weather": "rain"}
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

from ._bridge import Host, Level, use
from ._calls import JSON, AgentError, BadRequest, Denied, Reply, Tool
from ._loop import Loop
from ._run import end

__all__ = ["Answer", "FakeHost"]

#: The answer of a scripted tool: a message, a `Reply`, an error, or a function of its
#: parameters that returns one of these.
Answer: TypeAlias = (
    "str | Reply | AgentError | Callable[[dict[str, JSON]], str | Reply | AgentError]"
)
Call: TypeAlias = tuple[str, dict[str, JSON]]
Line: TypeAlias = tuple[Level, str]
_Before: TypeAlias = "tuple[Host | None, Callable[[], asyncio.AbstractEventLoop]]"
_MANY = 64


@dataclass(kw_only=True)
class _Wire:
    """
    The functions of the WIT package, on a `FakeHost`.

    Attributes:
        of: The host that answers.
    """

    of: FakeHost
    _drawn: int = 0

    def mcp_call(self, name: str, params: str) -> str:
        return json.dumps(_told(self.of.answer(name, json.loads(params))))

    def mcp_call_many(self, batch: str) -> str:
        calls = json.loads(batch)
        if len(calls) > _MANY:
            return json.dumps(_told(BadRequest("bad_request", "too many calls")))
        return json.dumps([_told(self.of.answer(*call)) for call in calls])

    def tools(self) -> str:
        return json.dumps(
            [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.input_schema,
                }
                for tool in self.of.tools
            ]
        )

    def context(self, key: str) -> str | None:
        return json.dumps(self.of.context[key]) if key in self.of.context else None

    def input(self) -> str:
        return json.dumps(self.of.input)

    def output(self, value: str) -> None:
        self.of.output = json.loads(value)

    def now(self) -> int:
        return self.of.now

    def random(self) -> int:
        self._drawn += 1
        text = f"{self.of.seed} {self._drawn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def log(self, level: Level, text: str) -> None:
        self.of.logs.append((level, text))

    def program(self) -> str:
        return "null"


@dataclass
class FakeHost:
    """
    A simulated host. Use it as a context manager, or run an agent with `run`.

    Attributes:
        answers: The answer of each tool, by name. A call of any other tool is denied
            with the code ``not_granted``.

        input: The input of the run.

        context: The variables of the run.

        tools: The result of `tools()`; by default the names in *answers*.

        now: Microseconds since 1970. It changes only if you set it.

        seed: The seed of the random numbers.

        calls: The name and parameters of each call, in order.

        logs: The level and text of each line, in order.

        output: The last output.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    input: JSON = None
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    tools: list[Tool] = field(default_factory=list[Tool])
    now: int = 1_767_225_600_000_000
    seed: int = 0
    calls: list[Call] = field(default_factory=list[Call], init=False)
    logs: list[Line] = field(default_factory=list[Line], init=False)
    output: JSON = field(default=None, init=False)
    _before: list[_Before] = field(
        default_factory=list["_Before"], init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not self.tools:
            schema: dict[str, JSON] = {"type": "object"}
            self.tools = [Tool(name, "", schema) for name in self.answers]

    def __enter__(self) -> Self:
        self._before.append((use(_Wire(of=self)), asyncio.events.new_event_loop))
        asyncio.events.new_event_loop = Loop  # What asyncio.run takes.
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        before, asyncio.events.new_event_loop = self._before.pop()
        use(before)

    def run(self, run: Callable[[], object]) -> str | None:
        """
        Run an agent as the host does, and return the reason of its failure, if any.

        Args:
            run: The function ``run`` of its module.
        """
        with self:
            return end(run)

    def answer(self, name: str, params: dict[str, JSON]) -> Reply | AgentError:
        """Answer one call, and append it to `calls`."""
        self.calls.append((name, params))
        found = self.answers.get(name)
        if found is None:
            return Denied("not_granted", f"no rule allows {name}")
        answer = found(params) if callable(found) else found
        return _text(answer) if isinstance(answer, str) else answer


def _text(message: str) -> Reply:
    return Reply(message, {"content": [{"type": "text", "text": message}]})


def _told(answer: Reply | AgentError) -> dict[str, JSON]:
    told = {"status": answer.status, "message": answer.message, "data": answer.data}
    if isinstance(answer, AgentError):
        told["error"] = {"code": answer.code, "message": answer.message}
    return told
