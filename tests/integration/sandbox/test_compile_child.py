"""What the compile child says of a component's types."""

from __future__ import annotations

import pytest
import wasmtime
from wasmtime.component import Component

from caxton_host.core.limits import Limits
from caxton_host.sandbox.compile_child import mismatch
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.interface import FUNCTIONS, INTERFACE
from caxton_host.sandbox.settings import settings_for
from tests.components import FUNCTIONS as TYPES
from tests.components import component
from tests.unit.sandbox.binaries import RETURNS_ZERO
from tests.unit.sandbox.binaries import module as many


@pytest.fixture(scope="module")
def built() -> wasmtime.Engine:
    return build_engine(settings_for(Limits(), component=True))


def _fault(built: wasmtime.Engine, data: bytes, entry: str = "run") -> str:
    return mismatch(built, Component(built, data), entry)


def test_component_of_the_world_has_none(built: wasmtime.Engine) -> None:
    assert _fault(built, component("")) == ""
    assert FUNCTIONS.keys() == TYPES.keys()


# law 1
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_has_its_type(built: wasmtime.Engine, function: str) -> None:
    other = '(param "other" (tuple u8 char)) (result (list string))'
    found = _fault(built, component("", imports={function: other}))
    assert found.startswith(f'the component imports "{function}" as (TupleType) ->')
    assert found.endswith(FUNCTIONS[function])


def test_levels_are_those_of_the_host_in_their_order(built: wasmtime.Engine) -> None:
    data = component("", levels='"info" "debug" "warning" "error"')
    assert 'imports "log" as (enum {info, debug,' in _fault(built, data)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ('"other" (instance)', 'imports "other"'),
        (f'"{INTERFACE}" (func)', f'imports "{INTERFACE}"'),
        (f'"{INTERFACE}" (instance (export "now" (instance)))', '"now" as Component'),
        (f'"{INTERFACE}" (instance (export "x" (func)))', "it is unknown"),
        (f'"{INTERFACE}" (instance (export "r" (type (sub resource))))', '"r" as Res'),
        (f'"{INTERFACE}" (instance)', 'entry point "run" is not a function'),
    ],
)
def test_what_the_host_does_not_have_is_named(
    built: wasmtime.Engine, what: str, said: str
) -> None:
    data = bytes(wasmtime.wat2wasm(f"(component (import {what}))"))
    assert said in _fault(built, data)


def test_entry_point_by_another_name_is_looked_at_too(built: wasmtime.Engine) -> None:
    assert "other" in _fault(built, component(""), "other")


# law 5
def test_artifact_has_the_same_bytes_whether_threads_made_it_or_one() -> None:
    module = many(bodies=(RETURNS_ZERO,) * 2_000)
    made = [
        wasmtime.Module(
            build_engine(settings_for(Limits()), parallel=parallel), module
        ).serialize()
        for parallel in (False, True)
    ]
    assert made[0] == made[1]
