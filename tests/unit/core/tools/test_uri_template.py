"""Templates of addresses become the addresses that RFC 6570 says."""

from __future__ import annotations

import pytest

from caxton_host.core.tools.uri_template import expand, is_template
from caxton_host.errors import UsageError

#: Those of the RFC, section 1.2 and 2.4, whose values are texts.
VALUES = {
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
    assert expand(template, VALUES) == (uri, ())


def test_what_has_no_value_stays() -> None:
    found = expand("a/{var}/{undef,x}{/undef}", VALUES)
    assert found == ("a/value/{undef,x}{/undef}", ("undef",))


def test_a_value_cannot_become_more_than_one_part() -> None:
    found = expand("crm://x/{id}", {"id": "../../admin?x=1#y"})
    assert found.uri == "crm://x/..%2F..%2Fadmin%3Fx%3D1%23y"


@pytest.mark.parametrize("template", ["{", "a}b", "{a b}", "{}", "{a:0}", "{|x}"])
def test_what_is_no_template_is_refused(template: str) -> None:
    assert is_template(template)
    with pytest.raises(UsageError):
        expand(template, VALUES)


def test_a_plain_address_is_no_template() -> None:
    assert not is_template("file:///a%20b")
