"""What a server said, made fit for a line of a log, an event or an error."""

from __future__ import annotations

from .redact import Redactor

_LONGEST = 4096


def plain(text: str, redact: Redactor, longest: int = _LONGEST) -> str:
    r"""
    Return *text* on one line: redacted, cut, control characters escaped.

    >>> print(plain("a\x1b[31m\nb", Redactor()))
    a\x1b[31m\nb
    """
    shown = redact.text(text)
    if len(shown) > longest:
        shown = shown[:longest] + "..."
    if shown.isprintable():
        return shown
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in shown
    )
