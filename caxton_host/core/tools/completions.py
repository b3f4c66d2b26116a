"""
Streamed chat completions, assembled to the one answer that is recorded.

A model that streams sends server-sent events, each with a piece of its message, as the
chat completions of OpenAI define them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from ...errors import BadBytes
from ..calls import JSON

_LINE_END = re.compile(r"\r\n|\r|\n")
_END = "[DONE]"
#: Texts in a piece that are sent whole; some servers repeat them in each piece.
_WHOLE = frozenset({"id", "name", "role", "type"})


class _Pieces(list[str]):
    """The pieces of one text: joined at the end, so that time stays linear."""


class _Items(dict[int, dict[str, Any]]):
    """The items of a list by their ``index``, which may be any number."""


def assembled(stream: str, load: Callable[[str], JSON]) -> dict[str, JSON] | None:
    r"""
    Return the completion in an event stream, or ``None`` if it holds another thing.

    An event with an ``error`` is returned alone.

    >>> import json
    >>> piece = 'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n'
    >>> stream = piece % "It is " + piece % "noon." + "data: [DONE]\n\n"
    >>> assembled(stream, json.loads)["choices"]
    [{'index': 0, 'message': {'content': 'It is noon.'}}]

    Args:
        stream: The whole stream, in the form of the HTML standard.

        load: Returns the value of a JSON text.

    Raises:
        BadBytes: The stream of a completion breaks off.
    """
    whole: dict[str, Any] = {}
    ended = False
    for data in _events(stream):
        if ended := data == _END:
            break
        piece = load(data) if data.startswith("{") else None
        if isinstance(piece, dict) and "error" in piece:
            return {"error": piece["error"]}
        if not _is_piece(piece):
            return None
        _merge(whole, piece, joined=False)
    if not whole:
        return None
    completion: dict[str, Any] = _plain(whole) | {"object": "chat.completion"}
    for choice in completion["choices"]:
        choice["message"] = choice.pop("delta")
    if not ended and not all(one.get("finish_reason") for one in completion["choices"]):
        raise BadBytes("the stream of the completion breaks off")
    return completion


def _events(stream: str) -> Iterator[str]:
    data: list[str] = []
    for line in [*_LINE_END.split(stream), ""]:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data.clear()


def _is_piece(piece: JSON) -> TypeGuard[dict[str, JSON]]:
    choices = piece.get("choices") if isinstance(piece, dict) else None
    return isinstance(choices, list) and all(
        isinstance(choice, dict)
        and isinstance(choice.get("delta"), dict)
        and type(choice.get("index")) is int
        for choice in choices
    )


def _merge(into: dict[str, Any], piece: Mapping[str, JSON], *, joined: bool) -> None:
    """Add a *piece*; texts are *joined* within a message and replaced elsewhere."""
    for key, value in piece.items():
        held = into.get(key)
        match value:
            case None if held is not None:
                pass
            case str() if joined and key not in _WHOLE:
                pieces = held if isinstance(held, _Pieces) else _Pieces()
                pieces.append(value)
                into[key] = pieces
            case dict():
                into[key] = held if type(held) is dict else {}
                _merge(into[key], value, joined=joined or key == "delta")
            case list():
                into[key] = _added(held, value, joined=joined)
            case _:
                into[key] = value


def _added(held: Any, items: list[JSON], *, joined: bool) -> Any:  # noqa: ANN401 -- what is merged
    if type(held) is list:
        return [*held, *items]
    kept = held if isinstance(held, _Items) else _Items()
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(index, int):
            return items
        _merge(kept.setdefault(index, {}), item, joined=joined)
    return kept


def _plain(value: JSON | _Pieces | _Items) -> Any:  # noqa: ANN401 -- JSON
    match value:
        case _Pieces():
            return "".join(value)
        case _Items():
            return [_plain(value[index]) for index in sorted(value)]
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case _:
            return value
