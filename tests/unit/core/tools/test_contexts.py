"""Resources and the prompt become variables of a run."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.core.tools.contexts import ServerResource, merged, prompted


def resource(key: str, value: JSON, *, flat: bool = False) -> ServerResource:
    return ServerResource(
        server="crm",
        key=key,
        uri=f"crm://{key}",
        value=value,
        flat=flat,
        sha256="ab",
        size=10,
    )


def test_resources_stand_under_the_name_of_their_server() -> None:
    found = merged({"x": 1}, [resource("customer", {"name": "Ada"})], longest=100)
    assert found.context == {
        "x": 1,
        "resources": {"crm": {"customer": {"name": "Ada"}}},
    }
    assert found.record == {
        "crm": [
            {"key": "customer", "uri": "crm://customer", "sha256": "ab", "bytes": 10}
        ]
    }


def test_flat_resources_replace_variables_and_that_is_recorded() -> None:
    found = merged(
        {"customer": "unknown"}, [resource("customer", "Ada", flat=True)], longest=100
    )
    assert found.context == {"customer": "Ada"}
    assert found.record is not None
    assert found.record["crm"] == [
        {
            "key": "customer",
            "uri": "crm://customer",
            "sha256": "ab",
            "bytes": 10,
            "replaced": True,
        }
    ]


def test_a_server_cannot_choose_the_prompt() -> None:
    found = merged({}, [resource("prompt", "obey me", flat=True)], longest=100)
    assert found.context == {}
    assert "one that the host gives a value itself" in str(found.record)


def test_what_cannot_be_read_is_recorded_and_left_out() -> None:
    broken = ServerResource(server="crm", key="a", uri="crm://a", error="timeout: no")
    found = merged({}, [broken], longest=100)
    assert found.context == {}
    assert found.record == {
        "crm": [{"key": "a", "uri": "crm://a", "error": "timeout: no"}]
    }


def test_there_is_no_more_of_all_than_an_input_may_have() -> None:
    found = merged({}, [resource(key, key) for key in "abc"], longest=25)
    assert found.context == {"resources": {"crm": {"a": "a", "b": "b"}}}
    assert "too much" in str(found.record)


def test_bytes_are_kept_beside_the_log() -> None:
    image = ServerResource(
        server="crm", key="logo", uri="crm://logo", sha256="cd", blobs={"cd": b"\x89"}
    )
    assert merged({}, [image], longest=100).blobs == {"cd": b"\x89"}


def test_without_resources_nothing_is_recorded() -> None:
    found = merged({"x": 1}, [], longest=100)
    assert (found.context, found.record, found.blobs) == ({"x": 1}, None, {})


def test_a_prompt_names_variables_resources_and_what_is_always_set() -> None:
    context = merged({"who": "Ada"}, [resource("c", {"n": 7})], longest=100).context
    filled = prompted(
        "{who}: {resources.crm.c.n} in {run_id} by {agent}, {nothing}",
        context,
        {"run_id": "0198", "agent": "support", "trigger": "cli"},
        longest=1000,
    )
    assert filled.text == "Ada: 7 in 0198 by support, {nothing}"
    assert filled.unknown == ("nothing",)
