"""A webhook fills parameters into its URL, and never changes where that leads."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.tools.webhooks import Webhook, placeholders
from caxton_host.errors import UsageError

HOOK = Webhook(name="w", url="https://x.example/{city}?unit={unit}")


@pytest.mark.parametrize(
    ("params", "url"),
    [
        ({"city": "New York/..", "unit": "a&b=c"}, "New%20York%2F..?unit=a%26b%3Dc"),
        ({"city": 3, "unit": ""}, "3?unit="),
        ({"city": True, "unit": False}, "true?unit=false"),
    ],
)
def test_values_are_encoded(params: dict[str, JSON], url: str) -> None:
    assert HOOK.fill(params) == (f"https://x.example/{url}", {})


def test_parameters_that_the_url_does_not_use_are_returned() -> None:
    plain = Webhook(name="w", url="https://x.example/{city}")

    assert plain.fill({"city": "Oslo", "n": 1}) == ("https://x.example/Oslo", {"n": 1})
    assert plain.origin == "https://x.example"


def test_answers_are_read_by_the_options_of_the_webhook() -> None:
    hook = Webhook(
        name="w", url="https://x.example/", message_field="a", reply="message"
    )

    assert (hook.options.message_field, hook.options.reply) == ("a", "message")


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "'city' is missing"),
        ({"city": ["Oslo"]}, "'city' is not a text or a number"),
        ({"city": ""}, "'city' is empty"),
        ({"city": ".."}, "a path of its own"),
    ],
)
def test_value_that_cannot_be_part_of_the_url_is_refused(
    params: dict[str, JSON], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        HOOK.fill({"unit": "C", **params})


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://{host}/a", "not allowed in the host"),
        ("https://x.example/{", "not part of a placeholder"),
    ],
)
def test_url_with_a_misplaced_brace_is_refused(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        placeholders(url)
