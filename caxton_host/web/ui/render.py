"""
Turns documents into pages. Whatever a value holds becomes text.

Characters that cannot be seen, or change how others are seen, are shown by number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.calls import JSON

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent
_IGNORABLE = (
    "\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(rf"[{_IGNORABLE}]|[^\S \n\t]")
_BRIEF = 120


def visible(text: str) -> str:
    r"""
    Return *text* with characters that cannot be seen by number.

    >>> print(visible("to\u202eeve\x1b"), visible("12 °C, d'accord"))
    to\u{202e}eve\u{001b} 12 °C, d'accord
    """
    return "".join(_shown(one) for one in text) if _odd(text) else text


def _odd(text: str) -> bool:
    return not text.isprintable() or _HIDDEN.search(text) is not None


def _shown(char: str) -> str:
    if char in "\n\t":
        return char
    hidden = _HIDDEN.match(char) or unicodedata.category(char)[0] == "C"
    return f"\\u{{{ord(char):04x}}}" if hidden else char


def page(name: str, values: Mapping[str, Any]) -> bytes:
    """Return a page as HTML, by the name of its template."""
    return _environment().get_template(f"{name}.html").render(values).encode()


def form_field(token: str) -> str:
    """Return the hidden field that a form of a visit says."""
    from markupsafe import Markup  # noqa: PLC0415 -- 10 ms

    field = Markup('<input type="hidden" name="form" value="{}">')
    return field.format(token)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 -- 30 ms

    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= _FILTERS
    return made


def _finalized(value: Any) -> Any:  # noqa: ANN401 -- as a template has it
    # Markup is a text as well: its parts were shown already.
    return visible(value) if type(value) is str else value


def _pretty(value: JSON) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _brief(value: JSON) -> str:
    """Return a value in a line."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _cut(" ".join(text[: 2 * _BRIEF].split()), _BRIEF)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def _time(us: int) -> str:
    return f"{_moment(us):%Y-%m-%d %H:%M:%S}"


def _took(ms: float | None) -> str:
    """
    Return a duration.

    >>> [_took(ms) for ms in (None, 0.4, 12, 1500, 90_000, 7_200_000)]
    ['-', '0.4 ms', '12 ms', '1.5 s', '1.5 min', '2 h']
    """
    if ms is None:
        return "-"
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.1g} ms"


def _calls(calls: Mapping[str, int] | None) -> str:
    """
    Return the numbers of calls in words.

    >>> _calls({"total": 3, "ok": 2, "denied": 1, "failed": 0})
    '3: 2 ok, 1 denied'
    """
    if not calls:
        return "-"
    total = calls.get("total", 0)
    parts = [f"{n} {name}" for name, n in calls.items() if n and name != "total"]
    return f"{total}: {', '.join(parts)}" if parts else str(total)


def _light(server: Mapping[str, Any]) -> str:
    if not server.get("host"):
        return "not started"
    if server.get("breaker") == "open":
        return "cut off"
    return str(server.get("state"))


def _clock(us: int) -> str:
    return f"{_moment(us):%H:%M:%S}"


def _iso(us: int) -> str:
    return f"{_moment(us):%Y-%m-%dT%H:%M:%SZ}"


def _micros(us: int | None) -> str:
    return _took(None if us is None else us / 1000)


def _json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def _size(value: JSON) -> int:
    return len(json.dumps(value))


def _short(name: str) -> str:
    # Behind the time, as the runs that answer calls of a run share it.
    return name[:18]


_FILTERS: Mapping[str, Callable[..., object]] = {
    "brief": _brief,
    "calls": _calls,
    "clock": _clock,
    "cut": _cut,
    "iso": _iso,
    "json": _json,
    "light": _light,
    "micros": _micros,
    "pretty": _pretty,
    "short": _short,
    "size": _size,
    "time": _time,
    "took": _took,
}
