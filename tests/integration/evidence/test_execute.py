"""A second engine executes recorded runs against their answers, and agrees (law 5)."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.limits import Limits
from caxton_host.core.programs import program_of
from caxton_host.core.sections import INTERPRETER, section
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.sandbox import WasmSandbox
from tests.corpus import files
from tests.e2e.guests import TRAPS, call, guest
from tests.integration.sandbox.support import CALL, ECHO, wasm
from tests.others import Programs

from .engine import FOLDER, SCRIPTS, Case, Engine
from .guests import Telling
from .scene import Scene

AGENTS = Path(__file__).parents[3] / "agents"


def changed(case: Case, type_: str, place: int = 0, **values: object) -> Case:
    """Return a case with other values in one of its events."""
    events = [dict(one) for one in case.events]
    one = [one for one in events if one["type"] == type_][place]
    payload = codec.decode_trusted(one["payload"])
    assert payload.keys() >= values.keys()
    one["payload"] = codec.encode({**payload, **values})
    return Case(case.run, events, case.blobs)


def without(case: Case, call: int) -> Case:
    """Return a case without what the log holds of a call; later ones move up."""
    events: list[Mapping[str, Any]] = []
    for one in case.events:
        payload = codec.decode_trusted(one["payload"])
        number = payload.get("call", 0)
        if one["type"] in _OF_CALLS and number == call:
            continue
        if number > call:
            payload["call"] = number - 1
        events.append({**one, "payload": codec.encode(payload)})
    return Case(case.run, events, case.blobs)


def identical(calls: int) -> dict[str, Any]:
    """Return what a worker says of a run that is executed to the same end."""
    nothing = dict.fromkeys(("at", "recorded", "now"))
    told = {"type": "done", "verdict": "identical", "why": "", "calls": calls}
    return told | nothing | {"progress": calls}


# -- the corpus


def of_log(log: files.Log) -> Case:
    payloads = {row["position"]: row["payload"] for row in log.rows["payloads"]}
    keys = ("seq", "stream", "type", "schema_version", "recorded_at")
    events = [
        {key: row[key] for key in keys} | {"payload": payloads.get(row["position"])}
        for row in log.rows["events"]
    ]
    blobs = {row["sha256"]: row["bytes"] for row in log.rows["blobs"]}
    return Case(log.about["run_id"], events, blobs)


#: Failures that any engine comes to.
_OWN = {"trap", "agent_error", "limit"}
#: Of these, those that the recorded engine alone comes to, or a clock.
_ENGINES = ("fuel", "stack", "compute", "wall")


@pytest.mark.parametrize("name", files.names())
def test_every_run_of_the_corpus_is_executed_as_far_as_it_is_recorded(
    name: str, engine: Engine
) -> None:  # laws 5 and 6
    log = files.read(name)
    found = engine(of_log(log))
    summary = log.about["summary"]
    error = summary["error"] or {"kind": "", "message": ""}
    to_the_end = summary["state"] == "completed" or (
        error["kind"] in _OWN and not error["message"].startswith(_ENGINES)
    )
    assert found["verdict"] == ("identical" if to_the_end else "ended"), found


# -- what an agent is told

#: Values that a careless reader changes: 1.0, keys out of order, 64 bits, many items.
AWKWARD: JSON = {
    "b": [1, 1.0, -0.0, 2**53 + 1, 2**64 - 1, -(2**63), 0.1, None, True],
    "10": "ü" * 40,
    "9": list(range(-200, 70_000, 4_000)),
    "__proto__": {"constructor": ""},
}
SCHEMA: JSON = {"type": "object", "maxProperties": 3.0, "properties": {"2": {}}}
TOOLS: dict[str, Any] = {
    "look": Completed(message="clear", data=AWKWARD),
    "wrong": Completed(is_error=True, message="no such city", data={"code": 7.0}),
    "late": ToolError("timeout", "unknown", "no answer in 5 s"),
    "refuses": ToolError("protocol", "yes", "no", code=-32602),
}
_LOOK = "mcp__demo__look"


def telling() -> Telling:
    """Return an agent that uses every host function."""
    it = Telling()
    for function in ("tools", "input", "program"):
        it.tell(function)
    for key in (b"user", b"10", b"nobody", b"\xff"):
        it.tell("context", it.put(key))
    it.number("(call $now)")
    it.random()
    it.log(1, "wörld \x1b[31m".encode() + b"\xff")
    it.call(_LOOK, {"n": 1.0})
    it.call("mcp__demo__nothing", {})
    it.call("bad name", {})
    it.batch([[_LOOK, AWKWARD], ["mcp__demo__late", {}], 7, [_LOOK, "no map"]])
    it.tell("mcp_call_many", it.put(b"\x91\x92"))
    it.batch([])
    it.call("mcp__demo__wrong", {"a": 1})
    it.call("mcp__demo__refuses", {"a": 1})
    it.log(7, b"x" * 90)
    it.random()
    return it


GIVEN: dict[str, Any] = {"input": AWKWARD, "context": {"user": "ann", "10": AWKWARD}}


async def test_an_agent_is_told_the_same_in_both_engines(
    engine: Engine, sandbox: WasmSandbox
) -> None:  # law 5
    scene = Scene(sandbox, **TOOLS)
    case = await scene.run(telling().module(), **GIVEN)
    assert case.events[-1]["type"] == "RunCompleted"
    assert engine(case) == identical(calls=10)


async def test_a_fork_is_told_what_its_parent_was_and_then_its_own(
    engine: Engine, sandbox: WasmSandbox
) -> None:  # law 5
    scene = Scene(sandbox, **TOOLS)
    module = telling().module()
    case = await scene.run(module, **GIVEN)
    third = [one["seq"] for one in case.events if one["type"] == "ToolDenied"][1]
    fork = await scene.fork(third)
    assert engine(fork) == identical(calls=10)
    assert fork.events[-1]["payload"] != case.events[-1]["payload"]


async def test_a_run_that_ends_within_a_batch_is_executed_as_far_as_that(
    engine: Engine, sandbox: WasmSandbox
) -> None:  # law 6
    it = Telling()
    it.batch([["mcp__demo__a", {}], ["mcp__demo__b", {}]])
    case = await Scene(sandbox).run(it.module())
    types = [one["type"] for one in case.events]
    assert types[1:3] == ["ToolInvoked", "ToolDenied"]
    cut = Case(case.run, case.events[:3], case.blobs)
    assert engine(cut)["verdict"] == "ended"


async def test_a_start_function_reaches_its_host_and_a_memory_grows_as_far_as_its_limit(
    engine: Engine, sandbox: WasmSandbox
) -> None:
    start = """(memory $other 1) (table 1 funcref) (table $t 2 50000 funcref)
      (func $start (call $log (i32.const 0) (i32.const 0) (i32.const 3))
        (drop (memory.grow $other (i32.const 5)))) (start $start)"""
    it = Telling()
    it.number("(i64.extend_i32_s (memory.grow $other (i32.const 60)))")
    it.number("(i64.extend_i32_s (memory.grow $other (i32.const 975)))")
    it.number("(i64.extend_i32_s (memory.grow 0 (i32.const 1000)))")
    it.number("(i64.extend_i32_s (table.grow $t (ref.null func) (i32.const 19998)))")
    it.number("(i64.extend_i32_s (table.grow $t (ref.null func) (i32.const 1)))")
    scene = Scene(sandbox)
    case = await scene.run(it.module(start), limits=Limits(memory=130 << 20))
    assert [one["type"] for one in case.events][1:] == ["LogWritten", "RunCompleted"]
    output = codec.decode_trusted(case.events[-1]["payload"])["output"]
    assert output.count(2**64 - 1) == 3, output
    assert engine(case) == identical(calls=0)


# -- what is found


DIGEST = hashlib.sha256(b"").hexdigest()
_OF_CALLS = {"ToolInvoked", "ToolCompleted", "ToolDenied", "ToolFailed"}
#: What is changed in a log, the call that shows it, and what is said of it.
FOUND: dict[str, tuple[Callable[[Case], Case], int | None, str]] = {
    "other params": (
        lambda it: changed(it, "ToolInvoked", 3, params_sha256=DIGEST),
        4,
        "the params of mcp__demo__look differ",
    ),
    "another name": (
        lambda it: changed(it, "ToolInvoked", 1, name="mcp__demo__look"),
        2,
        "another call was made",
    ),
    "another answer": (
        lambda it: changed(it, "ToolCompleted", message="cloudy"),
        None,
        "the end differs",
    ),
    "a whole float": (
        lambda it: changed(it, "ToolCompleted", 2, data={"code": 7}),
        None,
        "the end differs",
    ),
    "another denial": (
        lambda it: changed(it, "ToolDenied", code="denied"),
        None,
        "the end differs",
    ),
    "another failure": (
        lambda it: changed(it, "ToolFailed", kind="transport"),
        None,
        "the end differs",
    ),
    "another output": (
        lambda it: changed(it, "RunCompleted", output_sha256=DIGEST),
        None,
        "the end differs",
    ),
    "another input": (
        lambda it: changed(it, "RunStarted", input=1),
        None,
        "the end differs",
    ),
    "another seed": (
        lambda it: changed(it, "RunStarted", seed="00" * 32),
        None,
        "the end differs",
    ),
    "another line": (
        lambda it: changed(it, "LogWritten", text="world"),
        None,
        "a log line differs",
    ),
    "a line of another level": (
        lambda it: changed(it, "LogWritten", 1, level="debug"),
        10,
        "a log line differs",
    ),
    "fewer calls": (
        lambda it: without(it, 1),
        1,
        "another call was made",
    ),
    "no last call": (lambda it: without(it, 10), 10, "a call is new"),
    "a limit": (
        lambda it: changed(
            it,
            "RunStarted",
            limits=codec.decode_trusted(it.events[0]["payload"])["limits"]
            | {"host_calls": 20},
        ),
        10,
        "a recorded call was not made",
    ),
}


async def test_each_change_of_a_log_is_found_where_it_shows(
    engine: Engine, sandbox: WasmSandbox
) -> None:  # law 5
    scene = Scene(sandbox, **TOOLS)
    case = await scene.run(telling().module(), **GIVEN)
    for name, (change, at, why) in FOUND.items():
        found = engine(change(case))
        told = found["verdict"], found["at"], found["why"]
        assert told == ("diverged", at, why), name


async def test_an_agent_that_acts_on_another_answer_is_found_at_its_next_call(
    engine: Engine, sandbox: WasmSandbox
) -> None:  # law 5
    mail: JSON = {"messages": [{"body": "IBAN NO93"}]}
    scene = Scene(
        sandbox,
        read_mail=Completed(message="mail", data={"structuredContent": mail}),
        list_suppliers={"suppliers": []},
    )
    module = (AGENTS / "clerk" / "clerk.wasm").read_bytes()
    case = await scene.run(module, input={"supplier": "Acme", "amount": 3.5})
    assert engine(case)["verdict"] == "identical"

    other: JSON = {"structuredContent": {"messages": [{"body": "IBAN SE11"}]}}
    found = engine(changed(case, "ToolCompleted", data=other))
    assert found["verdict"] == "diverged", found
    assert (found["recorded"], found["now"]) == (
        '{"to":"NO93","amount":3.5}',
        '{"to":"SE11","amount":3.5}',
    )


async def test_what_cannot_be_executed_is_said_and_is_no_divergence(
    engine: Engine, sandbox: WasmSandbox
) -> None:
    case = await Scene(sandbox, **TOOLS).run(guest(call(_LOOK)))
    module = codec.decode_trusted(case.events[0]["payload"])["module_sha256"]
    others = {
        "a component": changed(case, "RunStarted", abi="component/1"),
        "a session": changed(case, "RunStarted", abi="client/1"),
        "not known": changed(case, "RunStarted", abi="core/2"),
        "not here": Case(case.run, case.events, {}),
        "not the one": Case(case.run, case.events, {module: b"\0asm"}),
        "its start": Case(case.run, case.events[1:], case.blobs),
        "erased": Case(
            case.run, [{**one, "payload": None} for one in case.events], case.blobs
        ),
    }
    for why, other in others.items():
        found = engine(other)
        assert found["verdict"] == "cannot", why
        assert why in found["why"]


async def test_an_interpreter_that_aborts_does_so_in_both_engines(
    engine: Engine, sandbox: WasmSandbox
) -> None:
    module = guest(call(_LOOK), then=TRAPS) + section(INTERPRETER, b"")
    case = await Scene(sandbox, **TOOLS).run(module)
    end = codec.decode_trusted(case.events[-1]["payload"])
    assert end["message"] == "the interpreter aborted: unreachable"
    assert engine(case) == identical(calls=1)
    other = changed(case, "RunFailed", message="the interpreter aborted: no reason")
    assert engine(other)["why"] == "the end differs"


async def test_a_run_that_died_at_its_limit_is_followed_to_there(
    engine: Engine, sandbox: WasmSandbox
) -> None:
    calls = [call(_LOOK, n=n) for n in range(3)]
    limits = Limits(total_calls=2)
    case = await Scene(sandbox, **TOOLS).run(guest(*calls), limits=limits)
    assert engine(case) == identical(calls=3)
    # The host died before it recorded the end.
    found = engine(Case(case.run, case.events[:-1], case.blobs))
    assert (found["verdict"], found["at"]) == ("ended", 3)


async def test_a_stack_that_is_full_here_says_nothing_of_the_run(
    engine: Engine, sandbox: WasmSandbox
) -> None:
    deep = """(func $deep (param $n i32) (result i32) (if (result i32) (local.get $n)
      (then (i32.add (call $deep (i32.sub (local.get $n) (i32.const 1))) (i32.const 1)))
      (else (i32.const 0))))"""
    code = f"(drop (call $deep (i32.const 100000))) {CALL} drop (i32.const 0)"
    module = wasm(code, before=deep + ECHO) + section(INTERPRETER, b"")
    case = await Scene(sandbox).run(module)
    assert case.events[-1]["type"] == "RunCompleted"
    found = engine(case)
    assert (found["verdict"], found["calls"]) == ("cannot", 0)
    assert found["why"].startswith("this engine gave up: ")


PROGRAM = b"""
import { context, input, log, now, random, randomBytes, tools } from "caxton";
const [look, wrong] = await Promise.all([
  tools.demo.look({ n: 1.5 }),
  tools.demo.wrong({}).catch((error) => error.code),
]);
console.log("looked");
await new Promise((resolve) => setTimeout(resolve, 3600_000));
const again = await tools.demo.look({ look: JSON.stringify(look), at: now() });
const all = [input(), context("user"), look, wrong, again, tools(), random(), now(),
  [...randomBytes(20)], Math.random(), new Date().toISOString(), 0.1 + 0.2, 2 ** 70];
export const run = () => all;
"""


@pytest.fixture(scope="module")
def javascript_module(javascript_runtime: Path) -> bytes:
    return javascript_runtime.read_bytes()


async def test_a_program_in_javascript_is_executed_again(
    engine: Engine, sandbox: WasmSandbox, javascript_module: bytes
) -> None:  # law 5
    scene = Scene(sandbox, **TOOLS)
    program = program_of("all.js", PROGRAM, language="javascript")
    case = await scene.run(javascript_module, program=program, **GIVEN)
    assert case.events[-1]["type"] == "RunCompleted", case.events[-1]
    assert engine(case) == identical(calls=3)

    thrown = program_of("bad.js", b"await 1;\nnull.x;", language="javascript")
    case = await scene.run(javascript_module, program=thrown)
    assert codec.decode_trusted(case.events[-1]["payload"])["kind"] == "agent_error"
    assert engine(case) == identical(calls=0)


def test_the_scripts_are_typed(programs: Programs) -> None:
    tsc = programs.folder / "node_modules" / ".bin" / "tsc"
    words = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"]
    words += ["--lib", "es2022,dom,dom.iterable", "--module", "es2022"]
    scripts = [str(FOLDER / f"{name}.js") for name in SCRIPTS]
    done = subprocess.run(
        [str(tsc), *words, *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
