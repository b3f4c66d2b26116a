"""``SERVER/TOOL`` and ``KEY=VALUE`` as typed, read by the schema of a tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ..core.calls import JSON
from ..core.names import nearest
from ..errors import BadBytes, UsageError
from .codec import load_json

_LIMIT = 1024 * 1024
_DEPTH = 8

_KINDS: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def split(tool: str) -> tuple[str, str]:
    """Return the two parts of ``SERVER/TOOL``."""
    server, slash, name = tool.partition("/")
    if not slash:
        raise UsageError(f"{tool!r} is not SERVER/TOOL", fix="caxton tool list")
    return server, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """
    Parameters as they were typed: one JSON map, or a text for each key.

    >>> schema = {"properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    >>> Words.read(["id=42", "n=42", "rest=42"]).params(schema)
    {'id': '42', 'n': 42, 'rest': 42}
    """

    whole: Mapping[str, JSON] | None = None
    texts: Mapping[str, str]

    @classmethod
    def read(cls, words: Sequence[str]) -> Words:
        """
        Parse *words* without a schema.

        Raises:
            UsageError: A word is no parameter.
        """
        if len(words) == 1 and words[0].startswith("{"):
            try:
                whole = load_json(words[0], limit=_LIMIT)
            except BadBytes as exc:
                why = f"the parameters: {exc}"
                raise UsageError(why, fix="pass a JSON map") from None
            assert isinstance(whole, dict)  # noqa: S101 -- it starts with a brace
            return cls(whole=whole, texts={})
        texts: dict[str, str] = {}
        for word in words:
            key, equals, text = word.partition("=")
            if not equals or not key:
                raise UsageError(
                    f"{word!r} is not KEY=VALUE", fix="write KEY=VALUE, or one JSON map"
                )
            if key in texts:
                raise UsageError(f"{key} is given twice", fix="write it once")
            texts[key] = text
        return cls(texts=texts)

    def params(self, schema: Mapping[str, JSON]) -> dict[str, JSON]:
        """
        Return the parameters by a schema; a map is sent as it is.

        A text is read by the type in the schema: a string stays one even if it looks
        like a number. Without a type it is JSON if it parses as JSON, else text.

        Raises:
            UsageError: One is not of its type, unknown, or missing.
        """
        if self.whole is not None:
            return dict(self.whole)
        found = {key: _value(key, text, schema) for key, text in self.texts.items()}
        required = schema.get("required")
        for key in required if isinstance(required, list) else []:
            if isinstance(key, str) and key not in found:
                _check_typo(key, found, schema)
                raise UsageError(f"{key} is missing", fix=f"add {key}=VALUE")
        return found


def _check_typo(missing: str, found: Iterable[str], schema: Mapping[str, JSON]) -> None:
    """
    Return if no unknown parameter looks like the *missing* one.

    Raises:
        UsageError: One does.
    """
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    if typo := nearest(missing, [key for key in found if key not in known]):
        raise UsageError(
            f"the tool has no parameter {typo!r}, and {missing} is missing",
            fix=f"write {missing}=VALUE instead",
        )


def _value(key: str, text: str, schema: Mapping[str, JSON]) -> JSON:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    if key not in known and schema.get("additionalProperties") is False:
        meant = nearest(key, [*known])
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"the tool has no parameter {key!r}; it has: {names}",
            fix=f"write {meant}=VALUE" if meant else "give one of these",
        )
    types = types_of(known.get(key), schema)
    value, reads = _read(text)
    if not types:
        return value if reads else text
    if reads and any(_is(value, kind) for kind in types):
        whole = isinstance(value, float) and "number" not in types
        return int(cast("float", value)) if whole else value
    if "string" in types:
        return text
    wanted = " or ".join(types)
    # What was given may be a secret, so it is not shown.
    raise UsageError(
        f"{key} wants {wanted}", fix=f"write for example {_example(key, types[0])}"
    )


def _read(text: str) -> tuple[JSON, bool]:
    try:
        return load_json(text, limit=_LIMIT), True
    except BadBytes:
        return None, False


def _is(value: JSON, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, ()))


def _example(key: str, kind: str) -> str:
    values = {"boolean": "true", "array": "'[...]'", "object": "'{...}'"}
    return f"{key}={values.get(kind, '1')}"


def types_of(part: JSON, root: Mapping[str, JSON]) -> list[str]:
    """
    Return the types that a part of a schema allows; empty without a type.

    >>> types_of({"anyOf": [{"type": "string"}, {"type": "null"}]}, {})
    ['string', 'null']
    """
    return list(dict.fromkeys(_types(part, root, _DEPTH)))


def _types(part: JSON, root: Mapping[str, JSON], depth: int) -> Iterator[str]:
    if not isinstance(part, dict) or not depth:
        return
    told = part.get("type")
    if told is not None:
        yield from (str(kind) for kind in (told if isinstance(told, list) else [told]))
        return
    values = part.get("enum", [part["const"]] if "const" in part else None)
    if isinstance(values, list):
        yield from map(_type_of, values)
        return
    yield from _types(_referred(part.get("$ref"), root), root, depth - 1)
    for word in ("anyOf", "oneOf"):
        choices = part.get(word)
        for choice in choices if isinstance(choices, list) else []:
            yield from _types(choice, root, depth - 1)


def _type_of(value: JSON) -> str:
    kinds = ("boolean", "integer", "number", "null", "array", "object")
    return next((kind for kind in kinds if _is(value, kind)), "string")


def _referred(ref: JSON, root: Mapping[str, JSON]) -> JSON:
    """Return what a reference within the same schema means."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    part: JSON = dict(root)
    for name in ref[2:].split("/"):
        part = part.get(name) if isinstance(part, dict) else None
    return part
