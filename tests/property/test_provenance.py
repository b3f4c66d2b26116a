"""Sources of values: the index says what a slow and obvious comparison says."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.provenance import Sources, Wanted, stands
from caxton_host.core.provenance.matching import (
    DELIMITERS,
    ENDINGS,
    token_keys,
    traces,
    ways,
    word_keys,
)
from caxton_host.core.provenance.texts import Texts
from tests.provenance.runs import completed, invoked, started

#: Numbers with fewer digits are judged otherwise than texts.
PARTS = [*"ab,,.'s \n(-:!’é", "1234"]  # noqa: RUF001
TEXTS = st.lists(st.sampled_from(PARTS), max_size=24).map("".join)
NEEDLES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join)

AMOUNTS = st.integers(-3_000_000, 3_000_000).map(lambda n: n / 100)
FORMS = (
    "{0}",
    "{0:,}",
    "${0:,.2f}",
    "{0:.1f}€",
    "+{0}",
    "-{0}",
    "x{0}",
    "{0}.",
    "({0})",
)
DAYS = st.dates(dt.date(2000, 1, 1), dt.date(2002, 12, 31))
WRITTEN = (
    "%Y-%m-%d",
    "%B %-d",
    "%-d %b %Y",
    "%b %-d, %Y",
    "%-dth of %B",
    "%Y-%m-%dT10:00",
)


def delimits(text: str, at: int) -> bool:
    if at < 0 or at >= len(text):
        return True
    if text[at] == ",":
        digits = text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
        return not (len(digits) == 2 and digits.isdecimal())
    return text[at] in DELIMITERS or text[at].isspace()


def opens(text: str, at: int) -> bool:
    quoted = at > 0 and text[at - 1] in "'’" and delimits(text, at - 2)  # noqa: RUF001
    return delimits(text, at - 1) or quoted


def closes(needle: str, text: str, at: int) -> bool:
    owned = needle[-1].isalnum() and not needle.endswith(("'s", "’s"))  # noqa: RUF001
    for suffix in ("", "'s", "’s") if owned else ("",):  # noqa: RUF001
        rest = text[at:]
        if not rest.startswith(suffix):
            continue
        tail = rest[len(suffix) :]
        endings = tail[: len(tail) - len(tail.lstrip(ENDINGS))]
        end = at + len(suffix) + len(endings)
        dots = (suffix + endings).replace("...", "")
        if len(suffix + endings) <= 8 and ".." not in dots and delimits(text, end):
            return True
    return False


def obvious(needle: str, text: str) -> bool:
    if not any(
        char not in ENDINGS and not delimits(needle, n) for n, char in enumerate(needle)
    ):
        return False
    return any(
        text.startswith(needle, at)
        and opens(text, at)
        and closes(needle, text, at + len(needle))
        for at in range(len(text))
    )


@given(NEEDLES, TEXTS)
def test_text_stands_where_a_slow_comparison_finds_it(needle: str, text: str) -> None:
    assert (stands(needle, text) >= 0) == obvious(needle, text)


@given(NEEDLES, st.lists(TEXTS, max_size=8))
def test_index_finds_what_a_search_of_every_text_finds(
    needle: str, texts: list[str]
) -> None:
    index = Texts[int](token_keys)
    for number, text in enumerate(texts):
        index.add(text, number)

    slow = (n for n, text in enumerate(texts) if stands(needle, text) >= 0)
    assert index.find(ways(needle) or ()) == next(slow, None)


@given(value=AMOUNTS, other=AMOUNTS, form=st.sampled_from(FORMS), same=st.booleans())
def test_index_knows_every_notation_of_a_number(
    *, value: float, other: float, form: str, same: bool
) -> None:
    text = f"pay {form.format(value if same else other)} today"
    index = Texts[int](token_keys)
    index.add(text, 1)

    assert (index.find(ways(value) or ()) == 1) == (stands(value, text) >= 0)


@given(day=DAYS, other=DAYS, form=st.sampled_from(WRITTEN), same=st.booleans())
def test_index_knows_every_notation_of_a_date(
    *, day: object, other: object, form: str, same: bool
) -> None:
    text = f"on {format(day if same else other, form)}."
    index = Texts[int](token_keys)
    index.add(text, 1)

    assert (index.find(ways(str(day)) or ()) == 1) == (stands(str(day), text) >= 0)


@given(NEEDLES, st.lists(TEXTS, max_size=8))
def test_echo_is_found_wherever_a_value_is_not_a_part_of_a_word(
    needle: str, texts: list[str]
) -> None:
    index = Texts[int](word_keys)
    for number, text in enumerate(texts):
        index.add(text.casefold(), number)

    def has(text: str) -> bool:
        low = needle.casefold()
        return any(
            text.startswith(low, at)
            and not (low[0].isalnum() and text[at - 1 : at].isalnum())
            and not (
                low[-1].isalnum() and text[at + len(low) : at + len(low) + 1].isalnum()
            )
            for at in range(len(text))
        )

    slow = (n for n, text in enumerate(texts) if has(text.casefold()))
    assert index.find(traces(needle) or ()) == next(slow, None)


@dataclass(frozen=True)
class Call:
    wrote: str
    checked: bool
    answer: list[JSON]


IDS = st.sampled_from(["aaaa", "bbbb", "cccc", 1250, 12.5, 7, True])
CALLS = st.builds(
    Call, st.sampled_from(["aaaa", "x bbbb", "", "1250"]), st.booleans(), st.lists(IDS)
)


@settings(max_examples=60)
@given(st.lists(CALLS, max_size=5), st.text("abc ", max_size=9))
def test_run_has_the_sources_that_its_events_say(calls: list[Call], text: str) -> None:
    wanted = Wanted.parse(["input", "t/read$.ids[*]"], None, ("from",))
    sources = Sources([wanted], 2**20)
    sources.apply(started(text))
    written: list[str] = []
    known: set[tuple[type, JSON]] = set()
    for number, call in enumerate(calls, 1):
        checked = ["q"] if call.checked else []
        sources.apply(invoked(number, "t/read", {"q": call.wrote}, checked))
        sources.apply(completed(number, {"structuredContent": {"ids": call.answer}}))
        written += [] if call.checked else call.wrote.split()
        known |= {(type(one), one) for one in call.answer if str(one) not in written}

    for value in ("aaaa", "bbbb", "cccc", 1250, 12.5, 7, True):
        expected = (type(value), value) in known or stands(value, text) >= 0
        assert sources.find(value, wanted).holds is expected
