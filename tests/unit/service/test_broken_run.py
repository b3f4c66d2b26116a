"""A run that lacks a payload which nobody erased."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from caxton_host.core.log.events import RunCompleted
from caxton_host.runs.recording import BROKEN
from caxton_host.service.readings import Summaries
from tests.unit.store.fakes import open_store, run_started


async def test_a_run_that_lost_one_payload_is_broken_not_erased(
    tmp_path: Path,
) -> None:
    """Decision 0013: an erasure removes every payload of its run."""
    done = RunCompleted(output=None, output_sha256="", fuel=0)
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(run_started(), done)
        with closing(sqlite3.connect(tmp_path / "caxton.db")) as db:
            db.execute("DELETE FROM payloads WHERE position = 2")
            db.commit()
        (row,) = await store.reader.runs(1)
        summary = await Summaries(store.reader).of(row)
    assert summary.state == BROKEN
    assert not summary.erased
