"""Agents in Python, built from source, in the sandbox."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from caxton_host.building import build_agent
from caxton_host.core.calls import JSON, Completed, Outcome, reply
from caxton_host.core.limits import Limits
from caxton_host.errors import UsageError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending, Guest
from caxton_host.sandbox import WasmSandbox
from tests.shared import once
from tests.stillness import COMPONENT, NOW, STILL, TRAPS

EVALUATOR = Path(__file__).with_name("evaluator.py")
#: A build imports the agent, and its first run compiles the interpreter.
pytestmark = pytest.mark.timeout(400)
#: What a run draws is not what the table has, which is for one fixed word.
_DRAWN = re.compile(r"urandom|secrets|uuid|random")


@dataclass
class Tools:
    """A door with one answer."""

    outcome: Outcome = field(default_factory=lambda: Completed(message="yes"))
    calls: list[JSON] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        self.calls.append([name.decode(), codec.decode(params, limit=65536), fuel])
        status, body = reply(self.outcome)
        return Answer(status, codec.encode(body), NOW + 1_000_000 * len(self.calls))

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        items = [name for name, _ in codec.split_batch(batch)]
        self.calls.append([len(items), fuel])
        replies = [reply(self.outcome)[1] for _ in items]
        return Answer(0, codec.encode(replies), NOW)

    def log(self, level: int, text: bytes) -> None:
        self.logs.append(f"{level} {text.decode()}")


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python") / "evaluator"
    folder.mkdir()
    shutil.copy(EVALUATOR, folder)
    (folder / "helping").mkdir()
    (folder / "helping" / "__init__.py").write_text("from .words import WORD")
    (folder / "helping" / "words.py").write_text("WORD = 'a very rare word'")
    return folder


@pytest.fixture(scope="session")
def evaluator(
    sources: Path, zig_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    def build(folder: Path) -> None:
        build_agent(sources, into=folder, cache=zig_cache)

    (module,) = once(tmp_path_factory, "evaluator", build).iterdir()
    return module.read_bytes()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


async def run(
    module: bytes,
    value: object,
    compiled: Path,
    tools: Tools | None = None,
    seed: bytes = bytes(32),
) -> Ending:
    limits = Limits(memory=256 * 1024 * 1024)
    async with WasmSandbox(compiled, bytes(32)) as sandbox:
        prepared = await sandbox.prepare(module, limits, "run")
        guest = Guest(
            domain="python",
            entry="run",
            limits=limits,
            input=codec.encode(cast("JSON", value)),
            seed=seed,
            now=NOW,
        )
        return await sandbox.run(prepared, guest, tools or Tools())


def values(ending: Ending) -> Sequence[str]:
    assert (ending.kind, ending.code, ending.message) == ("returned", 0, "")
    assert ending.output is not None
    found = codec.decode(ending.output, limit=1 << 20)
    assert isinstance(found, list)
    return [str(each) for each in found]


async def test_nothing_sees_what_the_log_does_not(  # law 3
    evaluator: bytes, compiled: Path
) -> None:
    expected = {
        text: pattern
        for text, pattern in {**STILL, **COMPONENT}.items()
        if not _DRAWN.search(text) or "Random(7)" in text
    }
    found = values(await run(evaluator, [*expected], compiled))
    wrong = {
        text: value
        for text, value in zip(expected, found, strict=True)
        if not re.fullmatch(expected[text], value)
    }
    assert not wrong


async def test_what_is_drawn_comes_from_the_seed_of_the_run(  # law 3
    evaluator: bytes, compiled: Path
) -> None:
    drawn = [
        "random.random()",
        "random.Random().random()",
        "random.sample(range(1000), 5)",
        "secrets.token_bytes(9)",
        "os.urandom(3)",
        "uuid.uuid4()",
        "uuid.uuid1()",
        "ca.random.random()",
        "ca.random_bytes(9)",
    ]
    first = await run(evaluator, drawn, compiled)
    again = await run(evaluator, drawn, compiled)
    assert first == again
    other = values(await run(evaluator, drawn, compiled, seed=bytes([1]) * 32))
    assert not set(values(first)) & set(other)


async def test_hashes_and_the_order_of_sets_are_the_same_each_time(  # law 3
    evaluator: bytes, compiled: Path
) -> None:
    texts = ["hash('a')", "set('abcdefgh')", "id(object())", "object()"]
    found = [
        await run(evaluator, texts, compiled, seed=bytes([n]) * 32) for n in (1, 2)
    ]
    assert values(found[0]) == values(found[1])
    assert found[0].fuel == found[1].fuel


async def test_clocks_move_with_the_answers_of_tools(
    evaluator: bytes, compiled: Path
) -> None:
    ask = "ca.mcp_call('x', {'n': 1}).message"
    tools = Tools()
    texts = ["time.time_ns()", ask, "time.time_ns()", "time.sleep(5)", "time.time_ns()"]
    before, said, after, _, slept = values(await run(evaluator, texts, compiled, tools))
    assert said == "'yes'"
    assert int(after) - int(before) == 1_000_000_000
    assert int(slept) - int(after) == 5_000_000_000
    assert len(tools.calls) == 1


async def test_every_host_function_is_one_of_python(
    evaluator: bytes, compiled: Path
) -> None:
    texts = [
        "ca.now()",
        "[each.message for each in ca.mcp_call_many([('x', {}), ('y', None)])]",
        "ca.mcp_call_many([])",
        "ca.tools()",
        "ca.context('none', 'else')",
        "[ca.log.debug('a'), ca.log.info('b'), ca.log.warning('c'), ca.log.error('d')]",
        "print('printed')",
        "print('begun', end='')",
        "ca.mcp_call('x', {'b': b'bytes'})",
    ]
    tools = Tools()
    now, many, none, granted, other, *_, refused = values(
        await run(evaluator, texts, compiled, tools)
    )
    assert now.startswith("datetime.datetime(2023, 11, 14, 22, 13, 20, 123456")
    assert (many, none, granted, other) == ("['yes', 'yes']", "[]", "[]", "'else'")
    assert refused.startswith("TypeError: params of x: ")
    assert tools.logs == ["0 a", "1 b", "2 c", "3 d", "1 printed", "1 begun"]


@pytest.mark.parametrize("text", TRAPS)
async def test_what_no_exception_can_tell_is_a_trap(
    evaluator: bytes, compiled: Path, text: str
) -> None:
    assert (await run(evaluator, [text], compiled)).kind == "trap"


def test_an_agent_is_of_all_the_python_in_its_folder(evaluator: bytes) -> None:
    assert b"a very rare word" in evaluator


async def test_an_exception_that_leaves_the_agent_is_its_reason(
    evaluator: bytes, compiled: Path
) -> None:
    tools = Tools()
    ending = await run(evaluator, 7, compiled, tools)
    assert (ending.kind, ending.output) == ("returned", None)
    assert ending.message == "TypeError: 'int' object is not iterable"
    where, what = tools.logs
    assert re.fullmatch(r"3 evaluator\.py:\d+, in run: return .*ca\.input\(\)\]", where)
    assert what == f"3 {ending.message}"


def test_a_build_is_the_same_in_another_folder(
    evaluator: bytes, sources: Path, tmp_path: Path, zig_cache: Path
) -> None:
    folder = tmp_path / "elsewhere" / "evaluator"
    shutil.copytree(sources, folder)
    (folder / "__pycache__").mkdir()
    (folder / "notes.txt").write_text("not a part of it")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "other.py").write_text("neither is this")
    again = build_agent(folder, cache=zig_cache)
    assert again.sha256 == hashlib.sha256(evaluator).hexdigest()


def test_what_is_wrong_is_shown_as_python_would(
    tmp_path: Path, zig_cache: Path
) -> None:
    # Two mistakes in one build, which takes long.
    (tmp_path / "mistaken.py").write_text("import os\ndef run(:\n")
    (tmp_path / "agent.py").write_text(
        "from caxton_agent import mcp_call\n"
        "try:\n"
        "    import mistaken\n"
        "except SyntaxError:\n"
        "    mcp_call('x')\n"
    )
    with pytest.raises(UsageError, match=r"agent\.py cannot be built") as caught:
        build_agent(tmp_path, cache=zig_cache)
    lines = [
        *('File "mistaken.py", line 2', "    def run(:", "SyntaxError: invalid syntax"),
        *('File "agent.py", line 5', "NoHostError", "call them in run()"),
    ]
    said = str(caught.value)
    assert all(line in said for line in lines), said
    assert "caxton_component" not in said
    assert "stack backtrace" not in said.lower()
    assert caught.value.fix
    assert not list(tmp_path.glob("*.wasm"))
