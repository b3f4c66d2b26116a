"""The text of a client's file: only what is asked for changes."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.config.client_files import (
    ClientFile,
    given_back,
    shown_diff,
    text_diff,
)
from caxton_host.core.calls import JSON
from caxton_host.errors import UsageError

KEY = "mcpServers"
ENTRY: JSON = {"command": "caxton", "args": ["mcp", "connect", "dev"]}
FORMATTED = """\
{
  "theme": 1.50,
  "mcpServers": {
    "git": { "command": "git-mcp" },
    "time": {
      "command": "uvx"
    }
  },
  "\\u00e4": [1]
}
"""


def put(text: str, *names: str) -> str:
    return ClientFile.parse(text.encode(), KEY).put(dict.fromkeys(names, ENTRY)).text


def test_an_entry_is_added_below_the_others_and_all_else_stays() -> None:
    tree = json.loads(FORMATTED)
    tree[KEY]["caxton"] = ENTRY
    wanted = json.dumps(tree, indent=2, ensure_ascii=False)
    assert put(FORMATTED, "caxton") == f"{wanted}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{"mcpServers": {"a": {}}, "b": 1}',
            '{"mcpServers": {"a": {}, "x": 1}, "b": 1}',
        ),
        ("{}\n", '{\n  "mcpServers": {\n    "x": 1\n  }\n}\n'),
        ("", '{\n  "mcpServers": {\n    "x": 1\n  }\n}\n'),
        (
            '{\n\t"b": 1\n}',
            '{\n\t"b": 1,\n\t"mcpServers": {\n\t\t"x": 1\n\t}\n}',
        ),
        ('{"mcpServers": {"x": {"old": [1]}}}', '{"mcpServers": {"x": 1}}'),
    ],
)
def test_an_entry_is_written_as_the_file_is(before: str, after: str) -> None:
    assert ClientFile.parse(before.encode(), KEY).put({"x": 1}).text == after


def test_a_file_that_is_not_there_is_one_without_servers() -> None:
    assert not ClientFile.parse(None, KEY).servers
    assert json.loads(ClientFile.parse(None, KEY).put({"x": 1}).data) == {KEY: {"x": 1}}


@pytest.mark.parametrize("name", ["git", "time"])
def test_an_entry_is_removed_and_all_else_stays(name: str) -> None:
    left = ClientFile.parse(FORMATTED.encode(), KEY).drop([name, "absent"])
    tree = json.loads(FORMATTED)
    del tree[KEY][name]
    assert json.loads(left.text) == tree


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _all(_: str) -> bool:
    return True


@given(
    servers=st.dictionaries(st.text(max_size=5), TREES, max_size=5),
    others=st.dictionaries(st.text(max_size=5), TREES, max_size=3),
    indent=st.sampled_from([None, 1, 2, "\t"]),
    data=st.data(),
)
def test_edits_change_nothing_else_whatever_a_file_holds(
    servers: dict[str, object],
    others: dict[str, object],
    indent: str | int | None,
    data: st.DataObject,
) -> None:
    others.pop(KEY, None)
    text = json.dumps({**others, KEY: servers}, indent=indent)
    gone = data.draw(st.sets(st.sampled_from([*servers, "absent"])))
    file = ClientFile.parse(text.encode(errors="surrogatepass"), KEY)

    edited = file.drop(gone).put({"new": ENTRY})

    left = {k: v for k, v in servers.items() if k not in gone} | {"new": ENTRY}
    assert json.loads(edited.text) == {**others, KEY: left}
    assert [*json.loads(edited.text)[KEY]] == [*left]
    installed = file.drop(gone - {"new"}).put({"new": ENTRY}).data
    assert given_back(installed, text.encode(), KEY, ["new"], _all) == text.encode()
    if "new" not in servers and servers:
        undone = file.put({"new": ENTRY}).drop(["new"])
        assert json.loads(undone.text) == json.loads(text)


@pytest.mark.parametrize(
    "before",
    [
        b"{",
        b'{"a": 1} // mine',
        b"[]",
        b'{"mcpServers": []}',
        b'{"a": 1, "a": 2}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}",
        b" " * (16 * 1024 * 1024) + b"{}",
    ],
)
def test_a_file_that_would_lose_something_is_refused(before: bytes) -> None:
    with pytest.raises(UsageError, match="was not changed") as refused:
        ClientFile.parse(before, KEY)
    assert refused.value.fix


# -- and back ------------------------------------------------------------------


def back(
    now: str | None, copy: str | None, *own: str, taken: Iterable[str] = ()
) -> str:
    told = {*taken}
    found = given_back(
        None if now is None else now.encode(),
        None if copy is None else copy.encode(),
        KEY,
        own,
        told.__contains__,
    )
    assert found is not None
    return found.decode()


@pytest.mark.parametrize(
    "copy",
    [
        FORMATTED,
        '{"mcpServers": {"git": 1,  "time":{} } }',
        '{ "mcpServers" : { "time": {"é": "\\u00e9"}, "git": [ ] }}\n\n',
    ],
)
@pytest.mark.parametrize("drop", [[], ["git", "time"]])
def test_a_file_that_nobody_else_changed_is_given_back_to_the_byte(
    copy: str, drop: list[str]
) -> None:
    old = ClientFile.parse(copy.encode(), KEY)
    now = old.drop(drop).put({"caxton": ENTRY}).text
    assert back(now, copy, "caxton", taken=["git", "time"]) == copy


def test_a_file_that_was_not_there_is_removed_again() -> None:
    now = ClientFile.parse(None, KEY).put({"caxton": ENTRY}).data
    assert given_back(now, None, KEY, ["caxton"], _all) is None


def test_a_changed_file_keeps_its_changes_and_gets_the_taken_servers_again() -> None:
    now = put('{"mcpServers": {}, "theme": 2}', "caxton", "new")
    restored = json.loads(back(now, FORMATTED, "caxton", taken=["git", "time"]))
    assert restored == {
        KEY: {"new": ENTRY, **json.loads(FORMATTED)[KEY]},
        "theme": 2,
    }


def test_a_server_that_was_removed_by_hand_is_not_given_back() -> None:
    now = ClientFile.parse(FORMATTED.encode(), KEY).drop(["git"]).text
    restored = json.loads(back(put(now, "caxton"), FORMATTED, "caxton"))
    assert [*restored[KEY]] == ["time"]


def test_a_server_whose_name_the_entry_took_is_given_back() -> None:
    now = put(FORMATTED, "git")
    assert back(now, FORMATTED, "git") == FORMATTED
    changed = put(now, "other")
    assert json.loads(back(changed, FORMATTED, "git"))[KEY]["git"] == {
        "command": "git-mcp"
    }


def test_nothing_changes_where_nothing_was_installed() -> None:
    assert back(FORMATTED, None) == FORMATTED
    assert given_back(None, None, KEY, [], _all) is None


# -- differences ---------------------------------------------------------------


# law 8
def test_a_difference_masks_what_may_be_a_secret() -> None:
    tree = {
        "apiToken": "outer-secret",
        KEY: {
            "a": {"env": {"A_TOKEN": "sec\u00e9ret", "B": "shown"}, "command": "x"},
            "b": {"transport": {"headers": {"X-Id": "header-secret", "Accept": "a"}}},
            "c": {"url": "https://ann:pass-word@host/", "env": {"T_KEY": "${T_KEY}"}},
        },
    }
    text = json.dumps(tree, indent=1).encode()
    found = shown_diff(text, None, "f.json")
    assert all(part not in found for part in ("secret", "sec\\u00e9ret", "pass-word"))
    assert all(part in found for part in ("shown", "Accept", "${T_KEY}", "/dev/null"))
    assert found.count("[redacted]") == 4


def test_a_difference_is_a_unified_one() -> None:
    assert text_diff("a\nb\n", "a\nc\n", "f", around=0) == (
        "--- f\n+++ f\n@@ -2 +2 @@\n-b\n+c"
    )
    assert not text_diff("a", "a", "f")
