"""
Runs that wait for a place: queued in the log, and started by the host that claims them.

    submit -> RunQueued, and a job of the engine, in one transaction
    a place is free -> claim -> judged as of now -> RunStarted -> release
    a job that is lost -> found by the host that queued the run
    that host is dead -> found by the look at the queued runs

Several hosts may try: the number of `RunStarted` in its stream lets one start it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..config import Config, model
from ..core.grants.principals import named
from ..core.log.events import RunCancelled, RunFailed, RunQueued
from ..core.log.runs import RunRow
from ..core.names import stream_of
from ..core.programs import Program, digests_of
from ..errors import BusyError, CaxtonError, OverloadedError, StoreError, UsageError
from ..ports.placement import Job, Placement, Within
from ..ports.serving import ServingStore
from ..runs.admission import Ticket
from ..runs.host import Host
from ..runs.modules import Code
from ..runs.pinning import check_blobs
from ..runs.run_request import RunRequest, queued_as
from .run_tasks import RunTasks

logger = logging.getLogger("caxton_host")

#: Seconds after a failure of the log before the next claim.
_PAUSE_S = 1.0
#: Seconds after which a queued run of a shared queue may have lost its job.
_LOST_S = 5.0


def _job(run_id: str, queued: RunQueued) -> Job:
    return Job(run_id=run_id, who=named(queued.actor), priority=queued.priority)


@dataclass(slots=True, kw_only=True, eq=False)
class Placer:
    """
    Queues runs, and starts those that this host claims.

    Attributes:
        host: Starts them.

        store: Where they are recorded.

        config: Returns what is configured now.

        background: Where they are driven.

        placement: Decides which host tries.
    """

    host: Host
    store: ServingStore
    config: Callable[[], Config]
    background: RunTasks
    placement: Placement
    # How many of each principal are on their way into the queue.
    _entering: Counter[str] = field(default_factory=Counter[str], init=False)
    # When each run was queued here that may have to be looked after, in microseconds.
    _queued_at: dict[str, int] = field(default_factory=dict[str, int], init=False)
    # Claimed, and not begun yet.
    _starting: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )

    async def submit(self, run_id: str, request: RunRequest) -> None:
        """
        Queue a run.

        Raises:
            OverloadedError: The queue is full, or its principal has too many in it.

            StoreError: It could not be recorded.
        """
        who = named(request.actor)
        queued, own = await self.placement.waiting(who)
        entering = self._entering
        self.background.line.check(queued + entering.total(), own + entering[who], who)
        self._entering[who] += 1
        try:
            await self._submit(run_id, request)
        finally:
            self._entering[who] -= 1

    def waiting(self, who: str) -> tuple[int, int]:
        """Return how many runs wait, and how many of *who*, as far as is known."""
        queued, own = self.placement.known(who)
        return queued + self._entering.total(), own + self._entering[who]

    async def _submit(self, run_id: str, request: RunRequest) -> None:
        host = None if self.placement.shared else self.host.stream
        queued, blobs = queued_as(request, host, self.host.redact)

        async def record(within: Within | None) -> None:
            stream = stream_of(run_id)
            await self.store.enter(stream, queued, blobs=blobs, within=within)

        await self.placement.submit(_job(run_id, queued), record)
        if self.placement.shared:
            self._queued_at[run_id] = self.host.clock.now()

    async def skip(self, run_id: str, request: RunRequest, reason: str) -> None:
        """
        Record that a run is not started, as if it was queued and cancelled.

        Raises:
            LeaseLost: It was started, or skipped, elsewhere.

            StoreError: It could not be recorded.
        """
        queued, blobs = queued_as(request, self.host.stream, self.host.redact)
        end = RunCancelled(actor=request.actor, reason=reason)
        await self.store.enter(stream_of(run_id), queued, end, blobs=blobs)

    async def watch(self) -> None:
        """Start queued runs whenever there is a place, until cancelled."""
        async with self.placement.running():
            try:
                while True:
                    await self.background.line.until(free=True)
                    try:
                        job = await self._claimed()
                    except StoreError as exc:
                        logger.warning("queued runs cannot be claimed: %s", exc)
                        await asyncio.sleep(_PAUSE_S)
                        continue
                    if job is None:
                        continue
                    # It has its place before the next one is looked for.
                    ticket = self.background.line.admit(job.who)
                    task = asyncio.create_task(self._start(job, ticket))
                    self._starting.add(task)
                    task.add_done_callback(self._starting.discard)
            finally:
                for task in self._starting:
                    task.cancel()
                if self._starting:
                    await asyncio.wait(self._starting)

    async def _claimed(self) -> Job | None:
        """Return the next job; ``None``: there is no place for one any more."""
        claim = asyncio.ensure_future(self.placement.claim())
        full = asyncio.ensure_future(self.background.line.until(free=False))
        try:
            await asyncio.wait((claim, full), return_when=asyncio.FIRST_COMPLETED)
            return claim.result() if claim.done() else None
        finally:
            for one in (claim, full):
                one.cancel()
            await asyncio.wait((claim, full))

    async def look_after(self) -> None:
        """Find the jobs that were queued here and are lost, until cancelled."""
        while self.placement.shared:
            await asyncio.sleep(_LOST_S)
            if self._queued_at:
                await self._submit_lost(self._queued_at)

    async def look_at(self, rows: Sequence[RunRow]) -> None:
        """Submit queued runs again that no living host has in its queue."""
        await self._submit_lost({row.run_id: row.started_at for row in rows})

    async def _submit_lost(self, queued_at: Mapping[str, int]) -> None:
        # A job that is claimed is started soon, whatever the engine says of it.
        lost = round(self.placement.shared * _LOST_S * 1_000_000)
        late = self.host.clock.now() - lost
        waiting = [run for run, at in queued_at.items() if at <= late]
        try:
            await self.placement.waiting("")
            for run_id in sorted(await self.placement.missing(waiting)):
                await self._submit_again(run_id)
        except StoreError as exc:
            logger.warning("queued runs cannot be looked at: %s", exc)

    async def _submit_again(self, run_id: str) -> None:
        if queued := await self._queued(run_id):
            await self.placement.submit(_job(run_id, queued))
        else:
            self._queued_at.pop(run_id, None)

    async def _queued(self, run_id: str) -> RunQueued | None:
        """Return what a run was queued with; ``None``: it does not wait any more."""
        events = await self.store.reader.read(stream_of(run_id))
        first = events[0].event if len(events) == 1 else None
        return first if isinstance(first, RunQueued) else None

    async def _start(self, job: Job, ticket: Ticket) -> None:
        again = False
        try:
            await self._started(job, ticket)
        except asyncio.CancelledError:
            again = True
            raise
        except OverloadedError:
            again = True  # This host is about to stop.
        except (BusyError, StoreError) as exc:
            # Another host was faster, or it is tried again.
            again = isinstance(exc, StoreError) or await self._waits(job.run_id)
            if again:
                logger.warning("run %s is not started: %s", job.run_id, exc)
                await asyncio.sleep(_PAUSE_S)
        finally:
            if not ticket.kept:
                ticket.leave()
            await self._released(job, again=again)

    async def _waits(self, run_id: str) -> bool:
        row = await self.store.reader.row(run_id)
        return row is not None and row.state == "queued"

    async def _released(self, job: Job, *, again: bool) -> None:
        try:
            await self.placement.release(job, again=again)
        except StoreError as exc:
            logger.warning("run %s stays claimed: %s", job.run_id, exc)

    async def _started(self, job: Job, ticket: Ticket) -> None:
        """
        Start a run, or end it if it may not start.

        Raises:
            BusyError: Another host has it, or it was cancelled.

            OverloadedError: This host is about to stop.

            StoreError: The log failed.
        """
        queued = await self._queued(job.run_id)
        if queued is None:
            return
        try:
            request = await self._request(queued)

            async def driving(begun: Callable[[str], None]) -> None:
                await self.host.start(
                    request, run_id=job.run_id, on_started=begun, queued=True
                )

            await self.background.begin(job.run_id, ticket, driving)
        except (BusyError, OverloadedError, StoreError):
            raise
        except CaxtonError as exc:
            await self._refused(job.run_id, exc)

    async def _request(self, queued: RunQueued) -> RunRequest:
        """
        Return the request for a run, judged as of now.

        Raises:
            UsageError: Its agent is not configured any more, or its pin refuses what
                waits, or its principal may not start it now.
        """
        config = self.config()
        agent = config.executed.get(queued.agent)
        if agent is None:
            raise UsageError(f"no agent {queued.agent!r} in the configuration")
        await self._check_actor(queued)
        blob = self.store.reader.blob
        program = None
        if queued.program is not None:
            parts = {key: await blob(key) for key in digests_of(queued.program)}
            program = Program.from_payload(queued.program, parts)
        command = queued.command or {}
        files = command.get("files")
        digests = map(str, files.values()) if isinstance(files, dict) else ()
        code = Code(
            module=await blob(queued.module_sha256),
            program=program,
            input=queued.input,
            signatures=queued.signatures,
        )
        blobs = program.blobs if program else {queued.module_sha256: code.module}
        check_blobs(agent, blobs, queued.signatures)
        request = RunRequest.of(agent, code, queued.actor)
        request = request.from_queue(queued, {key: await blob(key) for key in digests})
        return replace(request, private=model.private_variables(config))

    async def _check_actor(self, queued: RunQueued) -> None:
        """Refuse the run of a token that is not good, or of a schedule that is gone."""
        actor = queued.actor
        if actor.get("kind") == "schedule":
            schedule = self.config().schedules.get(str(actor.get("id")))
            if schedule is None or schedule.agent != queued.agent:
                raise UsageError("the schedule that asked for it is gone")
        if actor.get("kind") != "token":
            return
        row = await self.store.tokens.find(str(actor.get("id")))
        if row is None or not row.is_good(self.host.clock.now()):
            raise UsageError("the token that asked for it is not valid any more")
        if not row.bearer.may("run", queued.agent):
            raise UsageError("the token that asked for it may not start the agent")

    async def _refused(self, run_id: str, exc: CaxtonError) -> None:
        """End a run that cannot start."""
        failed = RunFailed(
            kind="start", message=self.host.redact.text(str(exc)), fuel=None
        )
        await self.store.claim(stream_of(run_id), failed, after=1)
