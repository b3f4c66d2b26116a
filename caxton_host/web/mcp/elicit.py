"""
What the user of a client is asked.

An approval is asked for by its address: who has the role decides there, and the answer
of the client decides nothing. A question of a tool server is passed on as a form. Since
2026-07-28 the client gets it in place of the outcome, and makes the same call again:
the call goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ...config import Serve
from ...core.calls import JSON, Outcome
from ...core.log.events import QuestionAsked, ToolProgress
from ...core.questions import Said
from ...service.sessions import Asked
from .server import Context, scope_of

#: How a call ends for its client.
Found: TypeAlias = Outcome | Asked

FORM, URL = "form", "url"
#: The revision that answers with an error where a user has to visit an address. Older
#: ones have no addresses, newer ones ask in the result.
_BY_ERROR = "2025-11-25"
_ELICIT = "elicitation/create"


class InputRequired(Exception):  # noqa: N818 -- an answer, in the form of 2026-07-28
    """The client is to ask its user, and to make the request again."""

    def __init__(self, asks: Mapping[str, JSON], state: str | None = None) -> None:
        self.result: dict[str, JSON] = {
            "resultType": "input_required",
            "inputRequests": {
                name: {"method": _ELICIT, "params": params}
                for name, params in asks.items()
            },
        }
        if state is not None:
            self.result["requestState"] = state
        super().__init__(*asks)


def modes_of(capabilities: Mapping[str, Any]) -> Collection[str]:
    """
    Return how a client that declared *capabilities* can ask its user.

    >>> modes_of({"elicitation": {}}), modes_of({"elicitation": {"url": {}}})
    (['form'], ['url'])
    """
    can = capabilities.get("elicitation")
    if not isinstance(can, dict):
        return []
    return [mode for mode in (FORM, URL) if mode in can] or [FORM]


def modes(ctx: Context) -> Collection[str]:
    """Return how the client of a request can ask its user."""
    if said := ctx.session.client_capabilities:
        return modes_of(said.model_dump(by_alias=True, exclude_none=True))
    found: Collection[str] = scope_of(ctx).get("caxton.asks", ())
    return found


def point(ctx: Context, asked: Asked, serve: Serve, said: JSON) -> None:
    """
    Show the user of a client where an approval is decided, if the client can.

    Args:
        ctx: The request that waits.

        asked: The approval.

        serve: How the host is served.

        said: What else is told of it.

    Raises:
        InputRequired: The client of 2026-07-28 is to show it.

        MCPError: The client of 2025-11-25 is to show it.
    """
    is_served = serve.api and serve.ui and ctx.request is not None
    if not is_served or URL not in modes(ctx):
        return
    by = f" of {' or '.join(asked.by)}" if asked.by else ""
    message = f"A call waits for the approval{by}: event {asked.seq} of run "
    message += f"{asked.run_id}. Who may decide about it does so at this address."
    params: dict[str, JSON] = {
        "mode": URL,
        "message": message,
        "url": f"{_origin(ctx, serve)}/ui/inbox?run={asked.run_id}",
    }
    if ctx.protocol_version == _BY_ERROR:
        params["elicitationId"] = f"{asked.run_id}/{asked.seq}"
        data = {"elicitations": [params], **cast("dict[str, JSON]", said)}
        raise MCPError(types.URL_ELICITATION_REQUIRED, message, data)
    # Who has looked is told the rest: to accept is no decision.
    if _is_new(ctx) and "inputResponses" not in (ctx.params or {}):
        raise InputRequired({"approval": params})


def _origin(ctx: Context, serve: Serve) -> str:
    """Return where the host is, as its clients reach it."""
    if serve.oauth:
        known = urlsplit(serve.oauth.audience)
    else:
        assert ctx.request is not None  # noqa: S101 -- it is served
        known = urlsplit(str(ctx.request.url))
    return f"{known.scheme}://{known.netloc}"


def _is_new(ctx: Context) -> bool:
    return ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS


#: Makes a call, as `Sessions.call` does; takes ``tell`` and ``ask``.
Make: TypeAlias = Callable[..., Awaitable[Found]]


@dataclass(slots=True, kw_only=True)
class Asking:
    """Makes the calls of clients, and asks their users what tools ask meanwhile."""

    _held: dict[str, _Call] = field(default_factory=dict[str, "_Call"])

    async def made(
        self,
        ctx: Context,
        whose: object,
        actor: Mapping[str, JSON],
        make: Make,
        tell: Callable[[ToolProgress], None],
    ) -> Found:
        """
        Make a call, or go on with one that waits for an answer.

        Args:
            ctx: The request.

            whose: Tells the call from others.

            actor: Who answers.

            make: Makes the call.

            tell: Called with each progress report.

        Raises:
            InputRequired: The tool asks something.

            MCPError: No such call waits.
        """
        if FORM not in modes(ctx):
            return await make(tell)
        if not _is_new(ctx):
            can = "caxton.ask" in scope_of(ctx) or ctx.session.can_send_request

            async def ask(asked: QuestionAsked) -> Said:
                return _said(await _asked_now(ctx, asked), actor)

            return await make(tell, ask=ask if can else None)
        params: Any = ctx.params or {}
        state = params.get("requestState")
        answers: dict[str, JSON] = {**(params.get("inputResponses") or {})}
        if state is None:
            call = _Call(whose, actor, answers)
            call.begin(make)
        else:
            found = self._held.get(state)
            if found is None or found.whose != whose:
                raise MCPError(types.INVALID_PARAMS, "no call waits with this state")
            call = self._held.pop(state)
            call.take(answers)
        call.tell = tell
        try:
            done = await call.done()
        except BaseException:
            call.task.cancel()
            raise
        finally:
            call.tell = _untold
        if done:
            return await call.task
        state = secrets.token_urlsafe(24)
        self._held[state] = call

        def forget(task: asyncio.Task[Found]) -> None:
            # Nobody asked for its outcome, which is in the log.
            if self._held.pop(state, None) and not task.cancelled():
                task.exception()

        call.task.add_done_callback(forget)
        raise InputRequired(call.asks, state)


def _untold(_: ToolProgress) -> None:
    """Drop a report: no request waits."""


class _Call:
    """
    A call of a client of 2026-07-28, which takes several requests.

    Attributes:
        whose: Tells it from others.

        tell: Called with each progress report.
    """

    task: asyncio.Task[Found]

    def __init__(
        self, whose: object, actor: Mapping[str, JSON], answers: dict[str, JSON]
    ) -> None:
        self.whose = whose
        self.tell: Callable[[ToolProgress], None] = _untold
        self._actor = actor
        self._answers = answers
        self._open: dict[str, tuple[QuestionAsked, asyncio.Future[JSON]]] = {}
        self._some = asyncio.Event()

    def begin(self, make: Make) -> None:
        """Make the call, in the background."""

        def tell(event: ToolProgress) -> None:
            self.tell(event)  # Of the request that waits now.

        async def making() -> Found:
            return await make(tell, ask=self._ask)

        self.task = asyncio.create_task(making())
        self.task.add_done_callback(lambda _: self._some.set())

    @property
    def asks(self) -> dict[str, JSON]:
        """The questions that wait, by name."""
        return {name: _form(asked) for name, (asked, _) in self._open.items()}

    def take(self, answers: Mapping[str, JSON]) -> None:
        """Take the answers of the client; others are ignored."""
        for name, (_, answer) in self._open.items():
            if name in answers and not answer.done():
                answer.set_result(answers[name])

    async def done(self) -> bool:
        """Return whether it has ended, once it has or a question waits."""
        while not self.task.done():
            if any(not answer.done() for _, answer in self._open.values()):
                return False
            self._some.clear()
            await self._some.wait()
        return True

    async def _ask(self, asked: QuestionAsked) -> Said:
        name = asked.name
        if name in self._answers:
            return _said(self._answers.pop(name), self._actor)
        if name in self._open:
            name = f"{name}-{asked.question}"
        answer: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._open[name] = asked, answer
        self._some.set()
        try:
            return _said(await answer, self._actor)
        finally:
            del self._open[name]


def _form(asked: QuestionAsked) -> dict[str, JSON]:
    """Return a question as MCP has it. Its text says which tool asks."""
    text = f"{asked.server}/{asked.tool}: {asked.message}"
    return {"mode": FORM, "message": text, "requestedSchema": asked.form}


async def _asked_now(ctx: Context, asked: QuestionAsked) -> JSON:
    """Ask the user of a client of before 2026."""
    form = _form(asked)
    if ask := scope_of(ctx).get("caxton.ask"):
        return cast("JSON", await ask(_ELICIT, form))
    said = await ctx.session.elicit_form(
        str(form["message"]), asked.form or {}, ctx.request_id
    )
    return said.model_dump(exclude_none=True)


def _said(answer: JSON, actor: Mapping[str, JSON]) -> Said:
    """Return the answer of a client, which is not trusted."""
    match answer:
        case {"action": "accept", "content": dict(content)}:
            return Said(action="accept", content=content, actor=actor)
        case {"action": "decline" | "cancel" as action}:
            return Said(action=action, actor=actor)
        case _:
            reason = "the client did not answer as the protocol has it"
            return Said(action="decline", actor=actor, reason=reason)
