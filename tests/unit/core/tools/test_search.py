"""Tools are found by words of their names and descriptions."""

from __future__ import annotations

import pytest

from caxton_host.core.tools.search import best

TOOLS: list[dict[str, str | None]] = [
    {"name": "mcp__mail__send", "description": "Send a message to people."},
    {
        "name": "mcp__mail__list_folders",
        "description": "List folders of a mailbox.",
    },
    {"name": "mcp__bank__pay", "title": "Payments", "description": None},
    {"name": "mcp__files__read", "description": "Read a file. Messages are not files."},
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("send", ["mcp__mail__send"]),
        ("MAIL send", ["mcp__mail__send", "mcp__mail__list_folders"]),
        ("payment", ["mcp__bank__pay"]),
        ("folder", ["mcp__mail__list_folders"]),
        ("message", ["mcp__mail__send", "mcp__files__read"]),
        ("weather", []),
        ("", []),
    ],
)
def test_the_likeliest_tool_is_the_first(query: str, found: list[str]) -> None:
    assert [tool["name"] for tool in best(query, TOOLS, 10)] == found


def test_only_the_first_words_of_a_long_query_count() -> None:
    noise = " ".join(f"x{number}" for number in range(15))

    assert best(f"{noise} send", TOOLS, 10)
    assert not best(f"{noise} x send", TOOLS, 10)


def test_no_more_tools_are_found_than_are_asked_for() -> None:
    assert len(best("mcp", TOOLS, 2)) == 2
