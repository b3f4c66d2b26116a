"""
Narrowings: rules that a run is given beside those of its agent.

They have the grammar of an agent's rules, as TOML or as JSON: ``allow`` and ``deny``. A
caller may write them, so a variable in them is an error: it would read the environment
or a file of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from ..core.calls import JSON
from ..core.grants.bounds import NARROW, Bound
from ..core.grants.grants import Grant, Rule
from ..errors import ConfigError
from ..lib.codec import encode
from . import fields as f
from .files import parse_toml, read_bytes, text_of
from .key_lines import Lines
from .rules import check_accounts, check_plain, rules
from .source import At, Secrets, Source

_OPTION = "--narrow"
_LARGEST = 64 * 1024
KINDS = ("allow", "deny")
FIELDS: f.Fields = {kind: (kind, rules(kind)) for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """
    A narrowing.

    Attributes:
        bound: The grant that it is.

        tree: Its rules as JSON, for another host.
    """

    bound: Bound
    tree: dict[str, JSON]


def narrowings(
    *values: JSON | Narrowing, trusted: Sequence[str] = ()
) -> tuple[Bound, ...]:
    """
    Return the narrowing of a run, if one of *values* is one.

    Args:
        values: As a caller passed it in each place, or ``None``.

        trusted: What the source ``trusted`` stands for: that of the agent.

    >>> narrowings(None, {"allow": [{"tools": ["crm/*"]}]})[0].grant.allow[0].source
    'narrow'

    Raises:
        ConfigError: It is invalid, or there are several.
    """
    at = place(NARROW)
    given = [value for value in values if value is not None]
    if len(given) > 1:
        raise at.error("is given twice", fix="keep one")
    bounds = (
        one.bound if isinstance(one, Narrowing) else _bound(_grant(one, at), at)
        for one in given
    )
    return tuple(
        replace(bound, grant=trusting(bound.grant, trusted, at)) for bound in bounds
    )


def trusting(grant: Grant, trusted: Sequence[str], at: At) -> Grant:
    """
    Return a grant with what the source ``trusted`` stands for in its agent.

    Raises:
        ConfigError: A rule names it, and the agent has none.
    """
    if not grant.names_trusted:
        return grant
    if not trusted:
        raise at.error(
            "names the source trusted, and the agent has no such list",
            fix="name the sources themselves",
        )
    return grant.trusting(trusted)


def typed(values: Sequence[str]) -> Narrowing:
    """
    Read the narrowing that the values of an option describe together.

    Args:
        values: A file that ends in ``.toml``; a rule as an inline table; or else a
            pattern of tools.

    Raises:
        ConfigError: One is invalid. The error names file, line and key.
    """
    return _read(values, _part)


def written(text: str) -> Narrowing:
    """
    Read the narrowing that a text describes, as a file would.

    >>> written('allow = [{ tools = ["crm/*"] }]').tree["allow"]
    [{'tools': ['crm/*']}]

    Raises:
        ConfigError: It is invalid. The error names line and key.
    """
    return _read([text], lambda text: _parsed(text.encode(), "the narrowing"))


def _read(
    values: Sequence[str], part_of: Callable[[str], tuple[dict[str, Any], At]]
) -> Narrowing:
    grant = Grant()
    tree: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for value in values:
        try:
            part, at = part_of(value)
            read = _grant(part, at)
        except ConfigError as exc:
            if exc.line is None or exc.file == _OPTION:
                raise
            file = f"{exc.file}:{exc.line}"
            raise ConfigError(
                exc.problem, fix=exc.fix, file=file, key=exc.key
            ) from None
        grant = Grant(
            allow=numbered("allow", (*grant.allow, *read.allow)),
            deny=numbered("deny", (*grant.deny, *read.deny)),
        )
        for kind in KINDS:
            tree[kind] += part.get(kind, [])
    bound = _bound(grant, place(_OPTION))
    return Narrowing(bound, {kind: plain_json(those) for kind, those in tree.items()})


def _part(value: str) -> tuple[dict[str, Any], At]:
    if value.endswith(".toml"):
        return _parsed(read_bytes(Path(value), place(value)), value)
    at = place(_OPTION)
    if value.startswith("{"):
        return parse_toml(f"allow = [{value}]".encode(), at), at
    return {"allow": [{"tools": [value]}]}, at


def _parsed(data: bytes, shown: str) -> tuple[dict[str, Any], At]:
    at = place(shown)
    tree = parse_toml(data, at)
    return tree, place(shown, Lines(text_of(data, at)))


def place(shown: str, lines: Lines | None = None) -> At:
    """Return the place of a text that is no file, where no variable has a value."""
    secrets = Secrets(environ={}, home=Path())
    source = Source(shown=shown, folder=Path(), secrets=secrets)
    return At(source=replace(source, lines=lines) if lines else source)


def _grant(value: object, at: At) -> Grant:
    check_plain(cast("JSON", value), at)
    found = f.read(value, FIELDS, at)
    if "allow" not in found:
        raise at.error(
            "allows nothing", fix='allow some of it: allow = [{ tools = ["SERVER/*"] }]'
        )
    return Grant(**found)


def numbered(kind: str, several: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return rules with the ids of their places."""
    return tuple(replace(rule, id=f"{kind}[{n}]") for n, rule in enumerate(several, 1))


def _bound(grant: Grant, at: At) -> Bound:
    check_accounts(grant.allow, at)
    # Its budgets are its own: a caller must not spend those of the agent's rules by
    # calls of other tools. No configured name has a colon.
    grant = replace(
        grant,
        allow=tuple(
            replace(rule, name=f"{NARROW}:{rule.account}") if rule.budgets else rule
            for rule in grant.allow
        ),
    )
    if len(encode(grant.to_payload())) > _LARGEST:
        raise at.error("has more than 64 KiB", fix="write fewer rules, with stars")
    return Bound(name=NARROW, grant=grant)


def plain_json(value: object) -> JSON:
    """Return a value of TOML as JSON; only times differ."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: plain_json(item) for key, item in table.items()}
    if isinstance(value, list):
        return [plain_json(item) for item in cast("list[object]", value)]
    return cast("JSON", value)
