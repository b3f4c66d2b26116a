"""
What the log of a run says, read back: enough to execute the run once more.

Replay and resume begin here, so a guest is given the same in both (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import codec
from .core.catalogue import listing
from .core.events import ENDS, Recorded, RunResumed, RunStarted
from .core.grants import Grant
from .core.journal import Journal
from .core.limits import Limits
from .errors import LogBrokenError, NotFoundError, NotKeptError
from .ports import Guest, Store

__all__ = ["Recording", "guest_for"]

_GOING_ON = frozenset({"running", "suspended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """
    A run, as its log holds it.

    Attributes:
        history: Its events, in order. None of them was erased.

        started: The first of them.

        limits: The bounds that it was started with.
    """

    run_id: str
    history: Sequence[Recorded]
    started: RunStarted
    limits: Limits

    @classmethod
    async def load(cls, run_id: str, store: Store) -> Recording:
        """
        Return the recording of a run.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased.

            LogBrokenError: Its log lacks what an execution needs.
        """
        history = await store.read(f"run/{run_id}")
        if not history:
            raise NotFoundError(f"no run {run_id}", fix="caxton runs list shows them")
        for recorded in history:
            if recorded.event is None:
                raise NotKeptError(
                    f"event {recorded.seq} of run {run_id} was erased",
                    fix="an erased run can be verified, not executed again",
                )
        started = history[0].event
        if not isinstance(started, RunStarted):
            raise LogBrokenError(f"run {run_id} does not begin with RunStarted")
        return cls(
            run_id=run_id,
            history=history,
            started=started,
            limits=Limits.from_payload(started.limits),
        )

    @property
    def latest(self) -> Recorded:
        """The event that its state comes from."""
        return next(item for item in reversed(self.history) if item.type in ENDS)

    @property
    def state(self) -> str:
        """``running``, ``suspended``, or how it ended."""
        return ENDS[self.latest.type]

    @property
    def end(self) -> Recorded | None:
        """The event that ended the run, if it has ended."""
        return None if self.state in _GOING_ON else self.latest

    @property
    def epoch(self) -> int:
        """How many hosts have driven the run."""
        return 1 + sum(isinstance(item.event, RunResumed) for item in self.history)

    @property
    def driven(self) -> float:
        """Seconds in which a host drove the run. A suspended run does not age."""
        total = sum(
            after.recorded_at - before.recorded_at
            for before, after in pairwise(self.history)
            if not isinstance(after.event, RunResumed)
        )
        return total / 1e6

    def journal(
        self, *, compare_fuel: bool = False, today: Grant | None = None
    ) -> Journal:
        """Return the journal of what is recorded; see `Journal`."""
        journal = Journal(compare_fuel=compare_fuel, today=today)
        for recorded in self.history:
            assert recorded.event is not None  # noqa: S101 -- see `load`
            journal.apply(recorded.event, recorded.recorded_at, recorded.seq)
        return journal

    async def guest(self, domain: str, store: Store) -> Guest:
        """
        Return what the guest is given once more.

        Raises:
            NotFoundError: A definition that it saw was not kept.
        """
        definitions = {
            digest: await store.blob(digest)
            for entry in self.started.catalogue.values()
            if isinstance(entry, dict) and entry.get("visible")
            for digest in [str(entry["definition_sha256"])]
        }
        return guest_for(domain, self.started, definitions, self.history[0].recorded_at)


def guest_for(
    domain: str, started: RunStarted, definitions: Mapping[str, bytes], at: int
) -> Guest:
    """
    Return what the guest of a run is given: what its log holds, and nothing else.

    Args:
        domain: The trust domain.

        started: The first event of the run.

        definitions: Digest to the bytes of every definition that the run may see.

        at: When *started* was recorded.
    """
    known = {key: codec.decode_trusted(data) for key, data in definitions.items()}
    return Guest(
        domain=domain,
        entry=started.entry,
        limits=Limits.from_payload(started.limits),
        input=codec.encode(started.input),
        context={key: codec.encode(value) for key, value in started.context.items()},
        tools=codec.encode(listing(started.catalogue, known)),
        seed=bytes.fromhex(started.seed),
        now=at,
    )
