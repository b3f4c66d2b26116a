"""What a confined server may connect to, and how it asks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.text.urls import host_and_port
from caxton_host.core.tools.egress import (
    HEAD,
    AllowList,
    Request,
    Target,
    read_request,
    variables,
)
from caxton_host.errors import BadBytes, ConditionError

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
HOST = NAME | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
PORT = st.integers(1, 65535)

LISTED = AllowList.parse(
    [
        "api.example.com:443",
        "*.cdn.test:443",
        "10.1.2.3:5432",
        "[fd00::7]:80",
        "db:5432",
    ]
)
OPEN = AllowList.parse(["*:443"])


def asked(line: str, *headers: str) -> Request:
    return read_request("\r\n".join([line, *headers, "", ""]).encode("latin-1"))


def tunnel(authority: str) -> Target:
    return asked(f"CONNECT {authority} HTTP/1.1").target


@settings(max_examples=25)
@given(host=HOST, port=PORT)
def test_a_target_is_read_as_it_is_written(host: str, port: int) -> None:
    written = str(Target(host, port))
    found = host_and_port(written)

    assert found is not None
    assert str(Target(*found)) == str(Target(*found)).lower()
    assert host_and_port(str(Target(*found))) == found
    assert tunnel(written) == Target(*found)


@settings(max_examples=25)
@given(host=HOST, port=PORT)
def test_what_is_listed_is_allowed_on_its_port_only(host: str, port: int) -> None:
    target = Target(*host_and_port(str(Target(host, port))) or ("", 0))
    allowed = AllowList.parse([str(Target(host, port))])

    assert allowed.allows(target)
    assert allowed.lists(target)
    assert not allowed.allows(target._replace(port=port % 65535 + 1))


@pytest.mark.parametrize(
    "authority",
    [
        "api.example.com:443",
        "API.Example.COM:443",
        "api.example.com.:443",
        "a.cdn.test:443",
        "10.1.2.3:5432",
        "[::ffff:10.1.2.3]:5432",
        "[FD00:0::7]:80",
        "db:5432",
    ],
)
def test_listed_hosts_are_allowed_however_they_are_written(authority: str) -> None:
    assert LISTED.allows(tunnel(authority))


@pytest.mark.parametrize(
    "authority",
    [
        "api.example.com:80",
        "example.com:443",
        "evil-api.example.com:443",
        "x.api.example.com:443",
        "api.example.com.evil.test:443",
        "cdn.test:443",
        "a.b.cdn.test:443",
        "10.1.2.3:443",
        "10.1.2.4:5432",
        "[::ffff:10.1.2.4]:5432",
        "[64:ff9b::a01:203]:5432",
        "[2002:a01:203::]:5432",
        "[fd00::8]:80",
        "169.254.169.254:80",
        "[fe80::1]:80",
        "[fd00:ec2::254]:80",
        "metadata.google.internal:80",
        "xn--api-example.com:443",
        "localhost:443",
        "127.0.0.1:443",
        "[::1]:443",
    ],
)
def test_other_hosts_are_not_allowed(authority: str) -> None:
    assert not LISTED.allows(tunnel(authority))


@pytest.mark.parametrize(
    ("authority", "allowed"),
    [
        ("api.example.com:443", True),
        ("9.9.9.9:443", True),
        ("api.example.com:80", False),
        ("127.0.0.1:443", False),
        ("10.0.0.1:443", False),
        ("[fe80::1]:443", False),
        ("[64:ff9b::a9fe:a9fe]:443", False),
        ("printer.local:443", False),
        ("metadata.google.internal:443", False),
        ("db:443", False),
    ],
)
def test_a_star_stands_for_public_hosts(authority: str, *, allowed: bool) -> None:
    assert OPEN.allows(tunnel(authority)) is allowed


def test_only_hosts_that_are_written_out_are_listed() -> None:
    assert LISTED.lists(Target("10.1.2.3", 5432))
    assert not LISTED.lists(Target("10.1.2.3", 443))
    assert not LISTED.lists(Target("a.cdn.test", 443))
    assert not OPEN.lists(Target("9.9.9.9", 443))


@pytest.mark.parametrize(
    "entry",
    [
        *("", "api.example.com", ":443", "api.example.com:", "api.example.com:https"),
        *("api.example.com:0", "api.example.com:65536", "api.example.com:-1"),
        *("api.example.com:4 3", "https://api.example.com:443", "me@a.example.com:443"),
        *("a..example.com:443", "**:443", "*.*:443", "bücher.example:443", "a b.c:443"),
        *("0x7f.1:80", "0177.0.0.1:80", "2130706433:80", "127.1:80", "a\0.example:443"),
        *(
            "a.example/x:443",
            "a%2eexample:443",
            "API.example.com:443",
            "[fe80::1%a]:80",
        ),
    ],
)
def test_an_entry_that_is_in_doubt_is_an_error_with_its_fix(entry: str) -> None:
    with pytest.raises(ConditionError) as caught:
        AllowList.parse([entry])

    assert caught.value.fix


@pytest.mark.parametrize(
    "authority",
    [
        *("0x7f.0.0.1:443", "0177.0.0.1:443", "2130706433:443", "127.1:443", "0:443"),
        *("0x7f000001:443", "127.0.0.1.1:443", "[::1%lo]:443", "[127.0.0.1]:443"),
        *("api.example.com", "api.example.com:", "api.example.com:0", ":443"),
        *("api.example.com:65536", "api.example.com:443443", "api.example.com:+443"),
        *("me@api.example.com:443", "api.example.com:443@evil.test", "a:b@c.test:443"),
        *("api.example.com\0.evil.test:443", "api.example.com%00:443", "a%2Etest:443"),
        *("api.example.com\\:443", "api.example.com/:443", "api..example.com:443"),
        *("b\xfccher.example:443", "http://api.example.com:443", "[::1:443", "::1:443"),
        f"{'a' * 64}.test:443",
        f"{'a.' * 127}a.test:443",
    ],
)
def test_a_host_that_programs_read_differently_is_refused(authority: str) -> None:
    with pytest.raises(BadBytes):
        tunnel(authority)


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT a.test:443\r\n\r\n",
        b"CONNECT a.test:443 HTTP/2\r\n\r\n",
        b"CONNECT  a.test:443 HTTP/1.1\r\n\r\n",
        b"connect a.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\nHost: b\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nHost : b\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nA: b\0\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\n" + b"A: " + b"b" * HEAD + b"\r\n\r\n",
        b"GET https://a.test/ HTTP/1.1\r\n\r\n",
        b"GET ftp://a.test/ HTTP/1.1\r\n\r\n",
        b"GET http://me@a.test/ HTTP/1.1\r\n\r\n",
        b"GET http:///a HTTP/1.1\r\n\r\n",
        b"GET http://a.test/\x01 HTTP/1.1\r\n\r\n",
        b"POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\nContent-Length:1\r\ncontent-length:1\r\n\r\n",
        b"POST http://a.test/ HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST http://a.test/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST http://a.test/ HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(BadBytes):
        read_request(head)


def test_a_tunnel_is_for_the_first_line_whatever_the_headers_say() -> None:
    found = asked(
        "CONNECT a.test:443 HTTP/1.1", "Host: b.test:443", "Content-Length: 5"
    )

    assert found == Request(Target("a.test", 443))


def test_a_plain_request_is_written_anew() -> None:
    found = asked(
        "POST http://A.test:8080/x?y=1 HTTP/1.0",
        *(
            "Host: b.test",
            "Proxy-Authorization: Basic eA==",
            "X-One: 1",
            "Keep-Alive: 5",
        ),
        *("Connection: close, X-Two, Content-Length", "X-Two: 2", "content-length: 3"),
    )

    assert found == Request(
        Target("a.test", 8080),
        b"POST /x?y=1 HTTP/1.1\r\nHost: a.test:8080\r\nX-One: 1\r\n"
        b"Content-Length: 3\r\nConnection: close\r\n\r\n",
        3,
    )


def test_the_usual_port_of_a_plain_request_is_not_named() -> None:
    found = asked("GET http://[::1] HTTP/1.1")

    assert found.target == Target("::1", 80)
    assert found.head == b"GET / HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_are_refused(head: bytes) -> None:
    try:
        found = read_request(head + b"\r\n\r\n")
    except BadBytes:
        return
    assert found.target.host


def test_a_server_reaches_itself_directly_unless_the_host_is_listed() -> None:
    found = variables(AllowList.parse(["127.0.0.1:80"]), "http://p")

    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://p"
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,::1"
