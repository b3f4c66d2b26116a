"""Reader of ``[notify.NAME]``: where people are told what needs them."""

from __future__ import annotations

import binascii
from base64 import b64decode

from ..core.log.notices import CAUSES
from . import fields as f
from .fields import STRING, array, either, object_, shaped
from .model import Destination
from .source import At

_LEAST, _MOST = 24, 64
_PREFIX = "whsec_"


@shaped(STRING)
def _secret_url(value: object, at: At) -> str:
    """Read a URL whose path may be a secret, as those of chats are."""
    address = f.safe_url(value, at)
    at.source.secrets.note(address, "", at)
    return address


@shaped(STRING)
def _secret(value: object, at: At) -> bytes:
    said = f.text(value, at)
    at.source.secrets.note(said, "", at)
    at.source.secrets.note(said.removeprefix(_PREFIX), "", at)
    try:
        found = b64decode(said.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not _LEAST <= len(found) <= _MOST:
        raise at.error(
            f"is not the base64 of {_LEAST} to {_MOST} bytes",
            fix="make one: openssl rand -base64 32",
        )
    return found


@shaped(either(STRING, array(STRING)))
def _secrets(value: object, at: At) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        return (_secret(value, at),)
    given: tuple[bytes, ...] = f.listed(_secret)(value, at)
    if not given:
        raise at.error("is empty", fix='write secret = "${env:NOTIFY_SECRET}"')
    return given


_DESTINATION: f.Fields = {
    "url": ("url", _secret_url),
    "secret": ("secrets", _secrets),
    "events": ("events", f.listed(f.choice(*CAUSES))),
    "window": ("window", f.duration),
    "max_age": ("max_age", f.duration),
}


@shaped(object_(_DESTINATION, "url", "secret"))
def destination(value: object, at: At) -> Destination:
    """
    Read ``[notify.NAME]``.

    Raises:
        ConfigError: The table is invalid.
    """
    found = f.read(value, _DESTINATION, at)
    f.needs(value, at, url="https://HOST/PATH", secret="${env:NOTIFY_SECRET}")  # noqa: S106 -- an example
    return Destination(name=at.name, **found)
