"""
Test agents without a host, a database or a server.

    run = run_agent("weather.wasm", tools={"weather": "Lima: 18 °C, fog"})
    assert run.calls == [("weather", {"location": "Lima"})]

The module is the real one, in the real sandbox, behind the real gateway. What a tool
answers is a script (`scripted`), or was recorded once (`cassette`). With pytest, the
fixtures of `caxton_host.pytest_plugin` do the rest. Beside that, here are the fakes
of all ports (`fakes`).
"""

from __future__ import annotations

from .fakes import (
    FakeClock,
    FakeEntropy,
    FakePlacement,
    FakeSandbox,
    FakeTools,
    Script,
    offer,
)
from .harness import Harness, run_agent
from .runs import AgentRun
from .scripted import DENIED, Answer, Tool, failure, tool_error

__all__ = [
    "DENIED",
    "AgentRun",
    "Answer",
    "FakeClock",
    "FakeEntropy",
    "FakePlacement",
    "FakeSandbox",
    "FakeTools",
    "Harness",
    "Script",
    "Tool",
    "failure",
    "offer",
    "run_agent",
    "tool_error",
]
