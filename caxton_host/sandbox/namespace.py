"""
A network of its own for a process: loopback, and a port that the host listens on.

A socket stays in the network that it was made in. So the process makes one that
listens, hands it to the host, and the host answers there; nothing else leads out. The
namespace is made here if the kernel lets an ordinary user, else by ``bubblewrap``.

Imports little: it is part of the start of a server.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from functools import partial

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

#: Where the host listens. The network is empty, so the port is free.
PORT = 3128
#: Connections that wait to be accepted.
BACKLOG = 128

_NEW_NETWORK = 0x40000000
_SET_FLAGS, _UP = 0x8914, 1
_BUBBLEWRAP = (
    *("bwrap", "--unshare-user", "--unshare-net", "--dev-bind", "/", "/"),
    *("--die-with-parent", "--"),
)
#: Of the environment, while bubblewrap starts this process again.
_INSIDE = "CAXTON_INSIDE_BUBBLEWRAP"


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
        Whether those were made. With bubblewrap they are not, and its process is the
        parent of this one, with which this one ends.
    """
    with socket.socket(fileno=channel) as host:
        inside = os.environ.pop(_INSIDE, "")
        if not inside:
            # In a child first: a system may grant it, but no capability in it.
            if not kernel.succeeds(partial(_make, flags)):
                _wrapped(host, argv)
            _make(flags)
        with socket.create_server(("127.0.0.1", PORT), backlog=BACKLOG) as listener:
            socket.send_fds(host, [b"+"], [listener.fileno()])
    return not inside


def _wrapped(host: socket.socket, argv: Sequence[str]) -> NoReturn:
    os.set_inheritable(host.fileno(), True)  # noqa: FBT003 -- its signature
    os.environ[_INSIDE] = "1"
    try:
        os.execvp(_BUBBLEWRAP[0], [*_BUBBLEWRAP, *argv])  # noqa: S606 -- no shell
    except OSError:
        sys.exit(1)


def _make(flags: int) -> None:
    kernel.unshare(flags | _NEW_NETWORK)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", _UP)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def maker() -> str:
    """Return what makes networks here: ``namespace``, ``bubblewrap``, or nothing."""
    if kernel.succeeds(partial(_make, 0)):
        return "namespace"
    tried = partial(os.execvp, _BUBBLEWRAP[0], [*_BUBBLEWRAP, "true"])
    return "bubblewrap" if kernel.succeeds(tried) else ""
