"""The gate, before components. Hostile ones end in `ModuleRefused`: law 9."""

from __future__ import annotations

import functools
import re

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import COMPONENT, Limits
from caxton_host.errors import ModuleRefused
from caxton_host.sandbox import binary, component_binary, gate
from caxton_host.sandbox.binary import ModuleInfo
from caxton_host.sandbox.interface import FUNCTIONS, INTERFACE
from tests.components import component

from .binaries import HEADER, leb, module, name, section, vector
from .test_gate import judge, refusal

MODULE, INNER, ALIAS, TYPE, CANON, IMPORT, EXPORT = 1, 4, 6, 7, 8, 10, 11
STRING, FUNCTION, INSTANCE = 0x73, 1, 5


@functools.cache
def agent() -> bytes:
    return component("")


@functools.cache
def assembled(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


def importing(interface: str, what: str = '(export "f" (func))') -> bytes:
    text = f'(component (import "{interface}" (instance {what})))'
    return assembled(text)


def built(*sections: bytes) -> bytes:
    return COMPONENT + b"".join(sections)


def test_agent_that_imports_everything_passes() -> None:
    info = gate.check(agent(), Limits(), "run")
    assert info == gate.inspect(agent())
    assert info.kind == "component"
    assert info.size == len(agent())
    assert {one.module for one in info.imports} == {INTERFACE}
    assert [one.name for one in info.imports] == list(FUNCTIONS)
    assert {one.kind for one in info.imports} == {"function"}
    assert info.exports == (binary.Export(name="run", kind="function", type=""),)
    assert info.memories == (binary.Bounds(minimum=1, maximum=None),)
    assert info.tables == ()
    assert info.functions == 2
    assert info.custom_sections == ("component-name",)


def test_core_module_is_told_from_a_component() -> None:
    assert gate.inspect(module()).kind == "core"


def test_what_is_inside_counts() -> None:
    around = """(component (core module (memory 2 3) (table 5 funcref) (func)))
      (core module (table 7 funcref))"""
    info = gate.inspect(component("", around=around))
    assert [one.minimum for one in info.memories] == [1, 2]
    assert [one.minimum for one in info.tables] == [5, 7]
    assert info.functions == 3


# law 1
@pytest.mark.parametrize(
    "interface",
    ["wasi:cli/environment@0.2.0", "wasi:random/random@0.2.9", "wasi:io/streams@0.2.0"],
)
def test_wasi_is_refused_with_the_flags_that_leave_it_out(interface: str) -> None:
    found = refusal(importing(interface))
    assert f'imports "{interface}"' in found
    assert "componentize-py ... --stub-wasi" in found
    assert "componentize-qjs ... --stub-wasi" in found


@pytest.mark.parametrize(
    ("interface", "fix"),
    [
        ("caxton:agent/host@1.0.1", "with the WIT of this host"),
        ("caxton:agent/host@2.0.0", "with the WIT of this host"),
        ("caxton:agent/host", "with the WIT of this host"),
        ("other:thing/host@1.0.0", "and nothing else"),
    ],
)
def test_other_interface_is_refused_with_the_one_that_is_there(
    interface: str, fix: str
) -> None:
    found = refusal(importing(interface))
    assert f'imports "{interface}", which does not exist' in found
    assert f'import "{INTERFACE}"' in found
    assert fix in found


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ('(export "mcp-cal" (func))', 'the function "mcp-cal" .*import "mcp-call"'),
        ('(export "exec" (func))', 'the function "exec" .*of the functions mcp-call'),
        ('(export "now" (core module))', "a type of an unknown form"),
        ('(export "now" (instance))', 'the instance "now"'),
        ('(export "now" (component))', 'the component "now"'),
    ],
)  # fmt: skip
def test_function_that_is_none_is_refused_with_the_nearest(
    what: str, message: str
) -> None:
    assert re.search(message, refusal(importing(INTERFACE, what)))


def test_component_may_import_nothing_of_the_host() -> None:
    nothing = '(export "level" (type (sub resource)))'
    for what in ("", nothing):
        found = refusal(importing(INTERFACE, what))
        assert "does not export its entry point" in found


@pytest.mark.parametrize(
    "kind", ["(func)", "(component)", "(type (sub resource))", "(core module)"]
)
def test_import_that_is_no_instance_is_refused(kind: str) -> None:
    text = f'(component (import "{INTERFACE}" {kind}))'
    assert "imports" in refusal(assembled(text))


def test_import_through_an_alias_is_seen_or_left_to_the_compile_child() -> None:
    text = f"""(component
      (type $outer (component (type (instance (export "f" (func))))
        (export "t" (type (eq 0)))))
      (import "{INTERFACE}" (instance (export "exec" (func)))))"""
    assert '"exec"' in refusal(assembled(text))


@pytest.mark.parametrize("entry", ["start", "", "\x1b[2J", "r" * 10_000])
def test_entry_point_has_to_be_there(entry: str) -> None:
    found = refusal(agent(), entry=entry)
    assert "does not export its entry point" in found
    assert 'the world "agent"' in found
    assert found.isprintable()


def test_entry_point_has_to_be_a_function() -> None:
    text = '(component (instance $i) (export "run" (instance $i)))'
    assert "does not export its entry point" in refusal(assembled(text))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(memory=65_535), "65,536 bytes of memory"),
        (Limits(memories=0), "1 memories, at most 0"),
        (Limits(module=100), "bytes, at most 100"),
    ],
)
def test_what_it_declares_keeps_to_its_limits(limits: Limits, message: str) -> None:
    assert message in refusal(agent(), limits)


def test_memory_of_a_component_is_larger_by_default() -> None:
    large = component("", memory="4096")
    assert gate.check(large, Limits(), "run").memories[0].minimum == 4096
    assert "raise limits.memory" in refusal(component("", memory="4097"))
    assert "raise limits.memory" in refusal(large, Limits(memory=64 << 20))


def _nested(depth: int) -> bytes:
    data = COMPONENT
    for _ in range(depth):
        data = COMPONENT + section(INNER, data)
    return data


@pytest.mark.parametrize("depth", [33, 1_000, 20_000])
def test_components_inside_each_other_have_a_bound(depth: int) -> None:
    assert "components inside each other" in refusal(_nested(depth))
    assert gate.inspect(_nested(32)).kind == "component"


def _types(depth: int) -> bytes:
    inner = b"\x40\0\1\0"
    for _ in range(depth):
        inner = b"\x42\1\1" + inner
    return built(section(TYPE, b"\1" + inner))


def test_types_inside_each_other_have_a_bound() -> None:
    assert "types inside each other" in refusal(_types(5_000))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (built(section(CANON, leb(2**32 - 1))), "items in one section"),
        (built(*[section(CANON, leb(20_000))] * 3), "items"),
        (built(*[section(9, b"\0")] * 10_001), "sections"),
        (built(*[section(MODULE, HEADER)] * 1_001), "modules"),
        (built(section(TYPE, b"\1\x42" + leb(2**31))), "items in one type"),
        (built(section(TYPE, b"\1\x40" + leb(2**31))), "parameters of one function"),
        (built(section(TYPE, b"\1\x72" + leb(2**31))), "fields of one type"),
        (built(section(TYPE, b"\1\x71" + leb(2**31))), "cases of one type"),
        (built(section(TYPE, b"\1\x6f" + leb(2**31))), "values of one type"),
        (built(section(TYPE, b"\1\x6d" + leb(2**31))), "labels of one type"),
        (built(section(0, leb(2**31))), "bytes in a name"),
        (
            built(section(MODULE, HEADER + section(5, vector(*[b"\0\0"] * 100)))) * 1
            + section(MODULE, HEADER + section(5, b"\1\0\0")),
            "memories",
        ),
        (
            built(
                section(
                    EXPORT,
                    vector(*[b"\0" + name(f"e{n}") + b"\1\0\0" for n in range(1_001)]),
                )
            ),
            "exports",
        ),
        (
            built(
                section(
                    IMPORT,
                    vector(*[b"\0" + name(f"i{n}") + b"\1\0" for n in range(1_001)]),
                )
            ),
            "imports",
        ),
    ],
)
def test_every_count_has_a_bound(data: bytes, what: str) -> None:
    assert f"too many {what}" in refusal(data)


def test_modules_inside_may_have_more_than_an_agent_that_is_one() -> None:
    functions = binary.MAX_FUNCTIONS + 1
    inner = (
        HEADER
        + section(1, b"\1\x60\0\0")
        + section(3, leb(functions) + bytes(functions))
        + section(10, leb(functions) + b"\2\0\x0b" * functions)
    )
    assert gate.inspect(built(section(MODULE, inner))).functions == functions
    assert "too many functions" in refusal(inner)
    most = component_binary.MAX_FUNCTIONS // functions
    assert "too many functions" in refusal(
        built(*[section(MODULE, inner)] * (most + 1))
    )


def _modules(inner: bytes) -> bytes:
    """Return a component of 4 MB that is full of that module."""
    whole = section(MODULE, HEADER + inner)
    return built(*[whole] * min(1_000, 4_000_000 // len(whole)))


_TYPES = section(1, leb(10_000) + b"\x60\0\0" * 10_000)
_WIDE = section(1, b"\1\x60" + leb(1_000) + b"\x7f" * 1_000 + b"\0")


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "inner",
    [
        _TYPES,
        section(0, b"\1a") * 900,
        _WIDE + section(2, leb(9_000) + (b"\0" * 4) * 9_000),
        section(1, b"\1\x60\0\0")
        + section(3, b"\1\0")
        + section(
            10, b"\1" + leb(180_004) + leb(90_000) + b"\0\x7f" * 90_000 + b"\x0b"
        ),
    ],
)
def test_many_modules_share_the_bound_of_one(inner: bytes) -> None:
    assert "too many things to look at" in refusal(_modules(inner))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (built(b"\7\x80"), "cut off"),
        (built(b"\7" + b"\xff" * 6), "more than five bytes"),
        (built(b"\7\xff\xff\xff\xff\x7f"), "a number over 32 bits"),
        (built(section(13, b"\0")), "a section of an unknown kind"),
        (built(section(MODULE, COMPONENT)), "a module inside without"),
        (built(section(INNER, HEADER)), "a component inside without"),
        (built(section(TYPE, b"\0\0")), "bytes left over"),
        (built(section(TYPE, b"\1\x01")), "a type of an unknown form"),
        (built(section(TYPE, b"\1\x42\1\x09")), "a type of an unknown form"),
        (built(section(TYPE, b"\1\x42\1\3")), "a type of an unknown form"),
        (built(section(TYPE, b"\1\x40\0\1\1")), "a function with named results"),
        (built(section(IMPORT, b"\1\2")), "a name of an unknown kind"),
        (built(section(IMPORT, b"\1\0\1a\6")), "an item of an unknown sort"),
        (built(section(ALIAS, b"\1\1\3\0")), "an alias of an unknown kind"),
        (built(section(EXPORT, b"\2" + b"\0\1a\1\0\0" * 2)), "an export twice"),
    ],
)
def test_what_is_not_well_formed_is_refused_with_its_place(
    data: bytes, what: str
) -> None:
    found = refusal(data)
    assert "not well-formed" in found
    assert what in found


#: Every form of type, by the text format: what comes behind must still be found.
TYPES = """
  (type $r (resource (rep i32)))
  (type (record (field "a" string) (field "b" (list u8))))
  (type (variant (case "a") (case "b" string)))
  (type (tuple bool char float32 float64))
  (type (flags "a" "b")) (type $e (enum "a" "b"))
  (type (option $e)) (type (result)) (type (result string (error $e)))
  (type (own $r)) (type (borrow $r)) (type (list $e))
  (type (func (param "a" $e) (result (tuple s8 u16 s32 u64))))
  (type (component (import "i" (instance (export "f" (func))))
    (import "v" (func)) (import "t" (type (eq $outer_e)))
    (export "e" (type (eq $outer_e)))))
  (type (instance (alias outer 1 $e (type)) (type (func)) (export "x" (type (eq 0)))
    (export "y" (type (sub resource)))))
""".replace("$outer_e", "0")


def test_types_of_every_form_are_stepped_over() -> None:
    types = TYPES.replace(
        '(import "t" (type (eq 0)))\n    (export "e" (type (eq 0)))',
        '(type (enum "q")) (import "t" (type (eq 1)))',
    )
    text = f"""(component {types}
      (import "{INTERFACE}" (instance (export "f" (func)))))"""
    assert '"f"' in refusal(assembled(text))


def test_exports_with_a_type_and_aliases_move_the_types_on() -> None:
    text = f"""(component
      (component $c (type $t (enum "a")) (export "t" (type $t)))
      (instance $i (instantiate $c))
      (alias export $i "t" (type $a))
      (export $b "b" (type $a))
      (export "c" (type $b) (type (eq $b)))
      (import "{INTERFACE}" (instance (export "f" (func)))))"""
    assert '"f"' in refusal(assembled(text))


@given(st.integers(0, 4000))
def test_a_cut_component_passes_or_is_refused(length: int) -> None:
    judge(agent()[:length])


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8))
def test_a_damaged_component_passes_or_is_refused(
    changes: list[tuple[int, int]],
) -> None:
    data = bytearray(agent())
    for at, value in changes:
        data[at % len(data)] = value
    judge(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_pass_or_are_refused(noise: bytes) -> None:
    judge(COMPONENT + noise)


@given(
    st.recursive(
        st.binary(max_size=20).map(lambda data: section(TYPE, b"\1" + data)),
        lambda inner: st.tuples(st.sampled_from([1, 4, 6, 7, 10, 11]), inner).map(
            lambda pair: section(pair[0], COMPONENT + pair[1])
        ),
    )
)
def test_any_sections_pass_or_are_refused(data: bytes) -> None:
    judge(COMPONENT + data)


@pytest.mark.no_cover
def test_every_single_flipped_bit_passes_or_is_refused() -> None:
    data = assembled(f"""(component {TYPES.replace("(eq 0)", "(sub resource)")}
      (core module (func) (memory 1) (table 1 funcref))
      (component (core module (func))) (export "x" (type 0)))""")
    for at in range(len(data)):
        for bit in range(8):
            judge(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def test_refusal_is_the_hosts_own_error() -> None:
    with pytest.raises(ModuleRefused):
        gate.inspect(COMPONENT + b"\xff")


def test_what_a_component_declares_can_be_kept() -> None:
    found = gate.inspect(agent())

    assert ModuleInfo.from_json(found.to_json()) == found
