"""What the gate lets through. All of it keeps law 1 and law 9."""

from __future__ import annotations

import hashlib
import re

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import Limits
from caxton_host.errors import ModuleRefused
from caxton_host.sandbox import binary, gate
from caxton_host.sandbox.interface import HOST_FUNCTIONS

from .binaries import (
    HEADER,
    I32,
    I64,
    RETURNS_ZERO,
    function_type,
    imported,
    leb,
    locals_bomb,
    module,
    name,
    section,
    vector,
)

SHORT = {"i32": I32, "i64": I64, "()": b"", "": b""}


def refusal(data: bytes, limits: Limits | None = None, entry: str = "run") -> str:
    with pytest.raises(ModuleRefused) as caught:
        gate.check(data, limits or Limits(), entry)
    assert caught.value.fix
    return f"{caught.value} | {caught.value.fix}"


def typed(signature: str) -> bytes:
    parameters, result = signature[1:].split(") -> ")
    return function_type(
        b"".join(SHORT[one] for one in parameters.split(", ")), SHORT[result]
    )


def everything() -> bytes:
    """Build a module that uses all that an agent may use."""
    signatures = list(HOST_FUNCTIONS.items())
    return module(
        types=tuple(typed(signature) for _, signature in signatures),
        imports=tuple(
            imported("caxton", field, b"\0" + leb(at + 1))
            for at, (field, _) in enumerate(signatures)
        ),
        tables=(b"\x70\1\4\x10",),
        memories=(b"\1\1\2", b"\0\1"),
        extra=section(8, b"\x09") + section(9, b"\0") + section(12, b"\1"),
    ) + section(11, b"\1\0\x41\0\x0b\2hi")


def test_a_module_that_uses_all_that_is_offered_passes() -> None:
    gate.check(everything(), Limits(), "run")


def test_custom_sections_may_stand_anywhere() -> None:
    data = HEADER + section(0, name("a")) + module()[8:] + section(0, name("b") + b"x")

    gate.check(data, Limits(), "run")

    assert gate.inspect(data).custom_sections == ("a", "b")


def test_inspection_tells_what_a_module_declares() -> None:
    data = module(
        types=(function_type(I32 + I64),),
        imports=(imported("env", "f", b"\0\1"), imported("env", "g", b"\3\x7f\0")),
        exports=(name("run") + b"\0\1", name("m\x1b") + b"\2\0"),
        tables=(b"\x70\1\4\x10",),
    )

    info = gate.inspect(data)

    assert info == binary.ModuleInfo(
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        imports=(
            binary.Import(
                module="env", name="f", kind="function", type="(i32, i64) -> ()"
            ),
            binary.Import(module="env", name="g", kind="global", type=""),
        ),
        exports=(
            binary.Export(name="run", kind="function", type="() -> i32"),
            binary.Export(name=r"m\x1b", kind="memory", type=""),
        ),
        memories=(binary.Bounds(minimum=1, maximum=None),),
        tables=(binary.Bounds(minimum=4, maximum=16),),
        functions=1,
        custom_sections=(),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty .*build it again"),
        (b"(module)", "text, not binary .*wat2wasm"),
        (b"\n ;; an agent\n(module)", "text, not binary .*wat2wasm"),
        (b"\0asm\x0d\0\1", "cut off in its first bytes"),
        (b"\0as", "cut off in its first bytes"),
        (HEADER[:7], "cut off in its first bytes"),
        (b"\0asm\2\0\0\0", r"unknown version, \\x02\\x00\\x00\\x00 .*version 1"),
        (b"\x7fELF\2\1\1\0", "not a WebAssembly module .*00 61 73 6d"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "not a WebAssembly module"),
    ],
)
def test_what_is_no_core_module_is_named_for_what_it_is(
    data: bytes, message: str
) -> None:
    # attack 8
    assert re.search(message, refusal(data))


def test_a_module_over_its_limit_is_not_even_read() -> None:
    text = refusal(b"x" * 1001, Limits(module=1000))

    assert "1,001 bytes, at most 1,000 | strip it" in text


def test_a_misspelt_host_function_is_told_the_right_one() -> None:
    data = module(
        types=(function_type(),), imports=(imported("caxton", "mcp_cal", b"\0\1"),)
    )

    assert refusal(data).endswith(
        '"caxton" "mcp_cal", which does not exist | import "mcp_call"'
    )


def test_an_unknown_host_function_is_told_all_there_are() -> None:
    data = module(
        types=(function_type(),), imports=(imported("caxton", "zzzz", b"\0\1"),)
    )

    assert refusal(data).endswith("now, random, log, program, fail")


def test_a_host_function_of_another_type_is_told_the_right_one() -> None:
    # attack 7
    data = module(
        types=(function_type(I32, I32),), imports=(imported("caxton", "now", b"\0\1"),)
    )

    assert refusal(data).endswith(
        '"caxton" "now" as (i32) -> i32 | declare it as () -> i64'
    )


@pytest.mark.parametrize(
    ("where", "field", "remedy"),
    [
        ("wasi_unstable", "fd_write", "WASI preview 1"),
        ("wasi", "thread-spawn", "without threads"),
        ("wasi:random/random@0.2.9", "get", "WASI preview 1"),
        ("env", "abort", "--use abort="),
        ("env", "__stack_pointer", "drop -shared"),
        ("env", "emscripten_notify", "STANDALONE_WASM"),
        ("env", "puts", "define it in the agent"),
        ("__wbindgen_placeholder__", "x", "wasm-bindgen"),
        ("gojs", "runtime.wasmExit", "GOOS=wasip1"),
        ("elsewhere", "f", 'import from module "caxton" only'),
    ],
)
def test_a_foreign_import_is_named_with_what_avoids_it(
    where: str, field: str, remedy: str
) -> None:
    # attack 7
    data = module(types=(function_type(),), imports=(imported(where, field, b"\0\1"),))

    text = refusal(data)

    assert f'imports the function "{where}" "{field}"' in text
    assert remedy in text


@pytest.mark.parametrize(
    ("kind", "what"),
    [(b"\1\x70\0\1", "table"), (b"\2\0\1", "memory"), (b"\3\x7f\0", "global")],
)
def test_only_functions_can_be_imported(kind: bytes, what: str) -> None:
    assert f'the {what} "caxton" "now"' in refusal(
        module(
            imports=(imported("caxton", "now", kind),),
            exports=(name("memory") + b"\2\0", name("run") + b"\0\0"),
        )
    )


def _program(entry: str = "_start", result: str = "") -> bytes:
    text = f"""(module
      (import "wasi_snapshot_preview1" "fd_close" (func (param i32) (result i32)))
      (import "caxton" "now" (func (result i64)))
      (memory (export "memory") 1)
      (func (export "{entry}") {result} {"(i32.const 0)" if result else ""}))"""
    return bytes(wasmtime.wat2wasm(text))


def test_a_program_of_wasi_may_import_the_host_functions_too() -> None:
    assert gate.check(_program(), Limits(), "_start").abi == "wasi/1"
    assert gate.check(module(), Limits(), "run").abi == "core/1"


@pytest.mark.parametrize(
    ("entry", "result", "problem"),
    [
        ("_initialize", "", 'entry point "_start" | build a command'),
        ("_start", "(result i32)", "() -> i32 | make it a function () -> ()"),
        ("_stard", "", 'set entry = "_stard"'),
    ],
)
def test_a_program_of_wasi_has_a_start(entry: str, result: str, problem: str) -> None:
    assert problem in refusal(_program(entry, result), entry="_start")


def test_a_function_of_wasi_has_the_type_of_preview_1() -> None:
    data = module(
        types=(function_type(I64, I32),),
        imports=(imported("wasi_snapshot_preview1", "fd_close", b"\0\1"),),
    )
    assert refusal(data).endswith("as (i64) -> i32 | declare it as (i32) -> i32")
    data = module(
        types=(function_type(I64, I32),),
        imports=(imported("wasi_snapshot_preview1", "fd_clos", b"\0\1"),),
    )
    assert refusal(data).endswith('which does not exist | import "fd_close"')


def test_names_are_escaped_and_cut_before_they_are_shown() -> None:
    # attack 6
    hostile = b"\x1b[31m\r\n\xff" + b"x" * 900
    data = module(
        types=(function_type(),), imports=(imported(hostile, b"\0", b"\0\1"),)
    )

    text = refusal(data)

    assert r'"\x1b[31m\x0d\x0a\xffxxx' in text
    assert len(text) < 400


@pytest.mark.parametrize("exported", [b"", name("memory") + b"\0\0"])
def test_a_module_must_export_its_memory(exported: bytes) -> None:
    exports = (name("run") + b"\0\0", *([exported] if exported else []))

    assert "--export-memory" in refusal(module(exports=exports))


def test_a_missing_entry_point_is_told_the_nearest_one() -> None:
    assert refusal(module(), entry="runs").endswith('"runs" | set entry = "run"')


def test_a_missing_entry_point_unlike_any_other_is_told_what_to_export() -> None:
    assert refusal(module(), entry="ünlike").endswith(
        r'"\xc3\xbcnlike" | export it: a function () -> i32'
    )


@pytest.mark.parametrize(
    ("entry", "found"), [("memory", "is a memory"), ("take", "is (i32) -> ()")]
)
def test_an_entry_point_takes_nothing_and_returns_an_i32(
    entry: str, found: str
) -> None:
    data = module(
        types=(function_type(I32), typed(HOST_FUNCTIONS["output"])),
        imports=(imported("caxton", "output", b"\0\2"),),
        exports=(name("memory") + b"\2\0", name("take") + b"\0\1"),
    ).replace(section(3, b"\1\0"), section(3, b"\1\1"))

    assert found in refusal(data, entry=entry)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"memories": (b"\0\1",) * 5}, "5 memories, at most 4"),
        ({"memories": (b"\0" + leb(600),) * 2}, "bytes of memory, at most 67,108,864"),
        ({"tables": (b"\x70\0\1",) * 9}, "9 tables, at most 8"),
        ({"tables": (b"\x70\0" + leb(20_001),)}, "20,001 elements in one table"),
    ],
)
def test_memories_and_tables_stay_within_the_limits(
    declared: dict[str, tuple[bytes, ...]], text: str
) -> None:
    # attacks 3 and 4
    assert text in refusal(module(**declared))  # type: ignore[arg-type]  # by key


@pytest.mark.parametrize("flags", [2, 3, 4, 5, 8, 0x40])
def test_shared_and_64_bit_memories_and_tables_are_refused(flags: int) -> None:
    # attacks 3 and 4
    unusual = bytes([flags]) + b"\1\1"

    assert "a memory that is shared, 64-bit" in refusal(module(memories=(unusual,)))
    assert "a table that is shared, 64-bit" in refusal(
        module(tables=(b"\x70" + unusual,))
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (module(bodies=(RETURNS_ZERO,) * 50_000), "functions: 50,000, at most 10,000"),
        (locals_bomb(40_000, 340_000), "local variables in one function: 40,000"),
        (locals_bomb(1_000, 200_000), "bytes times local variables in one function"),
        (locals_bomb(1, 1_100_000), "bytes in one function: "),
        (
            module(bodies=(vector(*[b"\0" + I32] * 2_000) + b"\x0b",) * 51),
            "groups of local variables: 102,000, at most 100,000",
        ),
        (
            module(exports=tuple(name(f"e{at}") + b"\0\0" for at in range(1_001))),
            "exports: 1,001, at most 1,000",
        ),
        (module(imports=(b"",) * 1_001), "imports: 1,001, at most 1,000"),
        (module(types=(function_type(I32 * 1_001),)), "parameters or results"),
        (module(types=(function_type(),) * 10_000), "types: 10,001, at most 10,000"),
        (module(extra=section(9, leb(10_001))), "element segments: 10,001"),
        (module() + section(11, leb(200_001)), "data segments: 200,001"),
        (module(exports=(name("x" * 1_001) + b"\2\0",)), "bytes in a name: 1,001"),
        (HEADER + section(0, name("")) * 1_001, "sections: 1,001, at most 1,000"),
    ],
)
def test_what_takes_long_to_compile_is_refused_by_its_count(
    data: bytes, text: str
) -> None:
    # attacks 5 and 6
    assert text in refusal(data)


def test_parameters_count_as_local_variables() -> None:
    data = module(
        types=(function_type(I32 * 1_000),),
        bodies=(vector(leb(1_001) + I32) + b"\x0b",),
    ).replace(section(3, b"\1\0"), section(3, b"\1\1"))

    assert "local variables in one function: 2,001" in refusal(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (module()[:-1], "cut off"),
        (HEADER + b"\1\xff\xff\xff\xff\x0f", "cut off"),
        (HEADER + b"\1\xff\xff\xff\xff\x1f", "a number over 32 bits"),
        (HEADER + b"\1\x80\x80\x80\x80\x80\x00", "a number of more than five bytes"),
        (HEADER + section(99, b""), "a section of an unknown kind"),
        (module() + section(10, b"\0"), "a section twice or out of order"),
        (module() + section(1, b"\0"), "a section twice or out of order"),
        (HEADER + section(1, b"\0\0"), "bytes left over in a section"),
        (HEADER + section(1, b"\1\x5f\0"), "a type that is not of a function"),
        (module(types=(function_type(b"\x40"),)), "a value of an unknown type"),
        (HEADER + section(1, b"\1\x60\5\x7f"), "cut off"),
        (module(imports=(imported("a", "b", b"\4\0\0"),)), "an import of an unknown"),
        (module(imports=(imported("a", "b", b"\0\7"),)), "of an undeclared type"),
        (module(tables=(b"\x40\0\x70\0\1",)), "a table of something else"),
        (module(memories=(b"\0" + leb(65_537),)), "a memory of more than 4 GiB"),
        (module(exports=(name("x") + b"\7\0",)), "an export of an unknown kind"),
        (module(exports=(name("x") + b"\2\0",) * 2), "an export twice"),
        (module(exports=(name("x") + b"\0\7",)), "an export of an undeclared function"),
        (module()[: -len(section(10, b"\1\4" + RETURNS_ZERO))], "without code"),
        (
            module()[: -len(section(10, b"\1\4" + RETURNS_ZERO))] + section(10, b"\0"),
            "another number of bodies",
        ),
    ],
)
def test_what_is_not_well_formed_is_refused_with_its_place(
    data: bytes, text: str
) -> None:
    found = refusal(data)

    assert "not well-formed" in found
    assert text in found
    assert re.search(r"at byte \d+ \| ", found)


def judge(data: bytes) -> None:
    """Let the gate pass or refuse; whatever else it does fails the test."""
    try:
        gate.check(data, Limits(), "run")
    except ModuleRefused as refused:
        assert f"{refused}{refused.fix}".isprintable()  # noqa: PT017


@given(st.integers(0, len(everything())))
def test_a_cut_module_passes_or_is_refused(length: int) -> None:
    # attack 8
    judge(everything()[:length])


@given(st.lists(st.tuples(st.integers(0, len(everything()) - 1), st.integers(0, 255))))
def test_a_damaged_module_passes_or_is_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(everything())
    for at, value in changes:
        data[at] = value

    judge(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_pass_or_are_refused(noise: bytes) -> None:
    judge(noise)
    judge(HEADER + noise)


@pytest.mark.no_cover
def test_every_single_flipped_bit_passes_or_is_refused() -> None:
    data = everything()
    for at in range(len(data)):
        for bit in range(8):
            judge(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def test_what_a_module_declares_can_be_kept() -> None:
    found = gate.inspect(everything())

    assert binary.ModuleInfo.from_json(found.to_json()) == found
