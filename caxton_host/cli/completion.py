"""
``caxton completion``: shell completion.

It starts nothing and reports no errors: unknown names are not completed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..core.log.runs import RunFilter
from ..errors import CaxtonError
from .context import as_json, wait
from .local_host import LocalHost
from .output import show

if TYPE_CHECKING:
    from ..config import Config
    from ..store.sql import SqlStore


_MOST = 100


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@as_json
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """
    Print the completion script of SHELL.

    \b
    Examples:
      caxton completion bash > ~/.local/share/bash-completion/completions/caxton
      caxton completion fish > ~/.config/fish/completions/caxton.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 -- one of the choices above
    root = ctx.find_root().command
    script = made(root, {}, "caxton", "_CAXTON_COMPLETE").source()
    if as_json:
        show({"$type": "caxton.completion/v1", "shell": shell, "script": script})
    else:
        click.echo(script)


def servers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the configured servers whose names start with *incomplete*."""
    config = _tools(ctx)
    return _beginning(incomplete, config.servers if config else ())


def agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the configured agents whose names start with *incomplete*."""
    config = _tools(ctx)
    return _beginning(incomplete, config.agents if config else ())


def schedules(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the configured schedules whose names start with *incomplete*."""
    config = _tools(ctx)
    return _beginning(incomplete, config.schedules if config else ())


def sessions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the configured sessions whose names start with *incomplete*."""
    config = _tools(ctx)
    return _beginning(incomplete, config.sessions if config else ())


def tools(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return ``SERVER/TOOL``, as far as configuration and log know the tools."""
    from ..core.tools.webhooks import SERVER as WEBHOOK

    config = _tools(ctx)
    if config is None:
        return []
    known = {
        f"{server.name}/{tool}"
        for server in config.servers.values()
        for tool in server.tools
    }
    known |= {f"{WEBHOOK}/{name}" for name in config.webhooks}
    with suppress(CaxtonError):
        known |= wait(_met(config))
    strangers = {f"{name}/" for name in config.servers}
    strangers -= {f"{name.partition('/')[0]}/" for name in known}
    return _beginning(incomplete, known | strangers)


def tools_or_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return what `tools` does, and let the shell complete names of files."""
    found = map(CompletionItem, tools(ctx, param, incomplete))
    return [*found, CompletionItem(incomplete, type="file")]


def suspended(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the suspended runs whose ids start with *incomplete*, newest first."""
    return _items(ctx, incomplete, _suspended)


def tokens(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the unrevoked tokens whose ids start with *incomplete*."""
    return _items(ctx, incomplete, _tokens)


def _items(
    ctx: click.Context,
    incomplete: str,
    ask: Callable[[Config], Coroutine[Any, Any, Mapping[str, str]]],
) -> list[CompletionItem]:
    config = _log(ctx)
    found: Mapping[str, str] = {}
    if config is not None:
        with suppress(CaxtonError):
            found = wait(ask(config))
    return [
        CompletionItem(key, help=about)
        for key, about in found.items()
        if key.startswith(incomplete)
    ]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _host(ctx: click.Context) -> LocalHost | None:
    given = ctx.find_root().params
    if given.get("host"):
        return None  # No request is sent while a person types.
    return LocalHost(config=given.get("config"), db=given.get("db"))


def _log(ctx: click.Context) -> Config | None:
    """Return the location of the log."""
    if host := _host(ctx):
        with suppress(CaxtonError, OSError):
            return host.look()
    return None


def _tools(ctx: click.Context) -> Config | None:
    """Return the configuration of the tools, as far as it can be read."""
    if host := _host(ctx):
        with suppress(CaxtonError, OSError):
            return host.load(quiet=True)
        # Names need no resolved secrets.
        with suppress(CaxtonError, OSError):
            return host.look("tools")
    return None


async def _met(config: Config) -> set[str]:
    async with _near(config) as store:
        found = await store.definitions.accepted([*config.servers]) if store else {}
    return {f"{server}/{tool}" for server, tool in found}


async def _suspended(config: Config) -> dict[str, str]:
    async with _near(config) as store:
        only = RunFilter(state="suspended")
        rows = await store.reader.runs(_MOST, only) if store else []
    return {row.run_id: row.agent for row in rows}


async def _tokens(config: Config) -> dict[str, str]:
    async with _near(config) as store:
        rows = await store.tokens.all() if store else []
    return {row.id: row.name for row in rows if row.revoked_at is None}


@asynccontextmanager
async def _near(config: Config) -> AsyncGenerator[SqlStore | None]:
    """Open the store, unless it may be on another machine."""
    from ..app.bootstrap import open_store

    if not config.store_url.startswith("sqlite:"):
        yield None
        return
    async with open_store(config, write=False) as store:
        yield store
