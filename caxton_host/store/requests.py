"""Requests to hosts, and their outcomes."""

from __future__ import annotations

import json

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ..core.calls import JSON
from ..core.log.requests import Request
from ..errors import NotFoundError
from .channels import announced
from .database import Database
from .schema import requests, runs


class Requests:
    """Requests to hosts, and their outcomes. See `caxton_host.ports.log.Requests`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask_run(
        self,
        run_id: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Send a request to the host that drives a run, and return its number.

        Raises:
            NotFoundError: There is no such run.

            StoreError: It could not be stored.
        """
        return await self._insert(kind, actor, reason, run_id=run_id, subject=subject)

    async def ask_host(
        self,
        host: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Send a request to a host, and return its number.

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
            requested_at=self._database.clock.now(),
            **to,
        )

        def insert(connection: sa.Connection) -> int:
            returned = statement.returning(requests.c.id)
            is_file = self._database.is_file
            try:
                done = connection.execute(returned if is_file else announced(statement))
            except IntegrityError:
                raise NotFoundError(f"there is no run {to.get('run_id')!r}") from None
            return int(done.scalar_one())

        return await self._database.change("the request", insert)

    async def waiting(self, host: str) -> list[Request]:
        """Return the requests to *host* without an outcome, oldest first."""
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
        rows = await self._database.rows(query)
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

    async def answer(self, request_id: int, outcome: str) -> None:
        """
        Store the outcome of a request, unless it has one; forget its subject.

        Raises:
            StoreError: It could not be stored.
        """
        statement = (
            sa.update(requests)
            .values(outcome=outcome, subject=None)
            .where(requests.c.id == request_id, requests.c.outcome.is_(None))
        )
        await self._database.change("the request", lambda c: c.execute(statement))

    async def outcome(self, request_id: int) -> str | None:
        """Return the outcome of a request, or ``None`` while it has none."""
        query = sa.select(requests.c.outcome).where(requests.c.id == request_id)
        rows = await self._database.rows(query)
        return rows[0].outcome if rows else None
