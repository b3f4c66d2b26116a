"""What every test shares."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .others import Programs, install
from .postgres import Server, running
from .programs import Programs as RuntimePrograms
from .programs import build_javascript, build_python
from .programs import running as running_programs
from .shared import in_memory, once

#: Files whose tests take longest, 5 to 30 s each. pytest-xdist gives each of three
#: processes one third of the tests: these come first in them, so that all processes end
#: together. A file is in the third of those that build or compile the same agents; one
#: begins with the runtime of Python, and another with the one of JavaScript.
_LONGEST = (
    (
        "tests/e2e/test_python_agents.py",
        "tests/integration/programs/test_python.py",
        "tests/e2e/test_docs.py",
        "tests/e2e/test_wheel.py",
    ),
    (
        "tests/integration/javascript/test_build.py",
        "tests/integration/agents/test_languages.py",
        "tests/e2e/test_javascript_agents.py",
        "tests/e2e/test_cli_serve.py",
    ),
    (
        "tests/e2e/test_kill_loop.py",
        "tests/simulation/test_hosts.py",
        "tests/simulation/test_fleet.py",
        "tests/conformance/test_client.py",
        "tests/conformance/test_server.py",
        "tests/integration/agents/test_python.py",
        "tests/e2e/test_pytest_plugin.py",
    ),
)


def pytest_configure() -> None:
    # A background job or nohup may ignore these, and started processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if folder := in_memory():
        # A log is on disk after each event, which is most of the time of a short run.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


def pytest_collection_finish() -> None:
    # What is there now lives to the end: no collection of garbage looks at it again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    # What one process cannot tell the other ends all tests, passed or not: half a
    # surrogate pair that somebody logged.
    return _encodable((yield))


def _encodable(it: object) -> object:
    if isinstance(it, str):
        return it.encode("utf-8", "backslashreplace").decode()
    if isinstance(it, dict):
        return {key: _encodable(value) for key, value in it.items()}
    if isinstance(it, list | tuple):
        return type(it)(_encodable(value) for value in it)
    return it


@pytest.hookimpl(trylast=True)  # what shuffles the tests has done so
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def long(files: tuple[str, ...]) -> list[pytest.Item]:
        return [item for item in items if item.nodeid.partition("::")[0] in files]

    groups = [long(files) for files in _LONGEST]
    found = {item for group in groups for item in group}
    others = [item for item in items if item not in found]
    share = len(items) // len(groups)
    items.clear()
    for group in groups:
        cut = max(share - len(group), 0)
        items += [*group, *others[:cut]]
        del others[:cut]
    items += others


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """Return the url of a database that is this test's own."""
    return postgres.make()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(once(tmp_path_factory, "npm", install))


@pytest.fixture(scope="session")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of the C compiler, which builds may fill at the same time."""
    return once(tmp_path_factory, "zig", lambda _: None)


@pytest.fixture(scope="session")
def compiled_runtimes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of compiled runtimes."""
    return once(tmp_path_factory, "compiled-runtimes", lambda _: None)


@pytest.fixture(scope="session")
def python_runtime(
    tmp_path_factory: pytest.TempPathFactory, zig_cache: Path, compiled_runtimes: Path
) -> Path:
    """Return the runtime for programs in Python."""
    return build_python(tmp_path_factory, zig_cache, compiled_runtimes)


@pytest.fixture(scope="session")
def python_programs(
    python_runtime: Path, compiled_runtimes: Path
) -> Iterator[RuntimePrograms]:
    """Return what executes programs in Python."""
    module = python_runtime.read_bytes()
    with running_programs(
        module, compiled_runtimes, "python", "program.py"
    ) as programs:
        yield programs


@pytest.fixture(scope="session")
def javascript_runtime(
    tmp_path_factory: pytest.TempPathFactory, zig_cache: Path, compiled_runtimes: Path
) -> Path:
    """Return the runtime for programs in JavaScript and TypeScript."""
    return build_javascript(tmp_path_factory, zig_cache, compiled_runtimes)


@pytest.fixture(scope="session")
def javascript_cache(javascript_runtime: Path, zig_cache: Path) -> Path:
    """Return the cache with which agents in JavaScript are built."""
    assert javascript_runtime.is_file()
    return zig_cache


@pytest.fixture(scope="session")
def javascript_programs(
    javascript_runtime: Path, compiled_runtimes: Path
) -> Iterator[RuntimePrograms]:
    """Return what executes programs in JavaScript."""
    module = javascript_runtime.read_bytes()
    with running_programs(
        module, compiled_runtimes, "javascript", "program.js"
    ) as programs:
        yield programs
