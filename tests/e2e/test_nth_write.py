"""A write fails: the host goes on, and nothing is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.store import migrate
from tests.nth.faults import Faults
from tests.nth.told import told
from tests.postgres import Server

pytestmark = pytest.mark.no_cover


def log(folder: Path) -> str:
    migrate.upgrade(f"sqlite:///{folder}/log.db")
    return f"sqlite:///{folder}/log.db"


@pytest.mark.parametrize("faults", [Faults(13), Faults(110), Faults(9, of="COMMIT")])
async def test_nothing_is_lost_when_a_write_fails(
    tmp_path: Path, faults: Faults
) -> None:
    # laws 2, 3, 7 and 10; attack 45; by hand, each of them: python -m tests.nth
    found = await told(log(tmp_path), tmp_path, faults)

    assert found.wrong == []
    assert found.failed


async def test_nothing_is_lost_with_the_answer_of_a_server(
    postgres: Server, tmp_path: Path
) -> None:
    # laws 2, 3, 7 and 10
    found = await told(postgres.make(), tmp_path, Faults(10, "lost"))

    assert found.wrong == []
    assert found.failed


async def test_a_database_that_drops_a_write_is_noticed(tmp_path: Path) -> None:
    faults = Faults(3, "dropped", of="INSERT INTO payloads")

    assert (await told(log(tmp_path), tmp_path, faults)).wrong
