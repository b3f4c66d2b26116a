"""Placeholders become values; whatever else a text holds stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.text.templates import (
    MAX_MESSAGE,
    Filled,
    expand,
    fill,
    is_template,
    named,
    pick_message,
    unfilled,
)
from caxton_host.errors import UsageError

VALUES: dict[str, JSON] = {
    "name": "Ada",
    "n": 3,
    "none": None,
    "a.b": "dotted",
    "a": {"b": "deep", "c": {"d": ["x", True]}},
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {name}!", "Hello Ada!"),
        ("${context.name} and {name}", "Ada and Ada"),
        ("{n}", "3"),
        ("[{none}]", "[]"),
        ("{a.b}", "dotted"),
        ("{a.c.d}", '["x",true]'),
        ('{"a": {"n": 1}} {n}', '{"a": {"n": 1}} 3'),
        ("{ name } {} {1}", "{ name } {} {1}"),
        ("", ""),
    ],
)
def test_placeholders_become_values_and_other_braces_stay(
    text: str, filled: str
) -> None:
    assert fill(text, VALUES, longest=100) == Filled(text=filled)


def test_unknown_placeholders_stay_and_are_told_once() -> None:
    text = "{who} {who} {name.first} {a.x} ${context.y}"
    found = fill(text, VALUES, longest=100)
    assert found == Filled(text=text, unknown=("who", "name.first", "a.x", "y"))


@pytest.mark.parametrize("text", ["{name", "name} {name}", "} {", "{{name}"])
def test_a_broken_template_stays_as_it_is(text: str) -> None:
    found = fill(text, VALUES, longest=100)
    assert found.text == text
    assert found.problem == "a brace in it has no partner"


def test_a_text_that_would_be_too_long_stays_as_it_is() -> None:
    values: dict[str, JSON] = {"big": "x" * 60}
    assert fill("{big}", values, longest=60).problem is None
    for text in ("{big}{big}{big}", "{big}!"):
        found = fill(text, values, longest=60)
        assert found == Filled(text=text, problem="it would have over 60 characters")


def test_a_value_is_not_filled_in_again() -> None:
    found = fill("{a}", {"a": "{b}", "b": "secret"}, longest=100)
    assert found.text == "{b}"


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_any_text_is_filled_or_stays(text: str, values: dict[str, JSON]) -> None:
    found = fill(text, values, longest=10_000)
    if found.problem or not named(text):
        assert found.text == text


def test_placeholders_left_in_a_value_are_found() -> None:
    value: JSON = {"to": ["{name}", {"x": "{a.c} {zip}"}], "n": 1, "again": "{name}"}
    assert unfilled(value, VALUES) == ["name", "a.c"]


DATA: JSON = {
    "name": "Ada",
    "age": 36,
    "admin": False,
    "none": None,
    "tags": ["a", {"b": "ü"}],
}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("name", "Ada"),
        ("age", "36"),
        ("admin", "false"),
        ("tags", '["a",{"b":"ü"}]'),
        ("tags.1.b", "ü"),
        ("tags.2", None),
        ("tags.b", None),
        ("tags.²", None),
        ("none", None),
        ("name.first", None),
        ("", None),
    ],
)
def test_field_is_a_path_into_the_data(field: str, message: str | None) -> None:
    assert pick_message(DATA, field, None) == message


def test_nothing_asked_for_is_nothing() -> None:
    assert pick_message(DATA, None, None) is None


def test_template_leaves_out_what_is_not_there() -> None:
    template = "{name}, {age}{none}{nothing.at.all} {}"
    assert pick_message(DATA, None, template) == "Ada, 36 {}"


def test_template_is_filled_once() -> None:
    assert pick_message({"a": "{b}", "b": "x"}, None, "{a}") == "{b}"


def test_template_wins_over_field() -> None:
    assert pick_message(DATA, "age", "{name}") == "Ada"


def test_template_cannot_multiply_a_long_value() -> None:
    # law 9
    message = pick_message({"a": "x" * MAX_MESSAGE}, None, "{a}" * 100)
    assert message is not None
    assert len(message) == MAX_MESSAGE


#: Those of the RFC, section 1.2 and 2.4, whose values are texts.
URI_VALUES = {
    "var": "value",
    "hello": "Hello World!",
    "half": "50%",
    "empty": "",
    "path": "/foo/bar",
    "x": "1024",
    "y": "768",
    "who": "fred",
    "base": "http://example.com/home/",
    "v.w": "dot",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{empty}X", "OX"),
        ("{x,y}", "1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("?{x,empty}", "?1024,"),
        ("{var:3}", "val"),
        ("{var:30}", "value"),
        ("{var*}", "value"),
        ("{+var}", "value"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+path}/here", "/foo/bar/here"),
        ("{+x,hello,y}", "1024,Hello%20World!,768"),
        ("{+path:6}/here", "/foo/b/here"),
        ("{#hello}", "#Hello%20World!"),
        ("{#path,x}/here", "#/foo/bar,1024/here"),
        ("foo{#empty}", "foo#"),
        ("{.who,who}", ".fred.fred"),
        ("X{.empty}", "X."),
        ("{/var,x}/here", "/value/1024/here"),
        ("{/var,empty}", "/value/"),
        ("{/var:1,var}", "/v/value"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{;hello:5}", ";hello=Hello"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?x,undef}", "?x=1024"),
        ("a{?undef}", "a"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{v.w}", "dot"),
        ("ü%20{var}", "%C3%BC%20value"),
    ],
)
def test_an_address_is_what_the_rfc_says(template: str, uri: str) -> None:
    assert expand(template, URI_VALUES) == (uri, ())


def test_what_has_no_value_stays() -> None:
    found = expand("a/{var}/{undef,x}{/undef}", URI_VALUES)
    assert found == ("a/value/{undef,x}{/undef}", ("undef",))


def test_a_value_cannot_become_more_than_one_part() -> None:
    found = expand("crm://x/{id}", {"id": "../../admin?x=1#y"})
    assert found.uri == "crm://x/..%2F..%2Fadmin%3Fx%3D1%23y"


@pytest.mark.parametrize("template", ["{", "a}b", "{a b}", "{}", "{a:0}", "{|x}"])
def test_what_is_no_template_is_refused(template: str) -> None:
    assert is_template(template)
    with pytest.raises(UsageError):
        expand(template, URI_VALUES)


def test_a_plain_address_is_no_template() -> None:
    assert not is_template("file:///a%20b")
