"""``caxton grant suggest``: from what an agent did, or would like, to what it may."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.analysis.checking import Known, astray
from ..core.analysis.suggest import Suggestion
from ..core.calls import JSON, Route
from ..core.limits import Limits
from ..core.log.events import Recorded, RunStarted
from ..core.names import run_of, stream_of
from ..errors import NotFoundError, NotKeptError, UsageError
from ..runs.modules import read_module
from .context import HostApi, as_json, wait
from .options import Moment
from .output import counted, note, patience, plain, say, show

if TYPE_CHECKING:
    from ..config import Config
    from ..core.tools.manifest import Manifest
    from ..store.sql import SqlStore
    from .grant_trials import Changed, Trials


_SHOWN = 20


@click.command("suggest")
@click.argument("names", metavar="[AGENT|RUN]...", nargs=-1)
@click.option(
    "--manifest",
    "file",
    metavar="FILE.wasm",
    type=click.Path(path_type=Path),
    help="The module whose manifest to read, instead of recorded calls.",
)
@click.option("--since", type=Moment(), help="Of an agent, only runs since then.")
@click.option("--with-denied", is_flag=True, help="Calls that were denied count too.")
@as_json
@click.pass_obj
def command(
    frame: HostApi,
    names: tuple[str, ...],
    file: Path | None,
    since: int | None,
    with_denied: bool,
    as_json: bool,
) -> None:
    """
    Print the least grant that covers recorded calls, or the wishes of a manifest.

    It is text for caxton.toml, to be read and cut down first: printing it grants
    nothing, and neither does the manifest. What is more than was recorded is marked as
    a guess. The grant is held against the same calls; what it would decide otherwise
    is told.

    \b
    Examples:
      caxton grant suggest weather --since 7d
      caxton grant suggest @last 0198 --with-denied
      caxton grant suggest --manifest hello.wasm > proposal.toml
    """
    if bool(names) == bool(file):
        raise UsageError(
            "a proposal is made of recorded calls, or of a manifest",
            fix="name agents or runs, or say --manifest FILE.wasm",
        )
    if file and (since is not None or with_denied):
        raise UsageError(
            "a manifest has no calls to choose from",
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
                "calls": found.trials.calls,
                "changed": found.trials.changed,
                "toml": found.text,
            }
        )
    else:
        _tell(found)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    What the suggestion is made of.

    Attributes:
        config: Says where names lead that led nowhere; with it, denied calls count.
    """

    names: Sequence[str]
    since: int | None
    config: Config | None

    async def source(
        self, store: SqlStore, types: Sequence[str]
    ) -> AsyncGenerator[Recorded]:
        """Yield the events of what was named."""
        for name in self.names:
            if await store.runs(1, agent=name):
                events = store.of_runs(types, since=self.since, agent=name)
            else:
                events = store.stream_events(stream_of(await _run(store, name)))
            async with aclosing(events) as found:
                async for recorded in found:
                    if recorded.type in types:
                        yield recorded


async def _run(store: SqlStore, name: str) -> str:
    try:
        return await store.find_run(name)
    except NotFoundError as exc:
        raise NotFoundError(
            f"no agent has run as {name!r}, and {exc}", fix="caxton runs list"
        ) from None


@dataclass(frozen=True, slots=True)
class _Found:
    """
    A suggestion.

    Attributes:
        agents: Whom it is for.

        text: Of the grant.

        trials: The same calls, judged by it.

        changed: The first decisions that it would change.
    """

    agents: Sequence[str]
    text: str
    trials: Trials
    changed: Sequence[Changed]


async def _suggest(frame: HostApi, wanted: _Wanted) -> _Found:
    from ..config.load import load_bytes
    from .grant_trials import TYPES, Trials

    async with frame.log() as store:
        suggestions = await _folded(store, wanted, TYPES)
        texts = [one.to_toml() for _, one in sorted(suggestions.items())]
        text = "\n\n".join(filter(None, texts))
        config = load_bytes(text.encode(), Path("it"), environ={}, cwd=Path.cwd())
        if wanted.config:
            config = replace(wanted.config, agents=config.agents)
        trials, changed = Trials(store=store, config=config), list["Changed"]()
        async with aclosing(trials.changes(wanted.source(store, TYPES))) as found:
            async for one in found:
                changed += [one] if len(changed) < _SHOWN else []
    return _Found(sorted(suggestions), text, trials, changed)


async def _folded(
    store: SqlStore, wanted: _Wanted, types: Sequence[str]
) -> dict[str, Suggestion]:
    """Return what the runs of each agent did."""
    from .grant_trials import ENDS, inherited

    known: dict[str, Suggestion] = {}
    offered = await _offered(store, wanted.config)
    runs: dict[str, Suggestion] = {}
    async with aclosing(wanted.source(store, types)) as found:
        async for recorded in found:
            run_id, event = run_of(recorded.stream), recorded.event
            if isinstance(event, RunStarted):
                name = event.agent
                with suppress(NotKeptError):
                    before = await inherited(store, recorded)
                    one = known.setdefault(name, _empty(name, wanted.config, offered))
                    for past in before:
                        if past.event:
                            one.take(run_id, past.event)
                    runs[run_id] = one
            elif recorded.type in ENDS and run_id in runs:
                runs.pop(run_id).ended(run_id)
            elif event and run_id in runs:
                runs[run_id].take(run_id, event)
    return known


async def _offered(store: SqlStore, config: Config | None) -> Known:
    found: dict[str, dict[str, JSON]] = {}
    for server, tool in await store.accepted([*config.servers] if config else ()):
        found.setdefault(server, {})[tool] = None
    return found


def _empty(agent: str, config: Config | None, offered: Known) -> Suggestion:
    from .grant_trials import leads

    if config is None:
        return Suggestion(agent=agent)
    one = config.agents.get(agent)

    def leading(name: str) -> Route | None:
        route = leads(config, one, name)
        lost = route and astray(name, (route.server, route.tool), offered)
        return None if lost else route

    return Suggestion(agent=agent, with_denied=True, leads=leading)


def _tell(found: _Found) -> None:
    from .what_if import line

    if found.text:
        say(found.text)
    trials = found.trials
    note(
        f"held against {counted(trials.calls, 'recorded call')}: "
        f"{counted(trials.changed, 'decision')} would change"
    )
    for one in found.changed:
        note(line(one))
    if not found.text:
        note("nothing was allowed there, so nothing is suggested")


def _of_manifest(file: Path, *, as_json: bool) -> None:
    from ..runs.manifests import read

    manifest = read(read_module(file, Limits().module))
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
    """Return tables of a configuration. What a stranger wrote stays in its comments."""
    named = f"agents.{manifest.name}"
    module = json.dumps(str(file), ensure_ascii=False)
    lines = [f"[{named}]", f"module = {module}"]
    own = [tool for tool in manifest.tools if "/" not in tool.name]
    if own:
        pairs = ", ".join(f'"{tool.name}" = "SERVER/TOOL"' for tool in own)
        lines += [
            "# What it calls by a name of its own; say which tool that is.",
            f"# names = {{ {pairs} }}",
        ]
    for tool in manifest.tools:
        lines += ["", f"# {plain(tool.reason) or 'It gives no reason.'}"]
        if tool in own:
            lines.append(f"# {tool.name}: allow the tool that it names.")
        else:
            lines += [f"[[{named}.allow]]", f'tools = ["{tool.name}"]']
    return "\n".join(lines)
