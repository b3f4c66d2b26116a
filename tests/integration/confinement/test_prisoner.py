"""
Arbitrary Python in a confined process: what it finds, and what it does not.

Each attack runs as whoever runs the tests (as root, file modes stop nothing) and as an
ordinary user.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caxton_host.sandbox.confine import guards

from .prisoner import BECOME_ORDINARY, CONFINE, CONFINE_WITH_IMAGES, Prisoner

PREPARED = {
    "same user": CONFINE,
    "ordinary user": f"{BECOME_ORDINARY}\n{CONFINE}",
    "same user, of components": CONFINE_WITH_IMAGES,
    "ordinary user, of components": f"{BECOME_ORDINARY}\n{CONFINE_WITH_IMAGES}",
}


@pytest.fixture(params=PREPARED, scope="module")
def prisoner(request: pytest.FixtureRequest) -> Iterator[Prisoner]:
    with Prisoner(PREPARED[request.param]) as confined:
        yield confined


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    key = tmp_path / "signing.key"
    key.touch(mode=0o600)
    key.write_text("CANARY-KEY")
    return key


def test_every_guard_that_the_machine_has_is_in_force(prisoner: Prisoner) -> None:
    available = {guard.name for guard in guards() if guard.available}

    # The probe also limits memory and time, which a caller may leave open.
    found = {*prisoner.run("result = guards"), "address-space", "data", "cpu"}
    assert {"no-files" if name == "few-files" else name for name in found} == available


# law 8
def test_the_environment_is_empty(
    prisoner: Prisoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAXTON_CANARY", "secret")
    with Prisoner() as later:
        for one in (prisoner, later):
            # The interpreter itself sets the locale.
            assert set(one.run("result = dict(os.environ)")) <= {"LC_CTYPE"}


# law 8
@pytest.mark.parametrize("entry", ["environ", "mem", "maps", "fd", "cmdline", "root"])
def test_the_entries_of_the_host_are_unreadable(prisoner: Prisoner, entry: str) -> None:
    path = f"/proc/{os.getpid()}/{entry}"

    assert prisoner.run("result = attempt(os.open, path, 0)", path=path) in {1, 13}
    assert prisoner.run("result = attempt(os.listdir, path)", path=path) in {1, 13}


# law 8
def test_a_key_file_of_the_same_user_is_unreadable(
    prisoner: Prisoner, key_file: Path
) -> None:
    found = prisoner.run("result = attempt(open, path)", path=str(key_file))

    assert found == errno.EPERM


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "/proc/self/mem", "/dev/null", "/new", sys.prefix]
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT])
def test_no_file_can_be_opened(prisoner: Prisoner, path: str, flags: int) -> None:
    found = prisoner.run("result = attempt(os.open, p, f)", p=path, f=flags)

    assert found == errno.EPERM


@pytest.mark.parametrize(
    "attack",
    [
        "os.stat('/etc/passwd')",
        "os.readlink('/proc/self/exe')",
        "os.unlink('/x')",
        "os.mkdir('/x')",
        "os.chdir('/')",
        "os.chmod('/x', 0o777)",
        "os.symlink('/etc/passwd', '/x')",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socketpair()",
        "door.sendmsg([b'x'], [], 0)",
        "door.bind('\\0caxton')",
        "os.execv('/bin/sh', ['sh', '-c', 'true'])",
        "os.posix_spawn('/bin/sh', ['sh', '-c', 'true'], {})",
        "subprocess.run(['/bin/true'])",
        "os.fork()",
        "os.forkpty()",
        "os.kill(os.getppid(), 0)",
        "os.kill(1, 0)",
        "os.kill(-1, 0)",
        "os.killpg(os.getpgid(0), 0)",
        "signal.pidfd_send_signal(0, 0)",
        "os.pidfd_open(os.getppid())",
        "fcntl.fcntl(door, fcntl.F_SETOWN, os.getppid())",
        "fcntl.ioctl(door, 0x8901, b'1234')",
        "os.setuid(0)",
        "os.chroot('/')",
        "os.memfd_create('x')",
        "os.eventfd(0)",
        "os.pipe()",
        "os.dup(0)",
        "os.dup2(0, 99)",
        "fcntl.fcntl(0, fcntl.F_DUPFD, 9)",
        "os.sched_setaffinity(0, {0})",
        "os.setpriority(os.PRIO_PROCESS, 0, -5)",
    ],
)
def test_nothing_new_can_be_had_and_nobody_reached(
    prisoner: Prisoner, attack: str
) -> None:
    found = prisoner.attempt(f"result = attempt(lambda: {attack})")

    assert found in {errno.EPERM, errno.EMFILE}


def test_a_limit_cannot_be_raised_again(prisoner: Prisoner) -> None:
    found = prisoner.attempt("resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))")

    assert found["raised"] in {"PermissionError", "ValueError"}


#: Calls that Python has no function for, on x86_64 and aarch64.
RAW = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "pidfd_getfd": (438, 438),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "openat2": (437, 437),
    "open_by_handle_at": (304, 265),
    "execveat": (322, 281),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "seccomp": (317, 277),
    "shmget": (29, 194),
}


@pytest.mark.parametrize("call", RAW)
def test_no_raw_system_call_leads_out(prisoner: Prisoner, call: str) -> None:
    number = RAW[call][platform.machine() != "x86_64"]

    assert prisoner.run("result = syscall(n, 0, 0, 0, 0, 0)", n=number) == errno.EPERM


def test_the_host_cannot_be_signalled_by_its_thread(prisoner: Prisoner) -> None:
    number = (234, 131)[platform.machine() != "x86_64"]

    found = prisoner.run("result = syscall(n, p, p, 9)", n=number, p=os.getpid())

    assert found == errno.EPERM


def test_threads_and_the_open_socket_still_work(prisoner: Prisoner) -> None:
    found = prisoner.run(
        """
result = []
threads = [threading.Thread(target=result.append, args=(n,)) for n in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
result.sort()
"""
    )

    assert found == list(range(20))


def test_memory_time_and_randomness_still_work(prisoner: Prisoner) -> None:
    assert prisoner.run(
        """
block = mmap.mmap(-1, 1 << 24)
block[:] = bytes(1 << 24)
time.sleep(0.01)
lock = threading.Lock()
lock.acquire()
result = [len(os.urandom(8)), lock.acquire(timeout=0.01), time.monotonic() > 0]
"""
    ) == [8, False, True]


def test_waiting_for_the_socket_works_by_select_and_without_files_not_by_poll(
    prisoner: Prisoner,
) -> None:
    assert prisoner.run("result = select.select([], [door], [], 1)[1] == [door]")
    poll = "p = select.poll(); p.register(door); result = attempt(p.poll, 0)"
    few_files = "few-files" in prisoner.run("result = guards")
    assert prisoner.run(poll) == (0 if few_files else errno.EINVAL)


# The attacks are real: where nothing is confined, they succeed.
def test_an_unconfined_process_of_the_same_user_can_do_it(key_file: Path) -> None:
    with Prisoner("pass") as free, socket.create_server(("127.0.0.1", 0)) as server:
        assert free.run(
            """
with open(key) as file: secret = file.read()
with open(f"/proc/{os.getppid()}/environ", "rb") as file: environment = file.read()
os.kill(os.getppid(), 0)
connection = socket.create_connection(("127.0.0.1", port))
connection.close()
child = os.fork()
child or os._exit(0)
os.waitpid(child, 0)
subprocess.run(["/bin/true"], check=True)
result = [secret, len(environment) > 0]
""",
            key=str(key_file),
            port=server.getsockname()[1],
        ) == ["CANARY-KEY", True]
