"""
The URLs in a text, for rules that judge them: rather one too many than one too few.

A URL is taken to go on to the next white space, quote or angle bracket. Besides URLs
with a scheme, every text with a full stop between a letter and two letters is one, for
there are programs that make a link of it: ``evil.com/x``, and ``readme.md`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CHUNK = re.compile(r'[^\s"<>`]+')
_SCHEME = re.compile(
    r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,40}+:[/\\]|[/\\]{2}"
)
#: Schemes of URLs that need no slash.
_OPAQUE = re.compile(
    r"(?<![A-Za-z0-9+.\-])"
    r"(?:(?:javascript|data|vbscript|file|mailto|tel|sms|blob|about):"
    r"|(?:https?|wss?|ftp):(?=[^\W_]))",
    re.IGNORECASE,
)
#: The full stop of a host, also in the forms that resolvers take for one.
_DOT = "[.\u3002\uff0e\uff61]"
_HOST = re.compile(rf"[^\W_]{_DOT}(?=[^\W\d_]{{2}})|xn--")
_ADDRESS = re.compile(
    rf"(?<!\d)\d{{1,3}}(?:{_DOT}\d{{1,3}}){{3}}(?!\d)|\[[0-9A-Fa-f:]*::"
)
_EMAIL = re.compile(r"[\w.+-]{1,64}@[A-Za-z0-9.-]{1,255}")
_AROUND = "()[]{}'’‘*_~|.,:;!?"  # noqa: RUF001


def links(text: str) -> Iterator[str]:
    """
    Yield the URLs in a text. An address of mail without a scheme is none.

    >>> [*links("See [it](https://a.org/x), evil.com/y or bob@x.com; e.g. 3.5")]
    ['https://a.org/x', 'evil.com/y']
    """
    for chunk in _CHUNK.finditer(text):
        whole = chunk[0]
        found = (_SCHEME.search(whole), _OPAQUE.search(whole))
        cut = min((one.start() for one in found if one), default=len(whole))
        for part, has_scheme in ((whole[:cut], False), (whole[cut:], True)):
            url = part.strip(_AROUND)
            if not url or _EMAIL.fullmatch(url):
                continue
            if has_scheme or _HOST.search(url) or _ADDRESS.search(url):
                yield url
