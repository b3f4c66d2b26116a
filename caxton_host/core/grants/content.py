"""What servers give besides tools: resources and prompts, as a session lists them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..calls import JSON
from ..names import PROMPT, READ
from ..text.globs import fits

_EXPRESSION = re.compile(r"\{[^{}]*\}")


class Kind(NamedTuple):
    """
    What a list holds.

    Attributes:
        key: The key of an answer that has the entries.

        name: The key of an entry that has its name: of a resource its URI.

        method: Reads an entry.

        param: The parameter of that for the name.
    """

    key: str
    name: str
    method: str
    param: str


RESOURCES, TEMPLATES = "resources/list", "resources/templates/list"
PROMPTS, COMPLETE = "prompts/list", "completion/complete"
#: By the method that lists it.
LISTS: Mapping[str, Kind] = {
    RESOURCES: Kind("resources", "uri", READ, "uri"),
    TEMPLATES: Kind("resourceTemplates", "uriTemplate", READ, "uri"),
    PROMPTS: Kind("prompts", "name", PROMPT, "name"),
}


class Listed(NamedTuple):
    """An entry as a client is shown it, with its server and its name there."""

    server: str
    name: str
    entry: Mapping[str, JSON]


#: Entries by what a client calls them.
Lists: TypeAlias = Mapping[str, Listed]
#: Returns whether something of a server may be read, by its name.
Allows: TypeAlias = Callable[[str, str], bool]


def merged(
    kind: Kind, found: Mapping[str, Collection[Mapping[str, JSON]]], allows: Allows
) -> Lists:
    """
    Return what a client is shown of the lists of servers, in order.

    A URI leads to the first server that lists it. The name of a prompt begins with its
    server if there is another of that name, or if it has a slash.
    """
    allowed = [
        (server, name, entry)
        for server, entries in found.items()
        for entry in entries
        if allows(server, name := str(entry[kind.name]))
    ]
    count = Counter(name for _, name, _ in allowed)
    shown: dict[str, Listed] = {}
    for server, name, entry in allowed:
        is_ambiguous = "/" in name or count[name] > 1
        own = f"{server}/{name}" if is_ambiguous and kind.method == PROMPT else name
        shown.setdefault(own, Listed(server, name, {**entry, kind.name: own}))
    return dict(sorted(shown.items()))


def place(
    name: str, listed: Lists, templates: Lists, granted: Sequence[str], allows: Allows
) -> tuple[str, str]:
    """
    Return the server that a client means, and the name of what is read there.

    What is not listed is of a server with such a template, or of the first of the
    *granted* ones that may give it, or else of one that refuses it; ``""``: of none.
    """
    if one := listed.get(name):
        return one.server, one.name
    allowed = [server for server in granted if allows(server, name)]
    meant = [
        one.server
        for text, one in templates.items()
        if one.server in allowed and fits(tuple(_EXPRESSION.split(text)), name)
    ]
    return next(iter((*meant, *allowed, *granted)), ""), name
