"""Two tools that agents would call by one name, as far as it shows before they run."""

from __future__ import annotations

from ..core.names import exposed_name
from ..core.tools.webhooks import SERVER
from .model import Config
from .source import At


def refuse_twins(config: Config, at: At) -> None:
    """
    Refuse a name that some other tool has.

    Raises:
        ConfigError: There is one. It points at an ``expose_as``.
    """
    said = _said(config, at)
    granted = [one.grant.literals() for one in config.agents.values()]
    unsaid = {*said, *(target for targets in granted for target in targets)}
    unsaid -= {target for target, (name, _) in said.items() if name}
    taken = {exposed_name(*target): target for target in unsaid}
    for target, (name, where) in said.items():
        if name and taken.setdefault(name, target) != target:
            raise where.error(
                f"is also what {'/'.join(taken[name])} would be called",
                fix="write another name",
            )


def _said(config: Config, at: At) -> dict[tuple[str, str], tuple[str | None, At]]:
    """Return what each tool with a table of its own is to be called, and where."""
    found: dict[tuple[str, str], tuple[str | None, At]] = {}
    for server, one in config.servers.items():
        here = at.key("servers").key(server).key("tools")
        for tool, options in one.tools.items():
            place = here.key(tool).key("expose_as")
            found[server, tool] = options.expose_as, place
    for name, hook in config.webhooks.items():
        place = at.key("webhooks").key(name).key("expose_as")
        found[SERVER, name] = hook.expose_as, place
    return found
