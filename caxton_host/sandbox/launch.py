"""
Starts a tool server that is confined, and ends with it whatever it started.

    python -I -S launch.py POLICY PROGRAM ARGUMENT...

The policy is JSON; see `POLICY`. This process stays outside the confinement, waits for
the server, and ends like it. Every process of the server is in a namespace of processes
whose first process the kernel ends with this one, so none can outlive it, also if the
host is killed. Where the kernel has no such namespace, orphans become children of this
process, which ends them.

It starts with every server, so it imports little.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypedDict

    class Policy(TypedDict):
        """
        What a server is left with.

        Attributes:
            parent: The process id of the host.

            user: User, group and further groups that it becomes, or none.

            lists: Folders whose names it may list.

            reads: Paths that it may read and execute.

            uses: Devices that it may read and write.

            writes: Paths that it may write too.

            scratch: The folder that is emptied in the end.

            folder: Where it starts.

            network: Whether it may have TCP and UDP sockets.

            channel: A descriptor over which the host gets a socket in a network that
                is the server's own, or none.

            memory: Most bytes of data of a process, of the scratch folder, and of a
                file.

            processes: Most processes and threads.

            counted: Whether it may not start without that limit.
        """

        parent: int
        user: tuple[int, int, list[int]] | None
        lists: list[str]
        reads: list[str]
        uses: list[str]
        writes: list[str]
        scratch: str
        folder: str
        network: bool
        channel: int | None
        memory: int
        processes: int
        counted: bool


# Started as a file, without the folders of any package.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))  # noqa: PTH120 -- imports

from caxton_host.sandbox import kernel, namespace, refused_calls  # noqa: E402

#: Exit status of a server that could not be confined, and how its last words begin.
NOT_CONFINED = 126
CANNOT = "caxton: cannot confine the server: "
_APART = kernel.NEW_PROCESSES | kernel.NEW_IPC
_FILES = 100_000
#: This process and the first of the namespace, which the kernel counts too.
_OURS = 2
#: The version that counts the processes of each user namespace.
_COUNTS = (5, 14)
_TRUNCATES = 3
_PAUSE = 0.01
_WATCHED = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM)


def main(policy: Policy, command: list[str]) -> NoReturn:
    """Start the server, wait for it, and end all its processes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    first, status = 0, None
    try:
        if policy["user"]:
            _become(*policy["user"])
        apart = _namespaces(policy)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGHUP)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if apart:
            first = _first_process()
        if os.getppid() == policy["parent"]:
            server = os.fork()
            if not server:
                _serve(policy, command, apart=apart)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # Its environment is the server's.
            _let_go()
            status = _status(server)
    except OSError as exc:
        _fail(exc)
    _end_all(first)
    if status is None:  # There is no host any more that would do it.
        wipe(policy["scratch"])
        os._exit(NOT_CONFINED)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _status(server: int) -> int | None:
    """Wait for the server, and return how it ended; ``None``: the host ended first."""
    while True:
        # SIGTERM is for the server, which gets it too.
        number = signal.sigwait(_WATCHED)
        if number == signal.SIGHUP:
            return None
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(server, os.WNOHANG)
            if ended:
                return status


def _fail(why: object) -> NoReturn:
    sys.stderr.write(f"{CANNOT}{why}\n")
    sys.stderr.flush()
    os._exit(NOT_CONFINED)


def _become(user: int, group: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setgid(group)
    os.setuid(user)
    # Else it could not set up a namespace: its files in /proc would be root's.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def _namespaces(policy: Policy) -> bool:
    """Enter namespaces; return whether there is one of processes."""
    if policy["channel"] is not None:
        if namespace.enter(policy["channel"], sys.orig_argv, _APART):
            return True
        policy["parent"] = os.getppid()  # bubblewrap, which ends with the host
    # In a child first: what fails half-way cannot be undone.
    if not kernel.succeeds(lambda: kernel.unshare(_APART)):
        return False
    kernel.unshare(_APART)
    return True


def _first_process() -> int:
    """Start the first process of the namespace. The kernel ends all others with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        tied = os.read(reading, 1)
        os.close(reading)
        if not tied:
            raise OSError("the namespace of processes could not be set up")
        return child
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ignored, as it is the first one.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nothing is left of orphans.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _let_go()
    os.close(reading)
    os.write(writing, b"+")  # Fails if the parent was gone before it was tied to it.
    os.close(writing)
    while True:
        signal.pause()


def _let_go() -> None:
    """Close the server's pipes, so that their other end sees when it closes them."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _serve(policy: Policy, command: list[str], *, apart: bool) -> NoReturn:
    try:
        _confine(policy, apart=apart)
        os.chdir(policy["folder"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        os.execv(command[0], command)  # noqa: S606 -- no shell
    except OSError as exc:
        _fail(exc)


def _confine(policy: Policy, *, apart: bool) -> None:
    version = kernel.landlock_version()
    granted = [
        *((path, kernel.LIST) for path in policy["lists"]),
        *((path, kernel.READ) for path in policy["reads"]),
        *((path, kernel.USE) for path in policy["uses"]),
        *((path, kernel.WRITE) for path in (*policy["writes"], policy["scratch"])),
    ]
    size = policy["memory"]
    if apart and kernel.unshare_mounts():
        kernel.freeze_mounts(policy["writes"])
        options = f"mode=700,size={size},nr_inodes={_FILES}"
        kernel.mount("tmpfs", policy["scratch"], kernel.NOSUID | kernel.NODEV, options)
        if _mount_proc():
            granted.append(("/proc", kernel.READ))
    else:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.limit(resource.RLIMIT_CORE, 0)
    kernel.limit(resource.RLIMIT_DATA, size)
    kernel.limit(resource.RLIMIT_FSIZE, size)
    if counts(apart=apart):
        kernel.limit(resource.RLIMIT_NPROC, policy["processes"] + _OURS)
    elif policy["counted"]:
        raise OSError("this machine cannot limit its processes: remove the limit")
    if not (
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        and kernel.drop_capabilities()
        and kernel.restrict_names(granted, network=not policy["network"])
        and kernel.install_filter(
            refused_calls.filter_program(
                kernel.MACHINE,
                network=policy["network"],
                truncates=version >= _TRUNCATES,
            )
        )
    ):
        raise OSError("the kernel lacks Landlock or seccomp")


def _mount_proc() -> bool:
    """Mount a /proc with the server's own processes only."""
    flags = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
    return kernel.mount("proc", "/proc", flags, "subset=pid")


def counts(*, apart: bool) -> bool:
    """Return whether the kernel counts the processes of one server, not of a user."""
    numbers = os.uname().release.split(".")[:2]
    release = tuple(int(number) for number in numbers if number.isdigit())
    return apart and os.getuid() != 0 and release >= _COUNTS


def _end_all(first: int) -> None:
    """Kill all descendants, and wait until they are gone."""
    if first:
        os.kill(first, signal.SIGKILL)
    while True:
        if not first:
            for child in _children():
                os.kill(child, signal.SIGKILL)
        try:
            # Of the children, the kernel may leave some out of the list.
            if os.waitpid(-1, 0 if first else os.WNOHANG) == (0, 0):
                time.sleep(_PAUSE)
        except ChildProcessError:
            return


def _children() -> list[int]:
    try:
        with open("/proc/thread-self/children") as file:  # noqa: PTH123 -- imports
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def wipe(folder: str) -> None:
    """Remove a folder that a server wrote to, whatever it left there."""
    for path, folders, _ in os.walk(folder):
        for name in (".", *folders):
            inside = os.path.join(path, name)  # noqa: PTH118 -- no import
            if not os.path.islink(inside):  # noqa: PTH114 -- no import
                os.chmod(inside, 0o700)  # noqa: PTH101 -- no import
    for path, folders, files in os.walk(folder, topdown=False):
        for name in (*folders, *files):
            inside = os.path.join(path, name)  # noqa: PTH118 -- no import
            if name in files or os.path.islink(inside):  # noqa: PTH114 -- no import
                os.unlink(inside)  # noqa: PTH108 -- no import
            else:
                os.rmdir(inside)  # noqa: PTH106 -- no import
        if path == folder:
            os.rmdir(folder)  # noqa: PTH106 -- no import


def probe() -> dict[str, object]:
    """Return what this machine has, found by trying it in a child."""
    apart = kernel.succeeds(lambda: kernel.unshare(_APART))

    def in_child(attempt: Any) -> bool:  # noqa: ANN401 -- a function
        def tried() -> bool:
            kernel.unshare(_APART)
            return kernel.succeeds(lambda: kernel.unshare_mounts() and attempt())

        return apart and kernel.succeeds(tried)

    return {
        "landlock": kernel.landlock_version(),
        "filter": kernel.AUDIT_ARCH is not None and kernel.succeeds(_filters),
        "processes": apart,
        "scratch": in_child(lambda: kernel.mount("tmpfs", "/tmp", 0, "")),  # noqa: S108
        "proc": in_child(_mount_proc),
        "frozen": in_child(lambda: kernel.freeze_mounts(())),
        "counted": counts(apart=apart),
        "connect": namespace.maker(),
    }


def _filters() -> bool:
    code = refused_calls.filter_program(kernel.MACHINE, network=False, truncates=True)
    return kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1) and kernel.install_filter(code)


if __name__ == "__main__":
    if sys.argv[1] == "--probe":
        sys.stdout.write(json.dumps(probe()))
    else:
        main(json.loads(sys.argv[1]), sys.argv[2:])
