"""Each guard alone: what it stops when no other is in force."""

from __future__ import annotations

import errno
import os
import platform
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from caxton_host.sandbox.confine import Guard, command, guards
from caxton_host.sandbox.kernel import landlock_version

from .prisoner import BECOME_ORDINARY, Prisoner

NO_NEW_PRIVILEGES = "assert kernel.prctl(38, 1)\n"
LANDLOCK = NO_NEW_PRIVILEGES + "in_force = confine.restrict_names()"
SECCOMP = NO_NEW_PRIVILEGES + "in_force = confine.filter_calls()"
GET_DUMPABLE, GET_NO_NEW_PRIVILEGES = 3, 39


@pytest.fixture(scope="module")
def available() -> dict[str, Guard]:
    return {guard.name: guard for guard in guards()}


def test_the_guards_are_eleven_and_each_says_what_it_lacks(
    available: dict[str, Guard],
) -> None:
    assert list(available) == [
        "no-new-privs",
        "landlock",
        "capabilities",
        "non-dumpable",
        "no-core",
        "no-files",
        "file-size",
        "address-space",
        "data",
        "cpu",
        "seccomp",
    ]
    assert all(bool(guard.why) != guard.available for guard in available.values())
    assert available["no-files"].available
    assert available["landlock"].available == (landlock_version() > 0)


@pytest.mark.parametrize("interpreter", ["/bin/false", "/bin/cat"])
def test_a_probe_that_fails_finds_no_guard(
    monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)

    assert not any(guard.available for guard in guards())


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caxton_host.sandbox.confine._PROBE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(
        "caxton_host.sandbox.confine.command", lambda _: ["/bin/sleep", "60"]
    )

    assert not any(guard.available for guard in guards())


def test_landlock_alone_stops_files_networks_and_signals(
    tmp_path: Path, available: dict[str, Guard]
) -> None:
    (tmp_path / "key").touch()
    with (
        Prisoner(LANDLOCK) as one,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        assert one.run("result = in_force") == available["landlock"].available
        if not available["landlock"].available:
            return
        network = errno.EACCES if landlock_version() >= 4 else 0
        scoped = errno.EPERM if landlock_version() >= 6 else 0
        assert one.run(
            """
result = [
    attempt(open, key), attempt(os.listdir, "/"), attempt(os.unlink, key),
    attempt(open, f"/proc/{os.getppid()}/environ"),
    attempt(socket.create_connection, ("127.0.0.1", port)),
    attempt(os.kill, os.getppid(), 0),
]
""",
            key=str(tmp_path / "key"),
            port=server.getsockname()[1],
        ) == ([errno.EACCES] * 4 + [network, scoped])


def test_landlock_has_each_right_that_the_kernel_knows() -> None:
    # 16 rights of files, 2 of networks and 2 scopes, as of version 7.
    with Prisoner("") as one:
        bits = one.run(
            """
asked = kernel._Rights()
for field in ("files", "network", "scopes"): kernel._claim_all(asked, field)
result = [asked.files, asked.network, asked.scopes]
"""
        )

    if landlock_version() == 7:
        assert bits == [(1 << 16) - 1, 3, 3]
    else:
        assert all((number + 1).bit_count() == 1 for number in bits)


def test_no_files_alone_stops_every_new_descriptor() -> None:
    with Prisoner("kernel.limit(resource.RLIMIT_NOFILE, 0)") as one:
        assert (
            one.run(
                """
result = [
    attempt(open, "/etc/passwd"), attempt(socket.socket), attempt(os.pipe),
    attempt(os.eventfd, 0), attempt(os.pidfd_open, os.getppid()),
]
"""
            )
            == [errno.EMFILE] * 5
        )


def test_seccomp_alone_stops_files_sockets_processes_and_signals(
    available: dict[str, Guard],
) -> None:
    with Prisoner(SECCOMP) as one:
        assert one.run("result = in_force") == available["seccomp"].available
        assert (
            one.run(
                """
result = [
    attempt(open, "/etc/passwd"), attempt(socket.socket), attempt(os.fork),
    attempt(os.execv, "/bin/true", ["true"]), attempt(os.kill, os.getppid(), 0),
    attempt(os.stat, "/etc/passwd"), attempt(fcntl.fcntl, door, fcntl.F_SETOWN, 1),
]
"""
            )
            == [errno.EPERM] * 7
        )


def test_a_filter_holds_for_threads_that_run_already() -> None:
    with Prisoner(
        "go = threading.Event(); found = []\n"
        "def late():\n"
        "    go.wait()\n"
        "    found.append(attempt(open, '/etc/passwd'))\n"
        "thread = threading.Thread(target=late); thread.start()\n"
        "guards = confine.confine()"
    ) as one:
        assert one.run("go.set(); thread.join(); result = found") == [errno.EPERM]
        # Landlock and capabilities belong to a thread, so they do not count here.
        assert not {"landlock", "capabilities"} & set(one.run("result = guards"))


def test_a_call_of_another_convention_ends_the_process() -> None:
    if platform.machine() != "x86_64":
        return
    with Prisoner(SECCOMP) as one:
        one.order(
            """
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3")  # getpid, as 32-bit programs call it
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
ctypes.CFUNCTYPE(ctypes.c_int)(address)()
"""
        )
        assert one.process.wait(30) in {-signal.SIGSYS, -signal.SIGSEGV}


def test_capabilities_are_gone_also_for_root() -> None:
    with Prisoner("in_force = kernel.drop_capabilities()") as one:
        status = one.run("result = [in_force, open('/proc/self/status').read()]")

    assert status[0] is True
    assert "CapEff:\t0000000000000000" in status[1]
    assert "CapPrm:\t0000000000000000" in status[1]


def test_new_privileges_are_off() -> None:
    with Prisoner(NO_NEW_PRIVILEGES) as one:
        assert (
            one.run("result = libc.prctl(n, 0, 0, 0, 0)", n=GET_NO_NEW_PRIVILEGES) == 1
        )


def test_memory_alone_ends_at_its_limit() -> None:
    with Prisoner("kernel.limit(resource.RLIMIT_AS, 1 << 28)") as one:
        assert one.attempt("bytearray(1 << 29)")["raised"] == "MemoryError"


def test_data_alone_bounds_what_can_be_written_and_not_what_is_reserved() -> None:
    with Prisoner("kernel.limit(resource.RLIMIT_DATA, 1 << 28)") as one:
        assert one.attempt("mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE, prot=0)") is None
        assert one.attempt("bytearray(1 << 29)")["raised"] == "MemoryError"


def test_processor_time_alone_ends_at_its_limit() -> None:
    with Prisoner("kernel.limit(resource.RLIMIT_CPU, 1, 2)") as one:
        one.order("while True: pass")

        assert one.process.wait(60) == -signal.SIGXCPU


def test_a_stricter_limit_of_the_machine_stays() -> None:
    with Prisoner(
        "resource.setrlimit(resource.RLIMIT_CPU, (50, 50))\n"
        "kernel.limit(resource.RLIMIT_CPU, 100, 101)"
    ) as one:
        assert one.run("result = resource.getrlimit(resource.RLIMIT_CPU)") == [50, 50]


def test_an_open_file_cannot_grow(tmp_path: Path) -> None:
    with (tmp_path / "open").open("wb") as file:
        one = Prisoner("confine.confine()", fds=(file.fileno(),))
        with one:
            assert one.run("result = attempt(os.write, n, b'x')", n=file.fileno()) == (
                errno.EFBIG
            )


# law 8
def test_a_hardened_host_is_closed_to_others_of_its_user() -> None:
    # Becoming another user clears the attribute; a host starts with it set.
    host = f"{BECOME_ORDINARY}\nassert kernel.prctl(4, 1)"
    with Prisoner(host) as victim, Prisoner(BECOME_ORDINARY) as other:
        look = f"result = attempt(open, '/proc/{victim.process.pid}/environ')"
        assert other.run(look) == 0

        victim.run("confine.harden_host()")

        assert other.run(look) == errno.EACCES
        assert victim.run("result = resource.getrlimit(resource.RLIMIT_CORE)") == [0, 0]
        assert victim.run("result = libc.prctl(n, 0, 0, 0, 0)", n=GET_DUMPABLE) == 0


def test_a_child_dies_with_its_parent_even_while_it_spins() -> None:
    with Prisoner("") as parent:
        child = parent.run(
            """
text = "import os, sys; from caxton_host.sandbox import confine\\n"
text += f"confine.die_with_parent({os.getpid()}); print('ready', flush=True)\\n"
text += "while True: pass"
child = confine.spawn("timeit", "-n1", "-r1", text, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"ready\\n"
result = child.pid
"""
        )
        os.kill(child, 0)

        parent.process.kill()

        assert gone(child)


def test_a_child_whose_parent_is_dead_already_ends_at_once() -> None:
    with Prisoner("") as one:
        one.order("confine.die_with_parent(os.getppid() + 1)")

        assert one.process.wait(30) == 1


def test_a_child_gets_no_file_and_no_session_of_its_parent(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)  # noqa: FBT003 -- positional only
        with Prisoner("") as one:
            assert one.run("result = attempt(os.fstat, n)", n=secret.fileno()) == (
                errno.EBADF
            )
            assert one.run("result = [os.getsid(0), os.getcwd()]") == [
                one.process.pid,
                "/",
            ]


def test_a_child_runs_isolated_from_the_folder_and_the_user() -> None:
    assert command("a.b", "c") == [sys.executable, "-I", "-m", "a.b", "c"]
    with Prisoner("import sys") as one:
        assert one.run("result = [sys.flags.isolated, '' in sys.path]") == [1, False]


def gone(pid: int) -> bool:
    """Return whether the process ends; whoever adopts it may leave it a zombie."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if status.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False
