"""A process whose network holds nothing but the host's proxy."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caxton_host.core.log.events import EgressRefused, Event
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.confinement import Confine
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import ServerUnavailable
from caxton_host.mcp.transport.confining import confined
from caxton_host.mcp.transport.egress import Egress
from caxton_host.sandbox import launch, namespace

from .cut_off import REFUSED

ROOT = Path(__file__).parents[3]
LAUNCHER = "launcher"

#: Starts the launcher on a machine that lets ordinary users have no namespace.
WITHOUT_NAMESPACES = """
import os.path, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]) + "/../..")
from caxton_host.sandbox import kernel
kernel.succeeds = lambda _: False
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: The network of the host.
HERE = str(Path("/proc/self/ns/net").readlink())

#: What each attempt of `cut_off` comes to.
OUTCOMES = {
    "a listed host, past the proxy": "ECONNREFUSED",
    "the control port": "ECONNREFUSED",
    "the control port by IPv6": "ECONNREFUSED",
    "the control port, mapped": "ECONNREFUSED",
    "the control port in decimal": "ECONNREFUSED",
    "the address of this machine": "ENETUNREACH",
    "a public address": "ENETUNREACH",
    "a public address of IPv6": "ENETUNREACH",
    "the metadata of a cloud": "ENETUNREACH",
    "a datagram": "ENETUNREACH",
    "a broadcast": "ENETUNREACH",
    "a multicast": "ENETUNREACH",
    "a name": "no name",
    "an abstract socket": "ECONNREFUSED",
    "the port of the proxy": "EADDRINUSE",
    "a port of its own": "done",
    "a listed host, by the proxy": "200",
    "the control port, by the proxy": "403",
    "the metadata, by the proxy": "403",
    "a name, by the proxy": "403",
}


@pytest.fixture
def listening() -> Iterator[tuple[int, int]]:
    """The ports of a host that is listed, and of one that is not."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listed,
        socket.create_server(("", 0)) as control,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = control.getsockname()[1]
        abstract.bind(f"\0caxton-test-{port}")
        abstract.listen()
        yield listed.getsockname()[1], port


async def found_by(
    how: str, ports: tuple[int, int], before: str = ""
) -> tuple[dict[str, str], list[Event]]:
    events: list[Event] = []
    listed = (f"127.0.0.1:{ports[0]}",)
    egress = Egress("crm", listed, events.append, Redactor())
    command = (
        *(sys.executable, "-m", "tests.integration.confinement.cut_off"),
        *(str(egress.fd), how, *map(str, ports), lan()),
    )
    config = ServerConfig(
        name="crm",
        command=command,
        confine=Confine(connect=listed, read=(str(ROOT),)) if how == LAUNCHER else None,
        cwd=str(ROOT),
    )
    env = {**os.environ}
    async with confined(config, [*command], env, egress.fd) as argv:
        if before:
            at = argv.index(launch.__file__)
            argv[at : at + 1] = ["-c", before, launch.__file__]
        with subprocess.Popen(  # noqa: ASYNC220 -- it starts at once
            argv, stdout=subprocess.PIPE, pass_fds=[egress.fd], env=env
        ) as child:
            try:
                await egress.begin()
                out, _ = await asyncio.to_thread(child.communicate)
            finally:
                await egress.end()
    return json.loads(out), events


def lan() -> str:
    """Return an address of this machine that is not a loopback one, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("9.9.9.9", 9))
        except OSError:
            return "192.0.2.1"
        return str(one.getsockname()[0])


@pytest.mark.parametrize("how", ["this user", "ordinary user"])
async def test_a_process_reaches_nothing_but_what_is_listed(
    how: str, listening: tuple[int, int]
) -> None:
    outcomes, events = await found_by(how, listening)

    assert outcomes.pop("how") == "namespace"
    assert outcomes.pop("the network of the host") != HERE
    assert outcomes == OUTCOMES
    refused = [event.host for event in events if isinstance(event, EgressRefused)]
    assert refused == ["127.0.0.1", "169.254.169.254", "example.com"]


async def test_a_confined_server_cannot_go_around_its_network(
    listening: tuple[int, int],
) -> None:
    outcomes, _ = await found_by(LAUNCHER, listening)

    assert outcomes.pop("how") == LAUNCHER
    assert outcomes.pop("the network of the host") != HERE
    refused = dict.fromkeys([*REFUSED, "an abstract socket"], "EPERM")
    assert outcomes == OUTCOMES | refused


@pytest.mark.debian
async def test_bubblewrap_makes_the_network_where_users_may_not(
    listening: tuple[int, int],
) -> None:
    outcomes, _ = await found_by("bubblewrap", listening)

    assert outcomes.pop("how") == "bubblewrap"
    assert outcomes.pop("the network of the host") != HERE
    assert outcomes == OUTCOMES


@pytest.mark.debian
async def test_a_server_is_as_confined_in_the_network_of_bubblewrap(
    listening: tuple[int, int],
) -> None:
    outcomes, _ = await found_by(LAUNCHER, listening, WITHOUT_NAMESPACES)

    assert outcomes.pop("the network of the host") != HERE
    refused = dict.fromkeys([*REFUSED, "an abstract socket"], "EPERM")
    assert outcomes == {"how": LAUNCHER} | OUTCOMES | refused


async def test_without_either_the_server_does_not_start(
    listening: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerUnavailable, match="network of its own") as caught:
        await found_by("bubblewrap", listening)

    assert "bubblewrap" in caught.value.fix


async def test_a_socket_of_the_hosts_own_network_is_not_believed() -> None:
    egress = Egress("crm", ["a.test:443"], print, Redactor())
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(fileno=os.dup(egress.fd)) as channel,
    ):
        socket.send_fds(channel, [b"+"], [listener.fileno()])
    with pytest.raises(ServerUnavailable):
        await egress.begin()
    await egress.end()


def test_what_makes_networks_is_found_by_making_one() -> None:
    assert namespace.maker() == "namespace"
