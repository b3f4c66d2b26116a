"""
How far each follower of the log has come, and which host follows.

One living host follows under a name. Another takes over where the state says, once that
host is dead; what the dead one sent but did not save is sent again.
"""

from __future__ import annotations

import asyncio

import sqlalchemy as sa

from ..errors import LeaseLost
from .database import Database
from .leases import HostLeases
from .schema import followers


class Followers:
    """
    The followers of a log, by name.

    Args:
        database: Shared by the hosts.

        hosts: The leases of the hosts.
    """

    def __init__(self, database: Database, hosts: HostLeases) -> None:
        self._database = database
        self._hosts = hosts

    async def take(self, name: str, host: str, first: str) -> str | None:
        """
        Follow under *name*, and return the state; ``None``: another host follows.

        Args:
            name: The follower.

            host: The stream of this host, which has joined.

            first: The state of a follower that there was not yet.

        Raises:
            StoreError: It cannot be read or stored.
        """
        query = sa.select(followers).where(followers.c.name == name)
        known = next(iter(await self._database.rows(query)), None)
        if known is None:
            new = self._database.insert(followers).on_conflict_do_nothing()
            done = await self._change(new.values(name=name, state=first, host=host))
            return first if done else None
        others = {known.host} - {None, host}
        if len(await asyncio.to_thread(self._hosts.living, others)):
            return None
        same = followers.c.host.is_not_distinct_from(known.host)
        ours = sa.update(followers).where(followers.c.name == name, same)
        done = await self._change(ours.values(host=host))
        return str(known.state) if done else None

    async def save(self, name: str, host: str, state: str) -> None:
        """
        Save the state of a follower.

        Raises:
            LeaseLost: Another host follows.

            StoreError: It cannot be stored.
        """
        here = followers.c.name == name, followers.c.host == host
        save = sa.update(followers).where(*here).values(state=state)
        if not await self._change(save):
            raise LeaseLost(f"another host follows as {name}")

    async def _change(self, statement: sa.Insert | sa.Update) -> int:
        """Return how many rows *statement* changed."""
        return await self._database.change(
            "the state of a follower", lambda c: c.execute(statement).rowcount
        )
