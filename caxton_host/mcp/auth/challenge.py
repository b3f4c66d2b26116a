"""What a server says that it wants a token to be good for."""

from __future__ import annotations

import re
from typing import Final

#: Bytes of a challenge that anybody looks at.
LONGEST: Final = 4096

_LONGEST_SCOPE = 2048
_LACKING = re.compile(r'\berror="?insufficient_scope\b')
_SCOPE = re.compile(r'\bscope=(?:"([^"]*)"|([^\s,"]+))')
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


def is_lacking(challenge: str) -> bool:
    """
    Return whether a token is good, and not good enough.

    >>> is_lacking('Bearer error="insufficient_scope"'), is_lacking("Bearer")
    (True, False)
    """
    return _LACKING.search(challenge[:LONGEST]) is not None


def scopes(challenge: str) -> str | None:
    """
    Return what a server wants a token to be good for, if that can be said.

    >>> scopes('Bearer error="insufficient_scope", scope="read write"')
    'read write'
    """
    found = _SCOPE.search(challenge[:LONGEST])
    said = (found[1] or found[2] or "") if found else ""
    return said if is_scope(said) else None


def is_scope(text: str) -> bool:
    """
    Return whether *text* may be asked for.

    >>> is_scope("read mail:write"), is_scope('"read'), is_scope("")
    (True, False, False)
    """
    return len(text) <= _LONGEST_SCOPE and _SCOPES.fullmatch(text) is not None
