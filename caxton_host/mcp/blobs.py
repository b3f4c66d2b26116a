"""Large binary parts of an answer: kept by digest, named where they stood. Pure."""

from __future__ import annotations

import binascii
from dataclasses import replace

from ..core.calls import JSON, Completed
from ..core.text.redact import Redactor, plain
from ..lib.codec import sha256

_LONGEST_TYPE = 128
_UNKNOWN = "application/octet-stream"


def set_apart(done: Completed, over: int | None, redact: Redactor) -> Completed:
    """
    Return an answer whose binary parts of more than *over* bytes are blobs.

    Log and agent have ``{"sha256", "bytes", "media_type"}`` in their place. What is
    no base64 stays as it is, and so does all if *over* is ``None``.
    """
    if over is None or not isinstance(done.data, dict):
        return done
    content = done.data.get("content")
    if not isinstance(content, list):
        return done
    contents: dict[str, bytes] = {}
    named: list[dict[str, JSON]] = []
    parts: list[JSON] = []
    for block in content:
        found = _binary(block, over, redact)
        if found is None:
            parts.append(block)
            continue
        part, name, data = found
        parts.append(part)
        if name not in named:
            named.append(name)
        contents[str(name["sha256"])] = data
    if not named:
        return done
    whole: dict[str, JSON] = {**done.data, "content": parts}
    return replace(done, data=whole, blobs=tuple(named), contents=contents)


def _binary(
    block: JSON, over: int, redact: Redactor
) -> tuple[JSON, dict[str, JSON], bytes] | None:
    """Return a block that names its bytes, their name, and the bytes."""
    if not isinstance(block, dict):
        return None
    inner = block.get("resource")
    if isinstance(inner, dict):
        known, key = inner, "blob"
    else:
        known, key = block, "data"
    text = known.get(key)
    if not isinstance(text, str) or len(text) * 3 // 4 <= over:
        return None
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    data = _without_secrets(data, redact)
    said = known.get("mimeType")
    media = plain(said, redact, _LONGEST_TYPE) if isinstance(said, str) else _UNKNOWN
    name: dict[str, JSON] = {
        "sha256": sha256(data),
        "bytes": len(data),
        "media_type": media,
    }
    part: dict[str, JSON] = {**known, key: {**name}}
    return ({**block, "resource": part} if known is inner else part), name, data


def _without_secrets(data: bytes, redact: Redactor) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    clean = redact.text(text)
    return data if clean == text else clean.encode("utf-8", "surrogateescape")
