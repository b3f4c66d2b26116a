"""What ``caxton mcp install`` and ``uninstall`` change: files, and what they hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..config.client_files import ClientFile, given_back, shown_diff, text_diff
from ..config.client_import import SECRETS, take_over
from ..config.clients import CLIENTS, Client, Scope, is_host, usual
from ..config.load import fitted_name, workspace
from ..core.calls import JSON
from ..errors import ConfigError, NotFoundError, UsageError
from ..lib.files import Change, read_if_there
from .context import HostApi

_KEPT = ".before-caxton"
_PRIVATE = 0o600


@dataclass(slots=True, kw_only=True)
class Plan:
    """
    What a command changes.

    Attributes:
        path: The client's file.

        before: What it holds, or ``None``: it is not there.

        after: What it is to hold, or ``None``: it is removed.

        copy: Where the copy of the file without this host is.

        copied: What that holds.

        keeps: What it is to hold.

        config: The configuration, if it changes, and both of its contents.

        secrets: Files of secrets to write, with what they hold. A new folder of
            theirs is ignored by git.

        moved: The servers that change places.

        allow: The rule that grants their tools to the session.
    """

    client: str
    name: str
    path: Path
    before: bytes | None
    after: bytes | None = None
    copy: Path
    copied: bytes | None
    keeps: bytes | None = None
    config: tuple[Path, bytes, bytes] | None = None
    secrets: Mapping[Path, bytes] = field(default_factory=dict[Path, bytes], repr=False)
    moved: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    allow: str | None = None

    def changes(self) -> list[Change]:
        """Return what is written: the client's file last."""
        found = [
            Change(folder / ".gitignore", b"*\n")
            for folder in {path.parent for path in self.secrets}
            if not folder.exists()
        ]
        found += [Change(path, data, _PRIVATE) for path, data in self.secrets.items()]
        if self.keeps is not None and self.keeps != self.copied:
            found.append(Change(self.copy, self.keeps, _PRIVATE))
        if self.config and self.config[1] != self.config[2]:
            found.append(Change(self.config[0], self.config[2]))
        if self.before != self.after:
            restores = self.before is None and self.copied is not None
            found.append(Change(self.path, self.after, _PRIVATE if restores else None))
        if self.keeps is None and self.copied is not None:
            found.append(Change(self.copy, None))
        return found

    def diff(self) -> str:
        """Return what changes in files that people read."""
        parts = [shown_diff(self.before, self.after, str(self.path))]
        if self.config:
            path, *both = self.config
            before, after = (data.decode("utf-8-sig", "replace") for data in both)
            # Only what is added: the lines around it may have secrets.
            parts.append(text_diff(before, after, str(path), around=0))
        return "\n".join(filter(None, parts))


def configuration(host: HostApi) -> Path:
    """Return the path of the configuration."""
    if "--db" in host.given():
        raise UsageError(
            "--db is not written into files of others: it may have a password",
            fix="name the store in the configuration, as url in [store]",
        )
    config = host.look().path
    if config is None:
        raise UsageError(
            "there is no configuration, so there is nothing to offer",
            fix="caxton init, or name a configuration with --config",
        )
    return config


# -- which file ----------------------------------------------------------------


def places_of(client: Client, scope: Scope | None, file: Path | None) -> list[Path]:
    """Return the files that are meant."""
    if file:
        return [file.expanduser().absolute()]
    places = client.places(os.environ, Path.cwd())
    if scope is None:
        return [*places.values()]
    if scope not in places:
        raise UsageError(
            f"{client.title} has no file of the scope {scope}",
            fix=f"write --scope {', '.join(places)}" if places else "write --file PATH",
        )
    return [places[scope]]


def place_of(client: Client, scope: Scope | None, file: Path | None) -> Path:
    """Return the file to write, which need not be there."""
    if scope or file:
        return places_of(client, scope, file)[0]
    return usual(client.places(os.environ, Path.cwd()))


def start(client: str, name: str, path: Path) -> Plan:
    """Return a plan that changes nothing yet."""
    copy = path.with_name(path.name + _KEPT)
    before, copied = read_if_there(path), read_if_there(copy)
    return Plan(
        client=client, name=name, path=path, before=before, copy=copy, copied=copied
    )


# -- plans ---------------------------------------------------------------------


def plan_install(
    plan: Plan,
    host: HostApi,
    entry: Callable[[Mapping[str, str]], dict[str, JSON]],
    *,
    takes: bool,
    force: bool,
) -> None:
    """
    Complete the plan of an installation.

    Args:
        plan: See `start`.

        host: Whose entry it is.

        entry: Returns the entry with these variables.

        takes: Whether the other servers of the file become servers of the host.

        force: Whether another server of that name is replaced.

    Raises:
        UsageError: The file or the configuration cannot be changed so.
    """
    key = CLIENTS[plan.client].key
    with _named(plan.path):
        now = ClientFile.parse(plan.before, key)
        own = {name: one for name, one in now.servers.items() if is_host(one)}
        plan.keeps = given_back(plan.before, plan.copied, key, own, _taken(host))
        base = ClientFile.parse(plan.keeps, key)
    others = {name: one for name, one in now.servers.items() if name not in own}
    env = _variables(own.get(plan.name))
    if takes:
        env |= _take_over(plan, host, others)
    there = None if takes and plan.name in others else now.servers.get(plan.name)
    if not (there is None or force or is_host(there, host.look().path)):
        raise UsageError(
            f"{plan.path}: it has another server {plan.name!r}",
            fix="give it another name with --name, or replace it with --force",
        )
    # What was taken over before stays with the host.
    moved = {*base.servers} - {*now.servers} | {*(others if takes else ())}
    entries = {**own, plan.name: entry(env)}
    with _named(plan.path):
        plan.after = base.drop(moved - {plan.name}).put(entries).data


def _variables(entry: JSON) -> dict[str, str]:
    env = entry.get("env") if isinstance(entry, dict) else None
    return {k: str(v) for k, v in env.items()} if isinstance(env, dict) else {}


def _take_over(
    plan: Plan, host: HostApi, servers: Mapping[str, JSON]
) -> dict[str, str]:
    """Plan the move of servers, and return the variables that they need."""
    config = configuration(host)
    places = CLIENTS[plan.client].places(os.environ, Path.cwd())
    is_user = plan.path == places.get("user")
    taken = take_over(
        servers,
        shown=plan.path.name,
        folder=Path.cwd() if is_user else workspace(plan.path.absolute()),
        config=config,
        environ=os.environ,
    )
    plan.config = (config, config.read_bytes(), taken.content)
    plan.moved = taken.names
    plan.notes += taken.notes
    folder = config.resolve().parent / SECRETS
    held = {folder / name: text.encode() for name, text in taken.secrets.items()}
    for path, data in held.items():
        if read_if_there(path) not in {None, data}:
            raise UsageError(
                f"{path} holds another secret already",
                fix="remove it, and repeat the command",
            )
    plan.secrets = held
    unset = [name for name in taken.needed if name not in os.environ]
    if unset:
        plan.notes.append(f"set these where the host starts: {', '.join(unset)}")
    return taken.variables


def plan_uninstall(
    host: HostApi, client: str, name: str | None, paths: Iterable[Path]
) -> Plan:
    """Return the plan of an uninstallation: in the first file that has this host."""
    key = CLIENTS[client].key
    tried = [*paths]
    for path in tried:
        plan = start(client, name or "caxton", path)
        with _named(path):
            now = ClientFile.parse(plan.before, key)
            own = [one for one, values in now.servers.items() if is_host(values)]
            gone = [one for one in own if name in {None, one}]
            if not gone and (name or plan.copied is None):
                continue
            if name is None and len(gone) > 1:
                raise UsageError(
                    f"it has several entries: {', '.join(gone)}",
                    fix=f"name one with --name: {gone[0]}",
                )
            if len(own) > len(gone):  # The others are for the same servers.
                plan.keeps, plan.after = plan.copied, now.drop(gone).data
                return plan
            plan.after = given_back(plan.before, plan.copied, key, gone, _taken(host))
            after = ClientFile.parse(plan.after, key)
        plan.name = gone[0] if gone else plan.name
        plan.moved = [one for one in after.servers if one not in now.servers]
        old = ClientFile.parse(plan.copied, key)
        if not {*old.servers} <= {*after.servers}:
            plan.keeps = plan.copied
            plan.notes.append(f"{plan.copy} is kept: it has servers that are gone")
        return plan
    raise NotFoundError(
        f"this host is not in {', '.join(map(str, tried)) or 'any file'}",
        fix="name the file with --file, or the entry with --name",
    )


def _taken(host: HostApi) -> Callable[[str], bool]:
    """Return whether the host has a server of a client, as far as is known."""
    try:
        config = host.look("tools")
    except ConfigError:
        return lambda _: True
    if config.path is None:
        return lambda _: True
    return lambda name: fitted_name(name) in config.servers


@contextlib.contextmanager
def _named(path: Path) -> Generator[None]:
    """Name a file in errors."""
    try:
        yield
    except UsageError as exc:
        raise UsageError(f"{path}: {exc}", fix=exc.fix) from None
