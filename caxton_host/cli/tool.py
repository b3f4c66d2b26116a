"""``caxton tool``: list, show, call and accept tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click
from click.exceptions import Exit

from ..core.calls import JSON, Completed
from ..core.names import AGENTS
from ..core.text.templates import summary
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import ToolError, UsageError
from ..lib.codec import decode_trusted
from ..lib.params import Words, split, types_of
from ..runs.history import Definition
from ..runs.tool_pinning import acceptance, compared, unaccepted
from . import completion
from .context import HostApi, check_known, on_host, wait
from .history import summed_up, tell_groups
from .options import variable_option, wire_log
from .output import (
    FAILED,
    awaiting,
    complain,
    note,
    patience,
    plain,
    pour,
    say,
    show,
    table,
    to_json,
)
from .overrides import by_hand, tapped
from .server_probe import offers, reached
from .tool_stubs import command as stubs

if TYPE_CHECKING:
    from ..config import Config
    from ..core.analysis.history import History
    from ..core.grants.tool_catalog import Offer, Offered
    from ..core.log.diff import Difference
    from ..ports.tools import RunScope
    from ..store.sql import SqlStore


@click.group("tool")
def command() -> None:
    """
    List, show, call and accept tools.

    \b
    Examples:
      caxton tool list
      caxton tool show time/get_current_time
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
      caxton tool stubs -o tools.pyi
    """


command.add_command(stubs)


@on_host(command.command("list"))
@click.option(
    "--server",
    shell_complete=completion.servers,
    help="Only the tools of this server.",
)
@variable_option
def list_(
    host: HostApi, server: str | None, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Start all configured servers and list their tools.

    \b
    Examples:
      caxton tool list
      caxton tool list --server time --json
    """
    print_tools(host.tools(server, variables), as_json=as_json)


@on_host(command.command("call"))
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@variable_option
@wire_log
def call(
    host: HostApi,
    tool: str,
    params: tuple[str, ...],
    variables: tuple[str, ...],
    wire_log: str | None,
    as_json: bool,
) -> None:
    """
    Call a tool by hand, without grant or record.

    The value of KEY=VALUE is read by the schema of the tool: text stays text. Without
    a type in the schema it is JSON if it parses as JSON, and text otherwise.

    \b
    Exit codes: 0 the tool answered; 1 it failed; 2 no such tool; 6 its server is
    unavailable.

    \b
    Examples:
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
    """
    server, name = split(tool)
    if server == AGENTS:
        raise UsageError(
            f"{tool} is an agent, and its calls are recorded",
            fix=f"caxton run {name}",
        )
    words = Words.read(params)
    config = tapped(host.load(), wire_log)
    names = config.granted_servers
    check_known(server, names, f"there is no server {server!r}", "caxton server list")
    scope = by_hand(config, variables)
    try:
        with patience(f"calling {tool}"):
            done = wait(_call(config, scope, (server, name), words))
    except ToolError as exc:
        if as_json:
            show(_document(Completed(is_error=True, message=str(exc)), exc))
        complain(f"{exc.kind}, sent {exc.sent}: {exc}", _remedy(exc, server, name))
        raise Exit(FAILED) from None
    if as_json:
        show(_document(done))
    else:
        data = done.data if isinstance(done.data, dict) else {}
        # A summary of the data is not printed instead of the data.
        untold = not done.message or (data and done.message == summary(name, data))
        pour(to_json(done.data) if untold else done.message)
    if done.is_error:
        see = f"caxton tool show {tool} shows what it takes"
        complain(f"{tool} answered with an error", see)
        raise Exit(FAILED)


def _document(done: Completed, failed: ToolError | None = None) -> dict[str, JSON]:
    """Return the ``caxton.result/v1`` document of a call."""
    return {
        "$type": "caxton.result/v1",
        "is_error": done.is_error,
        "message": done.message,
        "data": done.data,
        "duration_us": None if failed else done.duration_us,
        "failed": {"kind": failed.kind, "sent": failed.sent} if failed else None,
    }


def _remedy(exc: ToolError, server: str, tool: str) -> str:
    """Return the remedy for a failed call."""
    plain = server == WEBHOOK
    table = f"[webhooks.{tool}]" if plain else f"[servers.{server}]"
    if exc.fix:
        return exc.fix
    if exc.kind == "too_large":
        return f"raise max_result in {table}"
    if exc.kind == "timeout":
        return f"raise timeout in {table}, or call it again later"
    if plain:
        return f"check {table} of the configuration"
    return f"caxton server test {server} shows whether it answers"


async def _call(
    config: Config, scope: RunScope, target: tuple[str, str], words: Words
) -> Completed:
    from ..ports.tools import ToolRequest

    server, name = target
    async with reached(config, [server], scope) as servers:
        offered = await servers.tools.offered([server])
        known = {offer.tool: offer for offer in offered.offers}
        see = f"caxton tool list --server {server}"
        check_known(name, known, f"{server} has no tool {name!r}", see)
        return await servers.tools.call_tool(
            ToolRequest(
                run_id="by-hand",
                call=1,
                server=server,
                tool=name,
                params=words.params(known[name].parameters),
                definition_sha256=None,
                idempotency_key="",
            )
        )


#: The ``caxton.tool/v1`` document of a tool.
Document: TypeAlias = Mapping[str, JSON]

_HEADLINE = 80


def headline(description: str) -> str:
    """Return the first line of a description, cut."""
    return description.strip().partition("\n")[0][:_HEADLINE]


def tell_changed(tools: Iterable[Document]) -> None:
    """Warn about each tool that is hidden because its definition has changed."""
    for tool in tools:
        if tool["on_change"] == "refuse" and tool["accepted"] is False:
            note(f"warning: {unaccepted(str(tool['server']), str(tool['tool']))}")


def print_tools(tools: Sequence[Document], *, as_json: bool) -> None:
    """Print tools, one per line."""
    tell_changed(tools)
    if as_json:
        show([{**tool} for tool in tools])
        return
    table(
        ("tool", "exposed as", "effect", "description"),
        (
            (_name(t), t["exposed"], t["effect"], headline(str(t["description"])))
            for t in tools
        ),
    )


def _name(tool: Document) -> str:
    return f"{tool['server']}/{tool['tool']}"


def _page(tool: Document, *, as_json: bool) -> None:
    """Print the page of a tool."""
    tell_changed([tool])
    if as_json:
        show({**tool})
        return
    say(f"{_name(tool)}  {tool['effect']}, exposed as {tool['exposed']}")
    if description := str(tool["description"]).strip():
        say(description)
    schema = tool["input_schema"]
    rows = [*_parameters(schema if isinstance(schema, dict) else {})]
    if rows:
        table(("parameter", "type", "", "description"), rows)
    say(f"definition {tool['definition_sha256']}")


def _parameters(schema: Mapping[str, JSON]) -> list[tuple[str, str, str, str]]:
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    rows: list[tuple[str, str, str, str]] = []
    for name, part in (properties if isinstance(properties, dict) else {}).items():
        told = part.get("description") if isinstance(part, dict) else None
        rows.append(
            (
                name,
                " or ".join(types_of(part, schema)) or "any",
                "required" if name in needed else "",
                headline(told) if isinstance(told, str) else "",
            )
        )
    return rows


@on_host(command.command("show"))
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@variable_option
def show_(host: HostApi, tool: str, variables: tuple[str, ...], as_json: bool) -> None:
    """
    Show the description, parameters and effect of a tool.

    \b
    Exit codes: 0 it is there; 2 no such tool; 6 its server is unavailable.

    \b
    Examples:
      caxton tool show time/get_current_time
      caxton tool show crm/search --json
    """
    server, name = split(tool)
    found = host.tools(server, variables)
    known = {str(one["tool"]): one for one in found}
    see = f"caxton tool list --server {server}"
    check_known(name, known, f"{server} has no tool {name!r}", see)
    _page(known[name], as_json=as_json)


@on_host(command.command("accept"))
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@variable_option
def accept(
    host: HostApi, tool: str, dry_run: bool, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Accept the changed definition of a tool.

    Prints each field that differs: the accepted value, then the current one; and which
    of the newest 1,000 runs that used the tool the new schemas refuse. New runs see the
    new definition; runs in progress keep theirs. An event records who accepted it.

    \b
    Exit codes: 0 accepted, or unchanged; 2 no such tool; 6 its server is
    unavailable.

    \b
    Examples:
      caxton tool accept crm/lookup --dry-run
      caxton tool accept crm/lookup
    """
    server, name = split(tool)
    with awaiting(f"asking {server}"):
        work = _compare if dry_run else _accept
        before, offer, found, history = wait(work(host, (server, name), variables))
    state = _state(before, offer, dry_run=dry_run)
    if as_json:
        past = history.to_document() if history else None
        show({**acceptance(offer, before, state, found), "history": past})
        return
    for one in found:
        say(plain(one.path))
        for sign, value in (("-", one.a), ("+", one.b)):
            if value is not None:
                say(f"  {sign} {plain(value)}")
    if history:
        newest = "" if history.complete else " (the newest)"
        note(f"held against the new schemas, of {summed_up(history)}{newest}")
        tell_groups(history)
    note(f"{tool} is {_STATES[state]}")


_STATES = {
    "same": "what was accepted before",
    "new": "accepted: no run had seen it",
    "changed": "not accepted yet: without --dry-run, it will be",
    "accepted": "accepted: runs that begin from now on see it",
}


def _state(before: str | None, offer: Offer, *, dry_run: bool) -> str:
    if before == offer.definition_sha256:
        return "same"
    if dry_run:
        return "changed"
    return "accepted" if before else "new"


#: The accepted digest of a tool, the current one, the differences, and the runs that
#: used the tool, judged against these.
_Compared: TypeAlias = "tuple[str | None, Offer, list[Difference], History | None]"


async def _compared(config: Config, store: SqlStore | None, offer: Offer) -> _Compared:
    before, found = await compared(store, offer)
    if store is None or before in {None, offer.definition_sha256}:
        return before, offer, found, None
    definition = Definition(
        server=offer.server,
        tool=offer.tool,
        document=decode_trusted(offer.definition),
        config=config,
    )
    return before, offer, found, await definition.newest(store.reader)


async def _compare(
    host: HostApi, target: tuple[str, str], variables: Sequence[str]
) -> _Compared:
    """Return how a tool has changed."""
    config, server = host.load(), target[0]
    see = "caxton server list"
    check_known(server, config.servers, f"there is no server {server!r}", see)
    async with reached(config, [server], by_hand(config, variables)) as asked:
        offer = _offer(target, await asked.tools.offered([server]))
        return await _compared(config, asked.store, offer)


async def _accept(
    host: HostApi, target: tuple[str, str], variables: Sequence[str]
) -> _Compared:
    """Accept a tool, and return the same as `_compare`."""
    from ..app.maintenance import keeping

    config, server = host.load(), target[0]
    see = "caxton server list"
    check_known(server, config.servers, f"there is no server {server!r}", see)
    offered = await offers(config, [server], by_hand(config, variables))
    offer = _offer(target, offered)
    async with keeping(config, host.paths()) as keeper:
        found = await _compared(config, keeper.store, offer)
        if found[0] != offer.definition_sha256:
            await keeper.accept(*target, offer.definition)
    return found


def _offer(target: tuple[str, str], offered: Offered) -> Offer:
    server, tool = target
    known = {offer.tool: offer for offer in offered.offers}
    see = f"caxton tool list --server {server}"
    check_known(tool, known, f"{server} has no tool {tool!r}", see)
    return known[tool]
