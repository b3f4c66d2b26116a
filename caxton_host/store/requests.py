"""What is asked of hosts, and what came of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from ..core.calls import JSON
from ..core.log.requests import Request
from ..errors import NotFoundError, StoreError
from ..ports import Clock
from .engine import explain, path_of
from .reader import Reader
from .schema import requests, runs


class Requests(Reader):
    """A reader that can also ask. See `caxton_host.ports.Store`."""

    def __init__(self, engine: sa.Engine, clock: Clock) -> None:
        super().__init__(engine)
        self._clock = clock

    async def request(
        self, run_id: str, kind: str, actor: dict[str, JSON], reason: str
    ) -> int:
        """
        Ask something of the host that drives a run, and return the request's number.

        Raises:
            NotFoundError: There is no such run.

            StoreError: It could not be stored.
        """
        return await self._insert(kind, actor, reason, run_id=run_id)

    async def ask(
        self,
        host: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Ask something of a host as such, and return the request's number.

        Raises:
            StoreError: It could not be stored.
        """
        return await self._insert(kind, actor, reason, host=host, subject=subject)

    async def _insert(
        self, kind: str, actor: dict[str, JSON], reason: str, **to: str | None
    ) -> int:
        statement = sa.insert(requests).values(
            kind=kind,
            actor=json.dumps(actor, ensure_ascii=False, sort_keys=True),
            reason=reason,
            requested_at=self._clock.now(),
            **to,
        )
        run_id = to.get("run_id") or ""
        done = await asyncio.to_thread(self._write, statement, run_id)
        return int(done.inserted_primary_key[0])

    async def requests(self, host: str) -> list[Request]:
        """Return what is asked of *host* and has no outcome yet, oldest first."""
        query = (
            sa.select(
                requests.c.id,
                requests.c.run_id,
                requests.c.kind,
                requests.c.actor,
                requests.c.reason,
                requests.c.subject,
            )
            .outerjoin_from(requests, runs)
            .where(
                requests.c.outcome.is_(None),
                sa.or_(runs.c.owner == host, requests.c.host == host),
            )
            .order_by(requests.c.id)
        )
        rows = await asyncio.to_thread(self._rows, query)
        return [
            Request(
                id=row.id,
                run_id=row.run_id,
                kind=row.kind,
                actor=json.loads(row.actor),
                reason=row.reason,
                subject=row.subject,
            )
            for row in rows
        ]

    async def answered(self, request_id: int, outcome: str) -> None:
        """
        Note what came of a request, unless somebody has.

        Raises:
            StoreError: It could not be stored.
        """
        statement = (
            sa.update(requests)
            .values(outcome=outcome)
            .where(requests.c.id == request_id, requests.c.outcome.is_(None))
        )
        await asyncio.to_thread(self._write, statement, "")

    async def outcome(self, request_id: int) -> str | None:
        """Return what came of a request, or ``None`` as long as nothing did."""
        query = sa.select(requests.c.outcome).where(requests.c.id == request_id)
        rows = await asyncio.to_thread(self._rows, query)
        return rows[0].outcome if rows else None

    def _write(self, statement: sa.Insert | sa.Update, run_id: str) -> Any:  # noqa: ANN401 -- what SQLAlchemy types so
        try:
            with self.engine.connect() as connection:
                return connection.execute(statement)
        except IntegrityError:
            raise NotFoundError(f"there is no run {run_id!r}") from None
        except DBAPIError as exc:
            text, fix = explain(exc, path_of(self.engine), "see `caxton db status`")
            raise StoreError(f"the request cannot be stored: {text}", fix=fix) from None
