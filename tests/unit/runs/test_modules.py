"""Manifests in modules, and inputs and outputs held against their schemas."""

from __future__ import annotations

import json
import os
import time
from hashlib import shake_256
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.tools.manifest import section
from caxton_host.errors import ModuleRefused, UsageError
from caxton_host.runs.modules import (
    check_input,
    output_mismatch,
    read_manifest,
    read_module,
    read_program,
)

CORE = b"\0asm\1\0\0\0"
PLACE = {
    "type": "object",
    "required": ["location"],
    "properties": {
        "location": {"type": "string", "pattern": "^[A-Z]"},
        "days": {"type": "array", "items": {"enum": ["today", "tomorrow"]}},
    },
}


def module(**manifest: Any) -> bytes:  # noqa: ANN401 -- anything
    return CORE + section(json.dumps({"name": "mine", **manifest}).encode())


def test_a_manifest_is_read_from_a_module() -> None:
    found = read_manifest(module(version="2"))
    assert found is not None
    assert (found.name, found.version) == ("mine", "2")
    assert read_manifest(CORE) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b'{"name": "a"', "not JSON"),
        (b'{"name": "a", "name": "b"}', "the same key twice"),
        (b"[" * 30_000, "not JSON"),
        (b"[" * 100 + b"]" * 100, "deeper than 64"),
        (b"[" + b"0," * 20_000 + b"0]", "more than 10000 values"),
        (b"x" * 70_000, "larger than 65,536"),
        (b'{"name": "a", "x": 1e999}', "not a number"),
        (b'{"name": "a", "input_schema": {"type": "text"}}', "input_schema: it is no"),
        (b'{"name": "a", "output_schema": {"pattern": "("}}', "output_schema: it is"),
        (b'{"name": "a", "input_schema": {"$ref": "#"}}', "refers to itself"),
        (b'{"name": "a", "input_schema": {"pattern": "(a)\\\\1"}}', "no JSON Schema"),
        (
            b'{"name": "a", "input_schema": {"pattern": "((a{99}){99}){99}"}}',
            "no JSON Schema",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why_and_what_to_do(  # law 9
    content: bytes, message: str
) -> None:
    with pytest.raises(ModuleRefused, match=message) as caught:
        read_manifest(CORE + section(content))
    assert caught.value.fix == "correct agent.toml and build the module again"
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("value", [None, 7, {"location": "Lima"}])
def test_without_a_schema_any_input_will_do(value: JSON) -> None:
    check_input(CORE, value)
    check_input(module(), value)
    check_input(module(input_schema=True), value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"\$: the value is not of type \"object\""),
        ({}, r'\$: "location" is a required property'),
        ({"location": 7}, r'\$\.location: the value is not of type "string"'),
        ({"location": "secret"}, r"\$\.location: the value does not match"),
        ({"location": "Lima", "days": ["today", "?"]}, r"\$\.days\[1\]: the value"),
    ],
)
def test_an_input_that_is_wrong_is_named_by_its_path_and_not_shown(
    value: JSON, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_input(module(input_schema=PLACE), value)
    assert "caxton agent inspect" in caught.value.fix
    assert "secret" not in str(caught.value)


def test_an_input_that_is_right_passes() -> None:
    check_input(module(input_schema=PLACE), {"location": "Lima", "days": ["today"]})


def test_formats_are_not_judged() -> None:
    check_input(module(input_schema={"format": "date"}), "yesterday")


def test_an_input_that_would_take_too_long_is_refused() -> None:  # law 9
    many = module(input_schema={"items": {"enum": list(range(5_000))}})
    with pytest.raises(UsageError, match="too large for so large a schema") as caught:
        check_input(many, [0] * 10_000)
    assert caught.value.fix


def test_the_worst_pattern_on_the_longest_text_ends() -> None:  # law 9
    slow = module(input_schema={"pattern": "(a|b)*a(a|b){400}c"})
    text = "".join("ab"[byte & 1] for byte in shake_256(b"").digest(124_000))
    began = time.monotonic()
    with pytest.raises(UsageError, match="does not match"):
        check_input(slow, text)
    assert time.monotonic() - began < 100


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (None, 7, ""),
        ({"type": "integer"}, 7, ""),
        ({"type": "integer"}, "x", '$: the value is not of type "integer"'),
        ({"$ref": "#"}, 7, "the manifest of the module cannot be used"),
        ({"enum": list(range(9_000))}, [0] * 1_000, "the value is too large"),
    ],
)
def test_an_output_is_only_told_to_be_wrong(
    schema: JSON, value: JSON, told: str
) -> None:
    given = {} if schema is None else {"output_schema": schema}
    found = output_mismatch(module(**given), value)
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_a_long_complaint_is_cut() -> None:
    deep: dict[str, Any] = {"const": "x" * 30_000}
    found = output_mismatch(module(output_schema=deep), 7)
    assert len(found) < 300
    assert found.endswith("...")


def test_misspelt_file_is_named_with_the_one_that_it_may_mean(tmp_path: Path) -> None:
    for name in ("clock.py", "clock.wasm"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"clok\.py: No such.*mean .*/clock\.py\?"):
        read_program(tmp_path / "clok.py", "python")
    with pytest.raises(UsageError, match=r"clok\.wasm: .*mean .*/clock\.wasm\?"):
        read_module(tmp_path / "clok.wasm", 10)
    with pytest.raises(UsageError, match=r"none/clok\.py: No such file or directory$"):
        read_program(tmp_path / "none" / "clok.py", "python")


@pytest.mark.parametrize("name", ["pipe.py", "pipe.wasm"])
def test_pipe_is_refused_instead_of_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match=rf"{name}: it is not a regular file"):
        read_module(tmp_path / name, 10)
    with pytest.raises(UsageError, match=rf"{name}: it is not a regular file"):
        read_program(tmp_path / name, "python")
