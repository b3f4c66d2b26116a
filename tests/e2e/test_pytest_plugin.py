"""The plugin in a project of its own, as its author runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.pytest_plugin import _file_name
from tests import standin

from .shell import toml

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
WEATHER = ROOT / "agents" / "weather" / "weather.wasm"
ECHO = ROOT / "agents" / "echo" / "echo.wasm"
DEMO = standin.command()
GRANT = """
[agents.weather]
names = { weather = "demo/get_weather" }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
"""
TEST = f"""
WEATHER = {str(WEATHER)!r}
ECHO = {str(ECHO)!r}

def test_lima(caxton_cassette):
    run = caxton_cassette(WEATHER, input={{"location": "Lima"}})
    assert run.output["summary"] == "Lima: 18 °C, fog"
"""
CASSETTE = Path("cassettes/test_it/test_lima.json")


@pytest.fixture
def project(
    pytester: pytest.Pytester, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A folder with a configuration and no test, where every warning is an error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(compiled / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled / "cache"))
    monkeypatch.delenv("CAXTON_CONFIG", raising=False)
    pytester.makefile(
        ".toml", pytest="[pytest]\nfilterwarnings = ['error']\nstrict = true\n"
    )
    pytester.path.joinpath("caxton.toml").write_text(
        toml({"servers.demo": DEMO}, GRANT), encoding="utf-8"
    )
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    # What is slow to import, and not of its author.
    without = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
    return project.runpytest_subprocess(*without, *options, timeout=100)


@pytest.mark.long
def test_a_run_is_recorded_once_and_replayed_from_then_on(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(test_it=TEST, test_two=TEST)
    missing = run(project, "-k", "test_it")
    missing.assert_outcomes(failed=1, deselected=1)
    missing.stdout.fnmatch_lines(
        [
            "E *UsageError: there is no cassette test_lima.json in test_it",
            "E *To fix: record it with pytest --caxton-record=once, *",
        ]
    )
    # Two processes, and two servers.
    run(project, "--caxton-record=once", "-n", "2").assert_outcomes(passed=2)
    recorded = (project.path / CASSETTE).read_bytes()
    (project.path / "caxton.toml").unlink()
    run(project, "--caxton-record=once").assert_outcomes(passed=2)
    run(project).assert_outcomes(passed=2)
    assert (project.path / CASSETTE).read_bytes() == recorded


def test_a_difference_fails_the_test_and_is_readable(project: pytest.Pytester) -> None:
    (project.path / "caxton.toml").rename(project.path / "other.toml")
    project.makepyfile(test_it=TEST)
    config = "--caxton-config=other.toml"
    run(project, "--caxton-record=once", config).assert_outcomes(passed=1)
    path = project.path / CASSETTE
    text = path.read_text("utf-8").replace("is anybody there?", "hello?")
    path.write_text(text, encoding="utf-8")
    failed = run(project, "--tb=long")
    failed.assert_outcomes(failed=1)
    differs = "E *UnexpectedRun: the agent differs from test_lima.json: call 3, mcp__*"
    failed.stdout.fnmatch_lines(
        [
            "*caxton_cassette(WEATHER, *",
            f"{differs}demo__echo, [$].params.text",
            "E *recorded: 'hello[?]'",
            "E *now:      'is anybody there[?]'",
            "E *To fix: change the agent; *, record it again with *--caxton-record=all",
        ]
    )
    # What is between the test and its failure is not for the author to read.
    failed.stdout.no_fnmatch_line("*harness.py*")
    run(project, "--caxton-record=all", config).assert_outcomes(passed=1)
    assert "is anybody there?" in path.read_text("utf-8")


def test_each_run_of_each_test_has_a_file(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=f"""
        import pytest

        class TestCities:
            @pytest.mark.parametrize("city", ["Lima", "São Paulo"])
            def test_city(self, caxton_cassette, city):
                for n in range(2):
                    caxton_cassette(
                        {str(WEATHER)!r}, input={{"location": city}}, seed=n
                    )
        """
    )
    run(project, "--caxton-record=once").assert_outcomes(passed=2)
    names = sorted(p.name for p in project.path.joinpath("cassettes/test_it").iterdir())
    assert names[:2] == [
        "TestCities.test_city-Lima.2.json",
        "TestCities.test_city-Lima.json",
    ]
    assert len(names) == 4
    assert all(map(str.isascii, names))


def test_no_two_tests_share_a_file() -> None:
    tests = [
        "t[a b]",
        "t[a-b]",
        "t[a/b]",
        "t[" + "x" * 200 + "]",
        "t[" + "x" * 201 + "]",
    ]
    names = {_file_name(f"test_a.py::{test}") for test in tests}
    assert len(names) == len(tests)
    assert all("/" not in name and len(name) < 120 for name in names)


TESTS = f"""
import pytest
from caxton_host.testing import DENIED

ECHO = {str(ECHO)!r}

def ask(caxton_agent, n):
    run = caxton_agent(
        ECHO, tools={{"say": "hi"}}, input={{"tool": "say", "n": n, "text": "hi"}}
    )
    assert run.calls == [("say", {{"text": "hi"}})] * n

@pytest.mark.parametrize("n", range(1, 6))
def test_sync(caxton_agent, n):
    ask(caxton_agent, n)

@pytest.mark.anyio
@pytest.mark.parametrize("n", range(1, 3))
async def test_async(caxton_agent, n):
    ask(caxton_agent, n)

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.parametrize(
    "options", [("-p", "randomly"), ("-p", "no:randomly", "-n", "2")], ids=str
)
def test_tests_run_in_any_order_and_in_several_processes(
    project: pytest.Pytester, options: tuple[str, ...]
) -> None:
    project.makepyfile(test_it=TESTS)
    run(project, *options).assert_outcomes(passed=7)


def test_no_process_is_left_behind(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=f"""
        from pathlib import Path

        def workers():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if b"caxton_host.sandbox.worker" in path.read_bytes():
                        stat = path.with_name("stat").read_text()
                        yield path.parent.name, stat.rpartition(")")[2].split()[1]
                except OSError:
                    pass

        def test_one(caxton_agent, pytestconfig):
            given = {{"tool": "none", "n": 0, "text": ""}}
            caxton_agent({str(ECHO)!r}, tools={{}}, input=given)
            import os
            mine = [pid for pid, parent in workers() if parent == str(os.getpid())]
            assert len(mine) == 1
            Path("worker.txt").write_text(mine[0])
        """
    )
    run(project).assert_outcomes(passed=1)
    pid = (project.path / "worker.txt").read_text()
    assert not Path(f"/proc/{pid}").exists()


def test_who_does_not_use_it_does_not_pay(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import sys

        def test_light(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("caxton")
            loaded = {name for name in sys.modules if name.startswith("caxton_host")}
            assert loaded == {"caxton_host", "caxton_host.pytest_plugin"}
        """
    )
    run(project, "-p", "no:xdist").assert_outcomes(passed=1)


def test_the_options_are_explained(project: pytest.Pytester) -> None:
    done = run(project, "--help")
    done.stdout.fnmatch_lines(["agents of caxton_host:", "*--caxton-record=*"])
