"""A hostile agent cannot make an injected value look like one from a trusted source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config import load
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    RunStarted,
    ToolCompleted,
    ToolDenied,
)
from caxton_host.core.provenance import Sources, Wanted
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import Progress, ToolRequest
from caxton_host.testing import FakeTools
from tests.scene import Scene, ended

from .attacks import ATTACKS, HONEST, PAYMENT, Attack, Call

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "injection.md"
ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


class Told(FakeTools):
    """Tools that answer as the script of an attack has it."""

    script: Sequence[Call]

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Return the answer to the first call that is like this one."""
        self.asked.append(request)
        name = f"{request.server}/{request.tool}"
        answers = (
            one
            for one in self.script
            if (one.tool, {**one.params}) == (name, request.params)
        )
        found = next(answers)
        if found.progress:
            request.on_progress(Progress(progress=1, message=found.progress))
        if isinstance(found.answer, ToolError):
            raise found.answer
        return found.answer


def agent(attack: Attack) -> Scene:
    """Return a host whose guest makes the calls of an attack."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        if attack.logs:
            door.log(1, attack.logs.encode())
        for fuel, batch in enumerate(batches(attack.calls), 1):
            await door.call_many(codec.encode(batch), fuel)
        return ended()

    names = [one.tool.partition("/") for one in attack.calls]
    known = {(server, tool): None for server, _, tool in names}
    tools = Told(known, readable=attack.resources)
    tools.script = attack.calls
    scene = Scene(script, tools=tools)
    scene.host.servers = ["mail", "erp", "notes", "agents", "files", "bank"]
    scene.request = replace(
        scene.request,
        grant=attack.grant,
        names={},
        input=attack.input,
        context={**attack.context},
        limits=attack.limits,
    )
    return scene


def batches(calls: Sequence[Call]) -> list[list[JSON]]:
    found: list[list[JSON]] = []
    for one in calls:
        if not one.together:
            found.append([])
        found[-1].append([f"mcp__{one.tool.replace('/', '__')}", {**one.params}])
    return found


def end_of_the_last_call(events: Sequence[Event]) -> tuple[str, str | None]:
    """Return how the last call ended, and the rule that decided."""
    for event in reversed(events):
        if isinstance(event, ToolDenied):
            return "denied", event.rule
        if isinstance(event, ApprovalRequested):
            return "asked", event.rule
        if isinstance(event, ToolCompleted):
            return "allowed", PAYMENT
    return "none", None


@pytest.mark.parametrize("honest", HONEST, ids=str)
async def test_honest_payment_is_made(honest: Attack) -> None:
    events = await agent(honest).run()

    assert end_of_the_last_call(events) == ("allowed", PAYMENT)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_payment_to_the_attacker_ends_as_the_table_has_it(attack: Attack) -> None:
    # law 4
    scene = agent(attack)

    events = await scene.run()

    assert end_of_the_last_call(events) == (attack.ends, PAYMENT)
    assert isinstance(scene.tools, FakeTools)
    sent = [request.tool == "transfer" for request in scene.tools.asked]
    # All that prepared it was done: the payment failed, and nothing before it.
    assert len(sent) == len(attack.calls) - (attack.ends != "allowed")


@pytest.mark.parametrize("name", ["write, then read", "document that nobody named"])
async def test_attack_fails_after_a_crash_as_well(name: str) -> None:  # laws 4 and 5
    [attack] = [one for one in ATTACKS if one.name == name]
    first, later = agent(attack), agent(attack)
    await first.run()
    log = later.store.create(f"run/{first.run_id}")
    await log.append(*(await first.events())[:3], blobs=first.store.blobs)
    later.run_id = first.run_id

    await later.host.resume(first.run_id, actor=ANN, grant=attack.grant)

    assert end_of_the_last_call(await later.events()) == ("denied", PAYMENT)
    assert (await later.replay()).divergence is None


async def test_input_that_an_agent_wrote_counts_where_its_parent_had_it() -> None:
    events = await agent(ATTACKS[0]).run()
    [started] = [one for one in events if isinstance(one, RunStarted)]
    wanted = Wanted.parse(["input"], None, ())

    def holds(vouched: list[JSON] | None) -> bool | None:
        given: dict[str, JSON] = {"task": "pay", "to": "somebody@evil.example"}
        payload: dict[str, JSON] | None = {"input": vouched} if vouched else None
        sources = Sources([wanted], 1_000_000)
        sources.apply(replace(started, input=given, vouched=payload))
        return sources.find("somebody@evil.example", wanted).holds

    assert holds(None) is True
    assert holds(["$.to"]) is True
    assert holds(["$.task"]) is False


def test_examples_of_the_page_are_one_configuration(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "caxton.toml").write_text("\n".join(blocks))

    config = load(None, environ={"HOME": str(tmp_path)}, cwd=tmp_path)

    assert {*config.agents} == {"payer", "planner", "clerk", "cleaner"}


def test_page_lists_what_is_not_covered_and_nothing_else() -> None:
    _, _, text = PAGE.read_text("utf-8").partition("## Attacks that are not covered")
    listed = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)

    assert listed[1:] == [one.name for one in ATTACKS if one.ends == "allowed"]
    assert len({one.name for one in ATTACKS}) == len(ATTACKS) >= 40
