"""What a session lists of its servers, and which server a client means."""

from __future__ import annotations

from collections.abc import Mapping

from caxton_host.core.calls import JSON
from caxton_host.core.grants.content import (
    LISTS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    Listed,
    merged,
    place,
)


def anything(_: str, __: str) -> bool:
    return True


def nothing(_: str, __: str) -> bool:
    return False


def entries(kind: str, *names: str) -> list[Mapping[str, JSON]]:
    return [{LISTS[kind].name: name} for name in names]


def test_a_uri_leads_to_the_first_server_that_lists_it() -> None:
    found = {"a": entries(RESOURCES, "x:2"), "b": entries(RESOURCES, "x:1", "x:2")}
    shown = merged(LISTS[RESOURCES], found, anything)
    assert [(uri, one.server) for uri, one in shown.items()] == [
        ("x:1", "b"),
        ("x:2", "a"),
    ]


def test_prompts_of_one_name_are_told_apart_by_their_servers() -> None:
    found = {
        "a": entries(PROMPTS, "review", "own"),
        # It cannot take the name that another one's prompt has.
        "b": entries(PROMPTS, "review", "a/review"),
    }
    shown = merged(LISTS[PROMPTS], found, anything)
    assert [*shown] == ["a/review", "b/a/review", "b/review", "own"]
    assert shown["a/review"] == Listed("a", "review", {"name": "a/review"})
    assert shown["b/a/review"].name == "a/review"


def test_what_the_grant_hides_is_not_listed_and_changes_no_name() -> None:  # law 4
    found = {"a": entries(PROMPTS, "review"), "b": entries(PROMPTS, "review")}
    shown = merged(LISTS[PROMPTS], found, lambda server, _: server == "b")
    assert [*shown] == ["review"]
    assert not merged(LISTS[PROMPTS], found, nothing)


def test_what_is_not_listed_is_of_the_server_with_such_a_template() -> None:
    listed = {"x:1": Listed("b", "x:1", {})}
    found = {"b": entries(TEMPLATES, "y:{+path}/z"), "c": entries(TEMPLATES, "{any}")}
    templates = merged(LISTS[TEMPLATES], found, anything)
    granted = ["a", "b"]
    assert place("x:1", listed, templates, granted, anything) == ("b", "x:1")
    assert place("y:1/z", listed, templates, granted, anything) == ("b", "y:1/z")
    assert place("y:1", listed, templates, granted, anything) == ("a", "y:1")
    assert place("y:1/z", listed, templates, granted, nothing) == ("a", "y:1/z")
    assert place("y:1/z", listed, templates, [], nothing) == ("", "y:1/z")
