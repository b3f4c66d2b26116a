"""
The command line: one module per noun, imported on use.

Data on stdout, progress and hints on stderr. Every error says what was wrong and
ends with a ``To fix:`` line.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import sys
from importlib import import_module

import click

from .. import __version__
from ..core.names import nearest
from ..errors import CaxtonError, ConfigError, UsageError
from ..lib.logs import Style
from . import interrupt
from .context import HostApi
from .output import USAGE, Notes, complain, exit_code, logged, note, remedy

__all__ = ["caxton", "execute", "main"]

#: Commands and their lines in ``caxton --help``, which imports no command. Each is a
#: module of that name, but for those in `_MODULES`.
COMMANDS = {
    "demo": "Show a governed run, offline, in half a minute.",
    "init": "Write a starter configuration here.",
    "run": "Run an agent, a program or a module to its end.",
    "serve": "Serve agents as MCP tools, with a control API.",
    "ui": "Open the console in a browser.",
    "mcp": "Put MCP clients behind this host.",
    "runs": "List, show and explain runs.",
    "events": "List, follow and export the events of a run.",
    "replay": "Execute a recorded run again without side effects.",
    "audit": "Verify, sign and export the log.",
    "witness": "Vouch for the logs of others.",
    "server": "List, add, remove and test tool servers.",
    "tool": "List and call tools.",
    "agent": "Create, build and inspect agents.",
    "program": "Lock the dependencies of programs.",
    "runtime": "Install, export and import what executes programs.",
    "grant": "Check, explain and propose what agents may do.",
    "approval": "List, approve and deny calls that wait for approval.",
    "schedule": "List, pause and start what runs by the clock.",
    "freeze": "Stop the calls of an agent, a token, a server or a schedule.",
    "thaw": "Let what is frozen make calls again.",
    "notify": "Test where notices are sent.",
    "config": "Check, show, import and reload the configuration.",
    "db": "Migrate, copy and archive the event store.",
    "doctor": "Check this machine's prerequisites.",
    "support-bundle": "Collect what is needed to help, without secrets.",
    "completion": "Print the completion script of a shell.",
}

#: Commands that share a module, where each has its own name.
_MODULES = {
    "doctor": "setup",
    "init": "setup",
    "support-bundle": "support",
} | dict.fromkeys(("freeze", "thaw"), "freezes")

#: Signals that mean the same as Ctrl-C.
_ENDING = (signal.SIGTERM, signal.SIGHUP)

#: Commands that work only on this machine.
_HERE = {
    *("db", "demo", "doctor", "init", "mcp", "program", "runtime", "serve", "ui"),
    *("notify", "support-bundle", "witness"),
}

#: Options that these commands do not take.
_OF_HOSTS = {"host", "token_file", "client_cert", "plain_http"}

#: Errors of reading a value that is not of its type.
_UNREADABLE = (
    *(ArithmeticError, AssertionError, AttributeError),
    *(LookupError, TypeError, ValueError),
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{_MODULES.get(cmd_name, cmd_name)}", __package__)
        name = cmd_name.replace("-", "_") if cmd_name in _MODULES else "command"
        command: click.Command = getattr(module, name)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # Otherwise click exits as after a failure.
            return _cut_off()
        except CaxtonError as exc:
            if host := _host(ctx):
                exc.fix = host.named(remedy(exc))
            raise
        except _UNREADABLE as exc:
            if (host := _host(ctx)) and (wrong := host.misread(exc)):
                raise wrong from exc
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Suggestions of click would import every command.
        if args[0] not in COMMANDS and (meant := nearest(args[0], [*COMMANDS])):
            message = f"No such command {args[0]!r}. Did you mean {meant!r}?"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-c",
    "--config",
    type=click.Path(dir_okay=False),
    help="The configuration file; default ./caxton.toml.",
)
@click.option(
    "--db", metavar="URL", help="The event store; default from the configuration."
)
@click.option(
    "--host",
    metavar="URL",
    envvar="CAXTON_HOST",
    help="A serving host instead of this machine; default $CAXTON_HOST.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="The file with the token for --host; default $CAXTON_TOKEN.",
)
@click.option(
    "--client-cert",
    type=click.Path(dir_okay=False),
    envvar="CAXTON_CLIENT_CERT",
    help="The certificate and key to show --host, in PEM.",
)
@click.option(
    "--plain-http",
    is_flag=True,
    help="Allow unencrypted HTTP to --host on a trusted network.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Log as text or as one JSON document per line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The lowest level that is logged to stderr; default warning.",
)
@click.version_option(__version__, prog_name="caxton")
@click.pass_context
def caxton(
    ctx: click.Context,
    config: str | None,
    db: str | None,
    host: str | None,
    token_file: str | None,
    client_cert: str | None,
    plain_http: bool,
    log_format: Style | None,
    log_level: str | None,
) -> None:
    """
    Run agents that you did not write.

    An agent is a WebAssembly module without direct access to anything. Each tool call
    is checked against a grant and recorded before it is sent; the log can be verified
    and replayed.

    \b
    Examples:
      caxton demo
      caxton init
      caxton run weather -i '{"location": "Seattle"}'
      caxton runs explain @last event 2
      caxton replay @last
      caxton --host https://caxton.example --token-file token runs list
    """
    if host is not None and (config or db):  # Not even an empty one.
        raise UsageError(
            "--host is for what a host has, --config and --db for what is here",
            fix="leave one out; $CAXTON_HOST is --host too",
        )
    ctx.obj = chosen = _chosen(
        config, db, host, token_file, client_cert, plain=plain_http
    )
    if ctx.invoked_subcommand in _HERE:
        chosen.check_local(f"caxton {ctx.invoked_subcommand}")
    if log_format or log_level:
        ctx.with_resource(logged(log_format, log_level or "warning"))


def _chosen(
    config: str | None,
    db: str | None,
    url: str | None,
    token_file: str | None,
    client_cert: str | None,
    *,
    plain: bool,
) -> HostApi:
    """Return the host that the options before a command name."""
    if url is None:
        from .local_host import LocalHost

        return LocalHost(config=config, db=db)
    from .remote_host import RemoteHost

    return RemoteHost(
        url=url, token_file=token_file, client_cert=client_cert, plain=plain
    )


def _host(ctx: click.Context) -> HostApi | None:
    """Return the chosen host, or ``None`` before the options are parsed."""
    host: HostApi | None = ctx.obj
    return host


def main() -> None:
    """Run the command line, and exit."""
    if sys.platform == "win32":
        complain(
            "Windows is not supported: its processes cannot be confined as agents need",
            "run caxton on Linux, or under WSL 2",
        )
        sys.exit(USAGE)
    _prepare()
    code = execute(sys.argv[1:])
    # Skips the last garbage collection of the interpreter: 0.2 s.
    gc.freeze()
    _leave()
    sys.exit(code)


def execute(args: list[str]) -> int:
    """Run one command line, and return its exit code."""
    try:
        code: object = caxton.main(args, prog_name="caxton", standalone_mode=False)
    except click.ClickException as exc:
        return _misused(exc)
    except (click.Abort, KeyboardInterrupt):
        note("interrupted")
        return interrupt.code()
    except CaxtonError as exc:
        if isinstance(exc, ConfigError) and exc.each[1:]:
            note(f"caxton config check lists all {len(exc.each)} mistakes")
        complain(str(exc), remedy(exc))
        return exit_code(exc)
    except OSError as exc:
        named = f"{exc.filename}: " if exc.filename else ""
        complain(
            f"{named}{exc.strerror or exc}",
            "check that the path exists, and that you may access it",
        )
        return USAGE
    return code if isinstance(code, int) else 0


def _misused(exc: click.ClickException) -> int:
    where = getattr(exc, "ctx", None)
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        click.echo(exc.format_message(), err=True)
    else:
        path = where.command_path if where else "caxton"
        # click prints choices on lines of their own, after tabs.
        message = exc.format_message().replace("\n\t", " ")
        complain(message, _misplaced(exc) or f"see {path} --help")
    return USAGE


def _misplaced(exc: click.ClickException) -> str | None:
    """Return the fix for an option that belongs before the command."""
    if not isinstance(exc, click.NoSuchOption) or exc.ctx is None:
        return None
    ctx, root = exc.ctx, exc.ctx.find_root()
    path = ctx.command_path.removeprefix("caxton ")
    for option in _options(root):
        if exc.option_name not in option.opts:
            continue
        fixes = [
            f"caxton {path} {_shown(own.opts[0], own, ctx)} ..."
            for own in _options(ctx)
            if own.name == option.name
        ]
        if path.partition(" ")[0] not in _HERE or option.name not in _OF_HOSTS:
            fixes.append(f"caxton {_shown(exc.option_name, option, root)} {path} ...")
        return f"write {', or '.join(fixes)}" if fixes else None
    return None


def _options(ctx: click.Context) -> list[click.Option]:
    return [one for one in ctx.command.params if isinstance(one, click.Option)]


def _shown(name: str, option: click.Option, ctx: click.Context) -> str:
    return name if option.is_flag else f"{name} {option.make_metavar(ctx)}"


def _cut_off() -> int:
    # The rest of the buffer would fail again at interpreter shutdown.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _prepare() -> None:
    """Set up the process: logging, garbage collection, signals."""
    # Imports make many objects and no garbage: a twentieth of the start.
    gc.set_threshold(50_000, 20, 100)
    logging.getLogger().addHandler(Notes())
    if isinstance(stdout := sys.stdout, io.TextIOWrapper):
        # Escape what the terminal cannot encode.
        stdout.reconfigure(errors="backslashreplace")
    sys.unraisablehook = interrupt.unhandled
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # Ignored under nohup.
            signal.signal(number, interrupt.terminate)


def _leave() -> None:
    """Restore the default handlers of signals: nothing is left to do."""
    for number in _ENDING:
        if signal.getsignal(number) == interrupt.terminate:
            signal.signal(number, signal.SIG_DFL)
