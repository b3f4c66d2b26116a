"""What is asked of all hosts that share a log, and what comes of it at each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.calls import JSON
from ..core.log.request_outcomes import RESTARTED, is_failure
from ..errors import NotFoundError
from ..ports import SharedStore

_PAUSE = 0.1
_MOST = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What came of something at one host.

    Attributes:
        state: ``done``; ``ended``: it has, so nothing is left to do; or ``failed``.

        text: The same for people.
    """

    state: Literal["done", "ended", "failed"]
    text: str


_SILENT = Answer("failed", "does not answer")
_ENDED = Answer("ended", "has ended")


async def ask_hosts(  # noqa: PLR0913 -- what a request is
    store: SharedStore,
    kind: str,
    actor: dict[str, JSON],
    reason: str,
    *,
    subject: str | None = None,
    only: str | None = None,
) -> dict[str, Answer]:
    """
    Ask something of hosts that are up, and return what came of it at each.

    Args:
        store: What they share.

        kind: See `Request`.

        actor: Who asks.

        reason: Why; it is recorded.

        subject: What it is about.

        only: The one host, or ``None`` for all.

    Raises:
        NotFoundError: That host is not up.

        StoreError: They cannot be asked.
    """
    asked = {
        host: await store.requests.ask_host(host, kind, actor, reason, subject)
        for host in asked_of(await store.leases.hosts(), only)
    }
    async with asyncio.TaskGroup() as tasks:
        found = {
            host: tasks.create_task(_answer(store, host, number))
            for host, number in asked.items()
        }
    return {host: task.result() for host, task in found.items()}


def asked_of(hosts: Sequence[str], only: str | None) -> Sequence[str]:
    """
    Return the hosts that are asked.

    Raises:
        NotFoundError: The only one is not up.
    """
    if only is None:
        return hosts
    if only not in hosts:
        names = ", ".join(hosts)
        see = f"name one of: {names}" if names else "leave out --only: none is up"
        raise NotFoundError(f"no host {only!r} is up", fix=see)
    return [only]


async def _answer(store: SharedStore, host: str, number: int) -> Answer:
    try:
        async with asyncio.timeout(_MOST):
            while (outcome := await store.requests.outcome(number)) is None:
                if host not in await store.leases.hosts():
                    return _ENDED
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        return _SILENT
    return answer_of(outcome)


def answer_of(outcome: str) -> Answer:
    """
    Return what came of something, by the words for it.

    >>> answer_of("has ended").state
    'ended'
    """
    for known in (_SILENT, _ENDED):
        if outcome == known.text:
            return known
    return Answer("failed" if is_failure(outcome) else "done", outcome)


def reload_document(host: str, answer: Answer) -> dict[str, JSON]:
    """Return the ``caxton.reload/v1`` document of a host that was asked to reload."""
    return {
        "$type": "caxton.reload/v1",
        "host": host,
        "reloaded": answer.state == "done",
        "outcome": answer.text,
    }


def restart_document(server: str, host: str, answer: Answer) -> dict[str, JSON]:
    """Return the ``caxton.restart/v1`` document of a host that was asked for one."""
    return {
        "$type": "caxton.restart/v1",
        "server": server,
        "host": host,
        "restarted": answer.text == RESTARTED,
        "outcome": answer.text,
    }
