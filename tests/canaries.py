"""Secrets in every form that they can take, and a look for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, unquote

__all__ = ["forms", "found_in"]


def forms(secret: str) -> dict[str, str]:
    """Return every spelling of *secret* that must not leave the host, by its name."""
    raw = secret.encode()
    escaped = json.dumps(secret)[1:-1]
    every = "".join(f"\\u{ord(char):04x}" for char in secret)
    spelt = {
        "plain": secret,
        "upper": secret.upper(),
        "json": escaped,
        "json, utf-8": json.dumps(secret, ensure_ascii=False)[1:-1],
        "json, slashes": escaped.replace("/", "\\/"),
        "json, html": escaped.replace("&", "\\u0026").replace("<", "\\u003C"),
        "json, every": every,
        "json in json": json.dumps(json.dumps(secret)),
        "url": quote(secret),
        "url, all": quote(secret, safe=""),
        "url, form": quote_plus(secret),
        "url, browser": quote(secret, safe="!'()*~"),
        "url, lower": quote(secret, safe="").lower(),
        "url, every": "".join(f"%{byte:02X}" for byte in raw),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
    }
    for number in range(3):
        around = b"user:"[:number] + raw + b"tail"
        spelt[f"base64, {number}"] = base64.b64encode(around).decode()
        spelt[f"base64url, {number}"] = base64.urlsafe_b64encode(around).decode()
        spelt[f"base64 in a url, {number}"] = quote(spelt[f"base64, {number}"], "")
    spelt["base64, alone"] = base64.b64encode(raw).decode()
    return spelt


def found_in(secrets: Iterable[str], places: Mapping[str, bytes]) -> list[str]:
    """Return where which secret was found, and in what form."""
    needles = [
        (f"{secret}: {name}", _core(secret, name, form).encode())
        for secret in secrets
        for name, form in forms(secret).items()
        if name != "upper"
    ]
    return [
        f"{place}: {name}"
        for place, data in places.items()
        for name, needle in needles
        if needle in data
    ]


def _core(secret: str, name: str, form: str) -> str:
    """Return what of *form* is the secret's alone, and not its neighbours'."""
    if not name.startswith("base64") or name == "base64, alone":
        return form
    before = int(name[-1])
    inner = slice(-(-before * 8 // 6), (before + len(secret.encode())) * 8 // 6)
    if "in a url" in name:
        return quote(unquote(form)[inner], "")
    return form[inner]
