from __future__ import annotations

import agent
from caxton_agent.testing import FakeHost


def test_it_passes_the_time_on() -> None:
    host = FakeHost({"mcp__time__get_current_time": "noon"})
    assert host.run(agent.run) is None
    assert host.calls == [("mcp__time__get_current_time", {"timezone": "UTC"})]
    assert host.output == {"time": "noon"}


def test_it_says_why_there_is_no_answer() -> None:
    host = FakeHost()
    assert host.run(agent.run) is None
    assert host.output == {"error": "not_granted"}
