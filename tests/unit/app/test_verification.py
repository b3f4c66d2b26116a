"""Verifications of a machine: each goes on from the last, where that saves time."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.app.verification import audit_document, kept_document, verify_log
from caxton_host.lib.signing import Keyring
from caxton_host.store.incarnation import Marks
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import FakeClock, FakeEntropy, url
from tests.unit.store.test_evidence import written


async def test_a_machine_goes_on_from_what_it_found_intact_if_the_log_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(tmp_path)
    state = tmp_path / "state"
    keys = Keyring(state).known()
    async with SqlStore.open(
        url(tmp_path),
        clock=FakeClock(),
        entropy=FakeEntropy(),
        marks=Marks.of(state),  # They give the log a name.
    ) as store:
        assert kept_document(store, state) is None
        (first, none) = await verify_log(store, state, keys)
        kept = kept_document(store, state)
        monkeypatch.setattr("caxton_host.store.verify.LARGE", 0)
        second, before = await verify_log(store, state, keys)
        third, again = await verify_log(store, state, keys, full=True)

    assert kept is not None
    assert (first.verdict, none, kept["events"]) == ("intact", None, 15)
    assert before is not None
    assert (second.verdict, second.before) == ("intact", 15)
    assert (third.before, again) == (0, None)
    document = audit_document(second, before)
    assert document["before"] == {
        "events": 15,
        "verified_at": before.at,
        "full_at": before.full_at,
    }
