"""Programs that attack their worker by WASI: a limit ends them by name (laws 1, 9)."""

from __future__ import annotations

import wasmtime

from caxton_host.core.commands import MODULE
from caxton_host.core.limits import Limits
from caxton_host.sandbox import WasmSandbox
from caxton_host.sandbox.interface import WASI_FUNCTIONS

from .test_programs import Scene, payload

#: What each attack repeats for ever. Memory holds a vector over 64 KiB, and a path.
ATTACKS = {
    "prints": """(call $fd_write (i32.const 1) (i32.const 0) (i32.const 1)
      (i32.const 8))""",
    "logs": """(call $fd_write (i32.const 2) (i32.const 0) (i32.const 1)
      (i32.const 8))""",
    "lists": """(call $fd_readdir (i32.const 3) (i32.const 0) (i32.const 65536)
      (i64.const 0) (i32.const 8))""",
    "sleeps": """(call $poll_oneoff (i32.const 256) (i32.const 512) (i32.const 1)
      (i32.const 8))""",
    "opens": """(call $path_open (i32.const 3) (i32.const 0) (i32.const 16)
      (i32.const 5) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0)
      (i32.const 8))""",
    "allocates": "(call $fd_allocate (i32.const 3) (i64.const 0) (i64.const -1))",
    "draws": "(call $random_get (i32.const 0) (i32.const 65536))",
    "asks": "(call $fd_prestat_get (i32.const -1) (i32.const 8))",
}
ENDS = {
    "prints": "limit: output: 1114112 bytes, of 1048576 allowed",
    "draws": "trap: more than 4194304 random bytes",
}
_LIMIT = "limit: wasi_calls: more calls of WASI than the limit allows"


def _module(attack: str) -> bytes:
    imports = ""
    for name, signature in WASI_FUNCTIONS.items():
        parameters, _, result = signature.partition(" -> ")
        types = parameters.strip("()").replace(",", "")
        given = f"(param {types})" if types else ""
        returned = "" if result == "()" else f"(result {result})"
        imports += f'(import "{MODULE}" "{name}" (func ${name} {given} {returned}))'
    text = f"""(module {imports} (memory (export "memory") 2)
      (data (i32.const 0) "\\00\\00\\01\\00\\00\\00\\01\\00")
      (data (i32.const 16) "tmp/x")
      (data (i32.const 65536) "a\\0a")
      (func (export "_start")
        (loop $for_ever (drop {ATTACKS[attack]}) (br $for_ever))))"""
    return bytes(wasmtime.wat2wasm(text))


async def test_what_never_ends_is_ended_by_name_and_replays(
    sandbox: WasmSandbox,
) -> None:
    scene = Scene(sandbox)
    # Neither its calls nor its lines are calls of the host.
    limits = Limits(wasi_calls=5_000, host_calls=1)
    found: dict[str, str] = {}
    for attack in ATTACKS:  # of one worker, which lives
        run_id, history = await scene.run(_module(attack), limits=limits)
        end = payload(history[-1])
        found[attack] = f"{end['kind']}: {end['message']}"
        assert end["fuel"]
        assert await scene.replayed(run_id) is None
    assert found == dict.fromkeys(ATTACKS, _LIMIT) | ENDS
