from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import Limits
from caxton_host.sandbox.settings import (
    PAGE,
    STACKS,
    SWITCHES,
    EngineSettings,
    settings_for,
    share,
)

SETTINGS = EngineSettings(memory=PAGE, wasmtime="50.0.1", machine="x86_64")


def test_fingerprint_names_the_version_and_all_that_changes_code() -> None:
    name, _, digest = SETTINGS.fingerprint.partition("/")
    assert name == "wasmtime-50.0.1"
    assert len(digest) == 8
    changed = [
        replace(SETTINGS, memory=2 * PAGE),
        replace(SETTINGS, stack=1),
        replace(SETTINGS, guard=1),
        replace(SETTINGS, machine="aarch64"),
    ]
    assert len({one.fingerprint for one in [SETTINGS, *changed]}) == 5


# law 5: recorded runs name it, and are compared by fuel under the same engine only.
def test_engine_of_core_modules_is_the_one_that_logs_name() -> None:
    core = replace(SETTINGS, memory=64 << 20)
    assert core.fingerprint == "wasmtime-50.0.1/8d36a82c"
    component = replace(
        core, component=True, memory=256 << 20, stack=STACKS[True, False]
    )
    assert component.fingerprint == "wasmtime-50.0.1/75d1e3ee"
    assert EngineSettings.from_json(component.to_json()) == component


def test_interpreters_have_larger_stacks_and_engines_of_their_own() -> None:
    made = [
        settings_for(Limits(), component=component, interpreter=interpreter)
        for component in (False, True)
        for interpreter in (False, True)
    ]
    assert [one.stack >> 10 for one in made] == [512, 16 << 10, 8 << 10, 32 << 10]
    assert [one.memory >> 20 for one in made] == [64, 4096, 256, 4096]
    assert [one.images for one in made] == [False, True, True, True]
    assert len({one.fingerprint for one in made}) == 4
    assert [EngineSettings.from_json(one.to_json()) for one in made] == made


def test_one_engine_of_interpreters_serves_every_limit_on_memory() -> None:
    small = settings_for(Limits(memory=PAGE), interpreter=True)
    assert small == settings_for(Limits(), interpreter=True)


def test_components_have_a_larger_memory_and_stack() -> None:
    core, component = settings_for(Limits()), settings_for(Limits(), component=True)
    assert (core.memory, component.memory) == (64 << 20, 256 << 20)
    assert core.stack < component.stack
    assert settings_for(Limits(memory=PAGE), component=True).memory == PAGE
    assert not core.switches["memory_init_cow"]
    assert component.switches["memory_init_cow"]


def test_settings_survive_the_way_to_a_child() -> None:
    assert EngineSettings.from_json(SETTINGS.to_json()) == SETTINGS


def test_reservation_is_the_limit_in_whole_pages() -> None:
    assert settings_for(Limits(memory=PAGE + 1)).memory == 2 * PAGE
    assert settings_for(Limits()).wasmtime.startswith("50.")


def test_what_makes_guests_differ_between_machines_is_off() -> None:
    for name in ("wasm_threads", "shared_memory", "wasm_memory64", "wasm_gc"):
        assert not SWITCHES[name]
    for name in ("cranelift_nan_canonicalization", "wasm_relaxed_simd_deterministic"):
        assert SWITCHES[name]


@given(
    maxima=st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=4),
    pages=st.integers(0, 200),
)
def test_shares_never_exceed_the_limit_and_waste_little(
    maxima: list[int | None], pages: int
) -> None:
    each = share(maxima, pages * PAGE) // PAGE

    def used(bound: int) -> int:
        return sum(bound if most is None else min(most, bound) for most in maxima)

    assert used(each) <= pages
    assert each == pages or used(each + 1) > pages
