"""The JSON Schema of ``caxton.toml`` and the loader say the same of keys and kinds."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from caxton_host.config import json_schema
from caxton_host.config.edit import init_text
from caxton_host.core.grants.conditions import CONDITION_KEYS
from caxton_host.core.text.toml_text import key_text
from caxton_host.errors import ConfigError, UnsetError

from .conftest import Folder
from .test_load import EXAMPLE
from .test_mistakes import MISTAKES, Mistake, whole

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "docs" / "reference" / "caxton.schema.json"
SCHEMA: dict[str, Any] = json_schema()
VALID = jsonschema_rs.Draft202012Validator(SCHEMA)
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: A key that nothing knows, nor anything like it.
STRANGE = "zzzzzzzz"


def plain(value: Any) -> Any:  # noqa: ANN401 -- a tree of TOML
    """Return a tree as editors hand it to a validator."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return value


def is_valid(text: str) -> bool:
    return VALID.is_valid(plain(tomllib.loads(text)))


def inline(value: Any) -> str:  # noqa: ANN401 -- a tree of TOML
    """Return a tree as TOML in one line."""
    if isinstance(value, dict):
        items = (f"{key_text(key)} = {inline(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value)


def tables(shape: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[Any]:
    """Yield each table that has keys of its own: where it is, and the keys."""
    if "properties" in shape and shape.get("additionalProperties") is False:
        yield at, {*shape["properties"]}
        for key, part in shape["properties"].items():
            yield from tables(part, (*at, key))
    elif isinstance(more := shape.get("additionalProperties"), dict):
        yield from tables(more, (*at, "n"))
    if "items" in shape:
        yield from tables(shape["items"], (*at, 0))
    for part in shape.get("anyOf", ()):
        yield from tables(part, at)


TABLES = dict[tuple[str | int, ...], set[str]](tables(SCHEMA, ()))


def holding(at: tuple[str | int, ...], inner: dict[str, Any]) -> str:
    """Return a configuration whose table *at* a place is *inner*."""
    value: Any = inner
    for key in reversed(at):
        value = [value] if key == 0 else {key: value}
    return "\n".join(f"{key_text(k)} = {inline(v)}" for k, v in value.items())


def test_the_schema_that_is_shipped_is_this_one() -> None:
    # To fix: caxton config schema > docs/reference/caxton.schema.json
    assert json.loads(SHIPPED.read_text("utf-8")) == SCHEMA
    jsonschema_rs.meta.validate(SCHEMA)


def test_the_schema_has_every_table() -> None:
    assert ("servers", "n", "tools", "n") in TABLES
    assert ("agents", "n", "allow", 0, "approve") in TABLES
    assert len(TABLES) > 25


def anything(shape: Any, at: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401
    for key, part in shape.items() if isinstance(shape, dict) else ():
        if part == {}:
            yield ".".join((*at, key))
        yield from anything(part, (*at, key))
    for part in shape if isinstance(shape, list) else ():
        yield from anything(part, at)


def test_only_what_may_be_anything_has_no_kind() -> None:
    # To fix: put @shaped(...) on the reader of the key that is new here.
    found = {at.rpartition("properties.")[2] for at in anything(SCHEMA, ())}
    assert found - CONDITION_KEYS == {
        "default",
        "params",
        "input",
        "context.additionalProperties",
        "variables.additionalProperties",
    }


@pytest.mark.parametrize("at", TABLES, ids=lambda at: ".".join(map(str, at)) or "top")
def test_a_table_has_the_keys_that_the_loader_knows_and_no_other(
    folder: Folder, at: tuple[str | int, ...]
) -> None:
    errors = folder.refusal(holding(at, {STRANGE: 1})).each

    [error] = [one for one in errors if one.key.endswith(STRANGE)]
    known = error.fix.removeprefix("known here: ").split(", ")
    # A server's table is read with the keys of other programs only in their files.
    assert {*known} == TABLES[at]


@pytest.mark.parametrize("key", sorted(CONDITION_KEYS))
@pytest.mark.parametrize(("kind", "name"), [("allow", "condition"), ("deny", "denied")])
def test_a_condition_has_the_keys_that_the_loader_knows(
    folder: Folder, kind: str, name: str, key: str
) -> None:
    params = {"p": {"type": "any", key: []}}
    rule = {"tools": ["a/b"], "params": params}
    wrong = folder.refusal(holding(("agents", "n", kind, 0), rule))

    refused = re.search(
        "not allowed in a deny rule|allowed in deny rules only", str(wrong)
    )
    assert (key not in SCHEMA["$defs"][name]["properties"]) == bool(refused)


STRUCTURAL = [one for one in MISTAKES if one.is_structural]


@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: one.text[-40:])
def test_what_is_structurally_wrong_is_refused_by_the_schema_too(one: Mistake) -> None:
    assert is_valid(whole(one.text)) != one.is_structural


def test_most_mistakes_are_structural() -> None:
    assert len(STRUCTURAL) >= 45


def documented() -> list[Any]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in pages
        for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")))
    ]


def test_the_documents_have_examples() -> None:
    assert len(documented()) > 40


@pytest.mark.parametrize("text", [*documented(), EXAMPLE, init_text()])
def test_what_the_loader_takes_is_valid(folder: Folder, text: str) -> None:
    try:
        folder.load(text)
    except ConfigError as exc:
        # What only lacks the environment of its reader is an example as well.
        if not all(isinstance(one, UnsetError) for one in exc.each):
            return
    VALID.validate(plain(tomllib.loads(text)))
