"""What is new about the tools of a server, told to whoever runs the host."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..core.grants.tool_catalog import Offer
from ..core.log.events import ToolsChanged
from ..core.names import nearest
from ..core.tools.servers import ServerConfig

logger = logging.getLogger(__name__)


def tell_news(
    config: ServerConfig,
    old: Mapping[str, Offer],
    new: Mapping[str, Offer],
    left_out: Sequence[str],
) -> ToolsChanged | None:
    """
    Tell what is new, and return the event that records a change, if it is one.

    Args:
        config: The server.

        old: Its tools as they were, by its own names; none: it is met for the first
            time.

        new: Its tools now.

        left_out: Why each that is not among them is not.
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
