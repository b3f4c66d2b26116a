"""Programs in JavaScript and TypeScript: what they can do, and what stops them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from tests.programs import LIMITS, SECOND, Programs, text

#: The engine is compiled first, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

TIME = "mcp__time__get_current_time"
FX = "mcp__fx-rates__convert_currency"
CATALOGUE: list[dict[str, JSON]] = [
    {
        "name": TIME,
        "description": "The time in a zone.",
        "input_schema": {
            "type": "object",
            "properties": {"timezone": {"type": "string"}},
            "required": ["timezone"],
        },
    },
    {
        "name": FX,
        "description": "Convert money to another currency.",
        "input_schema": {"type": "object"},
    },
]
TOOLS: dict[str, Callable[[dict[str, Any]], Completed]] = {
    TIME: lambda params: text(f"noon in {params['timezone']}"),
    FX: lambda _: text("5", {"result": 5}),
}


@pytest.fixture
def run(javascript_programs: Programs) -> Callable[..., Any]:
    """Return what runs a program with two tools."""

    def run(source: str, **options: Any) -> Any:  # noqa: ANN401 -- as of the harness
        return javascript_programs(source, TOOLS, catalogue=CATALOGUE, **options)

    return run


Run = Callable[..., Any]


# -- calls -----------------------------------------------------------------------


def test_a_tool_is_a_function_with_the_names_of_its_schema(run: Run) -> None:
    source = 'import { tools } from "caxton";\n'
    source += 'output(await tools.time.getCurrentTime({ timezone: "UTC" }));'
    ran = run(source)
    assert ran.output == "noon in UTC"
    assert ran.tools.sent == [[TIME]]
    assert ran.tools.params == [{"timezone": "UTC"}]


def test_structured_content_comes_back_as_its_value(run: Run) -> None:
    assert run("output(await tools.fxRates.convertCurrency());").output == 5


def test_what_is_awaited_together_is_one_batch(run: Run) -> None:
    source = """\
        const zones = ["UTC", "Asia/Tokyo"];
        const times = zones.map((timezone) => tools.time.getCurrentTime({ timezone }));
        output(await Promise.all(times));
    """
    ran = run(source)
    assert ran.output == ["noon in UTC", "noon in Asia/Tokyo"]
    assert ran.tools.sent == [[TIME, TIME]]


def test_a_batch_has_at_most_64_calls(run: Run) -> None:
    source = """\
        const all = Array.from({ length: 150 }, () => tools.fxRates.convertCurrency());
        output((await Promise.all(all)).length);
    """
    ran = run(source)
    assert ran.output == 150
    assert [len(batch) for batch in ran.tools.sent] == [64, 64, 22]


def test_a_call_that_nobody_awaits_is_made(run: Run) -> None:
    ran = run("tools.fxRates.convertCurrency().then(output);")
    assert ran.output == 5


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "tools.time.getCurentTime({})",
            "there is no tool time.getCurentTime; did you mean time.getCurrentTime?",
        ),
        (
            'tools.time.getCurrentTime({ timezones: "UTC" })',
            'time.getCurrentTime has no argument "timezones"; did you mean timezone?',
        ),
        (
            "tools.time.getCurrentTime()",
            'time.getCurrentTime needs the argument "timezone"',
        ),
        (
            "tools.time.getCurrentTime({ timezone: NaN })",
            "timezone is NaN, which JSON does not have",
        ),
    ],
)
def test_a_wrong_use_of_a_tool_names_it_and_sends_nothing(
    source: str, said: str, run: Run
) -> None:
    ran = run(f"await {source};")
    assert ran.error.startswith(f"TypeError: {said} (program.js:1:")
    assert not ran.tools.sent


def test_a_tool_with_another_name_is_reached_by_it(run: Run) -> None:
    assert run(f'output(await tools["{FX}"]({{}}));').output == 5


def test_tools_are_found_by_words(run: Run) -> None:
    (found,) = run('output(tools.search("currency"));').output
    assert found["call"] == "tools.fxRates.convertCurrency"
    assert found["name"] == FX


def test_a_denied_call_throws_where_it_was_made(run: Run) -> None:
    ran = run('\nmcpCall("mcp__demo__echo");')
    assert ran.error.startswith("Denied: no rule allows it (program.js:2:1)\n")


# -- time --------------------------------------------------------------------------


def test_time_jumps_when_only_timers_wait(run: Run) -> None:
    source = """\
        const began = now();
        await new Promise((resolve) => setTimeout(resolve, 3_600_000));
        output(now() - began);
    """
    assert run(source).output == 3600 * SECOND


def test_timers_end_in_the_order_of_their_times(run: Run) -> None:
    source = """\
        const ended = [];
        for (const delay of [30, 10, 20, 10])
          setTimeout(() => ended.push(delay), delay);
        const beat = setInterval(() => ended.push("beat"), 12);
        setTimeout(() => { clearInterval(beat); output(ended); }, 35);
        clearTimeout(setTimeout(() => ended.push("never"), 5));
    """
    assert run(source).output == [10, 10, "beat", 20, "beat", 30]


def test_a_timeout_does_not_interrupt_a_batch_in_flight(run: Run) -> None:
    source = """\
        const late = new Promise((_, reject) => setTimeout(reject, 500));
        output(await Promise.race([tools.fxRates.convertCurrency(), late]));
    """
    assert run(source).output == 5


def test_an_agent_is_a_program_too(run: Run) -> None:
    assert run("export async function run() { return input(); }", input=7).output == 7
    assert run("export default () => 8").output == 8


def test_chance_differs_with_the_seed_and_not_otherwise(run: Run) -> None:
    source = "output([Math.random(), crypto.randomUUID()]);"
    assert run(source).output == run(source).output
    assert run(source).output != run(source, seed=b"1" * 32).output


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "const x = 1;\nlet y = ;",
            """\
SyntaxError: unexpected token in expression: ';' (program.js:2:9)
  let y = ;
          ^""",
        ),
        (
            "function f(o) {\n  return o.x;\n}\nf(null);",
            """\
TypeError: cannot read property 'x' of null (program.js:2:10)
    return o.x;
           ^
  at f (program.js:2:10)
  at <anonymous> (program.js:4:3)""",
        ),
        (
            'import fs from "fs";',
            """\
ReferenceError: cannot find the module "fs"; a program is one file, and can import \
"caxton" only (program.js:1:8)
  import fs from "fs";
         ^""",
        ),
        (
            "await new Promise(() => {});",
            """\
Error: what the program awaits never settles: no call and no timer is left""",
        ),
        ("throw null;", "null"),
        ("throw { toString() { throw 1; } };", "an error that cannot be shown"),
    ],
)
def test_a_program_that_fails_says_why_and_where(
    source: str, said: str, run: Run
) -> None:
    assert run(source).error == said


@pytest.mark.parametrize(
    "source",
    [
        'Promise.reject(new Error("lost"));',
        'setTimeout(() => { throw new Error("lost"); }, 1);',
        'queueMicrotask(() => { throw new Error("lost"); });',
    ],
)
def test_an_error_that_nothing_catches_ends_the_run(source: str, run: Run) -> None:
    assert run(source).error.startswith("Error: lost (program.js:1:")


def test_a_rejection_that_is_caught_later_is_no_failure(run: Run) -> None:
    source = 'const p = Promise.reject(1); output(await p.catch((e) => "caught"));'
    assert run(source).output == "caught"


# -- TypeScript ------------------------------------------------------------------------


@pytest.fixture
def typescript(javascript_programs: Programs) -> Programs:
    """Return what runs programs in TypeScript."""
    return javascript_programs.speaking("typescript", "program.ts")


def test_types_are_erased(typescript: Programs) -> None:
    source = """\
        interface Point { x: number }
        enum Color { Red, Green }
        const same = <T,>(value: T): T => value;
        output([same<Point>({ x: 1 } as Point).x, Color.Green satisfies number]);
    """
    assert typescript(source).output == [1, 1]


def test_errors_in_typescript_have_the_lines_of_the_author(
    typescript: Programs,
) -> None:
    said = typescript("const a: number = 1;\nconst b: = 2;").error
    assert said == (
        "SyntaxError: Unexpected token (program.ts:2:10)\n  const b: = 2;\n           ^"
    )
    said = typescript("type A = {\n  x: number;\n};\n(null as A).x;").error
    assert said.startswith("TypeError: cannot read property 'x' of null (program.ts:4:")


# -- hostile programs ------------------------------------------------------------

DEEP = {
    "calls": "(function f() { f(); })()",
    "getters": "({ get a() { return this.a; } }).a",
    "callbacks": "(function f() { [1].map(f); })()",
    "constructors": "new (class A { constructor() { new A(); } })()",
    "conversions": "(function f() { `${{ toString: f }}`; })()",
    "generators": "(function* g() { yield* g(); })().next()",
    "evaluations": '(function f() { eval("f()"); })()',
    "proxies": "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x",
    "arrays": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.flat(Infinity)",
    "brackets": 'eval("(".repeat(1e5))',
    "literals": 'eval("[".repeat(1e5))',
    "blocks": 'eval("{".repeat(1e6))',
    "templates": 'eval("`${".repeat(1e5))',
    "operators": 'eval("!".repeat(1e6) + 1)',
    "json": 'JSON.parse("[".repeat(1e6))',
}


@pytest.mark.parametrize("source", DEEP.values(), ids=DEEP.keys())
def test_a_deep_recursion_can_be_caught(source: str, run: Run) -> None:
    source = (
        f"let said; try {{ {source} }} catch (e) {{ said = e.name; }} output(said);"
    )
    assert run(source).output == "RangeError"


@pytest.mark.parametrize(
    "source",
    [
        "for (;;);",
        "await (async () => { for (;;) await null; })();",
        "setInterval(() => {}, 1);",
        "for await (const x of (async function* () { for (;;) yield 1; })());",
        "/(a+)+$/.test('a'.repeat(40) + 'b');",
    ],
)
def test_what_never_ends_is_ended_by_its_fuel(source: str, run: Run) -> None:
    ran = run(source, limits=replace(LIMITS, fuel=500_000_000))
    assert (ran.ending.kind, ran.ending.limit) == ("limit", "fuel")


@pytest.mark.parametrize(
    "source",
    [
        'const all = []; for (;;) all.push("x".repeat(10_000) + all.length);',
        'let s = "x"; for (;;) s = [s, s].join("");',
        "new Uint8Array(2 ** 31);",
        "const all = []; for (;;) all.push(new ArrayBuffer(1 << 20));",
    ],
)
def test_a_memory_bomb_is_an_error_with_a_name(source: str, run: Run) -> None:
    said = run(source, limits=replace(LIMITS, memory=32 * 1024 * 1024)).error
    assert said.startswith(("InternalError: out of memory", "RangeError: "))


@pytest.mark.parametrize(
    "source",
    [
        "Promise.prototype.then = null;",
        "Array.prototype.push = Array.prototype.splice = () => { throw 1; };",
        "globalThis.Promise = globalThis.Error = undefined;",
        "Object.prototype.then = (resolve) => resolve(1);",
        "Error.prototype.toString = () => { throw 1; };",
        "Function.prototype.call = Function.prototype.apply = null;",
        "Object.defineProperty(Object.prototype, 'data', { get() { throw 1; } });",
        "String.prototype.match = String.prototype.split = null;",
        "Object.freeze(globalThis); Object.freeze(Object.prototype);",
    ],
)
def test_a_program_that_patches_the_language_ends_by_name(
    source: str, run: Run
) -> None:
    ran = run(source + "\nawait tools.fxRates.convertCurrency(); null.x;")
    assert ran.ending.kind == "returned"
    assert ran.ending.code == 1
    assert ran.error


def test_nothing_but_the_host_functions_is_there(run: Run) -> None:
    names = ["process", "require", "fetch", "WebAssembly", "std", "os", "host"]
    kinds = "map((name) => (0, eval)(`typeof ${name}`))"
    assert set(run(f"output({names}.{kinds});").output) == {"undefined"}
    assert run('import "caxton:host";').error.startswith("ReferenceError: cannot find")
    assert run('import "./program.js";').error.startswith("ReferenceError: cannot find")


def test_a_runtime_refuses_another_language(javascript_programs: Programs) -> None:
    python = javascript_programs.speaking("python", "program.py")
    said = "TypeError: this runtime runs javascript, not python"
    assert python("print(1)").error == said
