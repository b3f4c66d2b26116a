"""A search among tools, for clients of which a list of all would ask too much."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

_WORD = re.compile(r"[^\W_]+")
#: A word of a name counts as much as so many of a description.
_IN_NAME = 4
#: Words of a query that count: a search takes its time from all clients of a host.
_WORDS = 16


def best(
    query: str, tools: Sequence[Mapping[str, Any]], most: int
) -> list[Mapping[str, Any]]:
    """
    Return the tools that a query may mean, the likeliest first.

    A tool counts for each word of the query that begins a word of its name, title or
    description; a word that few tools have counts more.

    >>> tools = [
    ...     {"name": "mail__send", "description": "Send a message."},
    ...     {"name": "mail__list", "description": "List the messages of a folder."},
    ... ]
    >>> [tool["name"] for tool in best("send mail", tools, 5)]
    ['mail__send', 'mail__list']

    Args:
        query: Words, in any order and case; only the first 16 count.

        tools: Definitions of tools, as MCP has them.

        most: How many to return.
    """
    wanted = {*_words(query)[:_WORDS]}
    counts = [_counted(tool) for tool in tools]
    found = [
        {
            word: sum(n for has, n in count.items() if has.startswith(word))
            for word in wanted
        }
        for count in counts
    ]
    among = Counter(word for one in found for word, n in one.items() if n)
    scores = [
        sum(n**0.5 * log(1 + len(tools) / among[word]) for word, n in one.items() if n)
        for one in found
    ]
    ranked = sorted(
        (-score, number) for number, score in enumerate(scores) if score > 0
    )
    return [tools[number] for _, number in ranked[:most]]


def _counted(tool: Mapping[str, Any]) -> Counter[str]:
    count = Counter(dict.fromkeys(_words(tool["name"]), _IN_NAME))
    count.update(_words(f"{tool.get('title') or ''} {tool.get('description') or ''}"))
    return count


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
