"""The tools of a server as offers, and what changed since its last list."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from ..core.calls import JSON, Effect
from ..core.grants.tool_catalog import Offer
from ..core.log.events import ToolsChanged
from ..core.names import exposed_name, is_tool_name, nearest
from ..core.text.redact import Redactor, plain
from ..core.tools.servers import ServerConfig
from ..errors import BadBytes
from ..lib.codec import canonical, sha256

logger = logging.getLogger(__name__)

_LONGEST_DESCRIPTION = 16 * 1024
_LARGEST_DEFINITION = 256 * 1024


def offers_of(
    config: ServerConfig, entries: Sequence[JSON], redact: Redactor
) -> tuple[dict[str, Offer], list[str]]:
    """
    Return the offers by tool name, and the reason for each tool that is left out.

    The *entries* come from ``tools/list`` and are not trusted.
    """
    offers: dict[str, Offer] = {}
    left_out: list[str] = []
    names = Counter(
        name
        for entry in entries
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str)
    )
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            left_out.append("an entry without a name")
        elif not is_tool_name(name):
            left_out.append(f"'{plain(name, redact, 64)}': not a name for a tool")
        elif redact.text(name) != name:
            left_out.append(f"'{plain(name, redact, 64)}': its name holds a secret")
        elif names[name] > 1:
            left_out.append(f"'{name}': listed {names[name]} times")
        elif fault := _fault(entry):
            left_out.append(f"'{name}': {fault}")
        else:
            try:
                offers[name] = _offer(config, name, redact.value(entry))
            except BadBytes as exc:
                left_out.append(f"'{name}': {exc}")
    return offers, list(dict.fromkeys(left_out))


def _fault(entry: dict[str, JSON]) -> str:
    description = entry.get("description")
    if not isinstance(description, str | None):
        return "its description is not text"
    if len(description or "") > _LONGEST_DESCRIPTION:
        return f"its description is over {_LONGEST_DESCRIPTION} characters"
    if not isinstance(entry.get("inputSchema"), dict):
        return "it has no input schema"
    return ""


def _offer(config: ServerConfig, name: str, entry: dict[str, JSON]) -> Offer:
    options = config.options(name)
    schema, description = entry["inputSchema"], entry.get("description")
    answers = entry.get("outputSchema")
    parts = ("name", "description", "inputSchema", "outputSchema", "annotations")
    definition = canonical({part: entry.get(part) for part in parts})
    if len(definition) > _LARGEST_DEFINITION:
        raise BadBytes(f"its definition is over {_LARGEST_DEFINITION} bytes")
    effect = options.effect or _hinted(config, entry.get("annotations"))
    return Offer(
        server=config.name,
        tool=name,
        exposed=options.expose_as or exposed_name(config.name, name),
        description=options.description or str(description or name),
        input_schema=schema if isinstance(schema, dict) else {},
        definition=definition,
        definition_sha256=sha256(definition),
        effect=effect,
        overridden=bool(options.description) or not description,
        output_schema=answers if isinstance(answers, dict) else None,
        schema=options.input_schema,
        record=options.record,
        reply=options.reply,
        retry=options.retrying(effect),
        over_limit=options.over_limit or "fail",
        key_argument=options.key_argument,
        on_change=config.on_tool_change,
    )


def _hinted(config: ServerConfig, annotations: JSON) -> Effect:
    # A server may lie about its tools, so hints count only if the operator trusts it.
    if not config.trust_annotations or not isinstance(annotations, Mapping):
        return "unsafe"
    if annotations.get("readOnlyHint") is True:
        return "read"
    return "idempotent" if annotations.get("idempotentHint") is True else "unsafe"


def report_changes(
    config: ServerConfig,
    old: Mapping[str, Offer],
    new: Mapping[str, Offer],
    left_out: Sequence[str],
) -> ToolsChanged | None:
    """
    Log what changed, and return the event that records it, or ``None``.

    Args:
        config: The server.

        old: Its tools before, by its own names; empty at the first connection.

        new: Its tools now.

        left_out: The reason for each listed tool that is not offered.
    """
    for why in left_out:
        logger.warning("MCP: %s: left out %s", config.name, why)
    for tool in () if old else sorted(config.tools.keys() - new.keys()):
        meant = nearest(tool, [*new])
        logger.warning(
            "MCP: %s offers no tool '%s', which is configured%s",
            *(config.name, tool, f"; did you mean {meant}?" if meant else ""),
        )
    for tool in sorted(new.keys() - old.keys()):
        exposed, name = new[tool].exposed, config.name
        logger.info("MCP: registered tool %s (%s/%s)", exposed, name, tool)
    if not old or old == new:
        return None
    return ToolsChanged(
        server=config.name,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(
            sorted(name for name in new.keys() & old.keys() if new[name] != old[name])
        ),
    )
