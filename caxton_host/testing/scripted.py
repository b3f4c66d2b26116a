"""
Scripts: what each tool answers in a test, and whether the agent kept to it.

A script is a tool client like any other, so calls are granted, recorded and bounded
as ever. A call that it does not know fails the test, and so does an answer that nobody
asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, cast

from ..core.calls import JSON, Completed
from ..core.grants.grants import Grant, Rule
from ..core.grants.tool_catalog import Offer, Offered
from ..core.log.events import Event, ToolDenied, ToolInvoked
from ..core.names import exposed_name, is_server_name, is_tool_name
from ..core.text.globs import Pattern
from ..core.tools.contexts import ServerResource
from ..errors import RunStopped, ToolError, UnexpectedRun, UsageError
from ..lib import codec
from ..ports import RunScope, ToolRequest
from .answers import DENIED, Answer, Tool, as_json, completed
from .fakes import offer
from .runs import AgentRun, plain, shown

#: The server of a tool whose name in the script names none.
SERVER = "script"

_EXPOSED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANSWERING = 2  # frames of this module above a function of the script


class ScriptFailed(Exception):  # noqa: N818 -- the test has failed, not the script
    """
    The run went no further, because the test has failed.

    Attributes:
        error: With what.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class _Scripted:
    """
    One tool.

    Attributes:
        name: What the agent calls it.

        answers: One for each call, or the one for all.

        asked: How many calls were answered.
    """

    name: str
    offer: Offer
    answers: Sequence[Answer]
    for_all: bool
    asked: int = 0

    @property
    def target(self) -> tuple[str, str]:
        """Server and tool."""
        return self.offer.server, self.offer.tool

    @property
    def denied(self) -> bool:
        """Whether it is there to be denied."""
        return self.for_all and self.answers[0] is DENIED

    def unused(self, tried: Collection[tuple[str, str]]) -> str:
        """Return what of its answers nobody has asked for, or nothing."""
        if self.for_all:
            return "" if self.target in tried else self.name
        left = len(self.answers) - self.asked
        return f"{self.name}, {left} of {len(self.answers)} answers" if left else ""


class ScriptedTools:
    """
    See `caxton_host.ports.ToolClient`. Its tools answer what a test says.

    Args:
        script: Name of each tool to what it answers: the name that the agent uses,
            or ``SERVER/TOOL``, which the agent calls ``mcp__SERVER__TOOL``.

        names: Names of the agent's own, to ``SERVER/TOOL``.

    Attributes:
        raised: What failed the test while the agent ran.

    Raises:
        UsageError: A name cannot be one, or an answer is none.
    """

    def __init__(
        self, script: Mapping[str, Answer], names: Mapping[str, str] | None = None
    ) -> None:
        self.raised: BaseException | None = None
        self.names = {own: _target(target) for own, target in (names or {}).items()}
        own = {target: name for name, target in self.names.items()}
        tools = [_scripted(name, answer, own) for name, answer in script.items()]
        self._tools = {tool.target: tool for tool in tools}
        self._named = {
            name: tool.target
            for tool in tools
            for name in (tool.offer.exposed, tool.name)
        }

    @property
    def servers(self) -> list[str]:
        """What a grant may name."""
        return list(dict.fromkeys(server for server, _ in self._tools))

    @property
    def grant(self) -> Grant:
        """Every scripted tool but those that are to be denied."""
        tools = [tool for tool in self._tools.values() if not tool.denied]
        return grant_of([f"{tool.offer.server}/{tool.offer.tool}" for tool in tools])

    def open(self, scope: RunScope) -> nullcontext[Self]:
        """Return itself: it serves every run alike."""
        del scope
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        """Offer each scripted tool."""
        tools = [tool.offer for tool in self._tools.values()]
        return Offered(
            offers=tuple(offer for offer in tools if offer.server in servers),
            servers={name: {"transport": "script"} for name in servers},
        )

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Return nothing: a task says what the context is."""
        del servers, scope
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Return what the script says."""
        try:
            return self._answer(request)
        except ToolError:
            raise
        except BaseException as exc:  # noqa: BLE001 -- pytest.fail() raises one
            # The reader wants to see the function, and not who called it.
            self.raised = exc.with_traceback(_behind(exc.__traceback__, _ANSWERING))
            raise RunStopped("script", "the test has failed") from None

    def _answer(self, request: ToolRequest) -> Completed:
        tool = self._tools.get((request.server, request.tool))
        if tool is None:
            name = f"{request.server}/{request.tool}"
            raise self._unscripted(request.call, name, request.params)
        if not tool.for_all and tool.asked >= len(tool.answers):
            call = _call(request.call, tool.name, request.params)
            raise UnexpectedRun(
                f"{call} is one more than the {len(tool.answers)} that have a script",
                fix="script another answer, or one for all calls, not in a list",
            )
        answer = tool.answers[0 if tool.for_all else tool.asked]
        tool.asked += 1
        if callable(answer):
            function = cast("Callable[[dict[str, JSON]], Answer]", answer)
            answer = function(request.params)
        return completed(tool.name, answer)

    def check(self, run: AgentRun, events: Sequence[Event], *, strict: bool) -> None:
        """
        Return if the agent kept to the script.

        Args:
            run: What it did.

            events: Those of the run.

            strict: Whether all that is scripted must have been asked for.

        Raises:
            ScriptFailed: A function of the script raised, or there was no answer.

            UnexpectedRun: The agent asked for what is not there, or did not for what
                is.
        """
        if self.raised:
            raise ScriptFailed(self.raised)
        calls = {
            event.call: event for event in events if isinstance(event, ToolInvoked)
        }
        for event in events:
            if isinstance(event, ToolDenied) and event.code == "not_granted":
                call = calls[event.call]
                if self._target_of(call) not in self._tools:
                    raise self._unscripted(call.call, call.name, call.params)
        tried = {*map(self._target_of, calls.values())}
        unused = [text for tool in self._tools.values() if (text := tool.unused(tried))]
        if unused and strict:
            ended = f"{run.status}, {plain(run.error)}" if run.error else run.status
            raise UnexpectedRun(
                f"scripted, and never asked for: {'; '.join(unused)}\n"
                f"  the run {ended}; its calls: {shown(run.calls)}",
                fix="take it out of the script, or pass strict=False",
            )

    def _target_of(self, call: ToolInvoked) -> tuple[str, str]:
        # Of a server without any grant, the log knows no tool.
        unknown = self._named.get(call.name, ("", ""))
        return (call.server, call.tool) if call.server and call.tool else unknown

    def _unscripted(
        self, number: int, name: str, params: dict[str, JSON] | None
    ) -> UnexpectedRun:
        known = ", ".join(sorted(tool.name for tool in self._tools.values()))
        return UnexpectedRun(
            f"{_call(number, name, params)} has no script\n"
            f"  scripted: {known or 'nothing'}",
            fix=f"add {name!r} to tools; DENIED if the agent is not to have it",
        )


def grant_of(allow: Sequence[str]) -> Grant:
    """
    Return a grant of what some patterns name.

    Raises:
        UsageError: One is no ``SERVER/TOOL``.
    """
    patterns = tuple(Pattern.parse(text) for text in allow)
    return Grant(allow=(Rule(id="allow[1]", tools=patterns, source="test"),))


def _scripted(
    name: str, given: Answer, own: Mapping[tuple[str, str], str]
) -> _Scripted:
    tool = given if isinstance(given, Tool) else Tool(given)
    target, exposed = _named(name)
    known = own.get(target, exposed)
    schema = as_json(known, dict(tool.input_schema))
    assert isinstance(schema, dict)  # noqa: S101 -- it was one
    definition = codec.canonical(
        {"name": target[1], "description": tool.description, "inputSchema": schema}
    )
    for_all = not isinstance(tool.answer, list)
    answers = [tool.answer] if for_all else cast("list[Answer]", tool.answer)
    for answer in answers:
        _check(known, answer, for_all=for_all)
    return _Scripted(
        name=known,
        offer=replace(
            offer(*target, tool.description),
            exposed=exposed,
            input_schema=schema,
            definition=definition,
            definition_sha256=codec.sha256(definition),
        ),
        answers=answers,
        for_all=for_all,
    )


def _named(name: str) -> tuple[tuple[str, str], str]:
    """Return server and tool, and what agents call it."""
    if "/" in name:
        target = _target(name)
        return target, exposed_name(*target)
    if not _EXPOSED.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a tool",
            fix="use 1 to 64 of a-z, A-Z, 0-9, _ and -; or SERVER/TOOL",
        )
    return (SERVER, name), name


def _target(text: str) -> tuple[str, str]:
    server, _, tool = text.partition("/")
    if not (is_server_name(server) and is_tool_name(tool)):
        raise UsageError(
            f"{text!r} is not SERVER/TOOL", fix="write for example demo/get_weather"
        )
    return server, tool


def _check(name: str, answer: Answer, *, for_all: bool) -> None:
    if answer is DENIED:
        if not for_all:
            raise UsageError(
                f"{name}: DENIED is not one answer of several",
                fix="script it alone: a grant holds for all calls",
            )
    elif not (callable(answer) or isinstance(answer, ToolError)):
        completed(name, answer)


def _behind(trace: TracebackType | None, frames: int) -> TracebackType | None:
    for _ in range(frames):
        trace = trace.tb_next if trace else None
    return trace


def _call(number: int, name: str, params: object) -> str:
    return f"call {number}, {name} with {shown(params)},"
