"""The compiler: what it makes, what it refuses, and what it believes of its cache."""

# ruff: noqa: ASYNC240 -- the files are small, and nobody else waits
from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from caxton_host.core.limits import Limits
from caxton_host.errors import ModuleRefused, SandboxError
from caxton_host.sandbox import compiler as compiler_module
from caxton_host.sandbox.artifacts import Artifact
from caxton_host.sandbox.compiler import Compiler
from caxton_host.sandbox.confine import spawn
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.settings import settings_for
from tests.unit.sandbox.binaries import RETURNS_ZERO, locals_bomb, module

from .prisoner import Prisoner

KEY = b"CANARY-MAC-KEY-of-32-secret-bytes"
LIMITS = Limits()
SETTINGS = settings_for(LIMITS)
AGENT = module()


class Watched(list[Process | None]):
    """What was started, and an event for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()

    def note(self, one: Process | None) -> None:
        self.append(one)
        self.first.set()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Count what was compiled."""
    calls = Watched()
    original = compiler_module._compile

    async def counted(*args: Any) -> Artifact:  # noqa: ANN401 -- passed on
        calls.note(None)
        return await original(*args)

    monkeypatch.setattr(compiler_module, "_compile", counted)
    return calls


def instead_of_the_child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(
        compiler_module, "command", lambda *_: [sys.executable, "-Ic", code]
    )


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Collect the processes that were started."""
    started = Watched()
    original = asyncio.create_subprocess_exec

    async def start(*args: Any, **options: Any) -> Process:  # noqa: ANN401 -- passed on
        process = await original(*args, **options)
        started.note(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return started


def only(children: Watched) -> int | None:
    """Return the exit code of the only child."""
    (child,) = children
    assert child is not None
    return child.returncode


async def refusal(data: bytes, cache: Path, limits: Limits = LIMITS) -> str:
    with pytest.raises(ModuleRefused) as caught:
        await Compiler(cache, KEY).artifact(data, limits, SETTINGS)
    assert caught.value.fix
    assert str(caught.value).isprintable()
    return str(caught.value)


async def test_an_artifact_runs_in_the_engine_it_was_made_for(cache: Path) -> None:
    artifact = await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)

    engine = build_engine(SETTINGS)
    store = wasmtime.Store(engine)
    store.set_fuel(1_000)
    store.set_epoch_deadline(1)
    loaded = wasmtime.Module.deserialize(engine, artifact.data)
    run = wasmtime.Instance(store, loaded, []).exports(store)["run"]
    assert isinstance(run, wasmtime.Func)
    assert run(store) == 0


async def test_a_module_is_compiled_once_and_then_found(
    cache: Path, compiled: Watched
) -> None:
    first = await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)
    second = await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)

    assert first == second
    assert len(compiled) == 1


async def test_callers_at_the_same_time_share_one_compile(
    cache: Path, compiled: Watched
) -> None:
    compiler = Compiler(cache, KEY)

    found = await asyncio.gather(
        *(compiler.artifact(AGENT, LIMITS, SETTINGS) for _ in range(5))
    )

    assert len({artifact.data for artifact in found}) == 1
    assert len(compiled) == 1


async def test_a_caller_that_gives_up_takes_no_other_with_it(
    cache: Path, compiled: Watched
) -> None:
    compiler = Compiler(cache, KEY)
    first = asyncio.create_task(compiler.artifact(AGENT, LIMITS, SETTINGS))
    second = asyncio.create_task(compiler.artifact(AGENT, LIMITS, SETTINGS))
    await compiled.first.wait()

    first.cancel()

    assert (await second).data
    assert first.cancelled()


async def test_a_caller_with_other_limits_is_not_refused_by_them(cache: Path) -> None:
    compiler = Compiler(cache, KEY)
    tight = Limits(compile_memory=1 << 20)

    refused, made = await asyncio.gather(
        compiler.artifact(AGENT, tight, SETTINGS),
        compiler.artifact(AGENT, LIMITS, SETTINGS),
        return_exceptions=True,
    )

    assert isinstance(refused, ModuleRefused)
    assert isinstance(made, Artifact)


async def test_another_module_or_engine_has_another_key(cache: Path) -> None:
    compiler = Compiler(cache, KEY)
    other = module(bodies=(b"\0\x41\1\x0b",))
    small = settings_for(Limits(memory=1 << 20))

    keys = {
        (await compiler.artifact(AGENT, LIMITS, SETTINGS)).key,
        (await compiler.artifact(other, LIMITS, SETTINGS)).key,
        (await compiler.artifact(AGENT, LIMITS, small)).key,
    }

    assert len(keys) == 3
    assert {path.name for path in cache.iterdir()} == keys


async def test_the_cache_is_for_this_user_alone(cache: Path) -> None:
    cache.mkdir(mode=0o755)

    await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)

    (file,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def flip(at: int) -> Callable[[Path], None]:
    def tamper(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[at] ^= 1
        file.write_bytes(data)

    return tamper


def be_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def be_a_link(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def be_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


TAMPER: dict[str, Callable[[Path], object]] = {
    "first bit of the MAC": flip(0),
    "last bit of the MAC": flip(31),
    "first bit of the code": flip(32),
    "last bit of the code": flip(-1),
    "empty": lambda file: file.write_bytes(b""),
    "cut in the MAC": lambda file: file.write_bytes(file.read_bytes()[:31]),
    "cut in the code": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "huge": lambda file: os.truncate(file, 513 << 20),
    "a pipe": be_a_pipe,
    "a link": be_a_link,
    "a folder": be_a_folder,
}


@pytest.mark.parametrize("tamper", TAMPER)
async def test_what_this_host_did_not_write_is_compiled_again(
    cache: Path, compiled: Watched, tamper: str
) -> None:
    # attack 9
    good = await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)
    TAMPER[tamper](cache / good.key)

    again = await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)

    assert again == good
    assert len(compiled) == 2


async def test_an_artifact_under_the_name_of_another_is_not_used(
    cache: Path, compiled: Watched
) -> None:
    # attack 9
    compiler = Compiler(cache, KEY)
    other = module(bodies=(b"\0\x41\1\x0b",))
    good = await compiler.artifact(AGENT, LIMITS, SETTINGS)
    swapped = await compiler.artifact(other, LIMITS, SETTINGS)
    (cache / swapped.key).replace(cache / good.key)

    assert await compiler.artifact(AGENT, LIMITS, SETTINGS) == good
    assert len(compiled) == 3


async def test_with_another_key_all_is_compiled_again(
    cache: Path, compiled: Watched
) -> None:
    await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)
    await Compiler(cache, KEY[::-1]).artifact(AGENT, LIMITS, SETTINGS)

    assert len(compiled) == 2


async def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    compiler = Compiler(tmp_path / "file" / "artifacts", KEY)

    assert (await compiler.artifact(AGENT, LIMITS, SETTINGS)).data


async def test_a_file_that_cannot_be_finished_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    assert (await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)).data
    assert list(cache.iterdir()) == []


def test_a_short_key_is_a_mistake(cache: Path) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Compiler(cache, b"short")


async def test_what_wasmtime_refuses_is_said_in_its_words(cache: Path) -> None:
    hostile = module(bodies=(b"\0\x42\0\x0b",))

    text = await refusal(hostile, cache)

    assert text.startswith("wasmtime refuses the module: ")
    assert "type mismatch" in text


# law 9
async def test_a_compile_bomb_ends_in_the_child_and_not_in_the_host(
    cache: Path,
) -> None:
    # attack 5
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    text = await refusal(locals_bomb(40_000, 340_000), cache, Limits(compile_cpu=1))

    assert text == "compiling the module takes more than 1 s of processor time"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


# law 9
async def test_a_compile_that_needs_too_much_memory_ends_in_the_child(
    cache: Path,
) -> None:
    # attack 5
    many = module(bodies=(RETURNS_ZERO,) * 50_000)

    text = await refusal(many, cache, Limits(compile_memory=200 << 20))

    assert "ran out of memory or crashed" in text
    assert "200 MiB" in text


async def test_a_child_that_does_not_end_is_given_up(
    cache: Path, monkeypatch: pytest.MonkeyPatch, children: Watched
) -> None:
    monkeypatch.setattr(compiler_module, "_WALL_START_S", 0.3)
    instead_of_the_child(monkeypatch, "import time; time.sleep(60)")

    text = await refusal(AGENT, cache, Limits(compile_cpu=0))

    assert text == "compiling the module took too long"
    assert only(children) == -9


async def test_a_child_that_writes_without_end_is_ended(
    cache: Path, monkeypatch: pytest.MonkeyPatch, children: Watched
) -> None:
    instead_of_the_child(
        monkeypatch,
        "import os\nos.read(0, 1)\nos.write(1, b'!+')\n"
        "while True: os.write(1, bytes(1 << 20))",
    )

    assert "has more than 8,3" in await refusal(AGENT, cache)
    assert only(children) == -9


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "import os; os.abort()"])
async def test_a_child_that_cannot_start_is_not_the_fault_of_the_module(
    cache: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    instead_of_the_child(monkeypatch, code)

    with pytest.raises(SandboxError) as caught:
        await Compiler(cache, KEY).artifact(bytes(1 << 20), LIMITS, SETTINGS)
    assert caught.value.fix == "run: caxton doctor"


@pytest.mark.parametrize("reply", ["b'!'", "b'!?'", "b'!+data' and os.abort()"])
async def test_a_child_that_breaks_off_gives_no_artifact(
    cache: Path, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    instead_of_the_child(
        monkeypatch, f"import os, sys; os.write(1, b'!'); os.write(1, {reply})"
    )

    assert "crashed on the module" in await refusal(AGENT, cache)
    assert not cache.exists()


async def test_a_refusal_shows_no_raw_bytes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # attack 6
    instead_of_the_child(
        monkeypatch, r"import os; os.write(1, b'!-\x1b[31m\n\xff' + b'x' * 100000)"
    )

    text = await refusal(AGENT, cache)

    assert text.startswith(r"wasmtime refuses the module: \x1b[31m \xffxxx")
    assert len(text) < 400


# law 8
async def test_the_child_is_given_no_secret(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAXTON_CANARY", "secret")
    instead_of_the_child(
        monkeypatch,
        "import os, sys\n"
        "given = sys.stdin.buffer.read()\n"
        "os.write(1, b'!+' + given + repr(dict(os.environ)).encode())",
    )

    given = (await Compiler(cache, KEY).artifact(AGENT, LIMITS, SETTINGS)).data

    line, _, rest = given.partition(b"\n")
    assert set(json.loads(line)) == {"settings", "cpu", "memory", "entry"}
    assert rest.startswith(AGENT)
    assert b"CANARY" not in given


async def test_a_host_that_ends_takes_its_compile_children_with_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, children: Watched
) -> None:
    instead_of_the_child(monkeypatch, "import time; time.sleep(60)")
    compiler = Compiler(cache, KEY)
    caller = asyncio.create_task(compiler.artifact(AGENT, LIMITS, SETTINGS))
    await children.first.wait()

    (job,) = compiler._jobs.values()
    job.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert only(children) == -9
    assert compiler._jobs == {}


def test_the_child_is_confined_before_it_compiles() -> None:
    order = json.dumps({"settings": SETTINGS.to_json(), "cpu": 5, "memory": 1 << 31})
    lie = f"""
import io, os, sys, wasmtime
from caxton_host.sandbox import compile_child

class Module:
    def __init__(self, engine, module):
        self.errors = []
        for path in ("/etc/passwd", "/proc/1/environ"):
            try:
                open(path)
            except OSError as error:
                self.errors.append(error.errno)

    def serialize(self):
        return repr(self.errors).encode()

wasmtime.Module = Module
sys.argv = ["compile_child", str(os.getppid())]
sys.stdin = io.TextIOWrapper(io.BytesIO({order.encode()!r} + b"\\n"))
compile_child.main()
"""
    with spawn("code", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        text = f"exec(bytes.fromhex('{lie.encode().hex()}'))\n"
        reply, _ = child.communicate(text.encode(), timeout=60)

    assert reply.endswith(b"!+[1, 1]")


def test_wasmtime_compiles_runs_traps_and_grows_in_a_confined_process() -> None:
    with Prisoner(
        """
import wasmtime
from caxton_host.core.limits import Limits
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.settings import settings_for
engine = build_engine(settings_for(Limits()))
confine.confine(address_space=4 << 30)
"""
    ) as one:
        assert one.run(
            """
text = '''(module (memory (export "memory") 1)
    (func (export "grow") (result i32) (memory.grow (i32.const 100)))
    (func (export "reach") (result i32) (i32.load (i32.const 0x7fffffff)))
    (func $deep (export "deep") (result i32) (call $deep))
    (func (export "spin") (result i32) (loop $l (br $l)) (i32.const 0)))'''
module = wasmtime.Module(engine, wasmtime.wat2wasm(text))
result = []
def run(name):
    store = wasmtime.Store(engine)
    store.set_fuel(1_000_000)
    store.set_epoch_deadline(1)
    try: found = wasmtime.Instance(store, module, []).exports(store)[name](store)
    except wasmtime.Trap as trap: found = trap.trap_code.name
    result.append(found)
for name in ("grow", "reach", "deep", "spin"):
    thread = threading.Thread(target=run, args=(name,))
    thread.start()
    thread.join()
"""
        ) == [1, "MEMORY_OUT_OF_BOUNDS", "STACK_OVERFLOW", "OUT_OF_FUEL"]
