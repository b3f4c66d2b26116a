"""An option of ``caxton`` itself that is typed behind a command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from caxton_host.cli import caxton, execute

HERE = {
    *("db", "demo", "doctor", "init", "mcp", "program", "runtime", "serve", "ui"),
    *("notify", "support-bundle", "witness"),
}
OF_HOSTS = {"--host", "--token-file", "--plain-http"}
OPTIONS = {
    "-c": "-c FILE",
    "--config": "--config FILE",
    "--db": "--db URL",
    "--host": "--host URL",
    "--token-file": "--token-file FILE",
    "--plain-http": "--plain-http",
    "--log-format": "--log-format [text|json]",
    "--log-level": "--log-level [debug|info|warning|error]",
}


def leaves(
    command: click.Command, *path: str
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, *path, name)


def test_an_option_behind_any_command_is_told_where_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path, command in leaves(caxton):
        own = {opt for param in command.params for opt in param.opts}
        if path == ("server", "add"):  # What follows is the command of a server.
            continue
        for option, typed in OPTIONS.items():
            if option in own or (path[0] in HERE and option in OF_HOSTS):
                continue
            assert execute([*path, option, "secret"]) == 2
            told = capsys.readouterr().err
            assert f" caxton {typed} {' '.join(path)} ..." in told
            assert "secret" not in told


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        ("serve --host 0.0.0.0", "write caxton serve --address ADDRESS ...\n"),
        (
            "config reload --host host/1",
            "write caxton config reload --only HOST ..., or caxton ",
        ),
        (
            "server restart x --host host/1",
            "write caxton server restart --only HOST ..., or ",
        ),
    ],
)
def test_a_command_that_means_another_host_names_its_own_option(
    typed: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(typed.split()) == 2
    assert fix in capsys.readouterr().err


def test_an_option_that_nothing_has_gets_the_help_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["runs", "list", "--nothing"]) == 2
    assert "To fix: see caxton runs list --help" in capsys.readouterr().err
