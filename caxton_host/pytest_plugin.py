"""
Fixtures of pytest for tests of agents. They cost nothing unless used.

`caxton_agent` runs a module on scripted tools, `caxton_cassette` on a recorded run.
Both share one sandbox a session.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from .testing import AgentRun, Answer, Harness
    from .testing.runs import Given, Module


_ODD = re.compile(r"[^A-Za-z0-9_.=-]+")
_MAX_NAME = 100


class CaxtonAgent(Protocol):
    """The type of `caxton_agent`; see `caxton_host.testing.Harness.run`."""

    def __call__(
        self,
        module: Module,
        *,
        tools: Mapping[str, Answer] | None = None,
        names: Mapping[str, str] | None = None,
        allow: Sequence[str] | None = None,
        strict: bool = True,
        **given: Unpack[Given],
    ) -> AgentRun:
        """Run an agent whose tools answer by a script."""
        ...


class CaxtonCassette:
    """Replays an agent over a cassette beside the test, or records one."""

    def __init__(self, harness: Harness, request: pytest.FixtureRequest) -> None:
        self._harness = harness
        self._config = request.config
        self._folder = request.path.parent / "cassettes" / request.path.stem
        self._name = _file_name(request.node.nodeid)
        self._runs = 0

    @property
    def path(self) -> Path:
        """The file of the next run: ``cassettes/TEST_FILE/TEST.json``."""
        number = f".{self._runs + 1}" if self._runs else ""
        return self._folder / f"{self._name}{number}.json"

    def __call__(
        self, module: Module, *, agent: str | None = None, **given: Unpack[Given]
    ) -> AgentRun:
        """
        Replay a run, or record it, by ``--caxton-record``.

        Args:
            module: The module, or its file.

            agent: Its name in the configuration; by default, that of the file.

            given: Its input, context, entry, seed, now and limits.

        Raises:
            UnexpectedRun: It differs from the recording.

            UsageError: The cassette is missing, invalid or could not be recorded.
        """
        __tracebackhide__ = True
        path = self.path
        self._runs += 1
        mode = self._config.getoption("caxton_record")
        if mode == "all" or (mode == "once" and not path.exists()):
            named = self._config.getoption("caxton_config")
            typed_in = self._config.invocation_params.dir
            return self._harness.record(
                module,
                path,
                agent=agent,
                config=typed_in / named if named else None,
                cwd=self._config.rootpath,
                **given,
            )
        return self._harness.replay(module, path, **given)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("caxton", "agents of caxton_host")
    group.addoption(
        "--caxton-record",
        dest="caxton_record",
        choices=("none", "once", "all"),
        default="none",
        help="record cassettes on real tool servers: none, once (missing), all",
    )
    group.addoption(
        "--caxton-config",
        dest="caxton_config",
        metavar="FILE",
        help="use this configuration to record cassettes",
    )


@pytest.fixture(scope="session")
def caxton_harness() -> Iterator[Harness]:
    """Share one sandbox between all tests, as a `caxton_host.testing.Harness`."""
    from .testing import Harness  # noqa: PLC0415 -- only for tests that use it

    with Harness() as harness:
        yield harness


@pytest.fixture
def caxton_agent(caxton_harness: Harness) -> CaxtonAgent:
    """Run an agent on scripted tools: ``caxton_agent(module, tools={...})``."""
    return caxton_harness.run


@pytest.fixture
def caxton_cassette(
    caxton_harness: Harness, request: pytest.FixtureRequest
) -> CaxtonCassette:
    """Run an agent on a recorded run: ``caxton_cassette(module)``."""
    return CaxtonCassette(caxton_harness, request)


def _file_name(nodeid: str) -> str:
    """
    Return a name for the file of a test.

    >>> _file_name("test_a.py::TestB::test_c[x-1]")
    'TestB.test_c-x-1'
    """
    test = nodeid.partition("::")[2].replace("::", ".")
    plain = test.replace("[", "-").replace("]", "")
    if len(plain) <= _MAX_NAME and not _ODD.search(plain):
        return plain
    digest = hashlib.sha256(test.encode()).hexdigest()[:8]
    return f"{_ODD.sub('-', plain)[:_MAX_NAME]}-{digest}"
