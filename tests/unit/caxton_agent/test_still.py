"""The standard library as an agent has it, here in an interpreter of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stillness import NOW, STILL, WORD

HERE = Path(__file__).parent
EVALUATOR = HERE.parents[1] / "integration" / "agents" / "evaluator.py"

_SCRIPT = """
import sys
sys.modules["_datetime"] = sys.modules["_zoneinfo"] = None
written = sys.stdout
from caxton_agent import _still
from caxton_agent._bridge import use
from caxton_agent.testing import FakeHost, _Wire
import _strptime, encodings.cp1252, json, runpy

class Wire(_Wire):
    def random(self): return int.from_bytes(bytes.fromhex(sys.argv[2]), "little")

_still.install()
agent = runpy.run_path(sys.argv[1])
_still.install_late()
host = FakeHost(now=int(sys.argv[3]), input=json.loads(sys.argv[4]))
use(Wire(of=host))
_still.seal()
said = agent["run"]()
_still.flush()
written.write(json.dumps({"said": said, "logs": host.logs}))
"""


def evaluated(*texts: str) -> tuple[list[str], list[list[str]]]:
    command = [sys.executable, "-c", _SCRIPT, str(EVALUATOR), WORD.hex(), str(NOW)]
    done = subprocess.run(
        [*command, json.dumps(texts)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"TZ": "UTC"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["said"], result["logs"]


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    values, _ = evaluated(*STILL)
    return dict(zip(STILL, values, strict=True))


@pytest.mark.parametrize("text", STILL)
def test_nothing_sees_what_the_log_does_not(said: dict[str, str], text: str) -> None:
    assert re.fullmatch(STILL[text], said[text])  # law 3


def test_sleeping_moves_the_clocks_and_takes_no_time() -> None:
    values, _ = evaluated("time.sleep(3600)", "time.time()", "time.monotonic_ns()")
    assert values == ["None", "1700003600.123456", "1700003600123456000"]


def test_what_is_printed_is_logged_by_line() -> None:
    _, logs = evaluated(
        "print('one', 2)",
        "print('a\\nb', end='')",
        "print('c', file=sys.stderr)",
        "logging.warning('d')",
        "print('\\ud800')",
        "print('rest', end='')",
    )
    assert logs == [
        ["info", "one 2"],
        ["info", "a"],
        ["warning", "c"],
        ["warning", "WARNING:root:d"],
        ["info", "b?"],
        ["info", "rest"],
    ]


def test_unseeded_random_numbers_come_from_the_run() -> None:
    first, second = (
        evaluated("random.random(), random.getrandbits(64)")[0] for _ in "ab"
    )
    assert first == second
