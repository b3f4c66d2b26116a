"""Manifests of modules: read from their bytes, and held against inputs and outputs."""

from __future__ import annotations

from functools import lru_cache

from ..core.calls import JSON
from ..core.tools.manifest import LIMIT, Manifest, find
from ..core.tools.schemas import bounded
from ..errors import BadBytes, ModuleRefused, UsageError
from ..lib.codec import load_json
from ..lib.json_schema import check, mismatch

_NODES = 10_000


def parse(content: bytes) -> Manifest:
    """
    Return the manifest that is *content*.

    Raises:
        BadBytes: It is none, or a schema in it is none that could be used.
    """
    manifest = Manifest.of(load_json(content, limit=LIMIT, nodes=_NODES))
    for key in ("input_schema", "output_schema"):
        schema = getattr(manifest, key)
        if schema is not None:
            try:
                check(bounded(schema))
            except BadBytes as exc:
                raise BadBytes(f"{key}: {exc}") from None
    return manifest


@lru_cache(maxsize=16)
def read(module: bytes) -> Manifest | None:
    """
    Return the manifest of a core module or a component, or ``None`` without one.

    Raises:
        ModuleRefused: It has one that cannot be used.
    """
    try:
        content = find(module)
        return None if content is None else parse(content)
    except BadBytes as exc:
        raise ModuleRefused(
            f"the manifest of the module cannot be used: {exc}",
            fix="correct agent.toml and build the module again",
        ) from None


def check_input(module: bytes, value: JSON) -> None:
    """
    Let a run begin with *value*, or say why not.

    Args:
        module: What is to run. Without a manifest, or without a schema in it, it
            takes anything.

        value: The input.

    Raises:
        UsageError: The value is not as the manifest wants it, or the manifest cannot
            be used.
    """
    manifest = read(module)
    if manifest is None or manifest.input_schema is None:
        return
    try:
        wrong = mismatch(manifest.input_schema, value)
    except BadBytes as exc:
        raise UsageError(
            f"the input cannot be compared with the input_schema: {exc}",
            fix="pass less, or make the schema in agent.toml simpler",
        ) from None
    if wrong:
        raise UsageError(
            f"the input is not what the agent takes: {wrong}",
            fix="pass what input_schema asks for; caxton agent inspect shows it",
        )


def output_mismatch(module: bytes, value: JSON) -> str:
    """
    Return where the result of a run is not as its manifest says, or "".

    Never raises: the run is over, and its result stands.
    """
    try:
        manifest = read(module)
        if manifest is None or manifest.output_schema is None:
            return ""
        wrong = mismatch(manifest.output_schema, value)
    except (BadBytes, ModuleRefused) as exc:
        return str(exc)
    return str(wrong or "")
