"""
JSON Schema and regular expressions, by the only owner of `jsonschema_rs`.

`core.tools.schemas` bounds its work ahead. Regular expressions are of the kind that
takes linear time, and small; nothing is fetched; what an error says holds no part of
the value that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.tools.schemas import Mismatch, Schema, bounded
from ..errors import BadBytes

if TYPE_CHECKING:
    import jsonschema_rs


#: Bytes of one compiled regular expression.
_PATTERN = 256 * 1024
_SHOWN = 200

#: What a compiled expression may take, in bytes: the first that does is its size.
_SIZES = tuple(1024 * 2**n for n in range(9))
#: With room for that many bytes of states, one look at a character is nearly always
#: enough: 1.4 nanoseconds.
_STATES = 1024 * 1024
#: Size times characters. Without that room, at most 40 milliseconds.
_WORK = 2**28


def check(schema: Schema) -> None:
    """
    See whether *schema* is one.

    Raises:
        BadBytes: It is not, or has a regular expression that cannot be used.
    """
    _validator(schema)


def mismatch(schema: Mapping[str, JSON] | bool, value: JSON) -> Mismatch | None:  # noqa: FBT001 -- true is one
    """
    Return where *value* is not as *schema* wants it, or ``None`` if nowhere.

    Raises:
        BadBytes: It is no schema, or comparing the two would take too long.
    """
    return _compared(*_compiled(json.dumps(schema)), value)


def input_check(
    document: Mapping[str, JSON],
) -> Callable[[JSON], Mismatch | None]:
    """
    Return what compares parameters with the schema of a tool. It never raises.

    What cannot be compared is a mismatch: no call is made whose schema says nothing.

    >>> check = input_check({"required": ["city"]})
    >>> check({"city": "Oslo"})
    >>> check({}).path
    '$'
    """
    text: list[str] = []

    def check(value: JSON) -> Mismatch | None:
        if not text:  # of many tools a run calls few
            text.append(json.dumps(document))
        return _input_mismatch(text[0], value)

    return check


def _input_mismatch(text: str, value: JSON) -> Mismatch | None:
    try:
        return _compared(*_compiled(text), value)
    except BadBytes as exc:
        return Mismatch("$", f"the input schema cannot be used: {exc}")


@lru_cache(maxsize=256)
def _compiled(text: str) -> tuple[Schema, jsonschema_rs.Validator]:
    schema = bounded(json.loads(text))
    return schema, _validator(schema)


def _compared(
    schema: Schema, validator: jsonschema_rs.Validator, value: JSON
) -> Mismatch | None:
    import jsonschema_rs  # noqa: PLC0415 -- 20 ms, only where there is a schema

    if not schema.bears(value):
        raise BadBytes("the value is too large for so large a schema")
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as exc:
        return Mismatch(_path(exc.instance_path), _cut(exc.message))
    return None


def check_pattern(pattern: str) -> None:
    """
    See whether *pattern* is a regular expression that takes linear time.

    Raises:
        BadBytes: It is not, or is too large.
    """
    if _sized(pattern) is None:
        raise BadBytes("is not a regular expression of linear time, or is too large")


def fits(pattern: str, text: str) -> bool | None:
    r"""
    Return whether all of *text* fits *pattern*, or ``None`` if that is in doubt.

    It is if comparing takes too long, or if *text* fits only where ``.`` also matches a
    line break: other programs read it so.

    >>> fits("[a-z]+", "abc"), fits("[a-z]+", "abc!"), fits(".+!", "a\nb!")
    (True, False, None)

    Args:
        pattern: One that `check_pattern` took, once.

        text: Of any length.
    """
    fit = _whole(pattern, text)
    if fit is False and ("\n" in text or "\r" in text):
        return False if _whole(f"(?s:{pattern})", text) is False else None
    return fit


def _whole(pattern: str, text: str) -> bool | None:
    found = _sized(pattern)
    if found is None or len(text) * found[1] > _WORK:
        return None
    return found[0].is_valid(text)


@lru_cache(maxsize=4096)
def _sized(pattern: str) -> tuple[jsonschema_rs.Validator, int] | None:
    """Return what a whole text is compared with, and its size."""
    # By itself first: it might end the group around it.
    if _expression(pattern, _SIZES[-1]) is None:
        return None
    for size in _SIZES:
        if found := _expression(f"^(?:{pattern})$", size):
            return found, size
    return None


def _expression(pattern: str, size: int) -> jsonschema_rs.Validator | None:
    import jsonschema_rs  # noqa: PLC0415 -- as above

    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_STATES)
    try:
        return jsonschema_rs.validator_for(
            {"pattern": pattern}, offline=True, pattern_options=options
        )
    except jsonschema_rs.ValidationError:
        return None


def _validator(schema: Schema) -> jsonschema_rs.Validator:
    import jsonschema_rs  # noqa: PLC0415 -- as above

    try:
        return jsonschema_rs.validator_for(
            schema.document,
            offline=True,
            validate_formats=False,
            mask="the value",
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=_PATTERN, dfa_size_limit=_PATTERN
            ),
        )
    except jsonschema_rs.ValidationError as exc:
        # The value that is wrong is a part of the schema here.
        where = _path(exc.instance_path)
        raise BadBytes(f"it is no JSON Schema: {where}: {_cut(exc.message)}") from None


def _path(parts: list[str | int]) -> str:
    return _cut(
        "$" + "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in parts)
    )


def _cut(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
