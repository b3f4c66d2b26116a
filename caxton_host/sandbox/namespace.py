"""
A network of its own for a process: loopback, and a port that the host listens on.

A socket stays in the network that it was made in. So the process makes one that
listens, hands it to the host, and the host answers there; nothing else leads out. The
namespace is made here if the kernel lets an ordinary user, else by ``bubblewrap``.

Imports little: it is part of the start of a server.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

#: Where the host listens. The network is empty, so the port is free.
PORT = 3128
#: Connections that wait to be accepted.
BACKLOG = 128

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 1
_BUBBLEWRAP = (
    *("bwrap", "--unshare-user", "--unshare-net", "--unshare-pid", "--unshare-ipc"),
    *("--dev-bind", "/", "/", "--proc", "/proc", "--die-with-parent", "--"),
)
#: Of the environment, while bubblewrap starts this process again.
_INSIDE = "CAXTON_INSIDE_BUBBLEWRAP"
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """
    Move this process to namespaces of its own; an ordinary user gets one of users too.

    Raises:
        OSError: The kernel refuses.
    """
    if _libc.unshare(flags) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(flags | CLONE_NEWUSER) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1"}
    for name, text in {**maps, "gid_map": f"{group} {group} 1"}.items():
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 -- imports
            file.write(text)


def enter(channel: int, argv: Sequence[str], flags: int = 0) -> bool:
    """
    Give this process a network of its own, and the host a socket that listens in it.

    Call it before any thread is started. It does not return if there is no network.

    Args:
        channel: A descriptor of a Unix socket whose other end the host has. It is
            closed.

        argv: Starts this process again.

        flags: Other namespaces that are made with it.

    Returns:
        Whether those were made here. If not, bubblewrap made its own, and no capability
        is left.
    """
    with socket.socket(fileno=channel) as host:
        inside = os.environ.pop(_INSIDE, "")
        if not inside and not _may_unshare():
            _wrapped(host, argv)
        if not inside:
            unshare(flags | CLONE_NEWNET)
            _raise_loopback()
        with socket.create_server(("127.0.0.1", PORT), backlog=BACKLOG) as listener:
            socket.send_fds(host, [b"+"], [listener.fileno()])
    return not inside


def _may_unshare() -> bool:
    # In a child: a system may grant the namespace, but no capability in it.
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    try:
        unshare(CLONE_NEWNET)
        _raise_loopback()
    except OSError:
        os._exit(1)
    os._exit(0)


def _wrapped(host: socket.socket, argv: Sequence[str]) -> NoReturn:
    os.set_inheritable(host.fileno(), True)  # noqa: FBT003 -- its signature
    os.environ[_INSIDE] = "1"
    try:
        os.execvp(_BUBBLEWRAP[0], [*_BUBBLEWRAP, *argv])  # noqa: S606 -- no shell
    except OSError:
        sys.exit(1)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", _UP)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def available() -> str:
    """Return what makes networks: ``namespace``, ``bubblewrap``, or nothing."""
    import subprocess  # noqa: PLC0415 -- not where a server is started

    command = (sys.executable, "-I", "-m", __name__)
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 -- our own interpreter and module
    return found.stdout


if __name__ == "__main__":
    import subprocess

    if _may_unshare():
        sys.stdout.write("namespace")
    elif subprocess.run([*_BUBBLEWRAP, "true"], check=False).returncode == 0:  # noqa: S603 -- no shell
        sys.stdout.write("bubblewrap")
