"""Typed tools are files that editors read, and lines that a model reads."""

from __future__ import annotations

import ast
import json
import subprocess
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.tools.headers import Language, header
from caxton_host.core.tools.stubs import python_stub, typescript_stub
from caxton_host.core.tools.typed import (
    TypedTool,
    clean,
    javascript_name,
    places,
    python_name,
)
from tests.others import NODE

TIME = TypedTool(
    exposed="mcp__time__get_current_time",
    description="Get the time.\nOf a zone.",
    input_schema={
        "type": "object",
        "properties": {
            "hours": {"type": "integer", "default": 24},
            "timezone": {"type": "string", "description": "An IANA name"},
        },
        "required": ["timezone"],
    },
    output_schema={
        "type": "object",
        "properties": {"zone": {"type": "string"}, "day": {"type": "integer"}},
        "required": ["zone"],
    },
)
PLAIN = TypedTool(exposed="ping", input_schema={"type": "object", "properties": {}})


def of(name: str, schema: JSON = None, **more: Any) -> TypedTool:  # noqa: ANN401 -- schemas
    properties: JSON = {"type": "object", "properties": more}
    return TypedTool(exposed=name, input_schema=schema or properties)


def test_a_python_stub_has_a_class_for_each_server() -> None:
    stub = python_stub([TIME, PLAIN])
    assert (
        '''\
_Object1 = TypedDict("_Object1", {
    'zone': str,
    'day': NotRequired[int],
})

class _time_tools:
    def get_current_time(self, *, timezone: str, hours: int = 24) -> _Object1:
        """Get the time.
        Of a zone.

        Args:
            timezone: An IANA name
        """

class Tools:
    time: _time_tools
'''
        in stub
    )
    assert "    def ping(self) -> Any:\n        ...\n" in stub
    assert stub.endswith("\ntools: Tools\n")
    compile(stub, "tools.pyi", "exec")


def test_typescript_declarations_extend_the_module_of_the_sdk() -> None:
    assert (
        typescript_stub([TIME, PLAIN])
        == """\
// Typed tools, made by caxton tool stubs.
export {};

declare module "caxton" {
  interface Tools {
    time: {
      /**
       * Get the time.
       * Of a zone.
       * @param parameters.timezone An IANA name
       */
      getCurrentTime(parameters: {timezone: string, hours?: number}): \
Promise<{zone: string, day?: number}>;
    };
    ping(): Promise<any>;
  }
}
"""
    )


def test_equal_objects_have_one_type_in_python() -> None:
    inner: JSON = {"type": "object", "properties": {"a": {"type": "string"}}}
    stub = python_stub([of("one", a=inner, b=inner)])
    assert "a: _Object1 = ..., b: _Object1 = ..." in stub
    assert "_Object2" not in stub
    empty: JSON = {"type": "object", "properties": {}}
    assert "a: dict[str, Any] = ..." in python_stub([of("one", a=empty)])


@pytest.mark.parametrize(
    ("part", "python", "javascript"),
    [
        ("get_current_time", "get_current_time", "getCurrentTime"),
        ("get-time", "get_time", "getTime"),
        ("3d", "_3d", "_3d"),
        ("class", "class_", "class"),
        ("größe", "gr__e", "grE"),
        ("", "_", "_"),
        ("a__b_", "a__b_", "aB_"),
    ],
)
def test_names(part: str, python: str, javascript: str) -> None:
    assert python_name(part) == python
    assert javascript_name(part) == javascript


@pytest.mark.parametrize(
    ("exposed", "place"),
    [
        ("mcp__a__b", ("a", "b")),
        ("mcp__a__b__c", ("a", "b__c")),
        ("other", ("other",)),
        ("mcp__a", ("mcp__a",)),
        ("mcp__a__", ("mcp__a__",)),
        ("search", ("search",)),
        ("mcp____a__b", ("mcp____a__b",)),
        ("__class__", ()),
        ("mcp__x____init__", ()),
    ],
)
def test_places(exposed: str, place: tuple[str, ...]) -> None:
    assert places([exposed], python_name) == {exposed: place}


def test_what_the_object_has_itself_is_no_place() -> None:
    names = ["search", "mcp__search__a"]
    assert places(names, python_name, {"search"}) == dict.fromkeys(names, ())
    assert "search(" not in python_stub([of("mcp__search__a")])
    assert "    search(): Promise<any>;" in typescript_stub([of("search")])


def test_tools_with_one_place_are_only_reachable_by_their_names() -> None:
    names = ["mcp__a__b-c", "mcp__a__b.c", "mcp__a__d", "mcp__b__d", "b"]
    found = places(names, python_name)
    assert [found[name] for name in names] == [(), (), ("a", "d"), (), ("b",)]
    tools = [*map(of, names)]
    stub = python_stub(tools)
    compile(stub, "tools.pyi", "exec")
    assert "name: typing.Literal['mcp__a__b.c']) -> _Exact2: ..." in stub
    assert '    "mcp__a__b.c"(): Promise<any>;\n' in typescript_stub(tools)
    assert 'tools["mcp__a__b.c"]()\n' in header(tools, "python", 1_000)


def test_a_tool_named_like_a_type_does_not_hide_the_type() -> None:
    stub = python_stub([of("list", a={"type": "array"}, b={"enum": ["c"]}), of("str")])
    assert "a: builtins.list[Any] = ..., b: Literal['c'] = ..." in stub
    stub = python_stub([of("Literal", a={"enum": ["c"]}), of("Any", schema={})])
    assert "a: typing.Literal['c'] = ...) -> typing.Any:" in stub


def test_parameters_have_names_in_python_or_are_among_more() -> None:
    names = ("from", "__b", "a-b", "a b", "more", "self")
    tool = of("a", **{name: {} for name in names})
    stub = python_stub([tool])
    compile(stub, "tools.pyi", "exec")
    words = [f"{name}: Any = ...," for name in ("from_", "a_b", "more", "self")]
    shown = ["def", "a(", "self_,", "*,", *" ".join(words).split(), "**more_:", "Any,"]
    assert " ".join(shown) in " ".join(stub.split())
    expected = f'tools.a({" ".join(words)} **{{__b?: Any, "a b"?: Any}})'
    assert header([tool], "python", 1_000) == expected


def test_long_parameters_have_a_line_each() -> None:
    names = [f"parameter{at}" for at in range(5)]
    stub = python_stub([of("a", **{name: {} for name in names})])
    assert "        parameter1: Any = ...,\n        parameter2: Any" in stub


#: Texts that would end a comment, a text or a line.
HOSTILE = (
    *('"""', "'''", "*/", "**//", "\\", '"', "\n", "\r", "\u2028", "\x00", "\u202e"),
    *("`${x}`", "</script>", "# type: ignore", "\ud800", '\\"""\\', "#" * 10_000),
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_a_server_stays_a_text(text: str) -> None:
    # law 9
    properties: dict[str, JSON] = {
        f"a{text}"[:100]: {"description": text, "default": text, "enum": [text]},
        "b": {"description": text, "default": text},
    }
    tool = TypedTool(
        exposed=f"x{text}",
        description=text,
        input_schema={"properties": properties},
        output_schema={"properties": properties},
    )
    stub = python_stub([tool])
    compile(stub, "tools.pyi", "exec")
    assert len(ast.parse(stub).body) == 8
    for language in ("python", "javascript"):
        assert len(header([tool], language, 4_000).splitlines()) == 1


def test_typescript_declarations_parse_whatever_a_server_says() -> None:
    texts = [text.encode(errors="replace").decode() for text in HOSTILE]
    tools = [
        TypedTool(
            exposed=f"mcp__s{at}__{text}",
            description=text,
            input_schema={
                "properties": {text[:100]: {"enum": [text], "description": text}},
                "additionalProperties": True,
            },
        )
        for at, text in enumerate(texts)
    ]
    # The engine itself erases types only from what parses.
    program = (
        "const {stripTypeScriptTypes} = require('module');"
        f"console.log(stripTypeScriptTypes({json.dumps(typescript_stub(tools))}))"
    )
    done = subprocess.run(
        [NODE, "--no-warnings", "-e", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    words = "// Typed tools, made by caxton tool stubs. export {};"
    assert " ".join(done.stdout.split()) == words


def test_what_is_cut_says_so() -> None:
    assert clean("a" * 10, 5) == "aa..."
    assert clean("a\n\tb  c", 20) == "a b c"


@pytest.mark.parametrize(
    ("language", "sign", "line"),
    [
        (
            "python",
            "#",
            "get_current_time(timezone: str, hours: int = 24) -> {zone: str, day?: int}",  # noqa: E501
        ),
        (
            "javascript",
            "//",
            "getCurrentTime({timezone: string, hours?: number}): {zone: string, day?: number}",  # noqa: E501
        ),
    ],
)
def test_a_header_has_a_signature_a_line(
    language: Language, sign: str, line: str
) -> None:
    assert header([TIME, PLAIN], language, 1_000).splitlines() == [
        f"tools.time.{line}  {sign} Get the time. Of a zone.",
        "tools.ping()",
    ]


def many(count: int) -> list[TypedTool]:
    return [
        TypedTool(exposed=f"mcp__s__t{at}", description="word " * 40)
        for at in range(count)
    ]


def test_a_header_loses_descriptions_first_and_then_all_but_names() -> None:
    whole = header(many(10), "python", 10_000)
    assert whole.splitlines()[0] == f"tools.s.t0(**more: Any)  # {'word ' * 39}word"
    cut = header(many(10), "python", 1_000)
    assert cut.splitlines()[0] == f"tools.s.t0(**more: Any)  # {'word ' * 11}wo..."
    bare = header(many(10), "javascript", 300)
    assert bare.splitlines()[0] == "tools.s.t0(...more)"
    hint = 'tools.search("words") finds tools by name and description'
    names = header(many(10), "python", 200)
    assert names.splitlines() == [*(f"tools.s.t{at}" for at in range(10)), hint]


def test_a_header_keeps_its_bound_with_any_number_of_tools() -> None:
    # law 9
    text = header(many(1_000), "javascript", 200)
    assert len(text) <= 200
    assert text.splitlines()[0] == "tools.s.t0"
    assert text.splitlines()[-1].endswith("; tools not listed: 990")


def test_a_signature_that_is_too_long_loses_its_objects() -> None:
    inner: JSON = {"properties": {f"name{at}": {"type": "string"} for at in range(40)}}
    one = header([of("a", b=inner)], "python", 1_000)
    assert one == "tools.a(b: dict[str, Any] = ...)"
    names: dict[str, Any] = {f"name{at}": {"type": "string"} for at in range(40)}
    wide = of("a", **names)
    assert header([wide], "python", 1_000) == "tools.a(...)"
    assert header([wide], "javascript", 1_000) == "tools.a(...)"
