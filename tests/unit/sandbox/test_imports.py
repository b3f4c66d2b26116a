"""Which process imports what."""

from __future__ import annotations

import subprocess
import sys

import pytest

from caxton_host import sandbox


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("caxton_host.sandbox.pool", "wasmtime"),
        ("caxton_host.sandbox.worker", "asyncio"),
        ("caxton_host.sandbox.worker", "caxton_host.sandbox.compiler"),
        ("caxton_host.sandbox.worker", "caxton_host.core.grants"),
    ],
)
def test_process_has_only_what_it_needs(module: str, absent: str) -> None:
    code = f"import sys, {module}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_package_has_nothing_else() -> None:
    with pytest.raises(AttributeError):
        _ = sandbox.Sandbox
