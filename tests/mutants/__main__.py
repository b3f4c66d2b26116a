"""
Change modules in one place at a time, and print the changes that no test notices.

    python -m tests.mutants [MODULE ...] [--sample 60] [--seed 1] [--tests PATH ...]

Tests are collected once. Each mutant is a fork of that process, in which the code of
one function, or a plain constant in all modules that hold it, is replaced; it counts as
"outside" where neither can be. It runs the tests that execute the changed line, the
fastest first, until one fails. Nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import os
import pickle
import random  # noqa: TID251 -- seeded: what to change
import resource
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import _pytest.main
import pytest
from coverage import Coverage

from .operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
MODULES = (
    *("gateway/gateway", "gateway/judge", "gateway/call_budgets", "gateway/recorder"),
    *("core/grants/journal", "core/grants/decisions"),
    *("core/log/chain", "core/log/bundle", "core/log/tree", "core/log/witnesses"),
    *("store/verify", "store/bundle_store"),
)
#: Where the tests of modules are, by the beginning of their names.
TESTS = {
    "gateway": ("unit/gateway", "unit/runs"),
    "core/grants": (
        *("unit/core/grants", "unit/gateway", "unit/runs"),
        "unit/service/test_sessions.py",
    ),
    "core/log": (
        *("unit/core/log", "unit/evidence", "unit/store"),
        *("integration/store/test_verified.py", "unit/config/test_refusals.py"),
    ),
    "store": ("unit/store", "unit/evidence", "integration/store/test_verified.py"),
}
_MEMORY = 6 << 30


@dataclass(frozen=True, slots=True)
class Known:
    """What tests do: the seconds of each, and which execute each line of a file."""

    session: pytest.Session
    seconds: Mapping[str, float]
    of_line: Mapping[str, Mapping[int, Sequence[str]]]

    def judge(self, path: Path, mutant: Mutant, change: Callable[[], None]) -> str:
        """Run the tests of a mutant, until one fails."""
        of_line, last = self.of_line[str(path)], mutant.line + mutant.was.count("\n")
        lines = range(mutant.line, last + 1) if mutant.function else of_line
        ids = {one for line in lines for one in of_line.get(line, ())}
        if not mutant.function:  # a test may read a constant and execute nothing
            files = {one.partition("::")[0] for one in ids}
            ids = {one for one in self.seconds if one.partition("::")[0] in files}
        if not ids:
            return "no test"
        chosen = sorted(ids, key=lambda one: self.seconds[one])
        needed = sum(self.seconds[one] for one in chosen)

        def run() -> None:
            limit = int(5 + 2 * needed)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            change()
            by_id = {item.nodeid: item for item in self.session.items}
            self.session.items = [by_id[one] for one in chosen]
            self.session.config.option.maxfail = 1
            try:
                _pytest.main.pytest_runtestloop(self.session)
            except self.session.Failed:
                os._exit(1)
            os._exit(1 if self.session.testsfailed else 0)

        return _ended(_fork(run), 20 + 10 * needed)


class Mutating:
    """A plugin of pytest: what it runs instead of the tests."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.out = os.fdopen(os.dup(1), "w", buffering=1)

    def pytest_sessionstart(self) -> None:
        """Have Hypothesis make the same cases each time, and not shrink them."""
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415

        settings.register_profile(
            "mutants",
            database=None,
            deadline=None,
            derandomize=True,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[*HealthCheck],
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once to know their lines, then each mutant."""
        names: list[str] = self.asked.modules or [*MODULES]
        files = {name: ROOT / "caxton_host" / f"{name}.py" for name in names}
        for name in names:
            importlib.import_module(f"caxton_host.{name}".replace("/", "."))
        gc.unfreeze()
        functions = [it for it in gc.get_objects() if isinstance(it, FunctionType)]
        gc.freeze()
        known = _known(session, [*files.values()])
        print(f"{len(known.seconds)} tests pass", file=self.out)
        for name, path in files.items():
            inside = [it for it in functions if it.__code__.co_filename == str(path)]
            self._mutate(known, name, path, inside)
        return True

    def _mutate(
        self, known: Known, name: str, path: Path, functions: Sequence[FunctionType]
    ) -> None:
        every = mutants(path.read_text())
        chance = random.Random(f"{self.asked.seed}/{name}")  # noqa: S311
        sample = chance.sample(every, min(self.asked.sample, len(every)))
        same, counts = equivalents(name), Counter[str]()
        for mutant in sorted(sample, key=lambda it: it.line):
            change, found = _change(path, mutant, functions), "outside"
            if change is not None:
                found = known.judge(path, mutant, change)
            if found in {"survived", "no test"}:
                if (mutant.function, mutant.changed) in same:
                    found = "equivalent"
                else:
                    print(f"  {found} {name}:{mutant}", file=self.out)
            counts[found] += 1
        killed = counts["killed"] + counts["timeout"]
        share = killed / max(
            counts.total() - counts["equivalent"] - counts["outside"], 1
        )
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        print(f"{name} of {len(every)}: {share:.1%}; {told}", file=self.out)


def _fork(run: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(null, number)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        run()
    finally:
        os._exit(1)


def _ended(pid: int, limit: float) -> str:
    until = time.monotonic() + limit
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            endless = os.WIFSIGNALED(status)
            return "timeout" if endless else "killed" if status else "survived"
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def _known(session: pytest.Session, files: Sequence[Path]) -> Known:
    """Run all tests in a fork, and return what they do, without those that fail."""
    reader, writer = os.pipe()
    pid = _fork(lambda: _learn(session, files, writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        seconds, of_line = pickle.load(pipe)  # noqa: S301 -- of our own fork
    os.waitpid(pid, 0)
    return Known(session, seconds, of_line)


def _learn(session: pytest.Session, files: Sequence[Path], writer: int) -> None:
    coverage = Coverage(data_file=None, config_file=False, include=[*map(str, files)])
    coverage.start()
    seconds: dict[str, float] = {}
    for item, after in zip(session.items, [*session.items[1:], None], strict=True):
        failed, began = session.testsfailed, time.process_time()
        coverage.switch_context(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed == failed:
            seconds[item.nodeid] = time.process_time() - began
    coverage.stop()
    data = coverage.get_data()
    of_line = {
        str(path): {
            line: [one for one in tests if one in seconds]
            for line, tests in data.contexts_by_lineno(str(path)).items()
        }
        for path in files
    }
    with os.fdopen(writer, "wb") as pipe:
        pickle.dump((seconds, of_line), pipe)
    os._exit(0)


def _change(
    path: Path, mutant: Mutant, functions: Sequence[FunctionType]
) -> Callable[[], None] | None:
    """Return what puts a mutant in the place of what was imported."""
    if not mutant.function:
        return _constants(path, mutant.source)
    code = compile(mutant.source, str(path), "exec", dont_inherit=True)
    new = {(it.co_qualname, it.co_firstlineno): it for it in _codes(code)}
    for one in functions:
        old = one.__code__
        other = new.get((old.co_qualname, old.co_firstlineno))
        if (
            old.co_qualname == mutant.function
            and other not in {None, old}
            and other.co_freevars == old.co_freevars
        ):
            return partial(setattr, one, "__code__", other)
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _constants(path: Path, source: str) -> Callable[[], None] | None:
    """Return what sets a plain constant wherever its name was imported."""
    before, after = _plain(path.read_text()), _plain(source)
    changed = {key: after[key] for key in after if after[key] != before.get(key)}
    if not changed:
        return None

    def change() -> None:
        name = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for key, value in changed.items():
            old = sys.modules[name].__dict__[key]
            for module in [*sys.modules.values()]:
                space: dict[str, Any] = getattr(module, "__dict__", {})
                if space.get(key) is old:
                    space[key] = value

    return change


def _plain(source: str) -> dict[str, object]:
    """Return the constants of a module that are made of literals."""
    found: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                code = compile(ast.Expression(node.value), "", "eval")
                found[node.targets[0].id] = eval(code, dict(found))  # noqa: S307
            except Exception:  # noqa: BLE001, S112 -- made of something else
                continue
    return found


def equivalents(name: str) -> set[tuple[str, str]]:
    """Return the mutants of a module that do the same: function, and changed line."""
    text = Path(__file__).with_name("equivalent.toml").read_text()
    ones = tomllib.loads(text).get(name, [])
    return {(one["function"], one["changed"]) for one in ones}


def main() -> int:
    """Mutate what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="*", default=())
    asked = parser.parse_args()
    names = asked.modules or MODULES
    keys = [key for key in TESTS if any(name.startswith(key) for name in names)]
    given = {f"tests/{path}" for key in keys for path in TESTS[key]}
    given |= {f"caxton_host/{name}.py" for name in names}  # their examples
    options = ["-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=30"]
    sys.stdout.flush()
    with Path(os.devnull).open("w") as null:
        plugin = Mutating(asked)
        os.dup2(null.fileno(), 1)
    return pytest.main([*options, *(asked.tests or sorted(given))], plugins=[plugin])


if __name__ == "__main__":
    sys.exit(main())
