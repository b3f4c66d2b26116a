"""
Problems of a grant, and which agent may call which tool.

A grant with findings still works. Each finding is a place where the grant probably does
not do what its author meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..calls import JSON, Route
from ..grants.decisions import may_ever
from ..grants.grants import Grant, Rule
from ..names import is_method, nearest
from ..text.globs import Pattern
from ..text.toml_text import key_text
from .grant_hints import grant_for, named_rule, when

#: Offered tools by server: tool to input schema. ``None``: the server was never asked.
Known: TypeAlias = Mapping[str, Mapping[str, JSON] | None]

_SEE = "caxton tool list shows all"

#: Keys of a rule with which it never refuses a call.
_FREE = frozenset(
    {"id", "tools", "source", "name", "timeout", "max_result", "redact_result"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    A problem of a grant.

    Attributes:
        agent: The agent of the grant.

        place: The rule or the key: ``allow[2]``, ``names.look``.

        source: File and line, or ``""``.

        code: ``expired``, ``spent``, ``forbidden``, ``shadowed``, ``order``,
            ``no_server``, ``no_tool``, ``no_param``, ``required`` or ``not_granted``.

        problem: The problem, for people.

        fix: How to fix it.
    """

    agent: str
    place: str
    source: str
    code: str
    problem: str
    fix: str


def conditional(rule: Rule) -> bool:
    """Return whether a rule that covers a tool can refuse a call of it."""
    return not rule.to_payload().keys() <= _FREE


def missing(server: str, tool: str, known: Known) -> str | None:
    """
    Return why no grant would allow a tool of a named server, if that is known.

    For operators only; see `astray`.

    >>> missing("dmo", "echo", {"demo": {"echo": {}}})
    'there is no server dmo; did you mean demo/echo?'
    """
    if server in known:
        return astray(f"{server}/{tool}", (server, tool), known)
    meant = nearest(server, [*known])
    hint = f"did you mean {meant}/{tool}?" if meant else "caxton server list shows all"
    return f"there is no server {server}; {hint}"


def astray(name: str, target: tuple[str, str] | None, known: Known) -> str | None:
    """
    Return why no grant would allow a call, with the tool that it may have meant.

    For operators only: an agent must not learn of tools that it is not granted.

    >>> known = {"demo": {"echo": {}, "get_weather": {}}}
    >>> astray("mcp__demo__get_wether", ("demo", "get_wether"), known)
    'demo has no tool get_wether; did you mean demo/get_weather?'
    >>> astray("get_wether", None, known)
    'no tool of that name is known; did you mean demo/get_weather?'

    Args:
        name: The called name.

        target: Server and tool of the name, if known.

        known: The offered tools.

    Returns:
        ``None`` if a grant may allow it, or if the tools of the server are unknown.
    """
    if target is not None:
        server, tool = target
        tools = known.get(server)
        if tools is None or tool in tools:
            return None
        meant = nearest(tool, [*tools])
        hint = f"did you mean {server}/{meant}?" if meant else _SEE
        return f"{server} has no tool {tool}; {hint}"
    names = {
        alias: f"{server}/{tool}"
        for server, tools in known.items()
        for tool in tools or ()
        for alias in (tool, f"{server}__{tool}")
    }
    # A common prefix would make any two names similar.
    meant = nearest(name.removeprefix("mcp__"), [*names])
    hint = f"did you mean {names[meant]}?" if meant else _SEE
    return f"no tool of that name is known; {hint}"


def findings(  # noqa: PLR0913 -- what is configured of one agent
    agent: str,
    grant: Grant,
    names: Mapping[str, tuple[str, str]],
    known: Known,
    now: int,
    *,
    table: str,
) -> Iterator[Finding]:
    """
    Yield the problems of the grant of an agent.

    Args:
        agent: Its name.

        grant: Its grant.

        names: Its own names for tools.

        known: The offered tools of all servers.

        now: The time, in microseconds since 1970.

        table: The table of the agent; see `table_of`.
    """
    check = _Check(agent, table, grant, known)
    for number, rule in enumerate(grant.allow):
        yield from check.dead(rule, now)
        yield from check.hidden(rule, grant.allow[:number])
        yield from check.order(rule)
        for pattern in rule.tools:
            yield from check.offered(rule, pattern, "allows")
        yield from check.params(rule)
        yield from check.required(rule)
    for rule in grant.deny:
        yield from check.params(rule)
        for pattern in rule.tools:
            # A deny rule with a star may be meant for tools to come.
            if pattern.literal:
                yield from check.offered(rule, pattern, "forbids")
    for name, target in names.items():
        yield from check.named(name, target)


def idle(narrow: Grant, grant: Grant) -> Iterator[str]:
    """
    Yield what is wrong with each pattern of a narrowing that allows nothing of a grant.

    >>> find, fnd = (
    ...     Rule(id="allow[1]", tools=(Pattern.parse(text),), source="a.toml:1")
    ...     for text in ("crm/find", "crm/fnd")
    ... )
    >>> [*idle(Grant(allow=(fnd,)), Grant(allow=(find,)))]
    ['a.toml:1: the agent has no grant for crm/fnd; did you mean crm/find?']
    """
    granted = [
        pattern
        for rule in grant.allow
        for pattern in rule.tools
        if not _covering(pattern, grant.deny)
    ]
    for rule in narrow.allow:
        for pattern in rule.tools:
            denied = _covering(pattern, grant.deny)
            if denied is None and any(map(pattern.meets, granted)):
                continue
            meant = nearest(pattern.text, [one.text for one in granted])
            hint = f"; did you mean {meant}?" if meant else ""
            text = f"the agent has no grant for {pattern.text}{hint}"
            yield f"{rule.source}: {text}"


@dataclass(frozen=True, slots=True)
class _Check:
    agent: str
    table: str
    grant: Grant
    known: Known

    def _of(self, rule: Rule, code: str, problem: str, fix: str) -> Finding:
        return Finding(
            agent=self.agent,
            place=rule.id,
            source=rule.source,
            code=code,
            problem=problem,
            fix=fix,
        )

    def dead(self, rule: Rule, now: int) -> Iterator[Finding]:
        if rule.expires is not None and rule.expires <= now:
            text = f"it allows nothing since {when(rule.expires)}"
            yield self._of(rule, "expired", text, "remove it, or write a later time")
        if rule.calls == 0:
            text = "it allows 0 calls a run"
            yield self._of(rule, "spent", text, "remove it, or write a number")

    def hidden(self, rule: Rule, earlier: Sequence[Rule]) -> Iterator[Finding]:
        for pattern in rule.tools:
            if other := _covering(pattern, self.grant.deny):
                yield self._of(
                    rule,
                    "forbidden",
                    f"{pattern.text} is never allowed: {named_rule(other)} forbids it",
                    f"remove one of the two, or narrow {other.id}",
                )
            elif other := _covering(pattern, earlier):
                yield self._of(
                    rule,
                    "shadowed",
                    f"{pattern.text} has no effect here: {named_rule(other)} "
                    "already allows it",
                    f"remove one of the two, or put this one before {other.id}",
                )

    def order(self, rule: Rule) -> Iterator[Finding]:
        for pattern in (*rule.only_after, *rule.unless_after):
            yield from self.offered(rule, pattern, "waits for")
        for pattern in rule.only_after:
            if lacking(pattern, self.known):
                continue
            if not any(pattern.meets(p) for r in self.grant.allow for p in r.tools):
                yield self._of(
                    rule,
                    "order",
                    f"it waits for {pattern.text}, and no rule allows that",
                    f"allow {pattern.text}, or take it out of only_after",
                )

    def offered(self, rule: Rule, pattern: Pattern, does: str) -> Iterator[Finding]:
        found = lacking(pattern, self.known)
        if found:
            code, problem, fix = found
            yield self._of(rule, code, f"it {does} {pattern.text}, and {problem}", fix)

    def params(self, rule: Rule) -> Iterator[Finding]:
        schemas = self._schemas(rule)
        known = {name for schema in schemas.values() for name in schema}
        for name in rule.params.root.fields if rule.params and schemas else ():
            if name not in known:
                meant = nearest(name, [*known])
                fix = f"write {meant}" if meant else f"known: {', '.join(known) or '-'}"
                text = f"it names the parameter {name}, which no matching tool has"
                yield self._of(rule, "no_param", text, fix)

    def required(self, rule: Rule) -> Iterator[Finding]:
        if rule.params is None or rule.other_params:
            return
        for tool, schema in self._schemas(rule).items():
            lacking = sorted(
                name
                for name, needed in schema.items()
                if needed and name not in rule.params.root.fields
            )
            if lacking:
                yield self._of(
                    rule,
                    "required",
                    f"{tool} needs {', '.join(lacking)}, and the rule does not take it",
                    f"add params.{key_text(lacking[0])} = "
                    '{ ... }, or other_params = "allow"',
                )

    def _schemas(self, rule: Rule) -> dict[str, dict[str, bool]]:
        """Return the parameters of each tool of a rule: whether each is required."""
        found: dict[str, dict[str, bool]] = {}
        for server, tools in self.known.items():
            for tool, schema in (tools or {}).items():
                if rule.matches(server, tool):
                    said = _parameters(schema)
                    if said is None:
                        return {}
                    found[f"{server}/{tool}"] = said
        return found

    def named(self, name: str, target: tuple[str, str]) -> Iterator[Finding]:
        text = "/".join(target)
        found = lacking(Pattern.parse(text), self.known)
        if not found and not may_ever(
            self.grant, Route(server=target[0], tool=target[1])
        ):
            problem = "no rule allows that"
            found = "not_granted", problem, grant_for(self.table, text)
        if found:
            code, problem, fix = found
            yield Finding(
                agent=self.agent,
                place=f"names.{name}",
                source="",
                code=code,
                problem=f"it leads to {text}, and {problem}",
                fix=fix,
            )


def _parameters(schema: JSON) -> dict[str, bool] | None:
    """Return the parameters that a schema names; ``None``: it may accept others."""
    if not isinstance(schema, dict):
        return None
    named, needed = schema.get("properties"), schema.get("required")
    if not isinstance(named, dict) or "$ref" in schema:
        return None
    listed = needed if isinstance(needed, list) else []
    return {name: name in listed for name in named}


def _covering(pattern: Pattern, rules: Sequence[Rule]) -> Rule | None:
    """Return the first of *rules* that decides all calls that *pattern* covers."""
    if is_method(pattern.text.partition("/")[2]):
        return None
    for rule in rules:
        if not conditional(rule) and any(one.covers(pattern) for one in rule.tools):
            return rule
    return None


def lacking(pattern: Pattern, known: Known) -> tuple[str, str, str] | None:
    """Return code, problem and fix if no server offers a tool of *pattern*."""
    servers = [name for name in known if pattern.covers_server(name)]
    if not servers:
        meant = nearest(pattern.text.partition("/")[0], [*known])
        fix = f"write {meant}" if meant else "caxton server list shows the servers"
        return "no_server", "there is no such server", fix
    offered = [known[name] for name in servers]
    if any(tools is None for tools in offered):
        return None
    tools = [(name, tool) for name in servers for tool in known[name] or ()]
    if any(pattern.matches(*tool) for tool in tools) or is_method(
        pattern.text.partition("/")[2]
    ):
        return None
    meant = nearest(pattern.text, ["/".join(tool) for tool in tools])
    fix = f"write {meant}" if meant else f"caxton tool list --server {servers[0]}"
    return "no_tool", "no server offers such a tool", fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """
    One agent and one tool.

    Attributes:
        tool: ``server/tool``.

        may: ``yes``: always; ``if``: if conditions hold; ``deny``: a rule forbids it;
            ``-``: no rule allows it.

        rule: The first rule that says so.

        asks: With ``if``: no call is allowed without an approval.
    """

    agent: str
    tool: str
    may: Literal["yes", "if", "deny", "-"]
    rule: str | None = None
    asks: bool = False


def matrix(
    grants: Mapping[str, Grant], tools: Iterable[tuple[str, str]]
) -> dict[str, list[Cell]]:
    """
    Return a row of cells for each tool, sorted by name.

    Args:
        grants: The grants, by the name of the agent.

        tools: The offered tools. Tools that grants name without a star are added.
    """
    targets = {*tools, *(t for grant in grants.values() for t in grant.literals())}
    return {
        f"{server}/{tool}": [
            _cell(agent, grant, server, tool) for agent, grant in grants.items()
        ]
        for server, tool in sorted(targets)
    }


def _cell(agent: str, grant: Grant, server: str, tool: str) -> Cell:
    name = f"{server}/{tool}"
    denying, allowing = grant.speaking(server, tool)
    for rule in denying:
        if not conditional(rule):
            return Cell(agent=agent, tool=name, may="deny", rule=rule.id)
    if not allowing:
        return Cell(agent=agent, tool=name, may="-")
    free = [rule for rule in allowing if not conditional(rule)]
    if free and not denying:
        return Cell(agent=agent, tool=name, may="yes", rule=free[0].id)
    asks = all(rule.approve and not rule.approve.when for rule in allowing)
    return Cell(agent=agent, tool=name, may="if", rule=allowing[0].id, asks=asks)
