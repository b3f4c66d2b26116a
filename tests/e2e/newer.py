"""
The command line of a version after this one: newer.py FOLDER WORD...

Its schema has one more column and one more table, which FOLDER has the migration of,
`RunStarted` has one more field, and what agents log is another type of event.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from caxton_host.cli import main
from caxton_host.core.log import events
from caxton_host.gateway import guest_calls
from caxton_host.store import migrate

MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9999", "{migrate.head()}"


def upgrade() -> None:
    op.add_column("runs", sa.Column("region", sa.Text))
    op.create_table("regions", sa.Column("name", sa.Text, primary_key=True))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWritten(events.LogWritten):
    """What an agent logged, with its language."""

    language: str = "en"


def _grow(folder: Path) -> None:
    migrate.folder = lambda: folder  # type: ignore[misc,assignment]
    migrate._HEAD = "9999"
    name, keys = LineWritten.__name__, (*events._KEYS["LogWritten"], "language")
    events.EVENT_TYPES |= {name: LineWritten}  # type: ignore[operator]
    events._KEYS |= {name: keys, "RunStarted": (*events._KEYS["RunStarted"], "region")}  # type: ignore[operator]
    events._KNOWN[name], events._LISTS[name] = frozenset(keys), ()
    events.RunStarted.region = "eu"  # type: ignore[attr-defined]
    vars(guest_calls)["LogWritten"] = LineWritten


if __name__ == "__main__":
    _grow(Path(sys.argv.pop(1)))
    main()
