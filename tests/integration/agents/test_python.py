"""Agents in Python, built from source, in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from caxton_host.building import build_agent
from caxton_host.errors import UsageError
from tests.programs import Programs, Ran, running, text
from tests.stillness import BUILT, COMPONENT, STILL

from .conftest import EVALUATOR, RARE, Build

#: A build imports the agent, and its first run compiles the interpreter.
pytestmark = pytest.mark.timeout(400)
#: What a run draws is not what the table has, which is for one fixed word.
_DRAWN = re.compile(r"urandom|secrets|uuid|random")
ANSWERS = {"x": text("yes"), "y": text("yes")}


@pytest.fixture(scope="session")
def agent(weather_in: Build, compiled_runtimes: Path) -> Iterator[Programs]:
    """Return the built evaluator in a sandbox. It ignores its program."""
    module = weather_in("python")
    with running(module, compiled_runtimes, "python", "none") as programs:
        yield programs


def values(ran: Ran) -> Sequence[str]:
    return [str(each) for each in ran.output]


def wrong(table: dict[str, str], found: Sequence[str]) -> dict[str, str]:
    return {
        expression: value
        for expression, value in zip(table, found, strict=True)
        if not re.fullmatch(table[expression], value)
    }


def known(table: dict[str, str]) -> dict[str, str]:
    return {
        expression: pattern
        for expression, pattern in table.items()
        if not _DRAWN.search(expression) or "Random(7)" in expression
    }


@pytest.mark.long
def test_nothing_sees_what_the_log_does_not(agent: Programs) -> None:  # law 3
    table = known({**STILL, **COMPONENT, **BUILT})
    assert not wrong(table, values(agent("", input=[*table])))


def test_nor_does_anything_in_a_program(python_programs: Programs) -> None:  # law 3
    table = known({**STILL, **COMPONENT})
    source = EVALUATOR.read_text()
    assert not wrong(table, values(python_programs(source, input=[*table])))


def test_what_is_drawn_comes_from_the_seed_of_the_run(  # law 3
    agent: Programs,
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
    first = agent("", input=drawn)
    again = agent("", input=drawn)
    assert first.ending == again.ending
    other = values(agent("", input=drawn, seed=bytes([1]) * 32))
    assert not set(values(first)) & set(other)


def test_hashes_and_the_order_of_sets_are_the_same_each_time(  # law 3
    agent: Programs,
) -> None:
    texts = ["hash('a')", "set('abcdefgh')", "id(object())", "object()"]
    found = [agent("", input=texts, seed=bytes([n]) * 32) for n in (1, 2)]
    assert values(found[0]) == values(found[1])
    assert found[0].ending.fuel == found[1].ending.fuel


def test_clocks_move_with_the_answers_of_tools(agent: Programs) -> None:
    ask = "ca.mcp_call('x', {'n': 1}).message"
    texts = ["time.time_ns()", ask, "time.time_ns()", "time.sleep(5)", "time.time_ns()"]
    ran = agent("", ANSWERS, input=texts)
    before, said, after, _, slept = values(ran)
    assert said == "'yes'"
    assert int(after) - int(before) == 1_000_000_000
    assert int(slept) - int(after) == 5_000_000_000
    assert ran.tools.sent == [["x"]]


def test_every_host_function_is_one_of_python(agent: Programs) -> None:
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
    ran = agent("", ANSWERS, input=texts)
    now, many, none, granted, other, *_, refused = values(ran)
    assert now.startswith("datetime.datetime(2023, 11, 14, 22, 13, 20, 123456")
    assert (many, none, granted, other) == ("['yes', 'yes']", "[]", "[]", "'else'")
    assert refused.startswith("TypeError: params of x: ")
    assert ran.tools.logs == ["0 a", "1 b", "2 c", "3 d", "1 printed", "1 begun"]


def test_an_agent_awaits_its_calls_together(agent: Programs) -> None:
    ran = agent(
        "",
        ANSWERS,
        input=["gathered()", "asyncio.run(asyncio.sleep(9, 8))"],
        catalogue=[{"name": "y", "description": "", "input_schema": {}}],
    )
    assert values(ran) == ["['yes', 'yes']", "8"]
    assert ran.tools.sent == [["x", "y"]]


def test_an_agent_is_of_all_the_python_in_its_folder(weather_in: Build) -> None:
    assert RARE in weather_in("python")


def test_an_exception_that_leaves_the_agent_is_its_reason(agent: Programs) -> None:
    ran = agent("", input=7)
    assert ran.error == "TypeError: 'int' object is not iterable"
    *_, where, what = ran.tools.logs
    assert re.fullmatch(r"3 evaluator\.py:\d+, in run: return .*ca\.input\(\)\]", where)
    assert what == f"3 {ran.error}"


@pytest.mark.long
def test_what_is_wrong_is_shown_as_python_would(
    tmp_path: Path, zig_cache: Path
) -> None:
    # Two mistakes in one build, which takes long. The text is valid, so that what is
    # checked before the build finds neither.
    (tmp_path / "agent.py").write_text(
        "from caxton_agent import mcp_call\n"
        "try:\n"
        "    compile('import os\\ndef run(:\\n', 'mistaken.py', 'exec')\n"
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
