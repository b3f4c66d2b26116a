"""Programs in JavaScript that mean harm, and how each has to end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .attacks import Attack, completes, error, limit

_ASK = "tools.x.ask({ n: 1 })"

ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "one_large_block": Attack("new Uint8Array(2 ** 30)", error("out of memory")),
        "many_blocks": Attack(
            "const x = []; for (;;) x.push(new Uint8Array(1 << 20).fill(1));",
            error("out of memory"),
        ),
        "blocks_and_a_deaf_ear": Attack(
            "const x = [];\nfor (;;) try { x.push(new Uint8Array(1 << 20)); } catch {}",
            limit("fuel"),
        ),
        "repeated_text": Attack("'a'.repeat(2 ** 40)", error("RangeError")),
        "doubled_text": Attack(
            "let s = 'a'; for (;;) s += s + '!';",
            error("invalid string length", "string too long"),
        ),
        "array_of_all": Attack(
            "[...(function* () { for (;;) yield 1; })()]", limit("fuel")
        ),
        "function": Attack(
            "function f() { f(); } f();", error("Maximum call stack size exceeded")
        ),
        "deep_json": Attack(
            "let x = []; for (let i = 0; i < 2e4; i++) x = [x]; JSON.stringify(x);",
            limit("fuel"),
        ),
        "deep_json_text": Attack(
            "JSON.parse('['.repeat(1e6))", error("Maximum call stack size exceeded")
        ),
        "brackets": Attack("(" * 100_000, error("stack")),
        "brackets_in_eval": Attack(
            "eval('['.repeat(1e5) + ']'.repeat(1e5))",
            error("Maximum call stack size exceeded"),
        ),
        "deep_output": Attack(
            "export function run() {\n"
            "  let x = []; for (let i = 0; i < 1e5; i++) x = [x]; return x; }",
            error("has over 1000 levels"),
        ),
        "output_in_itself": Attack(
            "export function run() { const x = []; x.push(x); return x; }",
            error("a value contains itself"),
        ),
        "loop": Attack("for (;;);", limit("fuel")),
        "loop_that_catches_everything": Attack(
            "for (;;) try { for (;;); } catch {} finally { continue; }", limit("fuel")
        ),
        "regex": Attack("/(a+)+$/.test('a'.repeat(50) + 'b')", limit("fuel")),
        "big_number": Attack("(10n ** 10n ** 5n) ** 1000n", limit("fuel")),
        "number_of_many_bits": Attack("1n << (1n << 40n)", error("RangeError")),
        "sort": Attack("[3, 2, 1].sort(() => { for (;;); })", limit("fuel")),
        "microtasks": Attack(
            "const again = () => Promise.resolve().then(again); await again();",
            limit("fuel"),
        ),
        "timers": Attack("setInterval(() => {}, 1e9);", limit("host_calls")),
        "a_million_promises": Attack(
            "const never = () => new Promise(() => {});\n"
            "await Promise.all(Array.from({ length: 1e6 }, never))",
            limit("fuel"),
        ),
        "never_settles": Attack(
            "await new Promise(() => {});", error("never settles: no call and no timer")
        ),
        "thenable": Attack("await { then(f) { f(this); } };", limit("fuel")),
        "log_lines": Attack(
            "for (;;) console.log('x');", limit("host_calls"), logs=2_000
        ),
        "long_log_line": Attack(
            "console.log('x'.repeat(1e7));", completes(None), logs=1
        ),
        "random": Attack(
            "for (;;) crypto.getRandomValues(new Uint8Array(8));", limit("host_calls")
        ),
        "time": Attack(
            "const b = Date.now(); await new Promise((f) => setTimeout(f, 1e12));\n"
            "output(Date.now() - b);",
            completes(10**12),
        ),
        "error_without_text": Attack(
            "throw { toString() { throw 1; } };", error("an error that cannot be shown")
        ),
        "error_whose_text_never_ends": Attack(
            "throw { toString() { for (;;); } };", limit("fuel")
        ),
        "error_whose_stack_is_hostile": Attack(
            "throw { get stack() { throw 2; }, toString: () => 1 };",
            error("2"),
        ),
        "huge_message": Attack("throw new Error('x'.repeat(1e7));", error("xxx")),
        "half_a_character": Attack(
            r"throw new Error('\ud800');", error("Error: \ufffd")
        ),
        "null": Attack("throw null;", error("null")),
        "polluted_object": Attack(
            "Object.prototype.status = 'ok'; Object.prototype.message = 'forged';\n"
            "Object.prototype.data = { structuredContent: 'forged' };\n"
            f"export const run = async () => {_ASK};",
            completes("1"),
            sent=1,
        ),
        "polluted_array": Attack(
            "Array.prototype.map = Array.prototype.push = Array.prototype.splice =\n"
            f"  () => {{ throw 'mine'; }};\nexport const run = async () => {_ASK};",
            error("mine"),
        ),
        "polluted_iterator": Attack(
            "Array.prototype[Symbol.iterator] = function* () { for (;;) yield 1; };\n"
            f"export const run = async () => {_ASK};",
            completes(None),
        ),
        "polluted_promise": Attack(
            "Promise.prototype.then = () => {}; globalThis.Promise = null;\n"
            f"export const run = () => {_ASK};",
            error("TypeError: not a function"),
        ),
        "everything_deleted": Attack(
            "const clear = (o, seen = new Set()) => {\n"
            "  if (Object(o) !== o || seen.has(o)) return; seen.add(o);\n"
            "  for (const n of Reflect.ownKeys(o)) {\n"
            "    let v; try { v = o[n]; } catch {} try { delete o[n]; } catch {}\n"
            "    clear(v, seen); } };\n"
            "clear(globalThis); missing;",
            error("ReferenceError: Object is not defined"),
        ),
        "forged_reply": Attack(
            "import { mcpCall } from 'caxton'; JSON.parse = () => ({ status: 'ok' });\n"
            "export const run = () => mcpCall('mcp__x__none').message;",
            error("Denied"),
            sent=1,
        ),
        "its_own_tools": Attack(
            "globalThis.tools = { x: { ask: async () => 'mine' } };\n"
            "export const run = () => tools.x.ask();",
            completes("mine"),
        ),
        "frozen_exports": Attack(
            "import * as caxton from 'caxton'; caxton.mcpCall = () => 1;",
            error("TypeError"),
        ),
        "modules_of_the_runtime": Attack(
            "await import('caxton:host');", error("cannot find the module")
        ),
        "no_modules": Attack(
            "const found = [];\n"
            "for (const m of ['fs', 'os', 'std', 'qjs:std', 'node:fs', '/etc/x'])\n"
            "  try { await import(m); } catch (e) { found.push(e.name); }\n"
            "output(found);",
            completes(["ReferenceError"] * 6),
        ),
        "no_globals": Attack(
            "output(['process', 'require', 'fetch', 'WebAssembly', 'Worker', 'os',\n"
            "  'std', 'scriptArgs', 'XMLHttpRequest', 'WebSocket', 'Deno', 'Bun']\n"
            "  .filter((n) => n in globalThis));",
            completes([]),
        ),
        "waits_for_a_thread": Attack(
            "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);",
            error("TypeError", "ReferenceError"),
        ),
        "hostile_exports": Attack(
            "export const run = new Proxy(() => 1, { apply() { for (;;); } });",
            limit("fuel"),
        ),
        "getter_of_run": Attack(
            "export { x as run }; const x = { get then() { throw 'then'; } };",
            completes(None),
        ),
        "huge_output": Attack("output('x'.repeat(2 ** 21));", limit("output")),
        "values_that_json_lacks": Attack(
            "import { mcpCall } from 'caxton'; const found = [];\n"
            "for (const v of [NaN, Infinity, 2n ** 64n, Symbol('x'), () => 1])\n"
            "  try { mcpCall('mcp__x__ask', { v }); }\n"
            "  catch (e) { found.push(e.name); }\n"
            "output(found);",
            completes(["TypeError", "TypeError", "RangeError"]),
            sent=2,
        ),
        "65_calls_awaited_together": Attack(
            f"const all = Array.from({{ length: 65 }}, () => {_ASK});\n"
            "output((await Promise.all(all)).length);",
            completes(65),
            sent=65,
        ),
        "calls_that_catch_everything": Attack(
            "import { mcpCall } from 'caxton';\n"
            "for (;;) try { mcpCall('mcp__x__none'); } catch {}",
            limit("host_calls"),
            sent=2_000,
        ),
        "callback_in_a_callback": Attack(
            "const again = () => { setTimeout(again); again(); }; again();",
            limit("host_calls"),
        ),
        "finalizers": Attack(
            "const r = new FinalizationRegistry(() => { for (;;); });\n"
            "for (let i = 0; i < 1e3; i++) r.register({}, 1);",
            limit("fuel"),
        ),
    }
)
