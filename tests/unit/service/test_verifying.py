"""A log that is verified on request: what is found broken becomes an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import AuditFailed, Event
from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.service.verifying import Verifying

GONE = "run/1 event 3: it is missing"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"verdict": "intact", "faults": []}, None),
        ({"verdict": "broken", "faults": [{"message": GONE}, {"message": "x"}]}, GONE),
        (LogBrokenError("the tree is damaged"), "the tree is damaged"),
        (StoreError("the database is away"), None),
    ],
)
async def test_only_what_is_found_broken_is_recorded(
    found: dict[str, JSON] | Exception, reason: str | None
) -> None:  # law 9
    async def look(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
        told(3)
        assert full
        if isinstance(found, Exception):
            raise found
        return found

    events: list[Event] = []
    verifying = Verifying(look=look, now=int, record=events.append)
    verifying.start(Principal(kind="local", id="me", scopes=frozenset()), full=True)
    while verifying.running:  # noqa: ASYNC110 -- told by nobody
        await asyncio.sleep(0)
    await verifying.aclose()
    recorded = [AuditFailed(what="verify", reason=reason)] if reason else []
    assert events == recorded
