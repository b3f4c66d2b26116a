"""
The tasks of agents: a run of one is a task, whose id is that of the run.

A client finds the runs that its principal started, for as long as `RunStarted` says.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ...core.grants.principals import Principal
from ...core.log.events import RunFailed, RunQueued, RunStarted, RunSuspended
from ...core.log.runs import CHILD, ENDS, GOING_ON, RunFilter, RunRow
from ...core.names import stream_of
from ...errors import BusyError, NotFoundError, NotKeptError, UsageError
from ...runs.agent_tools import AgentTool
from ...runs.recording import Recording
from ...service.run_service import Service
from .agents import ended
from .calling import waits_for
from .tasks import LONGEST_TTL_MS, TTL_MS, Context, Task

_ID = re.compile(r"[0-9a-f-]{36}")
_CURSOR = re.compile(r"([0-9]{1,18}) ([0-9a-g-]{1,36})")
#: Behind the id of any run.
_ANY = "g"
#: Tasks of a page; runs that are read at a time, and how often for one page.
_PAGE, _ROWS, _READS = 20, 200, 20
#: Seconds between two looks at a run that is not driven here.
_EVERY = 0.5
#: The states of a run that tasks have other words for.
_STATUS = {**dict.fromkeys(GOING_ON, "working"), "failed": "completed"}
#: Why a run is suspended that a person has to decide about.
_FOR_PEOPLE = frozenset({"approval", "in_doubt", CHILD})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTasks:
    """
    Finds the runs of clients.

    Attributes:
        service: Has them.

        principal: Returns the principal of a request.
    """

    service: Service
    principal: Callable[[Context], Principal]

    async def find(self, ctx: Context, key: str) -> Task | None:
        """Return the task that a run is; see `Source`."""
        if not _ID.fullmatch(key):
            return None
        who = self.principal(ctx)
        try:
            return await self._task(who, await self.service.row(who, key))
        except (NotFoundError, NotKeptError):
            return None

    async def wait(self, task: Task) -> None:
        """Return when a run is over, or after a while."""
        if await self.service.background.over(task.id) is None:
            await asyncio.sleep(_EVERY)

    async def cancel(self, ctx: Context, task: Task) -> None:
        """Cancel a run."""
        try:
            reason = "the client cancelled the task"
            await self.service.cancel(self.principal(ctx), task.id, reason)
        except (BusyError, UsageError):
            return  # Another host is asked to, or it has just ended.

    async def list(
        self, ctx: Context, cursor: str | None
    ) -> tuple[Sequence[Task], str | None]:
        """
        Return a page of the tasks of a client, newest first.

        Raises:
            MCPError: The cursor is invalid.
        """
        who, before, found = self.principal(ctx), _place(cursor), list[Task]()
        own = RunFilter(tenant=who.tenant, actor=who.id)
        oldest = self.service.host.clock.now() - LONGEST_TTL_MS * 1_000
        for _ in range(_READS):
            rows = await self.service.store.reader.runs(_ROWS, own, before=before)
            for row in rows:
                if row.started_at < oldest:
                    return found, None
                try:
                    task = await self._task(who, row)
                except NotKeptError:
                    continue
                if task is not None:
                    found.append(task)
                if len(found) == _PAGE:
                    return found, _cursor(row.started_at, row.run_id)
            if len(rows) < _ROWS:
                return found, None
            before = rows[-1].started_at, rows[-1].run_id
        assert before is not None  # noqa: S101 -- it has read some
        is_own = found and found[-1].id == before[1]  # It names no run of others.
        return found, _cursor(before[0], before[1] if is_own else _ANY)

    async def _task(self, who: Principal, row: RunRow) -> Task | None:
        agent = self.service.config().executed.get(row.agent)
        if agent is None or agent.tool is None or agent.expose.tasks == "forbidden":
            return None
        if not who.owns(json.loads(row.actor)):
            return None
        reader = self.service.store.reader
        recording: Recording | None = None
        if row.epoch:
            recording = await Recording.load(row.run_id, reader)
            history = [*recording.own]
        else:
            history = await reader.read(stream_of(row.run_id))
        first = history[0].event
        last = recording.latest if recording else history[-1]
        if not isinstance(first, RunQueued | RunStarted):
            return None  # It was erased.
        ttl, state = first.task_ttl or TTL_MS, ENDS[last.type]
        if row.started_at + ttl * 1_000 <= self.service.host.clock.now():
            return None
        said, status = "", _STATUS.get(state, state)
        if recording and isinstance(last.event, RunSuspended):
            said = waits_for(recording)
            if last.event.reason in _FOR_PEOPLE:
                status = "input_required"
        elif isinstance(last.event, RunFailed) and last.event.kind != "agent_error":
            status = "failed"  # The agent did not say so: something ended it.
        result = None
        if state not in GOING_ON:
            tool = AgentTool(self.service.card(agent))
            result = ended(tool, row.run_id, last.event).model_dump(
                by_alias=True, mode="json", exclude_none=True
            )
        return Task(
            id=row.run_id,
            status=status,
            said=said,
            created=row.started_at,
            updated=last.recorded_at,
            ttl=ttl,
            result=result,
        )


def _cursor(time: int, run_id: str) -> str:
    return base64.urlsafe_b64encode(f"{time} {run_id}".encode()).decode()


def _place(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    try:
        found = _CURSOR.fullmatch(base64.urlsafe_b64decode(cursor).decode())
    except ValueError:
        found = None
    if found is None:
        raise MCPError(types.INVALID_PARAMS, "no such cursor")
    return int(found[1]), found[2]
