"""Which hosts live, in memory: what they drive, and what is asked of them."""

from __future__ import annotations

from ..core.calls import JSON
from ..core.log.requests import Request
from ..core.log.runs import RunRow
from ..errors import NotFoundError
from .memory_reading import MemoryReading


class MemoryHosts(MemoryReading):
    """
    See `caxton_host.ports.Hosts`.

    Attributes:
        joined: Hosts that live. Take one out, and it is dead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.joined: set[str] = set()
        self._known: set[str] = set()
        self._requests: dict[int, Request] = {}
        self._asked: dict[int, str] = {}
        self._outcomes: dict[int, str] = {}

    async def join(self, host: str) -> None:
        """Become known as *host*."""
        self.joined.add(host)
        self._known.add(host)

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        row = self._runs.get(run_id)
        return row.owner if row and row.owner in self.joined else None

    async def idle(self) -> list[RunRow]:
        """Return the runs under way that no living host drives, oldest first."""
        rows = await self.runs(len(self._runs), state="running")
        return [row for row in reversed(rows) if row.owner not in self.joined]

    async def request(
        self, run_id: str, kind: str, actor: dict[str, JSON], reason: str
    ) -> int:
        """
        Ask something of the host that drives a run, and return the request's number.

        Raises:
            NotFoundError: There is no such run.
        """
        if run_id not in self._runs:
            raise NotFoundError(f"there is no run {run_id!r}")
        number = len(self._requests) + 1
        self._requests[number] = Request(
            id=number, run_id=run_id, kind=kind, actor=actor, reason=reason
        )
        return number

    async def hosts(self) -> list[str]:
        """Return the streams of the hosts that live, oldest first."""
        return sorted(self.joined)

    async def ask(
        self,
        host: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """Ask something of a host as such, and return the request's number."""
        number = len(self._requests) + 1
        self._asked[number] = host
        self._requests[number] = Request(
            id=number,
            run_id=None,
            kind=kind,
            actor=actor,
            reason=reason,
            subject=subject,
        )
        return number

    async def requests(self, host: str) -> list[Request]:
        """Return what is asked of *host* and has no outcome yet, oldest first."""
        return [
            request
            for number, request in self._requests.items()
            if number not in self._outcomes and self._addressee(request) == host
        ]

    def _addressee(self, request: Request) -> str | None:
        if request.run_id is None:
            return self._asked[request.id]
        return self._runs[request.run_id].owner

    async def answered(self, request_id: int, outcome: str) -> None:
        """Note what came of a request, unless somebody has."""
        self._outcomes.setdefault(request_id, outcome)

    async def outcome(self, request_id: int) -> str | None:
        """Return what came of a request, or ``None`` as long as nothing did."""
        return self._outcomes.get(request_id)
