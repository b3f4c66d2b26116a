"""``caxton replay --all``: a history judged against a change."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..core.analysis.history import VERDICTS, History
from ..core.limits import Limits
from ..core.log.runs import RunFilter
from ..core.programs import language_of
from ..core.tools.schemas import bounded
from ..errors import BadBytes, UsageError
from ..lib.codec import load_json
from ..lib.files import opened
from ..lib.json_schema import check
from ..lib.params import split
from ..runs.modules import read_module, read_program
from . import interrupt
from .context import HostApi, wait
from .history_reports import reporting
from .output import (
    DIVERGED,
    FAILED,
    USAGE,
    complain,
    counted,
    note,
    patience,
    plain,
    say,
    show,
)

if TYPE_CHECKING:
    from ..core.calls import JSON
    from ..runs.history import Change

#: Bytes of a definition.
_MOST = 1024 * 1024
#: Groups that are printed.
_SHOWN = 50
_JUDGING = "judging recorded runs"
#: Progress is told in steps of so many runs.
_STEP = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    """
    What of a history is judged, against what, and where it is reported.

    Attributes:
        only: Selects the runs.

        against: A module or a program.

        grants: A configuration.

        definition: A file with the definition of the tool that *only* selects.

        fresh: Judge every run, whatever is remembered.

        junit: A file for JUnit XML.

        html: A file for a page.
    """

    only: RunFilter
    against: Path | None = None
    grants: Path | None = None
    definition: Path | None = None
    fresh: bool = False
    junit: Path | None = None
    html: Path | None = None


def judge_all(host: HostApi, wanted: All, *, as_json: bool) -> int:
    """Judge recorded runs, report, and return the exit code."""
    from ..app.history import Judging

    change, against, only = _change(host, wanted)
    history = History(against=against)
    with reporting(history, wanted.junit, wanted.html) as take:
        judging = Judging(
            config=host.look("sandbox"),
            paths=host.paths(),
            only=only,
            change=change,
            take=take,
            fresh=wanted.fresh,
        )
        try:
            with patience(_JUDGING) as doing, doing.part(lambda: _under_way(history)):
                wait(judging.go())
            history.complete = True
        except KeyboardInterrupt:
            note("interrupted: these runs were judged; no file is written")
    if as_json:
        show(history.to_document())
    else:
        _tell(history)
    return _code(host, history)


def _under_way(history: History) -> str:
    told = history.runs // _STEP * _STEP
    return f"{told} runs judged" if told else _JUDGING


def _change(host: HostApi, wanted: All) -> tuple[Change, dict[str, JSON], RunFilter]:
    """Return what changes, as it is reported, and which runs it may concern."""
    from ..runs.history import Definition, Execution, Grants

    only = wanted.only
    if wanted.definition:
        server, tool = split(str(only.tool))
        change = Definition(
            server=server,
            tool=tool,
            document=_definition(wanted.definition, tool),
            config=host.look("servers"),
        )
        return change, _named("tool", wanted.definition), only
    if wanted.grants:
        from ..config import load

        config = load(wanted.grants, environ=os.environ, cwd=Path.cwd())
        return Grants(config=config), _named("grants", wanted.grants), only
    if path := wanted.against:
        if only.agent is None:
            raise UsageError(
                f"{path} replaces the module of one agent, and no agent is named",
                fix="add --agent NAME",
            )
        language = language_of(path.name)
        if language:
            program = read_program(path, language)
            return Execution(program=program), _named("program", path), only
        module = read_module(path, Limits().module)
        return Execution(module=module), _named("module", path), only
    return Execution(), {"kind": "recorded", "name": ""}, only


def _definition(path: Path, tool: str) -> dict[str, JSON]:
    """Return the definition of *tool* in a file, with schemas that can be used."""
    try:
        with opened(path) as file:
            found = load_json(file.read(_MOST + 1), limit=_MOST)
        document = cast("dict[str, JSON]", found if isinstance(found, dict) else {})
        _is_of(document, tool)
        check(bounded(_schema(document, "inputSchema")))
        check(bounded(_schema(document, "outputSchema")))
    except OSError as exc:
        raise UsageError(
            f"cannot read {path}: {exc.strerror}", fix="name a file that exists"
        ) from None
    except BadBytes as exc:
        raise UsageError(
            f"{path} is not the definition of a tool: {exc}",
            fix="give one as a server lists it: name, description, inputSchema",
        ) from None
    return document


def _is_of(document: dict[str, JSON], tool: str) -> None:
    if (name := document.get("name", tool)) != tool:
        raise BadBytes(f"it defines {str(name)[:_SHOWN]!r}")


def _schema(document: dict[str, JSON], key: str) -> dict[str, JSON]:
    found = document.get(key, None if key == "inputSchema" else {})
    if not isinstance(found, dict):
        raise BadBytes(f"{key} is not an object")
    return found


def _named(kind: str, path: Path) -> dict[str, JSON]:
    return {"kind": kind, "name": str(path)}


def summed_up(history: History) -> str:
    """Return how many runs have each verdict."""
    told = [
        f"{history.verdicts[one]} {word}"
        for one, word in VERDICTS.items()
        if history.verdicts[one]
    ]
    return f"{counted(history.runs, 'run')}: {', '.join(told) or 'none'}"


def tell_groups(history: History) -> None:
    """Print the groups, each with an example."""
    groups = [*history.groups()]
    for group in groups[:_SHOWN]:
        one = group.example
        runs = f"{counted(group.count, 'run')} of {plain(one.agent)}"
        say(f"{VERDICTS[one.verdict]}  {runs}  {plain(one.what)}")
        event = f" event {one.seq}" if one.seq else ""
        values = " became ".join(filter(None, (one.was, one.now)))
        say(f"  such as {one.run_id}{event}  {plain(values)}")
    if len(groups) > _SHOWN:
        note(f"and {counted(len(groups) - _SHOWN, 'group')} more: --json shows all")


def _tell(history: History) -> None:
    say(summed_up(history))
    tell_groups(history)
    note(f"{counted(history.calls, 'call')} from the log; nothing was called")
    if history.remembered:
        note(f"remembered from before: {counted(history.remembered, 'run')}")


def _code(host: HostApi, history: History) -> int:
    if not history.complete:
        return interrupt.code()
    if history.changed:
        complain(
            f"{counted(history.changed, 'run')} would go another way",
            host.named("look at one of each group: caxton events list RUN"),
        )
        return DIVERGED
    if failed := history.verdicts["failed"]:
        complain(
            f"{counted(failed, 'run')} could not be judged",
            "see the reasons above",
        )
        return FAILED
    if not history.runs:
        complain(
            "no run was selected: nothing was judged",
            host.named("caxton runs list, with the same filter, shows what there is"),
        )
        return USAGE
    if not history.judged:
        complain("no run could be judged", "see the reasons above")
        return USAGE
    return 0
