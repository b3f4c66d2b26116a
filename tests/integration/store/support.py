"""Stores at a url, and how to lose their connections."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Signer
from caxton_host.store.postgres import PostgresCommitter
from caxton_host.store.sql import SqlStore


def opened(url: str, *, write: bool = True, signer: Signer | None = None) -> SqlStore:
    return SqlStore.open(
        url, clock=SystemClock(), entropy=os.urandom, write=write, signer=signer
    )


def committer(store: SqlStore) -> PostgresCommitter:
    assert store._writer is not None
    assert isinstance(store._writer._committer, PostgresCommitter)
    return store._writer._committer


def instead(
    store: SqlStore, answer: Callable[[bytes, Sequence[Any]], None]
) -> list[bytes]:
    """
    Answer the next append of *store*, and lose its connection.

    Returns what was sent.
    """
    driver = committer(store)._driver
    execute = driver.execute
    sent: list[bytes] = []

    def lose(query: Any, params: Any = (), **options: Any) -> Any:  # noqa: ANN401
        if not isinstance(query, bytes):
            return execute(query, params, **options)
        sent.append(query)
        answer(query, params)
        driver.close()
        raise psycopg.OperationalError("the connection is lost")

    driver.execute = lose  # type: ignore[method-assign]
    return sent
