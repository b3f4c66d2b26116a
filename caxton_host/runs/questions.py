"""
Questions of tool servers in the log, and the answers of people to them.

The host that drives a run records the answer, and then tells the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..core.calls import JSON
from ..core.log.events import (
    QuestionAnswered,
    QuestionAsked,
    RunResumed,
    outcome_of,
    to_payload,
)
from ..core.log.runs import EVERY, Mark, RunFilter, RunRow
from ..core.questions import Said
from ..core.text.redact import Redactor
from ..errors import BusyError, CaxtonError, CursorError, UsageError
from ..ports.history import LogReader
from ..ports.log import SharedStore
from .approvals import Waiting, waiting_in
from .cancellation import outcome_at
from .desk import ANSWER, ANSWERED, misfit
from .recording import Recording

#: Places that are read at once.
_ROWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """
    A question that waits, and its run.

    Attributes:
        seq: The number of its `QuestionAsked`.

        asked_at: When that was recorded, in microseconds since 1970.
    """

    run_id: str
    agent: str
    seq: int
    asked: QuestionAsked
    asked_at: int

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.question/v1`` document."""
        return {
            "$type": "caxton.question/v1",
            "run_id": self.run_id,
            "agent": self.agent,
            "seq": self.seq,
            "asked_at": self.asked_at,
            **to_payload(self.asked),
        }


@dataclass(frozen=True, slots=True)
class Inbox:
    """
    What people are asked, the oldest first.

    Attributes:
        calls: Those that wait for an approval.

        questions: Those of tool servers.

        next: Where others are, if there are; see `inbox`.
    """

    calls: list[Waiting]
    questions: list[Question]
    next: str | None = None


_CURSOR = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9a-f-]{1,64})", re.ASCII)


async def inbox(  # noqa: PLR0913 -- a filter each
    reader: LogReader,
    now: int,
    *,
    most: int,
    only: RunFilter = EVERY,
    cursor: str | None = None,
    sees: Callable[[RunRow], bool] = lambda _: True,
    unread: Callable[[str, CaxtonError], None],
) -> Inbox:
    """
    Return a page of what people are asked. The events say it; projections find the run.

    Args:
        reader: The log.

        now: The time, in microseconds since 1970.

        most: Calls and questions on a page.

        only: Of which runs.

        cursor: The next page of an earlier one.

        sees: Whether a run is to be looked at.

        unread: Called with a run that cannot be read. The others wait nevertheless.

    Raises:
        CursorError: It is no cursor.
    """
    found = await marks(reader, most + 1, only, sees, after=_mark(cursor))
    page, calls, questions = found[:most], dict[Mark, Waiting](), dict[Mark, Question]()
    for run_id in dict.fromkeys(run_id for _, run_id, _ in page):
        try:
            recording = await Recording.load(run_id, reader)
        except CaxtonError as exc:
            unread(run_id, exc)
            continue
        for call in waiting_in(recording, now):
            calls[call.asked_at, run_id, call.asked.seq or 0] = call
        for question in questions_in(recording, now):
            questions[question.asked_at, run_id, question.seq] = question
    at, run_id, seq = page[-1] if page else (0, "", 0)
    return Inbox(
        [calls[mark] for mark in page if mark in calls],
        [questions[mark] for mark in page if mark in questions],
        f"{at}-{seq}-{run_id}" if len(found) > most else None,
    )


async def marks(
    reader: LogReader,
    most: int,
    only: RunFilter,
    sees: Callable[[RunRow], bool],
    *,
    after: Mark | None = None,
) -> list[Mark]:
    """Return the places of at most so many calls and questions; see `inbox`."""
    found, count = list[Mark](), most
    while len(found) < most:
        rows = await reader.waiting(count, only, after=after)
        found += [mark for mark, row in rows if sees(row)]
        if len(rows) < count:
            break
        # Few of them may be seen.
        after, count = rows[-1][0], _ROWS
    return found[:most]


def _mark(cursor: str | None) -> Mark | None:
    if cursor is None:
        return None
    if (match := _CURSOR.fullmatch(cursor)) is None:
        raise CursorError(
            f"{cursor!r} is not a cursor of approvals",
            fix="send the next of an earlier page",
        )
    return int(match[1]), match[3], int(match[2])


def questions_in(recording: Recording, now: int) -> list[Question]:
    """Return the questions that people can answer now, the oldest first."""
    found: dict[tuple[int, int], Question] = {}
    for item in recording.own if recording.state == "running" else ():
        event = item.event
        if isinstance(event, QuestionAsked):
            if event.to == "people" and event.form is not None and now < event.until:
                found[event.call, event.question] = Question(
                    run_id=recording.run_id,
                    agent=recording.started.agent,
                    seq=item.seq,
                    asked=event,
                    asked_at=item.recorded_at,
                )
        elif isinstance(event, QuestionAnswered):
            found.pop((event.call, event.question), None)
        elif isinstance(event, RunResumed):
            found.clear()
        elif event is not None and (end := outcome_of(event)):
            found = {key: one for key, one in found.items() if key[0] != end[0]}
    return [*found.values()]


def meant(recording: Recording, seq: int | None, now: int) -> Question:
    """
    Return the question that event *seq* asks, or the only one that waits.

    Raises:
        UsageError: None waits, or more than one.
    """
    waiting = questions_in(recording, now)
    found = [one for one in waiting if seq in {None, one.seq}]
    if len(found) == 1:
        return found[0]
    known = ", ".join(str(one.seq) for one in waiting) or "none"
    raise UsageError(
        f"run {recording.run_id}: the questions that wait are the events: {known}",
        fix="name one of them; caxton approval list shows what waits",
    )


async def answer(
    store: SharedStore, question: Question, said: Said, redact: Redactor
) -> None:
    """
    Have the host that drives a run take the answer of a person to a question.

    Args:
        store: Where the run is.

        question: It waits.

        said: The answer.

        redact: Knows the secrets, which no answer may hold.

    Raises:
        UsageError: The answer does not fit the question, or is not for this role; or
            the question does not wait any more.

        BusyError: The host does not answer.

        StoreError: It could not be asked.
    """
    asked, run_id = question.asked, question.run_id
    where = f"event {question.seq} of run {run_id}"
    if asked.by and said.role not in asked.by:
        roles = " or ".join(f"--as {role}" for role in asked.by)
        raise UsageError(
            f"{where} is to be answered by others: {', '.join(map(str, asked.by))}",
            fix=f"if you are one of them, say {roles}; it is recorded",
        )
    wrong = "" if said.content is None else misfit(asked, said.content)
    if redact.value(said.content) != said.content:
        wrong = "it has a secret of the host in it"
    if wrong:
        raise UsageError(
            f"{where}: the answer is not what was asked: {wrong}",
            fix=f"caxton approval show {run_id} {question.seq}",
        )
    subject: Mapping[str, JSON] = {
        "call": asked.call,
        "question": asked.question,
        "content": said.content,
        "role": said.role,
    }
    host = await store.leases.owner(run_id)
    number = await store.requests.ask_run(
        run_id, ANSWER, {**(said.actor or {})}, said.reason, json.dumps(subject)
    )
    told = await outcome_at(store, host or "", number)
    if told.state == "failed":
        raise BusyError(f"the host of run {run_id} {told.text}", fix="try again")
    if told.text != ANSWERED:
        raise UsageError(
            f"{where} does not wait any more", fix=f"caxton events list {run_id}"
        )
