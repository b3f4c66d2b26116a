"""
Tool servers that mean harm: each attempt by itself, and what became of it.

They run as the user of the host and, if that is root, as an ordinary one. Unconfined,
the same attempts on files, processes and sockets succeed.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from caxton_host.core.tools.confinement import Confine
from caxton_host.errors import ServerUnavailable
from caxton_host.mcp.transport.confining import machine
from caxton_host.sandbox.launch import NOT_CONFINED

from .captive import Captive

ORDINARY = "nobody"
USERS = [None, ORDINARY] if os.getuid() == 0 else [None]
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EXDEV)
MIB = 1024 * 1024
X86 = platform.machine() == "x86_64"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a server would like to have, and the servers that would."""

    folder: Path
    names: dict[str, object]
    captive: Captive
    free: Captive


@pytest.fixture(scope="module")
def folder() -> Generator[Path]:
    """Return a folder that every user can enter: only the confinement is in the way."""
    where = Path(tempfile.mkdtemp())
    where.chmod(0o755)
    for name in ("program", "other", "free", "docs", "out"):
        (where / name).mkdir()
    for name in ("caxton.db", "signing.key", "caxton.toml", "docs/a.txt", "victim"):
        (where / name).write_text("secret")
        (where / name).chmod(0o666)
    (where / "out").chmod(0o777)
    yield where
    shutil.rmtree(where)


@pytest.fixture(
    scope="module", params=USERS, ids=["host's user", "other user"][: len(USERS)]
)
def scene(request: pytest.FixtureRequest, folder: Path) -> Generator[Scene]:
    confine = Confine(
        read=(str(folder / "docs"),),
        write=(str(folder / "out"),),
        memory=128 * MIB,
        user=request.param,
    )
    with ExitStack() as stack:
        neighbour = stack.enter_context(
            Captive(folder / "other", Confine(user=request.param), {"TOKEN": "canary"})
        )
        mine = neighbour.env["HOME"]
        note = f"{mine}/note"
        assert neighbour.run("open(note, 'w').write('secret')", note=note) is None
        path = folder / "socket"
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        path.unlink(missing_ok=True)
        unix.bind(str(path))
        path.chmod(0o777)
        unix.listen()
        named = f"\0caxton-{os.getpid()}"
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(named)
        abstract.listen()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        captive = stack.enter_context(Captive(folder / "program", confine))
        free = stack.enter_context(Captive(folder / "free", None))
        yield Scene(
            folder,
            {
                "base": str(folder),
                "host": os.getpid(),
                "neighbour": neighbour.process.pid,
                "theirs": mine,
                "path": str(path),
                "named": named,
                "port": tcp.getsockname()[1],
                "x86": X86,
            },
            captive,
            free,
        )


#: What succeeds unconfined, for the user of the host.
POSSIBLE = {
    "the signing key": "result = attempt(open, base + '/signing.key')",
    "the database": "result = attempt(open, base + '/caxton.db')",
    "changing the configuration": "result = attempt(open, base + '/caxton.toml', 'a')",
    "truncating the database": "result = attempt(os.truncate, base + '/victim', 0)",
    "changing modes": "result = attempt(os.chmod, base + '/victim', 0o666)",
    "changing times": "result = attempt(os.utime, base + '/victim')",
    "names of files": "result = attempt(os.listdir, base)",
    "a symbolic link": """
link = os.environ.get('HOME', base) + '/link'
os.symlink(base + '/signing.key', link)
result = attempt(open, link)
os.unlink(link)
""",
    "a hard link": """
result = attempt(os.link, base + '/signing.key', base + '/out/key')
attempt(os.unlink, base + '/out/key')
""",
    "moving a file": """
result = attempt(os.rename, base + '/victim', base + '/out/v')
attempt(os.rename, base + '/out/v', base + '/victim')
""",
    "a file beside its program": """
result = attempt(open, os.path.dirname(sys.argv[0]) + '/json.py', 'w')
""",
    "its own program, for the next start": "result = attempt(open, sys.argv[0], 'a')",
    "the host's environment": "result = attempt(open, f'/proc/{host}/environ')",
    "all processes": "result = 0 if str(host) in os.listdir('/proc') else errno.ENOENT",
    "a signal to the host": "result = attempt(os.kill, host, 0)",
    "a signal by a descriptor": """
one, two = socket.socketpair()
result = attempt(fcntl.fcntl, one, fcntl.F_SETOWN, host)
""",
    "the host's limits": """
result = attempt(resource.prlimit, host, resource.RLIMIT_CORE)
""",
    "a Unix socket by path": """
def reach():
    with socket.socket(socket.AF_UNIX) as one: one.connect(path)
result = attempt(reach)
""",
    "an abstract socket": """
def reach():
    with socket.socket(socket.AF_UNIX) as one: one.connect(named)
result = attempt(reach)
""",
    "a pair that sends to others": """
def pair():
    for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM): one.close()
result = attempt(pair)
""",
    "a port of this machine": """
result = attempt(lambda: socket.create_connection(('127.0.0.1', port)).close())
""",
    "netlink": """
result = attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
""",
    "a name space": """
child = os.fork()
if not child: os._exit(syscall(272 if x86 else 97, 1 << 28))
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
""",
    "shared memory of System V": """
segment = libc.shmget(0, 4096, 0o600)
result = ctypes.get_errno() if segment < 0 else libc.shmctl(segment, 0, 0)
""",
}

#: What is refused to a server of any user.
IMPOSSIBLE = {
    "a neighbour's scratch": "result = attempt(open, theirs + '/note')",
    "a neighbour's environment": "result = attempt(open, f'/proc/{neighbour}/environ')",
    "a neighbour's memory": "result = attempt(open, f'/proc/{neighbour}/mem', 'rb')",
    "memory of the first process": "result = attempt(open, '/proc/1/mem', 'rb')",
    "environment of the first process": "result = attempt(open, '/proc/1/environ')",
    "settings of the kernel": "result = attempt(open, '/proc/sys/kernel/core_pattern')",
    "a terminal": "result = attempt(open, '/dev/tty')",
    "a new terminal": "result = attempt(open, '/dev/ptmx')",
    "memory of the machine": "result = attempt(open, '/dev/mem', 'rb')",
    "a device of its own": """
result = attempt(os.mknod, os.environ['HOME'] + '/d', stat.S_IFCHR | 0o600, 259)
""",
    "typing into a terminal": "result = attempt(fcntl.ioctl, 0, 0x5412, b'x')",
    "tracing": "result = syscall(101 if x86 else 117, 0, 0, 0, 0)",
    "reading another's memory": """
result = syscall(310 if x86 else 270, 1, 0, 0, 0, 0, 0)
""",
    "a mount": "result = libc.mount(b'none', base.encode() + b'/out', b'tmpfs', 0, 0)"
    " and ctypes.get_errno()",
    "another root": "result = attempt(os.chroot, base)",
    "entering a name space": "result = syscall(308 if x86 else 268, 0, 0)",
    "a child in a name space": "result = syscall(56 if x86 else 220, 1 << 28 | 17, 0)",
    "io_uring": "result = syscall(425, 1, 0)",
    "keys of the kernel": "result = syscall(250 if x86 else 219, 0, -3, 0)",
    "programs of the kernel": "result = syscall(321 if x86 else 280, 0, 0, 0)",
    "events of the kernel": "result = syscall(298 if x86 else 241, 0, 0, -1, -1, 0)",
    "faults of pages": "result = syscall(323 if x86 else 282, 1)",
    "a message queue": "result = syscall(240 if x86 else 180, b'q', 0o102, 0o600, 0)",
    "raw sockets": """
result = attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
""",
    "packets": """
result = attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
""",
    "the machine's own host": "result = attempt(socket.socket, socket.AF_VSOCK)",
    "ciphers of the kernel": """
result = attempt(lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
""",
}


@pytest.mark.parametrize("what", [*POSSIBLE, *IMPOSSIBLE])
def test_hostile_server_is_refused(scene: Scene, what: str) -> None:
    code = (POSSIBLE | IMPOSSIBLE)[what]

    assert scene.captive.run(code, **scene.names) in {*CLOSED, errno.ESRCH}


@pytest.mark.parametrize("what", POSSIBLE)
def test_unconfined_server_is_not(scene: Scene, what: str) -> None:
    assert scene.free.run(POSSIBLE[what], **scene.names) == 0


def test_server_reads_and_writes_what_it_is_granted(scene: Scene) -> None:
    said = scene.captive.run(
        """
mine = base + f'/out/{os.getpid()}.{os.getuid()}'
with open(mine, 'w') as file: file.write('hello')
result = [open(base + '/docs/a.txt').read(), open(mine).read(),
          attempt(open, base + '/docs/a.txt', 'a'), os.getcwd() == base + '/program']
""",
        **scene.names,
    )

    assert said == ["secret", "hello", errno.EROFS, True]
    [written] = (scene.folder / "out").iterdir()
    assert written.read_text() == "hello"
    written.unlink()


def test_server_has_no_privilege_no_descriptor_and_no_core(scene: Scene) -> None:
    said = scene.captive.run(
        """
import gc; gc.collect()
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
result = [status[key].strip() for key in ('NoNewPrivs', 'CapPrm', 'CapEff', 'CapAmb')]
result += [len(os.listdir('/proc/self/fd')), resource.getrlimit(resource.RLIMIT_CORE)]
"""
    )

    nothing = "0" * 16
    assert said == ["1", nothing, nothing, nothing, 4, [0, 0]]  # 4: the folder itself


def test_server_fills_neither_memory_nor_disk(scene: Scene) -> None:
    said = scene.captive.run(
        """
def fill(name, size):
    with open(os.environ['HOME'] + name, 'wb') as file:
        os.posix_fallocate(file.fileno(), 0, size)
try:
    result = ['got', bytearray(256 << 20)][:1]
except MemoryError:
    result = ['none']
result += [attempt(fill, '/a', 256 << 20), attempt(fill, '/b', 100 << 20)]
result += [attempt(fill, '/c', 100 << 20)]
"""
    )

    assert said == ["none", errno.EFBIG, 0, errno.ENOSPC]
    scratch = Path(scene.captive.env["HOME"])
    assert [*scratch.iterdir()] == []  # It is in memory, and nobody else sees it.


def test_fork_bomb_ends_at_its_limit(folder: Path) -> None:
    # The processes of root are never counted.
    user = ORDINARY if os.getuid() == 0 else None
    bomb = """
count = 0
try:
    while count < 200:
        if not os.fork():
            signal.pause()
        count += 1
except OSError as error:
    result = [count, error.errno]
"""
    with Captive(folder / "program", Confine(user=user, processes=20)) as one:
        assert one.run(bomb) == [19, errno.EAGAIN]
        os.killpg(one.process.pid, signal.SIGTERM)


#: Leaves the session and its parent, and holds the output of the server.
FLEE = """
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if not os.fork():
        while True:
            signal.pause()
    os._exit(0)
os.wait()
"""
#: With this, namespaces are refused to the launcher.
BARRED = """
from caxton_host.sandbox import kernel, refused_calls
code = refused_calls.filter_program(kernel.MACHINE, network=True, truncates=True)
assert kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1) and kernel.install_filter(code)
"""
HOST = f"""
import sys
from pathlib import Path
from caxton_host.core.tools.confinement import Confine
from tests.integration.confinement.captive import Captive

def start():
    one = Captive(Path(sys.argv[1]), Confine()).__enter__()
    one.run({FLEE!r})
    print(one.env["HOME"], flush=True)

start()
{BARRED}
start()
sys.stdin.read()
"""


def test_nothing_outlives_a_host_that_is_killed(folder: Path) -> None:
    # A process that survives holds the standard error of this host.
    with subprocess.Popen(
        [sys.executable, "-c", HOST, folder / "program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as host:
        assert host.stdout is not None
        apart, barred = [
            Path(host.stdout.readline().decode().strip()) for _ in range(2)
        ]
        assert apart.is_dir()
        assert barred.is_dir()
        host.kill()
        assert host.communicate(timeout=60) == (b"", b"")
    while apart.exists() or barred.exists():  # Nobody says when they are gone.
        time.sleep(0.01)


def test_nothing_outlives_a_server_that_is_stopped(folder: Path) -> None:
    with Captive(folder / "program", Confine()) as one:
        one.run(FLEE)
        assert one.end() == b""


def test_server_that_could_change_its_own_program_is_not_started(folder: Path) -> None:
    confine = Confine(write=(str(folder / "program"),))

    with pytest.raises(ServerUnavailable, match="change its own program") as caught:
        Captive(folder / "program", confine).__enter__()

    assert "narrower folder" in caught.value.fix


def test_server_cannot_turn_a_path_that_it_is_granted_into_another(
    folder: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "above/inner"
    inner.mkdir(parents=True)
    confine = Confine(write=(str(tmp_path), str(inner)))
    with Captive(folder / "program", confine) as captive:
        moves = """
os.rename(out + "/above", out + "/moved")
os.mkdir(out + "/above")
os.symlink(victim, out + "/above/inner")
"""
        captive.run(moves, out=str(tmp_path), victim=str(folder))
    assert inner.is_symlink()

    with Captive(folder / "program", confine) as captive:
        assert captive.process.wait(30) == NOT_CONFINED


@pytest.mark.parametrize(
    ("confine", "why"),
    [
        (Confine(read=("/no/such/folder",)), "does not exist"),
        (Confine(user="root"), "root"),
        (Confine(user="no-such-user"), "user"),
    ],
)
def test_confinement_that_cannot_be_kept_starts_nothing(
    folder: Path, confine: Confine, why: str
) -> None:
    with pytest.raises(ServerUnavailable, match=f"confinement: .*{why}"):
        Captive(folder / "program", confine).__enter__()


def test_machine_says_what_it_has() -> None:
    found = machine()

    assert found.filter
    assert found.landlock >= 1
