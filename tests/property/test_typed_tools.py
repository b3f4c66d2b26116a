"""Typed tools are valid text, within their bounds, whatever a server lists."""

from __future__ import annotations

import ast
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.tools.headers import Language, header
from caxton_host.core.tools.stubs import python_stub, typescript_stub
from caxton_host.core.tools.typed import TypedTool

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["*/", '"""', "\\", "a\nb", "self", "class", "list", "__x", "#/$defs/a", "#"]
    ),
)
KEYS = st.sampled_from(
    [
        *("type", "properties", "required", "items", "enum", "const", "default"),
        *("anyOf", "oneOf", "allOf", "additionalProperties", "patternProperties"),
        *("$ref", "$defs", "nullable", "description"),
    ]
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | TYPES
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries({"type": TYPES}) | VALUES,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(TEXTS, inner, max_size=4),
                "required": st.lists(TEXTS, max_size=3),
                "additionalProperties": inner,
            },
        )
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"$ref": TEXTS, "$defs": st.just({"a": {"$ref": "#"}})})
    ),
    max_leaves=8,
)
TOOLS = st.lists(
    st.builds(
        TypedTool,
        exposed=TEXTS | TEXTS.map(lambda text: f"mcp__demo__{text}"),
        description=TEXTS,
        input_schema=SCHEMAS,
        output_schema=SCHEMAS,
    ),
    max_size=4,
    unique_by=lambda tool: tool.exposed,
)
LANGUAGES: st.SearchStrategy[Language] = st.sampled_from(["python", "javascript"])

TOKEN = re.compile(
    r"""//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/|"(?:[^"\\\n]|\\.)*"|-?[0-9][0-9.e+-]*"""
    r"|[A-Za-z_][A-Za-z0-9_]*|=>|[{}()\[\]<>:;,?|&]|\s+"
)
CLOSING = {")": "(", "]": "[", "}": "{", ">": "<"}


def tokens(text: str) -> list[str]:
    """Return the tokens of TypeScript declarations, of which nothing is left over."""
    found: list[str] = []
    at = 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token, text[at : at + 80]
        found.append(token[0])
        at = token.end()
    return found


@settings(max_examples=30)
@given(TOOLS)
def test_a_python_stub_parses(tools: list[TypedTool]) -> None:
    # law 9
    stub = python_stub(tools)
    stub.encode()
    compile(stub, "tools.pyi", "exec")
    kinds = {type(one) for one in ast.parse(stub).body}
    allowed = {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef}
    assert kinds <= {*allowed, ast.AnnAssign}


@settings(max_examples=30)
@given(TOOLS)
def test_typescript_declarations_are_balanced_tokens(tools: list[TypedTool]) -> None:
    # law 9
    stub = typescript_stub(tools)
    stub.encode()
    open_: list[str] = []
    for token in tokens(stub):
        if token in CLOSING.values():
            open_.append(token)
        elif token in CLOSING:
            assert open_.pop() == CLOSING[token]
        assert open_ or token.isspace() or token.startswith("//") or token in TOP
    assert not open_


TOP = {"export", "{", "}", ";", "declare", "module", '"caxton"'}


@settings(max_examples=30)
@given(TOOLS, LANGUAGES, st.integers(min_value=100, max_value=600))
def test_a_header_keeps_its_bound(
    tools: list[TypedTool], language: Language, limit: int
) -> None:
    # law 9
    text = header(tools, language, limit)
    assert len(text) <= limit
    assert len(text.splitlines()) <= len(tools) + 1
