"""
Measure the cost of a decision that asks where a value came from.

The run has 1,000 answers with 10 MB of text, whose words are as frequent as those of a
language.
Times are processor time, as for the other decisions.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from hashlib import shake_256
from pathlib import Path

from caxton_host.core.calls import JSON, Route
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import Attempt, Tally, decide
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import RunStarted, ToolCompleted, ToolInvoked
from caxton_host.core.provenance import Sources
from caxton_host.core.text.globs import Pattern

from .decisions import times
from .page import Figure, Section

_ANSWERS, _WORDS, _VOCABULARY = 1_000, 1_500, 20_000
_EACH = 500
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FROM: JSON = {
    "from": ["input", "files/read$.people[*].email"],
    "mention": {"tool": "files/read", "param": "path"},
}
_ROUTE = Route(server="mail", tool="send")


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure decisions about sources."""
    del folder, options
    rule = Rule(
        id="allow[1]",
        tools=(Pattern.parse("mail/send"),),
        params=Conditions.parse({"to": _FROM}),
    )
    grant = Grant(allow=(rule,))
    answers = [_answer(n, _words(f"answer {n}", _WORDS)) for n in range(_ANSWERS)]
    tracemalloc.start()
    sources = Sources(grant.wanted, 2**26)
    folds = times(_folding(sources, answers))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    text = sum(len(str(answer)) for answer in answers)

    def deciding(value: JSON) -> Callable[[], object]:
        attempt = Attempt(route=_ROUTE, params={"to": value}, sources=sources)
        return lambda: decide(grant, attempt, Tally())

    def measured(values: Sequence[JSON]) -> list[int]:
        # A value that was asked for is known until the next event.
        return times(
            deciding(value)
            for value in {str(value): value for value in values}.values()
        )

    kinds: dict[str, list[JSON]] = {
        "an address in an answer": [
            f"p{n}.{k % 20}@x.example" for n in range(0, _ANSWERS, 10) for k in range(5)
        ],
        "an address that is nowhere": [f"q{n}@y.example" for n in range(_EACH)],
        "a word": [*_words("one", _EACH)],
        "three common words": [" ".join(_words(f"{n}", 3)) for n in range(_EACH)],
        "an amount": [n * 1_001 + 0.5 for n in range(_EACH)],
        "a day": [
            f"20{n % 30 + 10}-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(_EACH)
        ],
        "64 KiB": [(word * 65_536)[:65_536] for word in _words("long", 50)],
    }
    found = {kind: measured(values) for kind, values in kinds.items()}
    every = sorted(one for each in found.values() for one in each)
    figures = [
        Figure("all, median", [_at(every, 0.5)], "ms", (0.5, False)),
        Figure("all, worst", [every[-1] / 1e6], "ms", (20.0, False)),
        *(
            Figure(f"{kind}, median", [_at(each, 0.5)], "ms")
            for kind, each in found.items()
        ),
        Figure("index, as a share of the text", [size / text], "", (2.0, False)),
        Figure("an answer of 10 KB, indexed", [_at(folds, 0.5)], "ms"),
    ]
    return Section(
        "provenance",
        "Decisions about sources",
        f"A rule with `from` and `mention`, after {_ANSWERS:,} answers with "
        f"{text / 1e6:.0f} MB of text. The index is measured without the text, which "
        "the run keeps anyway. Times are processor time; indexing is timed while "
        "memory is traced, which takes several times as long.",
        figures,
    )


def _words(seed: str, count: int) -> list[str]:
    """Return words; the second is half as frequent as the first, and so on."""
    drawn = shake_256(seed.encode()).digest(4 * count)
    shares = (int.from_bytes(drawn[n : n + 4]) / 2**32 for n in range(0, 4 * count, 4))
    return [_word(int(_VOCABULARY**share)) for share in shares]


@cache
def _word(rank: int) -> str:
    drawn = shake_256(f"{rank}".encode()).digest(12)
    return "".join(_LETTERS[byte % 26] for byte in drawn[: 2 + drawn[11] % 9])


def _at(sorted_times: Sequence[int], share: float) -> float:
    return sorted_times[int(len(sorted_times) * share)] / 1e6


def _answer(number: int, words: Sequence[str]) -> dict[str, JSON]:
    people: list[JSON] = [{"email": f"p{number}.{k}@x.example"} for k in range(20)]
    return {"structuredContent": {"people": people, "text": " ".join(words)}}


def _folding(
    sources: Sources, answers: Sequence[dict[str, JSON]]
) -> Iterator[Callable[[], object]]:
    sources.apply(_STARTED)
    for call, data in enumerate(answers, 1):
        sources.apply(_invoked(call))
        done = ToolCompleted(call=call, is_error=False, message="", data=data)
        yield partial(sources.apply, done)


def _invoked(call: int) -> ToolInvoked:
    place: JSON = {"call": 0, "path": "$", "source": "input"}
    return ToolInvoked(
        call=call,
        name="read",
        server="files",
        tool="read",
        params={"path": "docs", "line": call},
        params_sha256="",
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
        sources={"$.path": [place]},
    )


_STARTED = RunStarted(
    agent="a",
    actor={},
    module_sha256="",
    abi="core/1",
    entry="run",
    input="Read docs",
    context={},
    limits={},
    seed="",
    grants={},
    grants_sha256="",
    catalogue={},
    servers={},
    host=None,
    engine="",
)
