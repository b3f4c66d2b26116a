"""
Scripts: the answers of tools in a test, and a check that the agent used them.

A script is a tool client, so calls are granted, recorded and bounded as always. A call
without a script fails the test, and so does an answer that no call used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Final, Self, TypeAlias, cast

from ..core.calls import JSON, Completed
from ..core.grants.grants import Grant, Rule
from ..core.grants.tool_catalog import Offer, Offered
from ..core.log.events import Event, ToolDenied, ToolInvoked
from ..core.names import exposed_name, is_server_name, is_tool_name
from ..core.text.globs import Pattern
from ..core.text.redact import Redactor
from ..core.tools.servers import ToolOptions
from ..errors import (
    BadBytes,
    FailureKind,
    RunStopped,
    Sent,
    ToolError,
    UnexpectedRun,
    UsageError,
)
from ..gateway import results
from ..lib import codec
from ..ports.tools import RunScope, ToolClient, ToolRequest
from .fakes import offer
from .runs import AgentRun, plain, shown

_RESULT = frozenset({"content", "structuredContent", "isError"})


class _Denial(Enum):
    DENIED = "DENIED"


#: Instead of an answer: the tool exists, and is not granted.
DENIED: Final = _Denial.DENIED

#: A text; a dictionary that is an MCP ``CallToolResult``; any other JSON value but a
#: list, as structured content; a `ToolError`; `DENIED`; a function of the parameters
#: that returns or raises one of these; or a list of them, one for each call in order.
Answer: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Tool:
    """
    An answer, and what the agent's ``tools()`` says about the tool.

    Attributes:
        answer: See `Answer`.

        description: As a server would give it.

        input_schema: JSON Schema of the parameters. They are not checked.
    """

    answer: Answer
    description: str = ""
    input_schema: Mapping[str, object] = field(
        default_factory=lambda: {"type": "object"}
    )


def tool_error(text: str) -> dict[str, JSON]:
    """
    Return the answer of a tool that reports an error.

    >>> tool_error("no such city")["isError"]
    True
    """
    return {"content": [{"type": "text", "text": text}], "isError": True}


def failure(
    kind: FailureKind = "transport",
    *,
    sent: Sent = "unknown",
    message: str = "the connection was lost",
) -> ToolError:
    """
    Return a failure instead of an answer: the server is down, slow or broken.

    Args:
        kind: ``timeout``, ``transport``, ``protocol``, ``too_large``,
            ``invalid_result`` or ``changed``.

        sent: Whether the server may have acted: ``no``, ``yes`` or ``unknown``.

        message: The message for the agent.
    """
    return ToolError(kind, sent, message)


def completed(name: str, answer: Answer) -> Completed:
    """
    Return an answer as it is recorded, as if it came from a server.

    Args:
        name: Of the tool, for messages.

        answer: Not a list or a function.

    Raises:
        ToolError: The answer is this error.

        UsageError: It is not a valid answer.
    """
    if isinstance(answer, ToolError):
        raise answer
    result = _result(as_json(name, answer))
    try:
        size = len(codec.encode(result))
        return results.completed(result, name, ToolOptions(), Redactor(), size=size)
    except ToolError as exc:
        raise UsageError(
            f"the answer of {name} is not a CallToolResult: {exc}",
            fix="give a text, or what an MCP server would answer",
        ) from None


def _result(value: JSON) -> dict[str, JSON]:
    if isinstance(value, dict) and value.keys() & _RESULT:
        return {"content": [], **value}
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    text = json.dumps(value, ensure_ascii=False)
    return {
        "content": [{"type": "text", "text": text}],
        # A server may only answer with an object; SDKs wrap other values so.
        "structuredContent": value if isinstance(value, dict) else {"result": value},
    }


def as_json(name: str, value: object) -> JSON:
    """
    Return a value as the log can hold it.

    Raises:
        UsageError: It cannot.
    """
    try:
        data = codec.encode(value)
        return codec.decode(data, limit=len(data), nodes=codec.RESULT_NODES)
    except BadBytes as exc:
        shown = type(value).__name__
        raise UsageError(
            f"the script of {name} is not JSON but {shown}: {exc}",
            fix="use texts, numbers, True, False, None, lists and dictionaries",
        ) from None


#: The server of a tool whose name in the script has no server.
SERVER = "script"

_EXPOSED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANSWERING = 2  # frames of this module above a function of the script


class ScriptFailed(Exception):  # noqa: N818 -- the test has failed, not the script
    """
    The run was stopped, because the test has failed.

    Attributes:
        error: The failure.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class _Scripted:
    """
    One tool.

    Attributes:
        name: The agent's name for it.

        answers: One for each call, or one for all.

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
        """Whether its calls are to be denied."""
        return self.for_all and self.answers[0] is DENIED

    def unused(self, tried: Collection[tuple[str, str]]) -> str:
        """Return which of its answers no call has used, or ``""``."""
        if self.for_all:
            return "" if self.target in tried else self.name
        left = len(self.answers) - self.asked
        return f"{self.name}, {left} of {len(self.answers)} answers" if left else ""


class ScriptedTools(ToolClient):
    """
    Tools with the answers of a test; see `caxton_host.ports.tools.ToolClient`.

    Args:
        script: Name of each tool to its answer: the name that the agent uses, or
            ``SERVER/TOOL``, which the agent calls ``mcp__SERVER__TOOL``.

        names: Names of the agent's own, to ``SERVER/TOOL``.

    Attributes:
        raised: The error that failed the test while the agent ran.

    Raises:
        UsageError: A name or an answer is not valid.
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
        """The servers of the scripted tools."""
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

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Return the scripted answer."""
        try:
            return self._answer(request)
        except ToolError:
            raise
        except BaseException as exc:  # noqa: BLE001 -- pytest.fail() raises one
            # The traceback begins in the function, not in what called it.
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
        Check that the agent made the calls of the script.

        Args:
            run: Its run.

            events: Those of the run.

            strict: Whether every answer must have been used.

        Raises:
            ScriptFailed: A function of the script raised, or a call had no answer.

            UnexpectedRun: The agent called a tool without a script, or did not use an
                answer.
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
                f"scripted, and never called: {'; '.join(unused)}\n"
                f"  the run {ended}; its calls: {shown(run.calls)}",
                fix="take it out of the script, or pass strict=False",
            )

    def _target_of(self, call: ToolInvoked) -> tuple[str, str]:
        # The log has no tool for a call to a server without any grant.
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
    Return a grant of the tools that some patterns name.

    Raises:
        UsageError: A pattern is not ``SERVER/TOOL``.
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
    """Return the server and tool, and the exposed name."""
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
