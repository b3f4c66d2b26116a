"""The interface of a host, as commands use it, and what all commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import click

from ..core.names import nearest
from ..errors import CaxtonError, NotFoundError
from . import interrupt

if TYPE_CHECKING:
    from pathlib import Path

    from ..config import Config, Paths
    from ..core.calls import JSON
    from ..core.grants.approvals import Verdict
    from ..core.grants.freezes import Kind
    from ..core.log.checkpoint import Note
    from ..core.log.events import Recorded, RunErased
    from ..core.log.runs import RunFilter, RunRow
    from ..core.programs import Language
    from ..ports.history import History
    from ..runs.cancellation import Answer
    from ..runs.questions import Inbox
    from ..runs.recording import Recording
    from ..store.sql import SqlStore
    from .overrides import Overrides


#: Sections of the configuration that a command needs to write a signed log.
SIGNED = ("audit", "http")

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=click.Command)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """
    The options of every command that drives a run.

    Attributes:
        given: Servers and grants for this run only.

        variables: As typed: ``KEY=VALUE``; or as they are.

        quiet: Print only the output.

        as_json: Print only the document of the run.
    """

    given: Overrides
    variables: Sequence[str] | Mapping[str, JSON] = ()
    quiet: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions(RunOptions):
    """
    A run to start.

    Attributes:
        target: An agent, a program or a module; ``-``: the program is on stdin.

        language: Of the program, or ``None``: as its suffix says.

        input: Reads the input.

        entry: The exported function to call, or ``None`` for that of the agent.

        narrow: The values of ``--narrow``.
    """

    target: str
    language: Language | None
    input: Callable[[], JSON]
    entry: str | None
    narrow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions(RunOptions):
    """
    A run to resume.

    Attributes:
        run: The run, or ``None``: every run that no host drives.

        restored: Also after the log was restored from a copy.
    """

    run: str | None
    restored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOptions(RunOptions):
    """
    A run to fork.

    Attributes:
        run: The parent.

        seq: The last event that the fork inherits.

        result: A file with another answer to the call of that event, or ``None``.

        module: Another module, or ``None``.

        narrow: The values of ``--narrow``.
    """

    run: str
    seq: int
    result: Path | None
    module: Path | None
    narrow: tuple[str, ...] = ()


#: How a call in doubt is resolved.
Choice = Literal["retry", "result", "fail", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveOptions(RunOptions):
    """
    A call in doubt to resolve.

    Attributes:
        run: Its run.

        seq: Its event.

        choice: How it is resolved.

        file: Has the answer of the tool, if that is the choice.

        reason: Recorded.

        no_resume: Do not let the run go on.
    """

    run: str
    seq: int
    choice: Choice
    file: Path | None
    reason: str
    no_resume: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideOptions(RunOptions):
    """
    A call to approve or deny.

    Attributes:
        run: Its run.

        seq: The event of the question, or ``None`` if there is only one.

        verdict: The decision.

        role: The role of the person.

        reason: Recorded.

        no_resume: Do not let the run go on.
    """

    run: str
    seq: int | None
    verdict: Verdict
    role: str
    reason: str
    no_resume: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """
    The answer to a question of a tool server.

    Attributes:
        run: Its run.

        seq: The event of the question, or ``None`` if there is only one.

        content: The fields of the answer; ``None``: it is declined.

        role: The role of the person.

        reason: Recorded.
    """

    run: str
    seq: int | None
    content: dict[str, JSON] | None
    role: str
    reason: str


#: What a list says that may lack runs.
STALE = (
    "runs of an older release may be missing from filtered lists until they are "
    "filled in: caxton db migrate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """
    The newest runs.

    Attributes:
        runs: At most as many as were asked for.

        more: Whether there are others.

        nothing: The hint to print if there are none.

        stale: Whether some may be missing: an older release wrote them.
    """

    runs: Sequence[RunRow]
    more: bool
    nothing: str = ""
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """
    A run that was exported.

    Attributes:
        data: Its bundle.

        not_kept: Why it cannot be replayed, or ``None``.

        public_key: The key that signed it, if it is one of this machine.
    """

    run_id: str
    data: bytes
    not_kept: str | None
    public_key: str | None = None


class HostApi(Protocol):
    """
    A host, as commands use it: this machine, or one that serves elsewhere.

    What a host elsewhere cannot do raises a ``UsageError`` there.
    """

    # -- how commands are typed

    def command(self) -> str:
        """Return how a command line for this host begins, without passwords."""
        ...

    def named(self, text: str) -> str:
        """Return *text* with its commands as they are typed for this host."""
        ...

    def role_options(self, roles: Collection[object]) -> list[str]:
        """Return the options by which a decision names the role of the person."""
        ...

    def over(self, db: str) -> HostApi:
        """Return the same host with another event store."""
        ...

    # -- this machine only

    def check_local(self, command: str = "") -> None:
        """
        Return if this host is this machine.

        Args:
            command: What was typed; by default the command under way.

        Raises:
            UsageError: It is not, and the command works only here.
        """
        ...

    def given(self) -> Mapping[str, str]:
        """Return the values of ``--config`` and ``--db``, where they were given."""
        ...

    def load(self, *, quiet: bool = False) -> Config:
        """Return the configuration; print its warnings unless *quiet*."""
        ...

    def look(self, *sections: str, guarded: bool = False) -> Config:
        """
        Return the location of the log and some sections of the configuration.

        Args:
            sections: Those that are needed; see `load_parts`.

            guarded: Resolve the secrets of the other sections too, as far as possible:
                something that was typed will be recorded.
        """
        ...

    def log(self) -> AbstractAsyncContextManager[SqlStore]:
        """Open the event store to read, without resolving anything else."""
        ...

    def paths(self) -> Paths:
        """Return the folders of keys and caches of this machine."""
        from ..config import Paths

        return Paths.of(os.environ)

    # -- reading

    def settings(self, *sections: str) -> Config:
        """Return sections of the configuration; defaults with ``--host``."""
        ...

    def history(self) -> AbstractAsyncContextManager[History]:
        """Open the log to read."""
        ...

    def misread(self, exc: Exception) -> CaxtonError | None:
        """Return the error for a failure to read an answer, if this host sent it."""
        ...

    def runs(self, only: RunFilter, limit: int) -> RunPage:
        """Return the newest runs."""
        ...

    def erasure(self, run_id: str) -> RunErased | None:
        """Return the record of the erasure of a run."""
        ...

    def hold_of(self, run_id: str) -> JSON:
        """Return actor, reason and time of the hold of a run, or ``None``."""
        ...

    def explain_call(self, run: str, kind: str, number: int) -> Mapping[str, Any]:
        """Return the ``caxton.explanation/v1`` document of a recorded call."""
        ...

    def explain_grant(
        self, agent: str, tool: str, params: Sequence[str], after: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return the document that says whether a call would be allowed."""
        ...

    def inbox(self, agent: str | None, limit: int) -> Inbox:
        """Return what people are asked, oldest first."""
        ...

    def answer(self, options: AnswerOptions) -> None:
        """Answer a question of a tool server."""
        ...

    def agents(self) -> Sequence[Mapping[str, Any]]:
        """Return the ``caxton.agent/v1`` documents of all agents."""
        ...

    def servers(self) -> tuple[Sequence[Mapping[str, JSON]], bool]:
        """Return the documents of all servers, and whether servers are off."""
        ...

    def tools(
        self, server: str | None, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        """Return the ``caxton.tool/v1`` documents of a server, or of all."""
        ...

    def server_tools(
        self, server: str, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        """Return the tools of an MCP server."""
        ...

    def test_server(
        self, name: str, variables: Sequence[str], wire_log: str | None
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, JSON]]]:
        """Return what a test of a server found, and its tools."""
        ...

    # -- changing

    def checkpoint(self) -> Mapping[str, JSON]:
        """Return the newest ``caxton.checkpoint/v1`` document; sign one if possible."""
        ...

    def export(self, run: str, since: Sequence[Note]) -> Exported:
        """Sign the log, and return the bundle of a run."""
        ...

    def reload(self, only: str | None, reason: str) -> Mapping[str, Answer]:
        """Reload the configuration of running hosts; return the answer of each."""
        ...

    def restart_server(
        self, name: str, only: str | None, reason: str
    ) -> Mapping[str, Answer]:
        """Restart a server on running hosts; return the answer of each."""
        ...

    def freezes(self) -> Sequence[Mapping[str, JSON]]:
        """Return the ``caxton.freeze/v1`` documents of what is frozen."""
        ...

    def freeze(
        self, kind: Kind, name: str, reason: str, *, thaw: bool
    ) -> Sequence[Mapping[str, JSON]]:
        """Freeze or thaw something, and return what is frozen then."""
        ...

    def schedules(self) -> Sequence[Mapping[str, JSON]]:
        """Return the ``caxton.schedule/v1`` documents of all schedules."""
        ...

    def hold(self, run: str, reason: str, *, release: bool) -> Mapping[str, JSON]:
        """Hold or release a run; return its ``caxton.hold/v1`` document."""
        ...

    def cancel(self, run: str, reason: str) -> tuple[str, list[Recorded]]:
        """End a run, and return its id and its events."""
        ...

    # -- runs, driven to their end: each method reports and returns the exit code

    def start(self, options: StartOptions) -> tuple[int, Recording]:
        """Run an agent or a module."""
        ...

    def resume(self, options: ResumeOptions) -> int:
        """Resume a run, or every run that no host drives."""
        ...

    def fork(self, options: ForkOptions) -> int:
        """Run a fork of a run."""
        ...

    def resolve(self, options: ResolveOptions) -> int:
        """Resolve a call in doubt, and resume its run."""
        ...

    def decide(self, options: DecideOptions) -> int:
        """Record a decision about a call, and resume its run."""
        ...


def wait(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine to its end."""
    return interrupt.run(work)


#: Adds ``--json``.
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)


def on_host(
    command: Callable[[Callable[..., Any]], _Command],
) -> Callable[[Callable[..., Any]], _Command]:
    """Let a command have the host as its first argument, and ``--json``."""
    return lambda function: as_json(command(click.pass_obj(function)))


def check_known(name: str, known: Collection[str], otherwise: str, see: str) -> None:
    """
    Return if *name* is *known*.

    Args:
        name: What was typed.

        known: What there is.

        otherwise: What is wrong if it is not among them.

        see: The command that lists what there is.

    Raises:
        NotFoundError: It is not.
    """
    if name not in known:
        meant = nearest(name, [*known])
        fix = f"write {meant}" if meant else f"{see} shows what there is"
        raise NotFoundError(otherwise, fix=fix)
