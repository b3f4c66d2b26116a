"""
What a tool asks people during a call, and their answers.

A question is recorded before anybody sees it, and an answer before the tool gets it
(law 3). Neither changes what the agent gets: that is the outcome of the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..core.calls import JSON, Route
from ..core.grants.approvals import NOBODY
from ..core.log.events import QuestionAnswered, QuestionAsked, ToolProgress
from ..core.questions import QUESTIONS, Said, To, question_of
from ..core.text.redact import Redactor, plain
from .recorder import Recorder

_TOO_MUCH = "the answer has a secret of the host in it"
_WAITS = "waits for an answer, see caxton approval list"
#: Characters of the name of a question.
_NAME = 100
#: Puts a question to people for so many seconds, and returns their answer. It fits the
#: form if it is accepted.
Desk: TypeAlias = Callable[[QuestionAsked, float], Awaitable[Said]]


async def nobody(_: QuestionAsked, __: float) -> Said:
    """Decline a question: there is nobody to ask."""
    return Said(action="decline", reason="there is nobody to ask")


@dataclass(slots=True, kw_only=True)
class Questions:
    """
    Puts the questions of one call to people.

    Attributes:
        call: The number of the call.

        route: Where it went.

        desk: Where people answer.

        now: Returns the time, in microseconds since 1970.

        may_send: Raises if nothing may be sent to the tool now.

        watch: Is told that people are asked.

        quiet: The log must not hold the words of the tool, so nobody is asked.

        asked: How many questions there were.
    """

    recorder: Recorder
    redact: Redactor
    call: int
    route: Route
    desk: Desk
    now: Callable[[], int]
    may_send: Callable[[], None]
    watch: Callable[[ToolProgress], None]
    quiet: bool = False
    asked: int = field(default=0, init=False)

    async def ask(
        self, name: str, params: JSON, to: To, seconds: float
    ) -> dict[str, JSON]:
        """
        Return the answer to a question, as MCP has it.

        Args:
            name: What the tool calls it. Not trusted.

            params: What the tool sent. Not trusted.

            to: Who is asked.

            seconds: How long an answer may take; none is a cancellation.

        Raises:
            LeaseLost: Another host may drive the run now. Nothing was sent.

            StoreError: Question or answer could not be stored.
        """
        self.asked += 1
        if self.asked > QUESTIONS:
            return {"action": "decline"}
        message, form, why = question_of(params, self.redact)
        if self.quiet:
            name, message, form = "", "", None
            why = "the log does not keep what this tool says"
        held = self.recorder.journal.question(self.call)
        asked = QuestionAsked(
            call=self.call,
            question=self.asked,
            name=plain(name, self.redact, _NAME),
            server=self.route.server,
            tool=self.route.tool,
            message=message,
            form=form,
            to=to,
            # The roles that approved the call answer its questions.
            by=held.requested.by if held and to == "people" else (),
            until=self.now() + round(seconds * 1e6),
        )
        await self.recorder.append(asked)
        if form is not None and to == "people":
            self.watch(ToolProgress(call=self.call, message=f"{_WAITS}: {message}"))
        said = Said(action="decline", reason=why)
        if form is not None:
            said = await self.desk(asked, seconds)
        if self.redact.value(said.content) != said.content:
            said = replace(said, action="decline", content=None, reason=_TOO_MUCH)
        await self.recorder.append(
            QuestionAnswered(
                call=self.call,
                question=asked.question,
                action=said.action,
                content=said.content,
                actor={**(said.actor or NOBODY)},
                reason=self.redact.text(said.reason),
                role=said.role,
            )
        )
        self.may_send()
        answer: dict[str, JSON] = {"action": said.action}
        return answer if said.content is None else {**answer, "content": said.content}
