"""What is taken out of an answer is nowhere in it; what cannot be looked at is gone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed, cut
from caxton_host.core.grants.call_terms import Terms
from caxton_host.core.grants.grants import Rule
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.core.text.redact import MASK, Redactor
from caxton_host.core.tools.servers import ToolOptions
from caxton_host.gateway.results import completed
from caxton_host.lib import codec
from tests.scene import JSON_VALUES

ADA = "ada@example.org"
USER: dict[str, JSON] = {"user": {"name": "Ada", "email": ADA}}
CLEAN: dict[str, JSON] = {"user": {"name": "Ada", "email": MASK}}


def terms(*paths: str) -> Terms:
    return Terms(redact=tuple(map(JsonPath.parse, paths)))


def text(value: object) -> JSON:
    said = value if isinstance(value, str) else json.dumps(value)
    return {"type": "text", "text": said}


def answer(options: ToolOptions | None = None, **result: JSON) -> Completed:
    """Return the answer of a server, as its connection hands it on."""
    return completed(result, "look_up", options or ToolOptions(), Redactor())


def shown(done: Completed, *paths: str) -> Completed:
    return terms(*(paths or ["$.user.email"])).conceal(done)


# -- where it is taken out ---------------------------------------------------------


def test_structured_content_and_the_same_in_text_are_both_cleaned() -> None:
    done = shown(answer(content=[text(USER)], structuredContent=USER))

    assert done.data == {"content": [text(CLEAN)], "structuredContent": CLEAN}
    assert json.loads(done.message) == CLEAN


def test_text_in_which_nothing_is_to_be_hidden_keeps_its_spelling() -> None:
    spaced: JSON = {"type": "text", "text": ' {"n":  1.0} '}

    assert shown(answer(content=[spaced])).data == {"content": [spaced]}


def test_text_that_is_no_json_is_masked_whole() -> None:
    done = shown(answer(content=[text(f"Ada, {ADA}")], structuredContent=USER))

    assert done.data == {"content": [text(MASK)], "structuredContent": CLEAN}
    assert done.message == MASK


@pytest.mark.parametrize(
    "said",
    [
        f'"{ADA}"',
        "42",
        f'{{"user": {{"email": "{ADA}", "email": 1}}}}',
        f'{{"user": {{"email": "{ADA}"}}, "n": NaN}}',
        pytest.param("[" * 100_000, id="deep"),
        f'```json\n{{"user": {{"email": "{ADA}"}}}}\n```',
        "",
    ],
)
def test_text_that_cannot_be_looked_at_is_masked_whole(said: str) -> None:
    assert shown(answer(content=[text(said)])).data == {"content": [text(MASK)]}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "QURB", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": f"mail:{ADA}", "text": "{}"}},
        {"type": "resource_link", "uri": f"mail:{ADA}", "name": "Ada"},
        {"type": "text", "text": [ADA]},
        {"type": "text"},
    ],
)
def test_part_that_is_no_text_is_replaced(block: JSON) -> None:
    assert shown(answer(content=[block])).data == {"content": [text(MASK)]}


def test_what_stands_beside_the_text_and_the_content_is_left_out() -> None:
    block: JSON = {**USER, "type": "text", "text": "{}", "_meta": {"mail": ADA}}
    done = shown(answer(content=[block], note=ADA, _meta={"mail": ADA}))

    assert done.data == {"content": [text({})]}


def test_part_that_says_it_in_another_way_than_its_neighbour_is_masked() -> None:
    # How servers wrap a text that they were given: the path leads nowhere in it.
    wrapped: JSON = {"result": json.dumps(USER)}
    done = shown(answer(content=[text(USER)], structuredContent=wrapped))

    assert done.data == {"content": [text(CLEAN)], "structuredContent": MASK}


def test_several_paths_speak_of_the_shapes_of_several_parts() -> None:
    rows: list[JSON] = [{"mail": ADA}, {"mail": ADA}]
    done = answer(
        content=[text(row) for row in rows], structuredContent={"result": rows}
    )

    clean: list[JSON] = [{"mail": MASK}, {"mail": MASK}]
    assert shown(done, "$.mail", "$.result[*].mail").data == {
        "content": [text(row) for row in clean],
        "structuredContent": {"result": clean},
    }


def test_answer_without_that_place_is_left_as_it_is() -> None:
    done = answer(content=[text({"user": None})], structuredContent={"user": None})

    assert shown(done).data == done.data


def test_whole_answer_is_a_place_too() -> None:
    done = shown(answer(content=[text(USER)], structuredContent=USER), "$")

    assert done.data == {"content": [text(MASK)], "structuredContent": MASK}


def test_structured_content_that_is_null_says_nothing() -> None:
    done = shown(answer(content=[text(USER)], structuredContent=None))

    assert done.data == {"content": [text(CLEAN)], "structuredContent": None}


def test_error_of_a_tool_is_cleaned_like_any_answer() -> None:
    done = shown(answer(content=[text(f"no such user: {ADA}")], isError=True))

    assert (done.is_error, done.message) == (True, MASK)


# -- the message -------------------------------------------------------------------


def test_message_is_picked_out_of_what_is_left() -> None:
    options = ToolOptions(message_template="{user.name} <{user.email}>")
    done = answer(options, content=[text(USER)], structuredContent=USER)

    assert done.message == f"Ada <{ADA}>"
    assert shown(done).message == f"Ada <{MASK}>"


def test_message_of_an_empty_answer_is_the_one_of_the_host() -> None:
    done = shown(answer(content=[]))

    assert (done.message, done.data) == ("MCP tool returned no result.", None)


def test_message_that_cannot_be_made_again_is_masked() -> None:
    assert shown(Completed(message=ADA, data=USER)).message == MASK
    assert shown(Completed(message=ADA)).message == MASK
    assert shown(Completed(data=USER)) == Completed(data=CLEAN)


# -- other shapes ------------------------------------------------------------------


def test_blobs_are_not_kept() -> None:
    name: JSON = {"sha256": "00", "bytes": 3, "media_type": "image/png"}
    done = Completed(
        data={"content": [{"type": "image", "data": name}]},
        blobs=({"sha256": "00"},),
        contents={"00": b"ADA"},
    )

    assert shown(done) == Completed(data={"content": [text(MASK)]})
    assert shown(done).contents == {}


def test_digest_of_what_was_cut_is_no_oracle() -> None:
    done = shown(cut(answer(content=[text(USER)], structuredContent=USER)))

    assert (done.data, done.message) == (MASK, "")


@pytest.mark.parametrize("data", [ADA, 7, [ADA], {"content": ADA}])
def test_other_data_is_looked_at_as_a_value(data: JSON) -> None:
    done = shown(Completed(data=data), "$[0]", "$.content")

    assert ADA not in repr(done)
    assert "7" not in repr(done.data)


def deep(levels: int) -> JSON:
    value: JSON = ADA
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "data",
    [
        {"content": [{"type": "text", "text": '{"a": 1, "b": "\\ud800"}'}]},
        {"content": [{"type": "text", "text": '{"a": 1, "b": 1e999}'}]},
        deep(5000),
    ],
)
def test_error_while_looking_masks_the_whole_answer(data: JSON) -> None:
    done = shown(Completed(data=data, message=ADA), "$.a", "$..z")

    assert (done.data, done.message) == (MASK, MASK)  # law 4: it fails closed


@given(
    value=JSON_VALUES.filter(lambda value: "canary" not in repr(value)),
    wrapped=st.booleans(),
    key=st.sampled_from(["secret", "a b", "é"]),
)
def test_what_is_hidden_is_nowhere_in_the_answer(
    *, value: JSON, wrapped: bool, key: str
) -> None:  # law 8
    hidden: dict[str, JSON] = {"rest": value, "row": [{key: "canary"}]}
    structured: JSON = {"result": json.dumps(hidden)} if wrapped else hidden
    done = answer(
        content=[text(hidden), text(f"it is canary, {value}")],
        structuredContent=structured,
    )

    clean = shown(done, f"$.row[*][{key!r}]")

    assert "canary" not in repr((clean.data, clean.message, clean.blobs))
    codec.encode([clean.data, clean.message])


@given(rest=JSON_VALUES, said=st.text(max_size=8), structured=JSON_VALUES)
def test_what_is_hidden_once_is_hidden_and_no_more_the_next_time(
    rest: JSON, said: str, structured: JSON
) -> None:
    hidden: JSON = {"rest": rest, "user": {"email": ADA}}
    whole: JSON = {
        "content": [text(hidden), text(said)],
        "structuredContent": structured,
    }
    once = shown(Completed(data=whole)).data

    assert shown(Completed(data=once)).data == once


@given(
    content=st.lists(st.dictionaries(st.text(max_size=4), JSON_VALUES), max_size=3),
    structured=JSON_VALUES,
)
def test_no_answer_makes_it_fail(content: list[JSON], structured: JSON) -> None:
    data: JSON = {"content": content, "structuredContent": structured}

    codec.encode(shown(Completed(data=data), "$..a").data)
    codec.encode(shown(Completed(data=structured), "$..a").data)


# -- several rules -----------------------------------------------------------------


def rule(name: str = "allow[1]", **terms: object) -> Rule:
    return Rule(id=name, tools=(), **terms)  # type: ignore[arg-type]  # of any kind


def test_of_several_rules_the_strictest_holds() -> None:
    a, b = JsonPath.parse("$.a"), JsonPath.parse("$.b")
    one = rule(timeout=5.0, max_result=10, redact_result=(a,))
    other = rule(timeout=2.0, max_result=20, redact_result=(b, a))

    assert Terms.of([one, other, rule()]) == Terms(
        timeout=2.0, max_result=10, redact=(a, b)
    )
    assert Terms.of([rule()]) == Terms()


def test_rule_without_a_place_changes_nothing() -> None:
    done = answer(content=[text(ADA)], structuredContent=USER)

    assert Terms().conceal(done) is done
