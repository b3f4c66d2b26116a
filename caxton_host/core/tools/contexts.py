"""The variables of a run: those it is given, resources of servers, and its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..calls import JSON
from ..text.templates import Filled, fill

#: What a prompt may name besides variables, which come first.
BUILT_IN = ("run_id", "agent", "trigger")

#: Keys that the host fills in itself.
RESERVED = ("prompt", "resources")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResource:
    """
    One resource of a server, as it was read.

    Attributes:
        server: Whose it is.

        key: What it is called in the context.

        uri: As it is recorded: without the values of private variables.

        value: JSON, a text, or what stands for bytes.

        flat: It is a variable of the run, and not one of its server.

        sha256: Digest of what was read, in hex, or ``None``.

        size: Bytes of that.

        blobs: Digest to what was read and is no text.

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
    Variables with resources in them.

    Attributes:
        record: For ``RunStarted.resources``: name of a server to a list of
            ``{key, uri, sha256, bytes}``, and ``error`` or ``replaced``.

        blobs: Digest to bytes, of what the log keeps besides.
    """

    context: dict[str, JSON]
    record: dict[str, JSON] | None
    blobs: dict[str, bytes]


def merged(
    context: Mapping[str, JSON], resources: Iterable[ServerResource], *, longest: int
) -> Merged:
    """
    Return *context* with *resources* under the keys that they have there.

    Args:
        context: What the run is given.

        resources: A later one takes the place of an earlier one of that key.

        longest: Bytes of all. One that would be too much is left out.
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
    Return the prompt of a run.

    Args:
        prompt: As it is configured.

        context: Its variables.

        built_in: What is named as in `BUILT_IN`, and no variable.

        longest: Characters of it.
    """
    return fill(prompt, {**built_in, **context}, longest=longest)
