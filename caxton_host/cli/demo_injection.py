"""``caxton demo injection``: an injected payment, with and without a rule."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.log.events import Recorded, ToolInvoked
from ..core.log.projection import summarise
from ..core.log.runs import RunSummary, call_list
from ..core.names import stream_of
from ..lib.machine import local_actor
from .context import HostApi, on_host, wait
from .output import FAILED, note, patience, say, show, to_json
from .run_text import call_lines
from .trace import trace_lines

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..config import Agent, Config
    from ..core.analysis.rejudge import RejudgedCall
    from ..core.analysis.tracing import Traced
    from ..runs.run_request import RunRequest


_CONFIG = """\
version = 1

[servers.office]
command = "python"
args = ["-m", "caxton_host.demo_server"]
tools.list_suppliers = { effect = "read", source = true }
tools.read_mail = { effect = "read" }

[servers.bank]
command = "python"
args = ["-m", "caxton_host.demo_server"]

[agents.clerk]
module = "clerk.wasm"

[[agents.clerk.allow]]
tools = ["office/read_mail", "office/list_suppliers"]

[[agents.clerk.allow]]
tools = ["bank/pay"]
params.amount = { from = ["input$.amount"] }
"""
_ANYWHERE = 'params.to = { type = "string" }'
_RULE = 'params.to = { from = ["office/list_suppliers$.suppliers[*].iban"] }'
_INPUT: dict[str, JSON] = {"supplier": "Nord Paper", "amount": 980.5}


@dataclass(frozen=True, slots=True)
class _Act:
    """A run of the clerk, as its log holds it."""

    run: RunSummary
    history: list[Recorded]

    @property
    def payment(self) -> int:
        """The number of its first payment."""
        return next(
            one.event.call
            for one in self.history
            if isinstance(one.event, ToolInvoked) and one.event.tool == "pay"
        )


@dataclass(frozen=True, slots=True)
class _Shown:
    before: _Act
    traced: list[Traced]
    judged: RejudgedCall
    after: _Act


@on_host(click.command("injection"))
def command(host: HostApi, as_json: bool) -> None:
    """
    Show an injected payment, with and without a rule on sources.

    An agent pays an invoice. A message in its mailbox names another account, and the
    agent believes it. The first run has no rule about the account. The second one has:
    the account must come from the list of suppliers. Both run offline, on real MCP
    servers, and are kept in the event store.

    \b
    Examples:
      caxton demo injection
      caxton demo injection --json
    """
    if not as_json:
        say("An agent pays an invoice. A message in its mailbox names another account.")
    with patience("running the clerk twice"), tempfile.TemporaryDirectory() as folder:
        shown = wait(_perform(host, Path(folder)))
    if as_json:
        show(_document(shown))
    else:
        _tell(shown)
    if {shown.before.run.state, shown.after.run.state} != {"completed"}:
        raise Exit(FAILED)


async def _perform(host: HostApi, folder: Path) -> _Shown:
    from ..app.bootstrap import running

    before, after = (
        demo_config(host, folder, "clerk", f"{_CONFIG}{rule}\n")
        for rule in (_ANYWHERE, _RULE)
    )
    async with running(before, host.paths(), start={"clerk": before.servers}) as up:
        first = await _act(up, before)
        traced = await _traced(up, first)
        judged = await _judged(up, after, first)
        second = await _act(up, after)
        await up.store.seal()
    return _Shown(first, traced, judged, second)


def demo_config(host: HostApi, folder: Path, agent: str, text: str) -> Config:
    """Return a configuration with an example agent, for the log of the host."""
    from ..building import find_shared
    from ..config import load

    path = folder / "caxton.toml"
    path.write_text(text, encoding="utf-8")
    module = find_shared(f"agents/{agent}/{agent}.wasm")
    (folder / f"{agent}.wasm").write_bytes(module.read_bytes())
    return replace(
        load(path, environ=os.environ, cwd=folder), store_url=host.look().store_url
    )


def demo_request(agent: Agent, given: JSON) -> RunRequest:
    """Return a request for a run of an example agent."""
    from ..runs.modules import Code
    from ..runs.run_request import RunRequest

    assert agent.module is not None  # noqa: S101 -- its configuration names one
    code = Code(module=agent.module.read_bytes(), program=None, input=given)
    return RunRequest.of(agent, code, local_actor())


async def _act(up: Running, config: Config) -> _Act:
    run_id = await up.host.start(demo_request(config.agents["clerk"], _INPUT))
    history = await up.store.reader.read(stream_of(run_id))
    return _Act(summarise(run_id, history), history)


async def _traced(up: Running, act: _Act) -> list[Traced]:
    from ..core.analysis.tracing import traced
    from ..runs.recording import Recording
    from ..runs.tracing import lineage

    recording = await Recording.load(act.run.run_id, up.store.reader)
    runs = await lineage(recording, up.store.reader)
    return [*traced(runs, act.payment, "$.to")]


async def _judged(up: Running, config: Config, act: _Act) -> RejudgedCall:
    """Return the payment of *act*, judged by another configuration."""
    from ..runs.rejudging import LogRejudger

    judge = LogRejudger(log=up.store.reader, config=config)
    source = up.store.reader.stream_events(stream_of(act.run.run_id))
    calls = [one.judged async for one in judge.calls_of(source)]
    return next(one for one in calls if one.invoked.call == act.payment)


def _document(shown: _Shown) -> dict[str, JSON]:
    return {
        "$type": "caxton.demo-injection/v1",
        "rule": _RULE,
        "without": _run(shown.before),
        "trace": [one.to_document() for one in shown.traced],
        "what_if": {"was": shown.judged.was, "now": shown.judged.code},
        "with": _run(shown.after),
    }


def _run(act: _Act) -> dict[str, JSON]:
    return {**act.run.to_document(), "call_list": call_list(act.history)}


def _tell(shown: _Shown) -> None:
    before, after = shown.before, shown.after
    say("\nWithout a rule about the account:")
    _tell_calls(before)
    say("\nWhere the account came from:")
    for line in trace_lines(shown.traced):
        say(f"  {line}")
    say("\nOne line in the grant:")
    say(f"  {_RULE}")
    say("\nWhat it would have done to the first run:")
    say(f"  call {before.payment}: {shown.judged.was} -> {shown.judged.code}")
    say("\nThe same agent with that line:")
    _tell_calls(after)
    note("\nNow yours:")
    for line in (
        f"caxton runs trace @last call {after.payment}",
        f"caxton runs explain @last call {after.payment}",
        "caxton replay @last",
    ):
        note(f"  {line}")


def _tell_calls(act: _Act) -> None:
    for line in call_lines(act.history):
        say(f"  {line}")
    say(f"  output {to_json(act.run.output)}")
