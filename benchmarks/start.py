"""Measure the latency of the command line, each command in a new process."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from caxton_host.building import find_shared

from .page import Figure, Section

_CONFIG = """\
version = 1
[store]
url = "sqlite:///start.db"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
[agents.weather]
module = "weather.wasm"
names = { weather = "demo/get_weather" }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
"""


def caxton() -> str:
    """Return the path of the command installed with this interpreter."""
    return str(Path(sysconfig.get_path("scripts")) / "caxton")


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the duration of each command."""
    return Section(
        "start",
        "Latency of the command line",
        "Each command is a new process; the run is of `agents/weather`, with a Python "
        "server.",
        [
            Figure(what, [1e3 * one for one in seconds], "ms")
            for what, seconds in measure(folder, options.rounds).items()
        ],
    )


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of ``--help`` and of a run with a Python stdio server."""
    (folder / "caxton.toml").write_text(_CONFIG, encoding="utf-8")
    module = find_shared("agents/weather/weather.wasm").read_bytes()
    (folder / "weather.wasm").write_bytes(module)
    run = [caxton(), "run", "weather", "--quiet"]
    _timed(run, folder)  # compiles the module
    took: dict[str, list[float]] = {"caxton --help": [], "caxton run": []}
    for _ in range(rounds):
        took["caxton --help"].append(_timed([caxton(), "--help"], folder))
        took["caxton run"].append(_timed(run, folder))
    return took


def _timed(command: Sequence[str], folder: Path) -> float:
    homes = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    environ = os.environ | dict.fromkeys(homes, str(folder))
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"Error: {' '.join(command)}: {done.stderr.decode()}")
    return time.perf_counter() - started
