"""The store in memory; its behaviour is held by tests/contract."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """\
import sys
from caxton_host.store.memory import MemoryStore
print("sqlalchemy" in sys.modules)
"""


def test_the_store_in_memory_imports_no_database() -> None:
    # Tests of agents start with it: SQLAlchemy would more than double their imports.
    found = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )

    assert found.stdout == "False\n"
