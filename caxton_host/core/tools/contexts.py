"""The context of a run: given variables, resources of servers, and the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..calls import JSON
from ..text.templates import Filled, fill

#: Names that a prompt may use besides variables. Variables take precedence.
BUILT_IN = ("run_id", "agent", "trigger")

#: Keys of the context that the host sets.
PROMPT = "prompt"
CONVERSATION = "conversation"
RESERVED = (PROMPT, CONVERSATION, "resources")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResource:
    """
    One resource of a server.

    Attributes:
        server: The name of the server.

        key: Its key in the context.

        uri: The recorded form, without the values of private variables.

        value: JSON, a text, or a placeholder of binary content.

        flat: Its key is at the top of the context, not under its server.

        sha256: Digest of the content, in hex, or ``None``.

        size: Size of the content in bytes.

        blobs: Digest to content, of binary content.

        error: Why there is no value, or ``None``.
    """

    server: str
    key: str
    uri: str
    value: JSON = field(default=None, repr=False)
    flat: bool = False
    sha256: str | None = None
    size: int = 0
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """
    A context with resources.

    Attributes:
        record: For ``RunStarted.resources``: name of a server to a list of
            ``{key, uri, sha256, bytes}``, and ``error`` or ``replaced``.

        blobs: Digest to bytes, for the log.
    """

    context: dict[str, JSON]
    record: dict[str, JSON] | None
    blobs: dict[str, bytes]


def merged(
    context: Mapping[str, JSON], resources: Iterable[ServerResource], *, longest: int
) -> Merged:
    """
    Return *context* with *resources* added.

    Args:
        context: The variables of the run.

        resources: A later one replaces an earlier one with the same key.

        longest: Most bytes of all resources. One that exceeds it is omitted.
    """
    found: dict[str, JSON] = dict(context)
    by_server: dict[str, dict[str, JSON]] = {}
    record: dict[str, list[JSON]] = {}
    blobs: dict[str, bytes] = {}
    for one in resources:
        entry = _entry(one)
        record.setdefault(one.server, []).append(entry)
        if one.error is not None:
            continue
        if one.size > longest:
            entry["error"] = "there is too much of it, with what was read before"
        elif one.flat and one.key in RESERVED:
            entry["error"] = "its name is one that the host gives a value itself"
        else:
            longest -= one.size
            into = found if one.flat else by_server.setdefault(one.server, {})
            if one.key in into:
                entry["replaced"] = True
            into[one.key] = one.value
            blobs |= one.blobs
    if by_server:
        found["resources"] = {**by_server}
    return Merged(context=found, record={**record} or None, blobs=blobs)


def _entry(one: ServerResource) -> dict[str, JSON]:
    entry: dict[str, JSON] = {"key": one.key, "uri": one.uri}
    if one.error is None:
        entry |= {"sha256": one.sha256, "bytes": one.size}
    else:
        entry["error"] = one.error
    return entry


def prompted(
    prompt: str,
    context: Mapping[str, JSON],
    built_in: Mapping[str, str],
    *,
    longest: int,
) -> Filled:
    """
    Return the prompt of a run, with its placeholders filled in.

    Args:
        prompt: The configured text.

        context: The variables of the run.

        built_in: Values of the names in `BUILT_IN`.

        longest: Most characters of the prompt.
    """
    return fill(prompt, {**built_in, **context}, longest=longest)
