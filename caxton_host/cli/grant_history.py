"""``caxton grant what-if`` and ``suggest``: grants against recorded calls."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.analysis.rejudge import verdict_rule, verdict_text
from ..core.analysis.suggest import Suggestion
from ..core.analysis.suggest_sources import SourcesSeen
from ..core.analysis.tracing import tool_of
from ..core.calls import JSON
from ..core.limits import Limits
from ..core.log.runs import RunFilter
from ..core.names import stream_of
from ..errors import NotFoundError, UsageError
from ..runs.modules import read_manifest, read_module
from ..runs.rejudging import LoggedCall, LogRejudger
from .context import HostApi, on_host, wait
from .judgement import agent_of
from .options import Moment
from .output import FAILED, clipped, counted, note, patience, plain, say, show, to_json

if TYPE_CHECKING:
    from ..config import Config
    from ..core.analysis.checking import Known
    from ..core.log.events import Recorded
    from ..core.tools.manifest import Manifest
    from ..store.sql import SqlStore


#: Columns of the parameters of a call.
_WIDTH = 100
#: Changed verdicts that ``suggest`` shows, at most.
_SHOWN = 20


@on_host(click.command("what-if"))
@click.argument(
    "file", metavar="NEW.toml", type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--agent", help="Only runs of this agent.")
@click.option("--since", type=Moment(), help="Only runs that began since then.")
def what_if(
    frame: HostApi,
    file: Path,
    agent: str | None,
    since: int | None,
    as_json: bool,
) -> None:
    """
    Judge recorded calls by the grants of NEW.toml.

    Each run is judged in its order, at its times, with its earlier calls. Nothing is
    called, started or written. The recorded calls are judged; what the agent would have
    done after another decision is unknown. With --json, each changed decision is a
    line, and the last line is the summary.

    \b
    Exit codes: 0 no decision changes; 1 some change; 2 usage or configuration.

    \b
    Examples:
      caxton grant what-if new.toml
      caxton grant what-if new.toml --agent weather --since 7d --json
    """
    from ..config import load

    config = load(file, environ=os.environ, cwd=Path.cwd())
    if agent is not None:
        agent_of(config, agent)
    told = wait(_judge(frame, config, agent, since, as_json=as_json))
    if as_json:
        click.echo(
            to_json(
                {
                    "$type": "caxton.what-if/v1",
                    "runs": told.runs.total(),
                    "calls": told.calls,
                    "changed": told.changed,
                    "erased": len(told.erased),
                    "without_agent": {**told.strangers},
                }
            )
        )
    else:
        _sum_up(told, file)
    if told.changed:
        raise Exit(FAILED)


async def _judge(
    frame: HostApi,
    config: Config,
    agent: str | None,
    since: int | None,
    *,
    as_json: bool,
) -> LogRejudger:
    async with frame.log() as store:
        rejudger = LogRejudger(log=store.reader, config=config)
        source = store.reader.of_runs(
            rejudger.types, RunFilter(since=since, agent=agent)
        )
        with patience("judging recorded calls"):
            async with aclosing(rejudger.calls_of(source)) as calls:
                async for one in calls:
                    if one.inherited or not one.judged.changed:
                        continue
                    if as_json:
                        click.echo(to_json(one.to_document()))
                    else:
                        say(_line(one))
    return rejudger


def _line(one: LoggedCall) -> str:
    """Format a changed decision in two lines."""
    judged, call = one.judged, one.judged.invoked
    params = clipped(plain(to_json(call.params)), _WIDTH)
    was = plain(verdict_text(judged.was, judged.rule))
    now = plain(verdict_text(judged.code, verdict_rule(judged.now)))
    return (
        f"run {one.run_id} call {call.call} (event {judged.seq})  {tool_of(call)} "
        f"{params}\n  {was} -> {now}"
    )


def _sum_up(count: LogRejudger, file: Path) -> None:
    judged = counted(count.runs.total(), "run")
    note(
        f"{counted(count.calls, 'call')} of {judged} judged: "
        f"{counted(count.changed, 'decision')} would change"
    )
    if erased := len(count.erased):
        are = "is" if erased == 1 else "are"
        note(f"not judged: {counted(erased, 'run')} that {are} erased")
    for name, runs in sorted(count.strangers.items()):
        note(f"not judged: {counted(runs, 'run')} of {plain(name)}, not in {file}")


@on_host(click.command("suggest"))
@click.argument("names", metavar="[AGENT|RUN]...", nargs=-1)
@click.option(
    "--manifest",
    "file",
    metavar="FILE.wasm",
    type=click.Path(path_type=Path),
    help="Read the manifest of this module instead of recorded calls.",
)
@click.option("--since", type=Moment(), help="Only runs of agents since then.")
@click.option("--with-denied", is_flag=True, help="Include denied calls.")
def suggest(
    frame: HostApi,
    names: tuple[str, ...],
    file: Path | None,
    since: int | None,
    with_denied: bool,
    as_json: bool,
) -> None:
    """
    Suggest the least grant for recorded calls, or for a manifest.

    The output is text for caxton.toml: review and narrow it first. Neither the output
    nor the manifest grants anything. Generalisations are marked as guesses. The
    suggested grant judges the same calls, and decisions that it would change are shown.

    \b
    Examples:
      caxton grant suggest weather --since 7d
      caxton grant suggest @last 0198 --with-denied
      caxton grant suggest --manifest hello.wasm > proposal.toml
    """
    if bool(names) == bool(file):
        raise UsageError(
            "pass agents or runs, or --manifest, but not both",
            fix="name agents or runs, or pass --manifest FILE.wasm",
        )
    if file and (since is not None or with_denied):
        raise UsageError(
            "--since and --with-denied do not apply to a manifest",
            fix="leave out --since and --with-denied, or --manifest",
        )
    if file:
        _of_manifest(file, as_json=as_json)
        return
    config = frame.load() if with_denied else None
    with patience("reading recorded calls"):
        found = wait(_suggest(frame, _Wanted(names, since, config)))
    if as_json:
        show(
            {
                "$type": "caxton.grant-suggestion/v1",
                "agents": [*found.agents],
                "calls": found.judged.calls,
                "changed": found.judged.changed,
                "toml": found.text,
            }
        )
    else:
        _tell(found)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    The source of a suggestion.

    Attributes:
        names: Agents and runs.

        config: Resolves names that led to no tool; with it, denied calls count.
    """

    names: Sequence[str]
    since: int | None
    config: Config | None

    async def source(
        self, store: SqlStore, types: Sequence[str]
    ) -> AsyncGenerator[Recorded]:
        """Yield the events of the named agents and runs."""
        for name in self.names:
            if await store.reader.runs(1, RunFilter(agent=name)):
                events = store.reader.of_runs(
                    types, RunFilter(since=self.since, agent=name)
                )
            else:
                events = store.reader.stream_events(stream_of(await _run(store, name)))
            async with aclosing(events) as found:
                async for recorded in found:
                    if recorded.type in types:
                        yield recorded


async def _run(store: SqlStore, name: str) -> str:
    try:
        return await store.reader.find_run(name)
    except NotFoundError as exc:
        raise NotFoundError(
            f"no agent has run as {name!r}, and {exc}", fix="caxton runs list"
        ) from None


@dataclass(slots=True)
class _Suggested:
    """
    A suggestion.

    Attributes:
        agents: The agents that it is for.

        text: The grants as TOML.

        judged: The same calls, judged by them.

        changed: The first verdicts that they would change.
    """

    agents: Sequence[str]
    text: str
    judged: LogRejudger
    changed: list[LoggedCall] = field(default_factory=list[LoggedCall])


async def _suggest(frame: HostApi, wanted: _Wanted) -> _Suggested:
    from ..config.load import load_bytes

    def parsed(text: str) -> Config:
        return load_bytes(text.encode(), Path("it"), environ={}, cwd=Path.cwd())

    config = wanted.config
    async with frame.log() as store:
        first = LogRejudger(
            log=store.reader,
            config=config or parsed(""),
            offered=await _offered(store, config),
        )
        sources = SourcesSeen()
        events = wanted.source(store, (*first.types, "ToolCompleted"))
        source = _each_taken(sources, events)
        suggestions: dict[str, Suggestion] = {}
        async with aclosing(first.calls_of(source)) as calls:
            async for one in calls:
                known = suggestions.setdefault(
                    one.agent,
                    Suggestion(
                        agent=one.agent,
                        table=one.table,
                        with_denied=bool(config),
                        sources=sources,
                    ),
                )
                known.take(one.judged)
        texts = [known.to_toml() for _, known in sorted(suggestions.items())]
        text = "\n\n".join(filter(None, texts))
        proposed = parsed(text)
        if config:
            proposed = replace(config, agents=proposed.agents)
        judged = LogRejudger(log=store.reader, config=proposed)
        found = _Suggested(sorted(first.runs), text, judged)
        source = wanted.source(store, first.types)
        async with aclosing(judged.calls_of(source)) as calls:
            async for one in calls:
                changed = one.judged.changed and not one.inherited
                if changed and len(found.changed) < _SHOWN:
                    found.changed.append(one)
    return found


async def _each_taken(
    sources: SourcesSeen, events: AsyncGenerator[Recorded]
) -> AsyncGenerator[Recorded]:
    async with aclosing(events):
        async for recorded in events:
            sources.take(recorded)
            yield recorded


async def _offered(store: SqlStore, config: Config | None) -> Known:
    found: dict[str, dict[str, JSON]] = {}
    for server, tool in await store.definitions.accepted(
        [*config.servers] if config else ()
    ):
        found.setdefault(server, {})[tool] = None
    return found


def _tell(found: _Suggested) -> None:
    if found.text:
        say(found.text)
    note(
        f"held against {counted(found.judged.calls, 'recorded call')}: "
        f"{counted(found.judged.changed, 'decision')} would change"
    )
    for one in found.changed:
        note(_line(one))
    if not found.text:
        note("nothing was allowed there, so nothing is suggested")


def _of_manifest(file: Path, *, as_json: bool) -> None:

    manifest = read_manifest(read_module(file, Limits().module))
    if manifest is None:
        raise UsageError(
            f"{file} has no manifest",
            fix="build it with caxton agent build, or write the grant by hand",
        )
    text = _proposal(manifest, file)
    if as_json:
        show(
            {
                "$type": "caxton.grant-proposal/v1",
                "agent": manifest.name,
                "tools": [tool.name for tool in manifest.tools],
                "toml": text,
            }
        )
        return
    say(text)
    if not manifest.tools:
        note(f"{manifest.name} asks for no tool")


def _proposal(manifest: Manifest, file: Path) -> str:
    """Return tables of a configuration. Texts of the manifest are comments only."""
    named = f"agents.{manifest.name}"
    module = json.dumps(str(file), ensure_ascii=False)
    lines = [f"[{named}]", f"module = {module}"]
    own = [tool for tool in manifest.tools if "/" not in tool.name]
    if own:
        pairs = ", ".join(f'"{tool.name}" = "SERVER/TOOL"' for tool in own)
        lines += [
            "# The agent uses these names; replace each SERVER/TOOL with a tool.",
            f"# names = {{ {pairs} }}",
        ]
    for tool in manifest.tools:
        lines += ["", f"# {plain(tool.reason) or 'It gives no reason.'}"]
        if tool in own:
            lines.append(f"# {tool.name}: allow the tool that it names.")
        else:
            lines += [f"[[{named}.allow]]", f'tools = ["{tool.name}"]']
    return "\n".join(lines)
