"""Hosts of a fleet are killed and stopped, and each key is one run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import history
from tests.postgres import Server, name_of

from .test_kill_loop import killed

_FAULTS = "kill,stop,backends,deleted"


@pytest.fixture(scope="module")
def fleet(
    postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, str]:
    """Return the log of a fleet that was broken, its folder, and the report."""
    store, folder = postgres.make(), tmp_path_factory.mktemp("fleet")
    words = ["--folder", str(folder), "--store", store, "--faults", _FAULTS]
    words += ["--hosts", "3", "--runs", "30", "--lease", "2", "--cycles", "4"]
    return store, folder, killed(*words, "--pace", "0.5")


def test_every_accepted_key_is_one_run_whatever_dies(
    fleet: tuple[str, Path, str],
) -> None:
    # laws 2, 3, 7 and 10; by hand: python -m tests.chaos --hosts 5
    _, _, said = fleet
    for kind in _FAULTS.split(","):
        assert f"'{kind}': 1" in said, said
    for line in (r" 30 runs", r" 30 keys", r"[1-9]\d* effects", r"0 double effects"):
        assert re.search(rf"{line}\n", said), said


def test_the_checker_knows_nothing_of_the_host() -> None:
    text = Path(history.__file__).read_text()
    found = ast.walk(ast.parse(text))
    names = {
        name.name.partition(".")[0]
        for one in found
        if isinstance(one, ast.Import | ast.ImportFrom)
        for name in (
            one.names if isinstance(one, ast.Import) else [ast.alias(one.module or "")]
        )
    }
    assert not names & {"caxton_host", "tests", ""}
    assert len(text.splitlines()) <= 200


def _twice(ledger: str) -> str:
    return ledger + re.search(r"^send .*\n", ledger, re.MULTILINE)[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("what", "edit"),
    [
        ("happened 2 times", _twice),
        ("did not happen", lambda _: ""),
        ("an effect without", "{}pay 0123 1\n".format),
        ("the chain is broken", "UPDATE events SET recorded_at = recorded_at + 1"),
        ("its payload is not", "UPDATE payloads SET payload = payload || '.'"),
        ("its payload is not", "DELETE FROM payloads"),
        ("its row running", "UPDATE runs SET state = 'running'"),
        (
            "a job of",
            "INSERT INTO procrastinate_jobs (queue_name, task_name) SELECT '', ''",
        ),
    ],
)
@pytest.mark.long
def test_the_checker_finds(
    fleet: tuple[str, Path, str],
    postgres: Server,
    tmp_path: Path,
    what: str,
    edit: str | Callable[[str], str],
) -> None:
    store, folder, _ = fleet
    copy = postgres.make(template=name_of(store))
    ledger = tmp_path / "counter"
    ledger.write_bytes((folder / "counter").read_bytes())
    if isinstance(edit, str):
        for table in ("events", "payloads"):  # A forger owns them.
            postgres.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL", name_of(copy))
        postgres.execute(edit, name_of(copy))
    else:
        ledger.write_text(edit(ledger.read_text()))

    said = (folder / "said.json").read_text()
    found = history.main(copy, str(ledger), said, "[]")

    assert any(what in line for line in found.wrong), found.wrong[:5]


def test_the_checker_finds_a_key_with_two_runs(fleet: tuple[str, Path, str]) -> None:
    store, folder, _ = fleet
    said = json.loads((folder / "said.json").read_text())
    first, second = [*said][:2]
    said[first]["runs"] += said[second]["runs"]

    found = history.main(store, str(folder / "counter"), json.dumps(said), "[]")

    assert [line for line in found.wrong if f"the key {first} has" in line]
