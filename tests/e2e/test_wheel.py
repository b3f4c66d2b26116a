"""What is shipped is enough: the wheel, installed elsewhere, outside the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, zig_cache: Path
) -> Path:
    """An environment with the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / ".cache" / "caxton").mkdir(parents=True)
    (folder / ".cache" / "caxton" / "build").symlink_to(zig_cache)
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", f"--python={python}", "install"]
    command += ["--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = folder.glob("venv/lib/python*/site-packages/caxton_host")
    dependencies = package.with_name("dependencies.pth")
    dependencies.write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


def _typed(elsewhere: Path, *command: str) -> str:
    program = elsewhere / "venv" / "bin" / command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=elsewhere,
        env={"HOME": str(elsewhere), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_agents_templates_sdk_and_migrations(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (path,) = (name for name in names if name.endswith("/entry_points.txt"))
        entries = archive.read(path).decode()
    shipped = {
        f"caxton_host/_{path.relative_to(ROOT).as_posix()}"
        for folder in ("agents", "migrations")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "caxton_host/_agents/weather/weather.wasm" in shipped
    assert "caxton_host/_agents/templates/c/.gitignore" in shipped
    assert {"caxton_host/py.typed", "caxton_agent/py.typed"} <= names
    pages = ("templates/base.html", "templates/run.html", "static/console.js")
    assert {f"caxton_host/web/ui/{file}" for file in pages} <= names
    assert "[pytest11]\ncaxton = caxton_host.pytest_plugin\n" in entries
    assert shipped <= names
    assert not [
        name for name in names if "__pycache__" in name or name.startswith("tests")
    ]


def test_the_installed_package_finds_what_it_ships(elsewhere: Path) -> None:
    found = _typed(
        elsewhere,
        "python",
        "-c",
        "from caxton_host.building import find_shared as f;"
        "print(f('agents/weather/weather.wasm'), f('migrations'))",
    )
    for path in found.split():
        assert Path(path).is_relative_to(elsewhere)


@pytest.mark.parametrize(
    "lang", ["c", "python", pytest.param("rust", marks=pytest.mark.debian)]
)
def test_an_agent_is_made_and_built_without_the_checkout(
    elsewhere: Path, lang: str
) -> None:
    name = f"hello-{lang}"
    _typed(elsewhere, "caxton", "agent", "new", name, "--lang", lang)
    _typed(elsewhere, "caxton", "agent", "build", name, "--no-compile")
    assert (elsewhere / f"{name}.wasm").read_bytes().startswith(b"\0asm")


def test_the_demo_runs_and_the_log_can_be_read_afterwards(elsewhere: Path) -> None:
    assert "denied" in _typed(elsewhere, "caxton", "demo")
    events = json.loads(
        _typed(elsewhere, "caxton", "events", "list", "@last", "--json")
    )
    types = [event["type"] for event in events]
    assert types[0] == "RunStarted"
    assert types[-1] == "RunCompleted"
    assert types.count("ToolDenied") == 1
    assert types.count("ToolCompleted") == 2
