"""What an answer of a tool says: its structured content, or its texts of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NoReturn

from ..calls import JSON

STRUCTURED = "structuredContent"


def said(block: JSON) -> str:
    """Return the text of a block, or ``""`` if it is not a text."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return ""
    return str(block.get("text"))


def parsed(text: str) -> JSON:
    """
    Return the value of a text of JSON.

    Raises:
        ValueError: It is not JSON, or readers would differ about its value.
    """
    try:
        value: JSON = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number
        )
    except RecursionError:
        raise ValueError from None
    return value


def held(text: str) -> JSON:
    """Return the value of a text of JSON; the text itself if it is not JSON."""
    try:
        return parsed(text)
    except ValueError:
        return text


def values_of(data: JSON) -> list[JSON]:
    """Return the values in which paths of an answer are followed."""
    if not isinstance(data, dict):
        return []
    if STRUCTURED in data:
        return [data[STRUCTURED]]
    return [*in_texts(data)]


def in_texts(data: dict[str, JSON]) -> Iterator[JSON]:
    """Yield the values of the texts of an answer that are JSON."""
    content = data.get("content")
    for block in content if isinstance(content, list) else []:
        try:
            yield parsed(said(block))
        except ValueError:
            continue


def _once(pairs: list[tuple[str, JSON]]) -> JSON:
    """Return an object. Duplicate names are refused: readers differ in their choice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _no_number(_: str) -> NoReturn:
    raise ValueError
