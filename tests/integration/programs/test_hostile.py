"""
Programs that mean harm: each ends as it must, by name, and harms nobody else.

Nothing but the door leads out of the sandbox, so what came through it is the proof.
"""

from __future__ import annotations

import pytest

from tests.programs import Programs

from . import attacks_javascript, attacks_python
from .attacks import attempt

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("name", attacks_python.ATTACKS)
def test_attack_in_python_ends_as_it_must(python_programs: Programs, name: str) -> None:
    # laws 1, 2 and 9
    attempt(python_programs, attacks_python.ATTACKS[name], "def run(): return 42")


@pytest.mark.parametrize("name", attacks_javascript.ATTACKS)
def test_attack_in_javascript_ends_as_it_must(
    javascript_programs: Programs, name: str
) -> None:
    # laws 1, 2 and 9
    honest = "export const run = () => 42;"
    attempt(javascript_programs, attacks_javascript.ATTACKS[name], honest)
