"""Generated guests do the same in two engines. By hand: `python -m tests.engines`."""

from __future__ import annotations

import pytest

from tests.integration.evidence.engine import running

from .__main__ import LIMITS, Maker, core, told, wasi
from .in_process import InProcess


@pytest.mark.parametrize("make", [core, wasi, told])
async def test_generated_guests_do_the_same_in_two_engines(
    make: Maker,
) -> None:  # law 5
    sandbox = InProcess(LIMITS)
    with running() as engine:
        for seed in range(12):
            found = engine(await make(sandbox, seed))
            assert found["verdict"] in {"identical", "ended"}, (seed, found)
