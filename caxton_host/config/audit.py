"""``[audit]``: whose checkpoints are believed, and where those of this host go."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..core.log.checkpoint import parse_key
from . import fields as f
from .model import Audit
from .schema import STRING, shaped
from .source import At

_FILE = "file:"
_HERE = {"localhost", "127.0.0.1", "::1"}


@shaped(STRING)
def _anchor(value: object, at: At) -> str:
    target = f.text(value, at)
    if target.startswith(_FILE):
        path = target.removeprefix(_FILE)
        return f"{_FILE}{f.resolved(path.removeprefix('//'), at)}"
    f.check_url(target, at)
    found = urlsplit(target)
    if found.scheme.lower() != "https" and found.hostname not in _HERE:
        raise at.error(
            "is an address that anybody on the way can change",
            fix='write it like: "https://HOST/PATH" or "file:PATH"',
        )
    return target


@shaped(STRING)
def _key(value: object, at: At) -> bytes:
    key = parse_key(f.text(value, at))
    if key is None:
        raise at.error(
            "is no public key", fix="copy the 64 digits that caxton audit key shows"
        )
    return key


AUDIT = f.tables(
    {
        "anchor": ("anchor", _anchor),
        "trusted_keys": ("trusted_keys", f.listed(_key)),
    },
    Audit,
)
