"""
The plugin of pytest for tests of agents. It costs nothing unless used.

The fixture `caxton_agent` runs a module on scripted tools, `caxton_cassette` on a
recorded run. With ``--caxton-history`` each bundle of a folder is a test. All of them
share one sandbox a session.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

    from .testing import AgentRun, Answer, Harness
    from .testing.golden import GoldenRuns
    from .testing.runs import Given, Module


_ODD = re.compile(r"[^A-Za-z0-9_.=-]+")
_MAX_NAME = 100
_BUNDLE = ".caxton"
_HARNESS = pytest.StashKey["Harness"]()
_GOLDEN = pytest.StashKey[tuple[Path, "GoldenRuns"]]()
_COLLECTED = pytest.StashKey[bool]()


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
            return self._harness.record(
                module,
                path,
                agent=agent,
                config=_config_file(self._config),
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
        help="use this configuration to record cassettes, and for the history",
    )
    group.addoption(
        "--caxton-history",
        dest="caxton_history",
        metavar="FOLDER",
        help="execute the agents over the bundles of recorded runs in this folder",
    )
    group.addoption(
        "--caxton-key",
        dest="caxton_keys",
        action="append",
        default=[],
        metavar="PUBKEY",
        help="trust only bundles that this public key signed; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have the folder of the history collected."""
    named = config.getoption("caxton_history")
    if named is None:
        return
    from .errors import CaxtonError  # noqa: PLC0415 -- only for who uses it
    from .testing.golden import GoldenRuns  # noqa: PLC0415 -- 300 ms

    folder = (config.invocation_params.dir / named).resolve()
    if not any(folder.rglob(f"*{_BUNDLE}")):
        raise pytest.UsageError(
            f"--caxton-history: {named} has no bundle\n"
            f"To fix: caxton runs sample -o {named}"
        )
    try:
        golden = GoldenRuns.of(
            _config_file(config),
            config.getoption("caxton_keys") or (),
            os.environ,
            config.rootpath,
        )
    except CaxtonError as exc:
        raise pytest.UsageError(_told(exc)) from None
    config.stash[_GOLDEN] = folder, golden
    if str(folder) not in config.args:
        config.args.append(str(folder))


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Collect a bundle of the history."""
    if file_path.suffix != _BUNDLE or _GOLDEN not in parent.config.stash:
        return None
    folder, _ = parent.config.stash[_GOLDEN]
    if not file_path.is_relative_to(folder):
        return None
    parent.config.stash[_COLLECTED] = True
    return _BundleFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    session: pytest.Session, items: list[pytest.Item]
) -> None:
    """Fail if pytest passed over each bundle; an error would stop xdist's workers."""
    stash = session.config.stash
    if _GOLDEN in stash and _COLLECTED not in stash:
        items.append(_NoRun.from_parent(session, name=stash[_GOLDEN][0].name))  # pyright: ignore[reportUnknownMemberType]


class _BundleFile(pytest.File):
    """A bundle: one test."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the test. One that is not verified fails, by the name of its file."""
        from .errors import CaxtonError  # noqa: PLC0415 -- only for who uses it

        _, golden = self.config.stash[_GOLDEN]
        try:
            name = golden.name(self.path)
        except (CaxtonError, OSError):
            name = self.path.stem
        name = _ODD.sub("-", name)[:_MAX_NAME]
        yield _GoldenRun.from_parent(self, name=name)  # pyright: ignore[reportUnknownMemberType]


class _GoldenRun(pytest.Item):
    """A recorded run, over which the agent is executed."""

    def runtest(self) -> None:
        """Execute it."""
        _, golden = self.config.stash[_GOLDEN]
        _harness(self.config).check(golden, self.path)

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        *args: Any,  # noqa: ANN401 -- pytest's
        **given: Any,  # noqa: ANN401 -- pytest's
    ) -> str | TerminalRepr:
        """Return a failure without a traceback, unless it is a fault in here."""
        from .errors import CaxtonError  # noqa: PLC0415 -- only for who uses it

        if isinstance(excinfo.value, CaxtonError | OSError):
            return _told(excinfo.value)
        return super().repr_failure(excinfo, *args, **given)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return what the report calls it."""
        return self.path, None, self.name


class _NoRun(_GoldenRun):
    """Stands for a folder of whose bundles none was collected."""

    def runtest(self) -> None:
        """Fail."""
        from .errors import UsageError  # noqa: PLC0415 -- only for who uses it

        raise UsageError(
            f"pytest collects no bundle in {self.config.stash[_GOLDEN][0]}",
            fix="name a folder of files, not one that norecursedirs or --ignore has",
        )


def _told(exc: Exception) -> str:
    fix = getattr(exc, "fix", "")
    return f"{exc}\nTo fix: {fix}" if fix else str(exc)


@pytest.fixture(scope="session")
def caxton_harness(pytestconfig: pytest.Config) -> Harness:
    """Share one sandbox between all tests, as a `caxton_host.testing.Harness`."""
    return _harness(pytestconfig)


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


def _harness(config: pytest.Config) -> Harness:
    """Return the sandbox of the session."""
    if _HARNESS not in config.stash:
        from .testing import Harness  # noqa: PLC0415 -- only for tests that use it

        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_HARNESS] = stack.enter_context(Harness())
    return config.stash[_HARNESS]


def _config_file(config: pytest.Config) -> Path | None:
    named = config.getoption("caxton_config")
    return config.invocation_params.dir / named if named else None


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
