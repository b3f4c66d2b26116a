"""
The form of a file of the corpus: a log as its database holds it, a line a row.

The first line says what is expected of it. Bytes are in base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caxton_host.core.grants.freezes import FREEZES
from caxton_host.store import migrate

LOGS = Path(__file__).with_name("logs")
#: Digest and name of each log, in the format of ``sha256sum``.
FROZEN = Path(__file__).with_name("frozen.txt")
#: Far more than the number of events of any log.
_LARGEST = 512 * 1024
_TABLES = ("blobs", "events", "payloads", "runs")
_BYTES = "$bytes"
#: Who drives a run now is not of the log.
_RUNS = """
    SELECT run_id, agent, actor, module_sha256, state, started_at, ended_at, host,
        trace_id FROM runs WHERE run_id = ?"""
_BLOBS = "SELECT * FROM blobs ORDER BY sha256"
_EVENTS = "SELECT * FROM events WHERE stream = ? ORDER BY seq"
_PAYLOADS = """
    SELECT payloads.* FROM payloads JOIN events USING (position)
    WHERE stream = ? ORDER BY seq"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """
    One file.

    Attributes:
        about: ``name``, ``run_id``, ``version``, ``engine``, ``verdict`` of its
            replay, and the ``summary`` of the run.

        rows: By table.
    """

    about: dict[str, Any]
    rows: dict[str, list[dict[str, Any]]]


def names() -> list[str]:
    """Return the names of all logs."""
    return sorted(path.stem for path in LOGS.glob("*.jsonl"))


def frozen() -> dict[str, str]:
    """Return the digests of the frozen logs, by name."""
    lines = (line.split() for line in FROZEN.read_text().splitlines())
    return {Path(name).stem: digest for digest, name in lines}


def digest(name: str) -> str:
    """Return the digest of a log."""
    return hashlib.sha256((LOGS / f"{name}.jsonl").read_bytes()).hexdigest()


def freeze(name: str) -> None:
    """Freeze a log with its current digest."""
    with FROZEN.open("a") as file:
        file.write(f"{digest(name)}  logs/{name}.jsonl\n")


def write(
    name: str, about: dict[str, Any], database: Path, run_ids: Sequence[str]
) -> None:
    """Write runs of a database, and what was frozen meanwhile, to a file."""
    lines = [{"$type": "caxton.corpus/v1", "name": name, **about}]
    queries: list[tuple[str, str, tuple[str, ...]]] = [
        ("blobs", _BLOBS, ()),
        ("events", _EVENTS, (FREEZES,)),
        ("payloads", _PAYLOADS, (FREEZES,)),
    ]
    for run_id in run_ids:
        stream = f"run/{run_id}"
        queries += [
            ("events", _EVENTS, (stream,)),
            ("payloads", _PAYLOADS, (stream,)),
            ("runs", _RUNS, (run_id,)),
        ]
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        for table, query, values in queries:
            for row in connection.execute(query, values):
                cells = {key: _told(row[key]) for key in row.keys()}  # noqa: SIM118 -- a Row
                lines.append({"table": table, **cells})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    LOGS.mkdir(exist_ok=True)
    (LOGS / f"{name}.jsonl").write_text(text, "utf-8")


def read(name: str) -> Log:
    """Return one file."""
    data = (LOGS / f"{name}.jsonl").read_bytes()
    assert len(data) < _LARGEST
    about, *lines = (json.loads(line) for line in data.splitlines())
    assert about["$type"] == "caxton.corpus/v1"
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in _TABLES}
    for line in lines:
        rows[line.pop("table")].append(
            {key: _bytes(cell) for key, cell in line.items()}
        )
    return Log(about=about, rows=rows)


def load(log: Log, database: Path) -> str:
    """Load a log into a new database of the current schema, and return its URL."""
    url = f"sqlite:///{database}"
    migrate.upgrade(url)
    with closing(sqlite3.connect(database)) as connection:
        for table, rows in log.rows.items():
            for row in rows:
                columns = ", ".join(row)
                places = ", ".join("?" * len(row))
                query = f"INSERT INTO {table} ({columns}) VALUES ({places})"  # noqa: S608 -- our own file
                connection.execute(query, [*row.values()])
        connection.commit()
    return url


def _told(cell: object) -> object:
    if isinstance(cell, bytes):
        return {_BYTES: base64.b64encode(cell).decode()}
    return cell


def _bytes(cell: Any) -> Any:  # noqa: ANN401 -- whatever a column holds
    return base64.b64decode(cell[_BYTES]) if isinstance(cell, dict) else cell
