"""
JSON Schema, by the only owner of `jsonschema_rs`.

Its work is bounded ahead by `core.schemas`. Regular expressions are of the kind that
takes linear time, and small; nothing is fetched; what an error says holds no part of
the value that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .core.calls import JSON
from .core.schemas import Schema
from .errors import BadBytes

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["Mismatch", "check", "mismatch"]

#: Bytes of one compiled regular expression.
_PATTERN = 256 * 1024
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Mismatch:
    """
    The first part of a value that its schema does not allow.

    Attributes:
        path: Where it is, as a JSON path: ``$.location``.

        reason: What is wrong with it, without its value.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def check(schema: Schema) -> None:
    """
    See whether *schema* is one.

    Raises:
        BadBytes: It is not, or has a regular expression that cannot be used.
    """
    _validator(schema)


def mismatch(schema: Schema, value: JSON) -> Mismatch | None:
    """
    Return where *value* is not as *schema* wants it, or ``None`` if nowhere.

    Raises:
        BadBytes: It is no schema, or comparing the two would take too long.
    """
    import jsonschema_rs  # noqa: PLC0415 -- 20 ms, only where there is a schema

    if not schema.bears(value):
        raise BadBytes("the value is too large for so large a schema")
    try:
        _validator(schema).validate(value)
    except jsonschema_rs.ValidationError as exc:
        return Mismatch(_path(exc.instance_path), _cut(exc.message))
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
