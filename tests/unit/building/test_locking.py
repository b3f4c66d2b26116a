"""Dependencies are compiled by the runtime, in the sandbox, and locked by digest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from caxton_host.building.locking import Compiler, lock, metadata_in
from caxton_host.building.resolve import Resolver
from caxton_host.core.calls import JSON
from caxton_host.core.dependencies import Wheel
from caxton_host.core.limits import Limits
from caxton_host.errors import SandboxError, UsageError
from caxton_host.lib.codec import decode_trusted, encode
from caxton_host.ports.sandbox import Door, Ending, Guest, Prepared
from caxton_host.runs.locked import lock_of, packages_of, read_locked
from tests.wheels import make_wheel

SOURCE = '# /// script\n# dependencies = ["one"]\n# ///\nimport one\n'
TARGET = {"version": "3.14.0", "sys_platform": "wasi", "os_name": "posix"}


@dataclass
class FakeRuntime:
    """Answers as a runtime does, without compiling."""

    invalid: tuple[str, ...] = ()
    target: JSON = field(default_factory=lambda: dict[str, JSON](TARGET))
    door: Callable[[Door], Any] | None = None
    compiled: list[str] = field(default_factory=list)

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        assert (module, limits.module) == (b"", 64 * 1024 * 1024)
        return Prepared(sha256="", abi="component/1", engine="", key=entry)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        program = decode_trusted(guest.program)
        assert (prepared.key, program["language"]) == ("run", "python")
        if self.door:
            await self.door(door)
        door.log(3, b"a line")
        if program["name"] != "caxton:lock":
            return Ending(kind="returned", output=encode(self.target))
        modules = json.loads(program["source"])
        for name in self.invalid:
            if name in modules:
                file = name.replace(".", "/")
                return Ending(
                    kind="returned",
                    code=1,
                    message=f'  File "/packages/{file}.py", line 1\nSyntaxError: no',
                )
        self.compiled = [*modules]
        return Ending(kind="returned", output=encode("eJwr"))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheel = make_wheel(
        tmp_path / "index", "one", {"one/__init__.py": "", "one/old.py": "print 1"}
    )
    chosen = Wheel(name="one", version="1.0", file=wheel.name, sha256="ab" * 32)
    monkeypatch.setattr(Resolver, "wheels", lambda _: [(chosen, wheel)])
    path = tmp_path / "report.py"
    path.write_text(SOURCE)
    return path


async def locked(program: Path, runtime: FakeRuntime) -> Any:  # noqa: ANN401 -- Locked
    steps: list[str] = []
    found = await lock(program, await Compiler.of(runtime, b""), steps.append)
    assert steps[0] == "resolving the dependencies of report.py"
    assert steps[1].startswith("compiling ")
    return found


async def test_a_lock_and_its_packages_are_written_beside_the_program(
    program: Path,
) -> None:
    runtime = FakeRuntime()
    made = await locked(program, runtime)
    assert made.path == lock_of(program)
    assert (made.modules, made.size, made.left_out) == (3, 4, [])
    assert runtime.compiled == ["one", "one-1.0.dist-info", "one.old"]
    packages, listed = read_locked(program, SOURCE)
    assert packages == b"eJwr"
    assert listed == ({"name": "one", "version": "1.0", "sha256": "ab" * 32},)
    assert sorted(one.name for one in program.parent.iterdir()) == [
        "index",
        "report.py",
        "report.py.lock",
        "report.py.packages",
    ]


async def test_a_file_that_is_not_valid_in_that_python_is_left_out(
    program: Path,
) -> None:
    runtime = FakeRuntime(invalid=("one.old",))
    made = await locked(program, runtime)
    assert made.left_out == ["one/old.py"]
    assert runtime.compiled == ["one", "one-1.0.dist-info"]


async def test_a_runtime_that_fails_is_told_and_nothing_is_written(
    program: Path,
) -> None:
    compiler = await Compiler.of(FakeRuntime(invalid=("two",)), b"")
    with pytest.raises(UsageError, match="cannot compile the packages"):
        await compiler.packages({"two": (False, "")})
    with pytest.raises(SandboxError, match="version of Python"):
        await locked(program, FakeRuntime(target="3.14"))
    assert not lock_of(program).exists()


async def test_packages_are_a_text(program: Path) -> None:
    class Odd(FakeRuntime):
        async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
            await super().run(prepared, guest, door)
            return Ending(kind="returned", output=encode(TARGET))

    with pytest.raises(SandboxError, match="returned no packages"):
        await locked(program, Odd())


async def test_a_runtime_that_compiles_calls_no_tool(program: Path) -> None:
    # law 2
    one = FakeRuntime(door=lambda door: door.call(b"x", b"", 0))
    many = FakeRuntime(door=lambda door: door.call_many(b"", 0))
    for runtime in (one, many):
        with pytest.raises(SandboxError, match="a tool was called during a build"):
            await locked(program, runtime)


@pytest.mark.parametrize(
    ("source", "message"),
    [(b"import json", "report.py names no dependencies"), (b"\xff", "cannot be read")],
)
def test_a_program_has_to_name_dependencies(
    program: Path, source: bytes, message: str
) -> None:
    program.write_bytes(source)
    with pytest.raises(UsageError, match=message) as raised:
        metadata_in(program)
    assert raised.value.fix


async def test_a_folder_that_cannot_be_written_is_named(program: Path) -> None:
    packages_of(program).mkdir()
    with pytest.raises(UsageError, match=r"report\.py\.packages cannot be written"):
        await locked(program, FakeRuntime())
