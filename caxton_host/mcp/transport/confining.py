"""
The launcher of a confined server: its policy, made of the configuration and of files.

A server may read its program and packages. These are found here: the interpreter and
its libraries, the packages of a virtual environment or of ``node_modules``, and the
folder of a script. A folder that also has the host's files or a home is not granted;
then it is the script alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from ...core.tools.confinement import (
    NOT_CONFINED,
    PROCESSES,
    Confine,
    Machine,
    in_force,
    inside,
    lacking,
)
from ...core.tools.servers import ServerConfig
from ...errors import ServerUnavailable
from ...sandbox import launch
from ...sandbox.kernel import AUDIT_ARCH, landlock_version

_LAUNCHER = (sys.executable, "-I", "-S", launch.__file__)

#: What programs of a system are made of. Nothing in it is secret.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/etc/crypto-policies"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/host.conf", "/etc/services", "/etc/protocols", "/etc/mime.types"),
    *("/etc/passwd", "/etc/group", "/etc/localtime", "/etc/timezone"),
    *("/etc/os-release", "/etc/locale.alias", "/etc/gitconfig", "/etc/magic"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_OF_PREFIX = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
_INTERPRETER = re.compile(
    r"python[0-9.]*|pypy[0-9.]*|node|nodejs|bun|deno|ruby|perl|sh|bash"
)
#: Options of interpreters whose value is the next argument.
_VALUED = {
    "python": ("-X", "-W"),
    "node": ("-r", "--require", "--import", "--env-file"),
}
_PACKAGE = ("package.json", "pyproject.toml")
_LONGEST_LINE = 4096
_PACKAGES = ("PYTHONPATH", "NODE_PATH")


@dataclass(frozen=True, slots=True)
class Program:
    """
    The files of a program.

    Attributes:
        reads: What it has to read.

        lists: Folders whose names it has to list.

        names: Where it is looked for, whether or not that exists, or is a link.
    """

    reads: frozenset[str]
    lists: frozenset[str]
    names: frozenset[str]


def program_of(
    command: Sequence[str], folder: str, env: Mapping[str, str], guarded: Sequence[str]
) -> Program:
    """
    Return the files of a program.

    Args:
        command: Its absolute path, and its arguments.

        folder: Where it starts.

        env: Its environment, which may name packages.

        guarded: What no folder may have in it.
    """
    home = os.path.realpath(Path.home())
    fences = (home, *guarded)
    found: set[str] = set()
    lists: set[str] = set()
    names: set[str] = set()
    for named in filter(None, map(env.get, _PACKAGES)):
        places = (str(Path(folder, one)) for one in named.split(os.pathsep))
        found |= {place for place in places if not _holds(place, fences)}
    for executable in _executables(command[0]):
        found.add(str(executable))
        prefix = executable.parent.parent
        found |= {str(prefix / name) for name in _OF_PREFIX}
        for place in _editable(prefix):
            # An own package of this host, or a project that is being worked on.
            (lists if _holds(place, fences) else found).add(place)
        if not _is_binary(executable):
            found |= _of_script(executable, fences)
    interpreter = Path(os.path.realpath(command[0])).name
    if _INTERPRETER.fullmatch(interpreter):
        valued = _VALUED.get(interpreter.rstrip(".0123456789"), ())
        before, word = _first_word(command, valued)
        script = Path(folder, word)
        if before == "-m" and not {"-P", "-I"} & {*command}:
            names.add(str(Path(folder, word.partition(".")[0])))
        elif script.is_file():
            found |= _of_script(script, fences) | _of_script(script.resolve(), fences)
    own = Path(__file__).parents[2]
    if str(own.parent) in lists:
        found.add(str(own))
    there = frozenset(os.path.realpath(one) for one in found if Path(one).exists())
    names |= set(map(os.path.normpath, found))
    return Program(there, frozenset(lists), frozenset(names))


def _first_word(command: Sequence[str], valued: Sequence[str]) -> tuple[str, str]:
    """Return the first argument that is not of an option, and the one before."""
    for before, word in pairwise(command):
        if not word.startswith("-") and before not in valued:
            return before, word
    return "", ""


def _holds(folder: str, fences: Sequence[str]) -> bool:
    return any(inside(fence, [os.path.realpath(folder)]) for fence in fences)


def _executables(program: str) -> Iterator[Path]:
    """Return a program by each of its names, and what runs it if it is a script."""
    path = Path(program)
    while path.is_symlink():
        yield path
        path = path.parent / path.readlink()
    yield path
    yield (real := path.resolve())
    with suppress(OSError), real.open("rb") as file:
        line = file.readline(_LONGEST_LINE).decode(errors="replace")
        if line.startswith("#!") and (words := line[2:].split()):
            yield from _executables(words[0])


def _is_binary(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
    return True


def _of_script(script: Path, fences: Sequence[str]) -> set[str]:
    """Return the script and its project, or its folder, or the script alone."""
    above = script.parents
    modules = [one for one in above if one.name == "node_modules"]
    projects = [
        one for one in above if any((one / name).is_file() for name in _PACKAGE)
    ]
    for folder in (*modules[-1:], *projects[:1], script.parent):
        if not _holds(str(folder), fences):
            return {str(script), str(folder)}
    return {str(script)}


def _editable(prefix: Path) -> Iterator[str]:
    """Return the folders that packages of a Python prefix are worked on in."""
    for file in prefix.glob("lib/python3*/site-packages/*.pth"):
        with suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                if Path(line).is_absolute() and Path(line).is_dir():
                    yield line


@cache
def machine() -> Machine:
    """Return what this machine can confine servers with, found by trying it."""
    import subprocess  # noqa: PLC0415 -- for doctor and server test only

    said = subprocess.run([*_LAUNCHER, "--probe"], capture_output=True, check=False)  # noqa: S603 -- our own
    try:
        return Machine(**json.loads(said.stdout))
    except (ValueError, TypeError):
        return Machine()


def confinement_of(config: ServerConfig) -> dict[str, str] | None:
    """Return what is in force of a server's confinement, if it is confined."""
    return in_force(machine(), config.confine) if config.confine else None


@asynccontextmanager
async def confined(
    config: ServerConfig,
    command: list[str],
    env: dict[str, str],
    channel: int | None = None,
) -> AsyncGenerator[list[str]]:
    """
    Return the command that starts a confined server; its scratch lasts for the block.

    Args:
        config: The server.

        command: Its program, as found, and its arguments.

        env: Its environment. Its home and its folder of temporary files are set.

        channel: A descriptor for its network, if it has one of its own.

    Raises:
        ServerUnavailable: What its configuration promises cannot be kept here.
    """
    if config.confine is None:
        yield command
        return
    policy = await asyncio.to_thread(_policy, config, config.confine, command, env)
    policy["channel"] = channel
    try:
        for name in ("HOME", "TMPDIR"):
            if name not in config.env:
                env[name] = policy["scratch"]
        yield [*_LAUNCHER, json.dumps(policy), *command]
    finally:
        await asyncio.to_thread(launch.wipe, policy["scratch"])


def _policy(
    config: ServerConfig, confine: Confine, command: list[str], env: Mapping[str, str]
) -> launch.Policy:
    machine = Machine(landlock=landlock_version(), filter=bool(AUDIT_ARCH))
    if lacks := lacking(machine):
        off = 'write confine = "off" to start it with all rights of the host'
        raise _refusal(config, f"this machine lacks {lacks}", off)
    user = _user(config, confine)
    folder = os.path.realpath(config.cwd or ".")
    command[0] = str(Path(folder, command[0]))
    program = program_of(command, folder, env, confine.guarded)
    _check(config, confine, program)
    scratch = os.path.realpath(tempfile.mkdtemp(prefix=f"caxton-{config.name}-"))
    if user:
        os.chown(scratch, *user[:2])
    return {
        "parent": os.getpid(),
        "user": user,
        "lists": sorted(_there(program.lists)),
        "reads": [*_there(_SYSTEM), *sorted(program.reads), *confine.read],
        "uses": [*_there(_DEVICES)],
        "writes": [*confine.write],
        "scratch": scratch,
        "folder": folder,
        "network": confine.network == "host" or bool(confine.connect),
        "channel": None,
        "memory": confine.memory,
        "processes": confine.processes or PROCESSES,
        "counted": confine.processes is not None,
    }


def _there(paths: Iterable[str]) -> frozenset[str]:
    """Return the real paths of those that exist."""
    return frozenset(
        os.path.realpath(one) for one in paths if one and Path(one).exists()
    )


def _user(config: ServerConfig, confine: Confine) -> tuple[int, int, list[int]] | None:
    if confine.user is None:
        if confine.processes is not None and os.getuid() == 0:
            raise _refusal(
                config,
                "the kernel does not limit the processes of root",
                'add user = "...", or remove processes',
            )
        return None
    if os.getuid() != 0:
        raise _refusal(config, "only root can run it as another user", "remove user = ")
    try:
        entry = pwd.getpwnam(confine.user)
    except KeyError:
        raise _refusal(
            config, f"there is no user {confine.user}", f"useradd -r {confine.user}"
        ) from None
    if entry.pw_uid == 0:
        raise _refusal(config, "its user must not be root", "name an ordinary user")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return entry.pw_uid, entry.pw_gid, groups


def _check(config: ServerConfig, confine: Confine, program: Program) -> None:
    for path in (*confine.read, *confine.write):
        if not Path(path).exists():
            raise _refusal(config, f"{path} does not exist", f"mkdir -p {path}")
    files = program.reads | program.names | _there(_SYSTEM)
    for path in confine.write:
        within = (own for own in files if inside(own, [path]))
        if own := inside(path, files) or next(within, None):
            raise _refusal(
                config,
                f"with write = {path} it could change its own program: {own}",
                "name a narrower folder, or install the program elsewhere",
            )


def _refusal(config: ServerConfig, why: str, fix: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"{NOT_CONFINED}{why}", fix=f"in [servers.{config.name}.confine]: {fix}"
    )
