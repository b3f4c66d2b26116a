"""The folder of runtimes: what waits, and what is left behind."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from caxton_host.building.runtimes import RuntimeFolder


def test_a_build_of_another_process_is_waited_for_aloud(tmp_path: Path) -> None:
    folder = RuntimeFolder(tmp_path)
    target = folder.place("python")
    assert target
    waited: list[str] = []

    with target.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        @contextmanager
        def waiting() -> Generator[None]:
            waited.append("begun")
            target.write_bytes(b"built by the other")
            fcntl.flock(other, fcntl.LOCK_UN)
            yield
            waited.append("over")

        assert folder.build("python", waiting=waiting) == target

    assert waited == ["begun", "over"]
    assert folder.build("python", waiting=waiting) == target
    assert len(waited) == 2
