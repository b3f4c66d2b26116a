"""What is taken for a path or an address is one in every reading of it."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caxton_host.core.text.globs import Glob
from caxton_host.core.text.paths import Roots
from caxton_host.core.text.urls import Addresses
from caxton_host.errors import UsageError

ROOTS = Roots(("/srv/data",))
HOSTS = Addresses.parse({"host": ["*.a.org", "10.0.0.5"]}, ())

_PATHS = st.lists(
    st.sampled_from(
        [
            *("/srv/data", "/srv", "/data", "/", "//", "a", "b", " ", "~", ";", "%"),
            *(".", "..", "/..", "/../", "/./", "\\", "\\..\\", "\0", "\n", "\r"),
            *("%2e", "%2E%2e", "%2f", "%5c", "%00", "%25", "%252e", "%41", "%c0%ae"),
            *("file:", "file://", "FILE:///", "localhost", "?", "#", "\u2025"),
            *("\uff0e", "\uff0f", "\uff3c", "\u2024", "\u202e", "\u00e4", "e\u0301"),
        ]
    ),
    max_size=4,
).map("".join)
_INSIDE = st.tuples(
    st.sampled_from(["/srv/data/", "file:///srv/data", "file:/srv/data/"]), _PATHS
).map("".join)

_URLS = st.lists(
    st.sampled_from(
        [
            *("https://", "http://", "HTTPS://", "https:", "//", "/", ":", ":443", "@"),
            *("x.a.org", ".a.org", "a.org", "evil.test", "10.0.0.5", "127.0.0.1", "."),
            *("0x7f.1", "2130706433", "[::1]", "[::ffff:10.0.0.5]", "[", "]", "%40"),
            *("\\", "\t", "\n", " ", "#", "?", "%2f", "%00", "u:p@", "\uff0e", "xn--a"),
            *("\u0430", "\u3002", "\u00ad", "%2e", "..", "8"),
        ]
    ),
    max_size=4,
).map("".join)
_ADDRESSES = st.tuples(
    st.sampled_from(["https://", "https://x", "https://x.a.org", "https://10.0.0.5/"]),
    _URLS,
).map("".join)


def paths(text: str) -> Iterator[str]:
    """Return what programs may make of a text that is to be a path."""
    if text[:5].lower() == "file:":
        yield unquote(urlsplit(text).path)
        return
    once = unquote(text)
    for reading in (text, once, unquote(once), unicodedata.normalize("NFKC", text)):
        yield reading
        yield reading.replace("\\", "/")
        yield reading.partition("\0")[0]


@settings(max_examples=400)
@given(_INSIDE)
@example("/srv/data/..")
@example("file:///srv/data/..%2f..")
def test_path_that_is_inside_is_inside_in_every_reading(text: str) -> None:  # law 4
    if ROOTS.hold(text):
        for path in paths(text):
            assert f"{posixpath.normpath(path)}/".startswith("/srv/data/")


@settings(max_examples=400)
@given(_ADDRESSES)
@example("https://x.a.org\\@evil.test/")
@example("https://evil.test#@x.a.org/")
def test_address_that_is_meant_leads_there_in_every_reading(text: str) -> None:
    if HOSTS.hold(text):  # law 4
        hosts = {urlsplit(text).hostname, httpx.URL(text).host}
        for host in hosts:
            assert host is not None
            known = host in {"10.0.0.5", "::ffff:10.0.0.5", "::ffff:a00:5"}
            assert known or (host.endswith(".a.org") and host.count(".") == 2)
        assert urlsplit(text).username is None


@given(
    st.lists(st.sampled_from(["*", "**", "/", "a", "b", "a*", ".", ".."]), max_size=6),
    st.lists(st.sampled_from(["/", "a", "b", ".", ".."]), max_size=8),
)
def test_glob_fits_what_a_plain_reading_of_it_fits(
    glob: list[str], text: list[str]
) -> None:
    spelled = "".join(glob)
    try:
        found = Glob.parse(spelled).matches("".join(text))
    except UsageError:
        return
    if found is not None:
        assert found is _plainly(spelled.split("/"), "".join(text).split("/"))


def _plainly(glob: list[str], text: list[str]) -> bool:
    if not glob or not text:
        return not glob and not text
    if glob[0] == "**":
        return any(_plainly(glob[1:], text[n:]) for n in range(len(text) + 1))
    return _segment(glob[0], text[0]) and _plainly(glob[1:], text[1:])


def _segment(glob: str, text: str) -> bool:
    if not glob:
        return not text
    if glob[0] == "*":
        return any(_segment(glob[1:], text[n:]) for n in range(len(text) + 1))
    return text[:1] == glob[0] and _segment(glob[1:], text[1:])
