"""``[servers.NAME.oauth]``: how the tokens of a server are got."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from ..core.text.urls import in_the_clear
from ..core.tools.servers import OAuth
from . import fields as f
from .schema import object_, shaped
from .source import At

_OAUTH: f.Fields = {
    "flow": ("flow", f.choice("credentials", "code")),
    "client_id": ("client_id", f.text),
    "client_secret": ("client_secret", f.text),
    "client_metadata": ("client_metadata", f.url),
    "issuer": ("issuer", f.url),
    "scope": ("scope", f.text),
    "method": ("method", f.choice("basic", "post")),
    "redirect_port": ("redirect_port", f.number),
    "allow_private": ("allow_private", f.flag),
}
_CREDENTIALS = ("client_id", "client_secret", "issuer")
_LOGIN_ONLY = ("client_metadata", "redirect_port")
_LAST_PORT = 65535


@shaped(object_(_OAUTH))
def oauth(value: object, at: At) -> OAuth:
    """Return how the tokens of a server are got."""
    found = f.read(value, _OAUTH, at)
    by_login = found.get("flow") == "code"
    # A secret without its issuer would go wherever the server says.
    needed = _CREDENTIALS if not by_login or found.get("client_secret") else ()
    for key in needed:
        if not found.get(key):
            raise at.error(f"needs its {key}", fix=f'write {key} = "..."')
    for key in _LOGIN_ONLY:
        if key in found and not by_login:
            raise at.key(key).error(
                "is for logins", fix=f'write flow = "code", or remove {key}'
            )
    secret = found.get("client_secret", "")
    # The second is what the header of a request for a token is made of.
    for form in (secret, quote(secret, safe="")):
        at.source.secrets.note(form, "client_secret", at)
    if "issuer" in found and in_the_clear(found["issuer"]):
        raise at.key("issuer").error(
            "is not https, so the credentials could be read on the way",
            fix="write its https address",
        )
    _check_client(found, at)
    return OAuth(**found)


def _check_client(found: dict[str, Any], at: At) -> None:
    document = found.get("client_metadata")
    if document is not None:
        if found.get("client_id"):
            raise at.key("client_metadata").error(
                "and client_id exclude each other", fix="remove one of them"
            )
        where = urlsplit(str(document))
        if where.scheme.lower() != "https" or where.path in {"", "/"}:
            raise at.key("client_metadata").error(
                "is no address that a client can have",
                fix="write an https address with a path",
            )
    if found.get("redirect_port", 0) > _LAST_PORT:
        raise at.key("redirect_port").error(
            "is no port", fix=f"write 1 to {_LAST_PORT}"
        )


def check_oauth(found: dict[str, Any], at: At) -> None:
    """Refuse what does not go with it in the table of a server."""
    if "url" not in found:
        raise at.key("oauth").error(
            "is for servers that have a url", fix="remove it, or use env"
        )
    if any(name.lower() == "authorization" for name in found.get("headers", {})):
        raise at.key("oauth").error(
            "and a header Authorization exclude each other", fix="remove one of them"
        )
    if in_the_clear(found["url"]):
        raise at.key("url").error(
            "is not https, so its tokens could be read on the way",
            fix="write its https address",
        )
