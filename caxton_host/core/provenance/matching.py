"""
Where a value stands in a text: exactly, between delimiters.

A token is the text between two delimiters. Some characters are delimiters wherever they
stand; others only where no token goes on behind them: the full stop of ``bob.`` but not
that of ``bob.com``. No case is folded, nothing is normalised, and no part of a token
counts.

A `Way` is one notation of a value. It has keys that every text with it has as well, by
which `texts` finds the few texts that are worth a search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import TypeAlias
from zlib import crc32

from ..calls import JSON
from ..text.redact import MASK

#: Longest text, in characters, that is looked for in texts.
MAX_LENGTH = 64 * 1024
#: Places of a text that are looked at for one value. Common words have more.
TRIES = 4096

#: Delimiters wherever they stand, besides white space. A comma is one, but not between
#: two digits.
DELIMITERS = '"`()[]{}<>;|¡¿«»‘“”„‹›—…、。《》「」『』【】〈〉〔〕！（），：；？'  # noqa: RUF001
#: Delimiters where no token goes on behind them.
ENDINGS = ".:!?'’"  # noqa: RUF001
_QUOTES = "'’"  # noqa: RUF001
_MAX_ENDINGS = 8
#: Signs that may stand beside a number, and do not change it.
CURRENCIES = "$€£¥₹₩₽₺₴"
_SIGNS = {"+": "", "-": "-", "−": "-"}  # noqa: RUF001
#: Numbers with fewer digits are in every text.
MIN_DIGITS = 4
_MAX_DIGITS = 40
#: Of the tokens of a value.
_MAX_KEYS = 64
_LARGEST = 10**_MAX_DIGITS

_CLASS = rf"\s{re.escape(DELIMITERS)}"
_TOKEN = re.compile(rf"[^,{_CLASS}]+(?:(?<=\d),(?=\d)[^,{_CLASS}]+)*")
_WORD = re.compile(r"[^\W_]+")
_DIGIT = re.compile(r"[0-9]")
_NUMBER = re.compile(
    rf"([+\-−]?)[{CURRENCIES}]?([+\-−]?)"  # noqa: RUF001
    rf"([0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]+)(?:\.([0-9]+))?[{CURRENCIES}]?"
)

#: Returns where a value stands in a text, or -1, and how many tries are left.
Search: TypeAlias = Callable[[str, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Way:
    """
    One notation of a value.

    Attributes:
        keys: Each text that has it has all of these.

        part: And this, as it is written here.
    """

    keys: tuple[int, ...]
    search: Search
    part: str


def stands(value: JSON, text: str) -> int:
    """
    Return where *value* first stands in a free text, or -1.

    >>> stands("bob", "Ask bob. Not bob@x.com."), stands("bob", "bob@x.com")
    (4, -1)
    >>> stands(1250, "a bill of $1,250.00"), stands("2022-03-04", "on March 4th")
    (10, 3)
    """
    places = [way.search(text, TRIES)[0] for way in ways(value) or ()]
    return min((place for place in places if place >= 0), default=-1)


def ways(value: JSON) -> tuple[Way, ...] | None:
    """
    Return the notations of a value in free texts; ``None``: it cannot be judged.

    A text that is too long, or that was masked, cannot be judged. There is no notation
    of a truth value, null, a short number or a text of delimiters: they count only as
    a whole, at a named path.
    """
    if isinstance(value, str):
        if len(value) > MAX_LENGTH or MASK in value:
            return None
        bare = _keys_of(_bare_tokens(value))
        if not bare or _is_short(value):
            return ()
        return (Way(bare, _exactly(value), value), *_dated(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ()
    return _numbered(value)


def traces(value: JSON) -> tuple[Way, ...] | None:
    """
    Return the notations in which a value may have been given to a tool.

    They are wider than `ways`: case does not count, and anything but a letter or a
    digit is a delimiter.
    """
    text = folded(value)
    if len(text) > MAX_LENGTH:
        return None
    texts = {text: None}
    if isinstance(value, int | float) and not isinstance(value, bool):
        texts |= dict.fromkeys(_notations(value))
    return tuple(
        Way(_keys_of(word[0] for word in _WORD.finditer(text)), _loosely(text), text)
        for text in texts
        if text
    )


def folded(value: JSON) -> str:
    """Return a value as the text in which `traces` are looked for."""
    return str(value).casefold()


def token_keys(text: str) -> set[int]:
    """Return the keys of a text, for `ways`."""
    tokens = set(map(_bare, set(_TOKEN.findall(text))))
    keys = set(map(_key, tokens))
    for token in filter(_DIGIT.search, tokens):
        if number := _canonical(token):
            keys.add(_key(number))
        if _ISO.match(token):
            keys.add(_key(token[:10]))
    return keys


def word_keys(text: str) -> set[int]:
    """Return the keys of a text, for `traces`."""
    return set(map(_key, set(_WORD.findall(text))))


def _keys_of(tokens: Iterator[str]) -> tuple[int, ...]:
    return tuple({_key(token) for token in islice(tokens, _MAX_KEYS)})


def _key(token: str) -> int:
    """Return 32 bits: the same in every process, since decisions depend on them."""
    return crc32(token.encode("utf-8", "surrogatepass"))


# -- tokens --------------------------------------------------------------------


def _bare_tokens(text: str) -> Iterator[str]:
    """Yield the tokens of a text without the endings around them."""
    return filter(None, (_bare(found[0]) for found in _TOKEN.finditer(text)))


def _bare(token: str) -> str:
    bare = token.rstrip(ENDINGS)
    if bare[-2:-1] in _QUOTES and bare[-1:] == "s" and bare[-3:-2].isalnum():
        bare = bare[:-2]
    return bare.lstrip(ENDINGS)


def _delimits(text: str, at: int) -> bool:
    """Return whether the character there is a delimiter wherever it stands."""
    if not 0 <= at < len(text):
        return True
    char = text[at]
    if char == ",":
        return not (text[at - 1 : at].isdecimal() and text[at + 1 : at + 2].isdecimal())
    return char in DELIMITERS or char.isspace()


def _begins(text: str, at: int) -> bool:
    """Return whether a token may begin there; an apostrophe may open a quotation."""
    if _delimits(text, at - 1):
        return True
    return text[at - 1] in _QUOTES and _delimits(text, at - 2)


def _ends(text: str, at: int) -> bool:
    """Return whether a token may end there: before endings, or a possessive s."""
    if _delimits(text, at):
        return True
    end = at
    if text[at] in _QUOTES and text[at + 1 : at + 2] == "s" and text[at - 1].isalnum():
        owned = text[at - 2 : at - 1] in _QUOTES and text[at - 1] == "s"
        end += 0 if owned else 2
    while end < min(len(text), at + _MAX_ENDINGS) and text[end] in ENDINGS:
        end += 1
    # Two full stops lead to another folder; three are a pause.
    away = ".." in text[at:end].replace("...", "")
    return not away and _delimits(text, end)


def _exactly(needle: str) -> Search:
    def search(text: str, tries: int) -> tuple[int, int]:
        at = text.find(needle)
        while at >= 0 and tries > 0:
            if _begins(text, at) and _ends(text, at + len(needle)):
                return at, tries
            tries -= 1
            at = text.find(needle, at + 1)
        return -1, tries

    return search


def _loosely(needle: str) -> Search:
    """Search for *needle*, which no letter and no digit continues."""
    first, last = needle[0].isalnum(), needle[-1].isalnum()

    def search(text: str, tries: int) -> tuple[int, int]:
        at = text.find(needle)
        while at >= 0 and tries > 0:
            end = at + len(needle)
            if not (
                (first and text[at - 1 : at].isalnum())
                or (last and text[end : end + 1].isalnum())
            ):
                return at, tries
            tries -= 1
            at = text.find(needle, at + 1)
        return -1, tries

    return search


# -- numbers -------------------------------------------------------------------


def _plain(value: float) -> tuple[str, str, str] | None:
    """Return the sign, the digits and the decimals of a number."""
    if not -_LARGEST < value < _LARGEST:
        return None
    whole, _, decimals = f"{Decimal(repr(value)):f}".lstrip("-").partition(".")
    return "-" if value < 0 else "", whole, decimals.rstrip("0")


def _notations(value: float) -> list[str]:
    """Return the notations of a number, without a sign."""
    found = _plain(value)
    if found is None:
        return []
    _, whole, decimals = found
    ends = [decimals and f".{decimals}"]
    ends += [f".{decimals:0<{size}}" for size in (1, 2) if size > len(decimals)]
    texts = [
        form + end
        for form in dict.fromkeys((whole, f"{int(whole):,}"))
        for end in dict.fromkeys(ends)
    ]
    # In some countries, a full stop before three digits groups them.
    return [text for text in texts if len(decimals) != 3 or len(whole) > 3]  # noqa: PLR2004


def _numbered(value: float) -> tuple[Way, ...]:
    found = _plain(value)
    if found is None:
        return ()
    sign, whole, decimals = found
    if not MIN_DIGITS <= _digits(whole, decimals) <= _MAX_DIGITS:
        return ()
    key = _key(_joined(sign, whole, decimals))
    return tuple(Way((key,), _beside(sign, form), form) for form in _notations(value))


def _digits(whole: str, decimals: str) -> int:
    return len((whole + decimals).lstrip("0"))


def _joined(sign: str, whole: str, decimals: str) -> str:
    # No token begins so.
    return f" {sign}{whole}.{decimals}"


def _canonical(token: str) -> str:
    """Return the number that a token is, or ``""``."""
    found = _NUMBER.fullmatch(token) if len(token) <= 2 * _MAX_DIGITS else None
    if not found:
        return ""
    sign = _SIGNS.get(found[1] or found[2], "")
    whole = found[3].replace(",", "").lstrip("0") or "0"
    return _joined(sign, whole, (found[4] or "").rstrip("0"))


def _is_short(text: str) -> bool:
    found = _NUMBER.fullmatch(text) if len(text) <= _MAX_DIGITS else None
    if not found:
        return False
    whole, decimals = found[3].replace(",", ""), (found[4] or "").rstrip("0")
    return _digits(whole, decimals) < MIN_DIGITS


def _beside(sign: str, form: str) -> Search:
    """Search for a number, with its sign and that of a currency beside it."""

    def search(text: str, tries: int) -> tuple[int, int]:
        at = text.find(form)
        while at >= 0 and tries > 0:
            begin, end = at, at + len(form)
            signs = ""
            while begin and text[begin - 1] in CURRENCIES + "+-−" and at - begin < 2:  # noqa: PLR2004, RUF001
                begin -= 1
                signs += text[begin]
            written = [_SIGNS[char] for char in signs if char in _SIGNS]
            money = len(signs) - len(written)
            if end < len(text) and text[end] in CURRENCIES:
                end, money = end + 1, money + 1
            right = len(written) <= 1 and money <= 1 and "".join(written) == sign
            if right and _begins(text, begin) and _ends(text, end):
                return begin, tries
            tries -= 1
            at = text.find(form, at + 1)
        return -1, tries

    return search


# -- dates ---------------------------------------------------------------------

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_SHORT = {name[:3]: n for n, name in enumerate(_MONTHS, 1)} | {"Sept": 9}
_NAMES = {name: n for n, name in enumerate(_MONTHS, 1)} | _SHORT
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_TH = r"(?:st|nd|rd|th)?"
_YEAR = r"(?:,? ([0-9]{4})(?![0-9]))?"
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T")
_VALUE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.0+)?)?)?"
)
_DATE = re.compile(
    rf"({_NAME})\.? ([0-9]{{1,2}}){_TH}{_YEAR}"
    rf"|([0-9]{{1,2}}){_TH}(?: of)? ({_NAME})\.?{_YEAR}"
    rf"|{_VALUE.pattern}"
)
_CLOCK = re.compile(
    r"([0-9]{1,2})(?=:| ?[AaPp]\.?[Mm])(?::([0-9]{2})(?::([0-9]{2}))?)?"
    r"(?: ?([AaPp])\.?[Mm]\b\.?)?"
)

_Day: TypeAlias = tuple[int, int, int]
_Time: TypeAlias = tuple[int, int, int]


def _dated(value: str) -> tuple[Way, ...]:
    """Return the other notations of an ISO date, or of a date and a time."""
    found = _VALUE.fullmatch(value)
    if not found:
        return ()
    year, month, day = map(int, found.groups()[:3])
    try:
        date(year, month, day)
    except ValueError:
        return ()
    time = _time_of(found, 4)
    names = [name for name, number in _NAMES.items() if number == month]
    search = _on((year, month, day), time)
    tokens = (value[:10], *names)
    return tuple(Way((_key(token),), search, token) for token in tokens)


def _on(day: _Day, time: _Time | None) -> Search:
    def search(text: str, tries: int) -> tuple[int, int]:
        dates = [*islice(_DATE.finditer(text), tries)]
        tries -= len(dates)
        clocks = [*islice(_CLOCK.finditer(text), tries)] if time else []
        dates = [found for found in dates if _is_bounded(text, found)]
        times = {_clock(found) for found in clocks if _is_bounded(text, found)}
        times |= {_time_of(found, 10) for found in dates if found[7]}
        days = (f.start() for f in dates if _is_day(f, day))
        place = next(days, -1) if time is None or time in times else -1
        return place, tries - len(clocks)

    return search


def _is_bounded(text: str, found: re.Match[str]) -> bool:
    return _begins(text, found.start()) and _ends(text, found.end())


def _is_day(found: re.Match[str], wanted: _Day) -> bool:
    year, month, day = wanted
    if found[1]:
        name, number, said = found[1], found[2], found[3]
    elif found[5]:
        name, number, said = found[5], found[4], found[6]
    else:
        return (int(found[7]), int(found[8]), int(found[9])) == wanted
    return (_NAMES[name], int(number)) == (month, day) and int(said or year) == year


def _time_of(found: re.Match[str], at: int) -> _Time | None:
    if found[at] is None:
        return None
    return int(found[at]), int(found[at + 1]), int(found[at + 2] or 0)


def _clock(found: re.Match[str]) -> _Time | None:
    """Return the time that a clock shows; a lone number is none."""
    hour, half = int(found[1]), (found[4] or "").lower()
    if not half and found[2] is None:
        return None
    if half:
        if not 1 <= hour <= 12:  # noqa: PLR2004
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour, int(found[2] or 0), int(found[3] or 0)
