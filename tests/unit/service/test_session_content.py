"""What the client of a session may read, on scripted tools."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.content import PROMPTS, RESOURCES, TEMPLATES
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.names import PROMPT, READ, exposed_name
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ToolError, UsageError
from caxton_host.service.session_content import Content
from caxton_host.testing import FakeTools


def rule(*tools: str, **params: JSON) -> Rule:
    return Rule(
        id="r",
        tools=tuple(map(Pattern.parse, tools)),
        params=Conditions.parse(params) if params else None,
        other_params=bool(params),
    )


def listing(*entries: dict[str, JSON]) -> Completed:
    return Completed(data={"content": [], "entries": [*entries]})


def tools(**more: JSON | ToolError | Completed) -> FakeTools:
    given = {key.replace("_", "/"): value for key, value in more.items()}
    return FakeTools(
        {
            ("docs", RESOURCES): listing({"uri": "d:1"}, {"uri": "d:2"}),
            ("docs", TEMPLATES): listing({"uriTemplate": "d:{n}"}),
            ("docs", PROMPTS): listing({"name": "review"}),
            **{("docs", key): value for key, value in given.items()},
        }
    )


ALL = rule(f"docs/{READ}", f"docs/{PROMPT}")


def content(
    *allow: Rule,
    deny: tuple[Rule, ...] = (),
    of: FakeTools | None = None,
    frozen: bool = False,
) -> Content:
    return Content(
        grant=Grant(allow=allow, deny=deny),
        run_id="0198",
        tools=of or tools(),
        now=lambda: 0,
        frozen=lambda _: frozen,
    )


async def test_a_list_is_asked_for_once_in_a_while() -> None:  # law 9
    of = tools()
    it = content(ALL, of=of)
    assert [*await it.listed(RESOURCES)] == [*await it.listed(RESOURCES)]
    assert [*await it.listed(RESOURCES)] == ["d:1", "d:2"]
    assert [one.tool for one in of.asked] == [RESOURCES]


async def test_a_deny_rule_hides_and_a_star_denies_methods_too() -> None:  # law 4
    one = rule(f"docs/{READ}", uri={"const": "d:1"})
    assert [*await content(ALL, deny=(one,)).listed(RESOURCES)] == ["d:2"]
    assert not await content(ALL, deny=(rule("docs/*"),)).listed(RESOURCES)


async def test_a_star_of_an_allow_rule_stands_for_no_method() -> None:  # law 4
    of = tools()
    it = content(rule("docs/*"), rule("docs/resources/*"), of=of)
    assert not await it.listed(RESOURCES)
    assert await it.call(READ, {"uri": "d:1"}) == (
        exposed_name("", READ),
        {"uri": "d:1"},
    )
    assert not of.asked


async def test_nothing_is_asked_of_a_server_that_is_frozen() -> None:
    of = tools()
    assert not await content(ALL, of=of, frozen=True).listed(PROMPTS)
    assert not of.asked


async def test_a_call_has_the_name_that_the_server_knows() -> None:
    it = content(ALL)
    asked: dict[str, JSON] = {"name": "review", "arguments": {"n": "1"}}
    assert await it.call(PROMPT, asked) == (exposed_name("docs", PROMPT), asked)


def completion(*values: JSON) -> Completed:
    return Completed(data={"content": [], "values": [*values]})


async def completed(it: Content, ref: dict[str, str]) -> list[str]:
    return await it.complete({"ref": ref, "argument": {"name": "n", "value": ""}})


async def test_values_that_lead_to_what_is_hidden_are_left_out() -> None:  # law 4
    of = tools(completion_complete=completion("1", "2", "3"))
    two = rule(f"docs/{READ}", uri={"one_of": ["d:2", "d:{n}"]})
    assert await completed(content(two, of=of), {"uri": "d:{n}"}) == ["2"]
    assert await completed(content(ALL, of=of), {"name": "review"}) == ["1", "2", "3"]
    assert await completed(content(ALL, of=of), {"name": "unknown"}) == []


async def test_completions_are_bounded() -> None:  # law 9
    many = completion(7, None, *map(str, range(500)))
    it = content(ALL, of=tools(completion_complete=many))
    for ref in ({"uri": "d:{n}"}, {"name": "review"}):
        assert len(await completed(it, ref)) == 100


async def test_a_template_that_is_not_valid_is_refused() -> None:
    of = FakeTools(
        {
            ("docs", TEMPLATES): listing({"uriTemplate": "d:{n"}),
            ("docs", "completion/complete"): completion("1"),
        }
    )
    with pytest.raises(UsageError):
        await completed(content(ALL, of=of), {"uri": "d:{n"})
