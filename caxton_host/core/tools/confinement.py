"""Confinement of tool servers that are processes: what one may do, what is in force."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

Network: TypeAlias = Literal["none", "host"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Confine:
    """
    What a server may do, beside running its program in a scratch folder.

    Attributes:
        read: Paths that it may read.

        write: Paths that it may read and change.

        connect: The network addresses that it may connect to.

        network: ``host``: it may connect to whatever the host can.

        memory: Most bytes of data of each process, of the scratch folder, and of each
            file.

        processes: Most processes and threads; ``None``: `PROCESSES`, if the kernel can
            count them.

        shared: All agents share a process of it. Otherwise each trust domain has its
            own.

        user: The user that it runs as, if not the host's.

        guarded: Files and folders of the host, which are never granted.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    network: Network = "none"
    memory: int = 1024 * _MIB
    processes: int | None = None
    shared: bool = False
    user: str | None = None
    guarded: tuple[str, ...] = ()


#: How the reason begins why a server was not started for lack of confinement.
NOT_CONFINED = "confinement: "
#: Most processes and threads of a server, if its configuration does not say.
PROCESSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """
    What a machine has to confine servers with.

    Attributes:
        landlock: The version of Landlock; 0: none.

        filter: System calls can be filtered.

        processes: There are namespaces of processes.

        scratch: There are private file systems in memory.

        frozen: What a server may not write can be made read-only for it.

        proc: There is a ``/proc`` of a namespace.

        counted: Processes of the host's user can be counted for each server.

        connect: What makes a network of a server's own, or nothing.
    """

    landlock: int = 0
    filter: bool = False
    processes: bool = False
    scratch: bool = False
    frozen: bool = False
    proc: bool = False
    counted: bool = False
    connect: str = ""


def lacking(machine: Machine) -> str:
    """Return what a machine lacks to confine any server, or nothing."""
    if not machine.landlock:
        return (
            "Landlock (Linux 5.13 or newer, with landlock among its security modules)"
        )
    if not machine.filter:
        return "seccomp (Linux on x86_64 or aarch64)"
    return ""


_NETWORK = {"none": "none: no socket can be made", "host": "as the host's"}


def in_force(machine: Machine, confine: Confine) -> dict[str, str]:
    """Return what holds for a server on a machine, by what it is about."""
    apart = machine.processes
    counted = machine.counted or (apart and confine.user is not None)
    most = confine.processes or PROCESSES
    network = _NETWORK[confine.network]
    if confine.connect:
        made = machine.connect or "no namespace: the server does not start"
        network = f"to {', '.join(confine.connect)} only, by a proxy ({made})"
    memory = f"{confine.memory // _MIB} MiB"
    return {
        "files": f"Landlock version {machine.landlock}"
        + ("; all else is mounted read-only" if machine.frozen else ""),
        "system calls": "seccomp",
        "network": network,
        "processes": "end with the host: "
        + ("a namespace of their own" if apart else "a supervisor, which can be killed")
        + (f"; at most {most}" if counted else "; not counted"),
        "memory": f"{memory} of data for each process, and for a file",
        "scratch": f"in memory, at most {memory}"
        if machine.scratch
        else "a folder, removed when the server ends; no limit",
        "/proc": "the server's own processes" if machine.proc else "none",
        "agents": "share one process" if confine.shared else "have a process each",
        "user": confine.user or "the host's",
    }


def inside(path: str, folders: Iterable[str]) -> str | None:
    """
    Return the first of *folders* that is *path*, or has it somewhere below.

    >>> inside("/srv/a/b", ["/srv/b", "/srv/a"]), inside("/srv/ab", ["/srv/a"])
    ('/srv/a', None)
    """
    return next((one for one in folders if PurePath(path).is_relative_to(one)), None)
