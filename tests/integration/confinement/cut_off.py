"""A process in a network of its own, which tries to get out and reports how it went."""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401 -- a user that may read no file asks for it
import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from caxton_host.sandbox import kernel, namespace

PUBLIC, PUBLIC6, METADATA = "9.9.9.9", "2620:fe::fe", "169.254.169.254"
UDP = socket.SOCK_DGRAM


def tried(action: Callable[[], object]) -> str:
    try:
        action()
    except socket.gaierror:
        return "no name"
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    return "done"


def connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=2).close()


def send(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, UDP) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        one.sendto(b"x", (host, port))


def abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"\0{name}")


def proxied(authority: str) -> str:
    with socket.create_connection(("127.0.0.1", namespace.PORT)) as one:
        one.sendall(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
        return one.recv(100).split()[1].decode()


def move(what: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, what)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), what)


#: Ways around the network, which the launcher's filter closes.
REFUSED: dict[str, Callable[[], object]] = {
    "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "a Unix socket": lambda: socket.socket(socket.AF_UNIX),
    "a socket of the kernel": lambda: socket.socket(socket.AF_NETLINK, UDP, 0),
    "a socket of the hypervisor": lambda: socket.socket(socket.AF_VSOCK),
    "a socket of Bluetooth": lambda: socket.socket(31),
    "another namespace": lambda: move("unshare", 0x50000000),
    "the namespace of another": lambda: move("setns", 0, 0x40000000),
}


def listen(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as one:
        socket.create_connection(one.getsockname()).close()


def main(channel: int, how: str, listed: int, control: int, lan: str) -> None:
    if how == "ordinary user" and os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # As one is that began so.
    if how == "bubblewrap":
        # As on a machine that lets ordinary users have no namespace.
        kernel.succeeds = lambda _: False  # type: ignore[assignment]
    inside = "launcher"
    if how != inside:
        made = namespace.enter(channel, sys.orig_argv)
        inside = "namespace" if made else "bubblewrap"
    found = {
        "how": inside,
        "the network of the host": str(Path("/proc/self/ns/net").readlink()),
        "a listed host, past the proxy": tried(lambda: connect("127.0.0.1", listed)),
        "the control port": tried(lambda: connect("127.0.0.1", control)),
        "the control port by IPv6": tried(lambda: connect("::1", control)),
        "the control port, mapped": tried(lambda: connect("::ffff:7f00:1", control)),
        "the control port in decimal": tried(lambda: connect("2130706433", control)),
        "the address of this machine": tried(lambda: connect(lan, control)),
        "a public address": tried(lambda: connect(PUBLIC, 443)),
        "a public address of IPv6": tried(lambda: connect(PUBLIC6, 443)),
        "the metadata of a cloud": tried(lambda: connect(METADATA, 80)),
        "a datagram": tried(lambda: send(PUBLIC, 53)),
        "a broadcast": tried(lambda: send("255.255.255.255", 9)),
        "a multicast": tried(lambda: send("ff02::1", 9)),
        "a name": tried(lambda: socket.getaddrinfo("example.com", 443)),
        "an abstract socket": tried(lambda: abstract(f"caxton-test-{control}")),
        "the port of the proxy": tried(lambda: listen(namespace.PORT)),
        "a port of its own": tried(lambda: listen(0)),
        "a listed host, by the proxy": proxied(f"127.0.0.1:{listed}"),
        "the control port, by the proxy": proxied(f"127.0.0.1:{control}"),
        "the metadata, by the proxy": proxied(f"{METADATA}:80"),
        "a name, by the proxy": proxied("example.com:443"),
    }
    if how == "launcher":
        found |= {what: tried(make) for what, make in REFUSED.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
