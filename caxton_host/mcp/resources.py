"""
Resources of a server, as variables of a run.

Everything is bounded, and nothing that a server says is trusted. A resource that
cannot be read has its error instead of a value. Large binary parts of tool results,
and answers with a time to live, are handled here as well.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from ..core.calls import JSON, Completed
from ..core.grants.content import LISTS, RESOURCES, TEMPLATES
from ..core.names import PROMPT, READ
from ..core.text.redact import Redactor, plain
from ..core.text.templates import expand, fill, is_template
from ..core.tools.contexts import BUILT_IN, ServerResource
from ..core.tools.servers import Resources, ServerConfig
from ..errors import BadBytes, ToolError, UsageError
from ..lib.codec import canonical, load_json, sha256
from ..ports.tools import RunScope
from .transport.messages import Answer

_PAGES = 100
_LONGEST_URI = 8 * 1024
_LONGEST_KEY = 128
_AT_ONCE = 8
#: Of an entry that a client is shown.
_KEYS = ("uri", "uriTemplate", "name", "title", "description", "mimeType")

_UNKNOWN_TYPE = "application/octet-stream"

#: Upper bound of a server's ``ttlMs``, in seconds.
_LONGEST_TTL_S = 24 * 3600.0
_KEPT_ANSWERS = 256
_LARGEST_KEPT = 64 * 1024

#: Replaces the value of a private variable in the log.
_HIDDEN = "redacted"


class Ask(Protocol):
    """Sends a request, and returns the answer."""

    async def __call__(self, method: str, params: dict[str, JSON]) -> Answer:
        """
        Send a request.

        Raises:
            ToolError: There is no answer, or it is an error.
        """
        ...


class _Listed(NamedTuple):
    """One resource: its address, its address for the log, and its name."""

    uri: str
    shown: str
    key: str
    problem: str = ""


class _Read(NamedTuple):
    value: JSON
    raw: bytes
    blobs: dict[str, bytes]


async def read_resources(
    ask: Ask, config: ServerConfig, wanted: Resources, scope: RunScope, redact: Redactor
) -> list[ServerResource]:
    """
    Return the selected resources of a server.

    Args:
        ask: Sends requests to it.

        config: Its ``resource_vars`` fill in templates.

        wanted: The selection, with its limits.

        scope: The run, to whose variables those values may refer.

        redact: Removes secrets.

    Raises:
        ToolError: The resources cannot be listed.
    """
    values, shown = _values(config.resource_vars, scope)
    plain_ones = (await _pages(ask, RESOURCES, config.max_result))[0]
    try:
        templates = (await _pages(ask, TEMPLATES, config.max_result))[0]
    except ToolError:
        if not plain_ones:
            raise
        templates = []  # A server without templates may not know the method.
    listed = [
        *(_entry(entry, redact) for entry in plain_ones),
        *(_from_template(entry, values, shown, wanted, redact) for entry in templates),
    ]
    chosen = [one for one in listed if _is_wanted(one.shown, wanted)]
    slots = asyncio.Semaphore(_AT_ONCE)
    some = chosen[: wanted.max_count]
    read = await asyncio.gather(*(_one(ask, one, slots, redact) for one in some))
    found = list(_bounded(config.name, wanted, zip(some, read, strict=True)))
    if left := len(chosen) - len(some):
        found.append(
            ServerResource(
                server=config.name,
                key="",
                uri="",
                error=f"{left} more than max_count allows were not read",
            )
        )
    return found


def _bounded(
    server: str, wanted: Resources, read: Iterator[tuple[_Listed, _Read | str]]
) -> Iterator[ServerResource]:
    left = wanted.max_bytes
    for one, said in read:
        fault = said if isinstance(said, str) else ""
        if not isinstance(said, str) and len(said.raw) > left:
            fault = "it would exceed max_bytes, with the resources before it"
        if isinstance(said, str) or fault:
            yield ServerResource(server=server, key=one.key, uri=one.shown, error=fault)
            continue
        left -= len(said.raw)
        yield ServerResource(
            server=server,
            key=one.key,
            uri=one.shown,
            value=said.value,
            flat=wanted.merge == "flat",
            sha256=sha256(said.raw),
            size=len(said.raw),
            blobs=said.blobs,
        )


def _values(
    given: Mapping[str, str], scope: RunScope
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values for templates, and the same for the log."""
    built_in = dict(
        zip(BUILT_IN, (scope.run_id, scope.agent, scope.trigger), strict=True)
    )
    context = {**built_in, **scope.context}
    veiled = context | dict.fromkeys(scope.private, _HIDDEN)
    values: dict[str, str] = {}
    shown: dict[str, str] = {}
    for name, text in given.items():
        filled = fill(text, context, longest=_LONGEST_URI)
        if not (filled.unknown or filled.problem):
            values[name] = filled.text
            shown[name] = fill(text, veiled, longest=_LONGEST_URI).text
    return values, shown


async def _pages(ask: Ask, method: str, most: int) -> tuple[list[JSON], int]:
    """Return the entries of all pages of a list, and the bytes of these: at most so."""
    entries: list[JSON] = []
    cursor: JSON = None
    size = 0
    for _ in range(_PAGES):
        page = await ask(method, {} if cursor is None else {"cursor": cursor})
        some, cursor = page.result.get(LISTS[method].key), page.result.get("nextCursor")
        if not isinstance(some, list):
            raise ToolError("protocol", "yes", f"the answer to {method} is not a list")
        entries += some
        size += page.size
        if size > most:
            raise ToolError("too_large", "yes", f"the answer to {method} is too long")
        if cursor is None:
            return entries, size
    raise ToolError("too_large", "yes", f"the answer to {method} does not end")


async def list_entries(ask: Ask, method: str, most: int, redact: Redactor) -> Answer:
    """
    Return a list in the form of the answer of a tool, without entries that are unsound.

    Raises:
        ToolError: It has no end, more than *most* bytes, or another form.
    """
    found, size = await _pages(ask, method, most)
    name = LISTS[method].name
    sound = [one for one in found if not _entry(one, redact, name).problem]
    entries: list[JSON] = [_texts(one) for one in sound if isinstance(one, dict)]
    return Answer({"content": [], "entries": entries}, size)


def _texts(entry: dict[str, JSON]) -> dict[str, JSON]:
    """Return the known keys of an entry that hold what they should."""
    known: dict[str, JSON] = {
        key: value for key in _KEYS if isinstance(value := entry.get(key), str)
    }
    if isinstance(arguments := entry.get("arguments"), list):
        known["arguments"] = [
            {**_texts(one), "required": one.get("required") is True}
            for one in arguments
            if isinstance(one, dict) and isinstance(one.get("name"), str)
        ]
    return known


def of_tool(method: str, result: dict[str, JSON]) -> dict[str, JSON]:
    """
    Return the answer to another method in the form of the answer of a tool.

    >>> of_tool(READ, {"contents": [{"uri": "a:b", "text": "hi"}]})
    {'content': [{'type': 'resource', 'resource': {'uri': 'a:b', 'text': 'hi'}}]}

    Raises:
        ToolError: It has another form.
    """
    key = {READ: "contents", PROMPT: "messages"}.get(method, "values")
    found = (result.get("completion") or {}) if key == "values" else result
    parts = found.get(key) if isinstance(found, dict) else None
    if not isinstance(parts, list):
        raise ToolError("invalid_result", "yes", f"the answer has no list of {key}")
    if method == READ:
        contents: list[JSON] = [{"type": "resource", "resource": p} for p in parts]
        return {"content": contents}
    return {**result, "content": [], key: [*parts]}


def _entry(entry: JSON, redact: Redactor, key: str = "uri") -> _Listed:
    """Return the resource of an entry, with a problem if it is not valid."""
    found = entry if isinstance(entry, dict) else {}
    uri, name = found.get(key), found.get("name")
    if not isinstance(uri, str) or not 0 < len(uri) <= _LONGEST_URI:
        return _Listed("", "", "", f"it has no {key} that can be used")
    said = plain(uri, redact, _LONGEST_URI)
    last = uri.partition("?")[0].rstrip("/").rpartition("/")[2]
    named = plain(
        name if isinstance(name, str) and name else last, redact, _LONGEST_KEY
    )
    problem = "" if said == uri else "its address has characters that are not valid"
    return _Listed(uri, said, named, problem or ("" if named else "it has no name"))


def _from_template(
    entry: JSON,
    values: Mapping[str, str],
    shown: Mapping[str, str],
    wanted: Resources,
    redact: Redactor,
) -> _Listed:
    one = _entry(entry, redact, "uriTemplate")
    if one.problem or not is_template(one.uri):
        return one
    try:
        uri, missing = expand(one.uri, values)
        said, _ = expand(one.uri, shown)
    except UsageError as exc:
        return one._replace(problem=f"it is not a valid template: {exc}")
    if missing and not wanted.lenient:
        names = ", ".join(missing)
        return one._replace(problem=f"resource_vars has no value for {names}")
    return one._replace(uri=uri, shown=said)


def _is_wanted(uri: str, wanted: Resources) -> bool:
    if any(fnmatchcase(uri, pattern) for pattern in wanted.exclude):
        return False
    return not wanted.include or any(fnmatchcase(uri, p) for p in wanted.include)


async def _one(
    ask: Ask, one: _Listed, slots: asyncio.Semaphore, redact: Redactor
) -> _Read | str:
    """Return what was read, or the reason of the failure."""
    if one.problem:
        return one.problem
    try:
        async with slots:
            answer = await ask("resources/read", {"uri": one.uri})
    except ToolError as exc:
        return f"{exc.kind}: {exc}"
    return _read(answer, redact)


def _read(answer: Answer, redact: Redactor) -> _Read | str:
    contents = answer.result.get("contents")
    if answer.result.get("resultType", "complete") != "complete":
        return "the server asks instead of answering"
    if not isinstance(contents, list) or not contents:
        return "the answer has no contents"
    parts = [_part(item, answer.size, redact) for item in contents]
    values: list[JSON] = []
    raw, blobs = b"", dict[str, bytes]()
    for part in parts:
        if isinstance(part, str):
            return part
        values.append(part.value)
        raw += part.raw
        blobs |= part.blobs
    return _Read(values[0] if len(values) == 1 else values, raw, blobs)


def _part(item: JSON, limit: int, redact: Redactor) -> _Read | str:
    found = item if isinstance(item, dict) else {}
    text, blob = found.get("text"), found.get("blob")
    if isinstance(text, str):
        text = redact.text(text)
        return _Read(_parsed(text, limit), text.encode(), {})
    if not isinstance(blob, str):
        return "its contents are neither text nor bytes"
    try:
        raw = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return "its bytes are not base64"
    told = raw.decode("latin-1")
    if redact.text(told) != told:
        return "its bytes hold a secret"
    kind = found.get("mimeType")
    digest = sha256(raw)
    value: JSON = {
        "media_type": plain(kind, redact, _LONGEST_KEY)
        if isinstance(kind, str)
        else None,
        "sha256": digest,
        "bytes": len(raw),
    }
    return _Read(value, raw, {digest: raw})


def _parsed(text: str, limit: int) -> JSON:
    """Return a text as JSON if it is an object or a list, else as it is."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return load_json(text, limit=limit)
        except BadBytes:
            pass
    return text


# -- large binary parts of tool results ----------------------------------------------


def set_apart(done: Completed, over: int | None, redact: Redactor) -> Completed:
    """
    Replace the binary parts of an answer that have more than *over* bytes by blobs.

    Log and agent get ``{"sha256", "bytes", "media_type"}`` instead. Invalid base64
    stays as it is. With ``None`` nothing is replaced.
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
    """Return a block with a reference, the reference, and the bytes."""
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
    media = (
        plain(said, redact, _LONGEST_KEY) if isinstance(said, str) else _UNKNOWN_TYPE
    )
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


# -- answers that may be used again --------------------------------------------------


def good_for(result: Mapping[str, JSON]) -> float:
    """
    Return the seconds that an answer is valid; 0 without a valid ``ttlMs``.

    >>> good_for({"ttlMs": 1500}), good_for({"ttlMs": True}), good_for({})
    (1.5, 0.0, 0.0)
    """
    said = result.get("ttlMs")
    if isinstance(said, bool) or not isinstance(said, int | float) or said <= 0:
        return 0.0
    return min(said / 1000, _LONGEST_TTL_S)


class Kept:
    """
    A cache of answers of one connection. Large ones are not kept.

    Args:
        now: Returns the time, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._answers: dict[bytes, tuple[float, Answer]] = {}

    def find(self, method: str, params: Mapping[str, JSON]) -> Answer | None:
        """Return the answer that is still valid, or ``None``."""
        key = canonical([method, {**params}])
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._now() < until else None

    def keep(self, method: str, params: Mapping[str, JSON], answer: Answer) -> None:
        """Keep an answer for its time to live."""
        seconds = good_for(answer.result)
        if not seconds or answer.size > _LARGEST_KEPT:
            return
        key = canonical([method, {**params}])
        self._answers.pop(key, None)
        self._answers[key] = self._now() + seconds, answer
        if len(self._answers) > _KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
