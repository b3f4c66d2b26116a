"""The system call filter, interpreted as the kernel does. Law 1."""

from __future__ import annotations

import errno
import os
import signal
import struct

import pytest

from caxton_host.sandbox import confine, kernel

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
X32 = 0x40000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = ["x86_64", "aarch64"]

#: Numbers on x86_64 and aarch64, from the kernel's own headers.
CALLS = {
    "accept": (43, 202), "accept4": (288, 242), "add_key": (248, 217),
    "bind": (49, 200), "bpf": (321, 280), "chroot": (161, 51),
    "connect": (42, 203), "dup": (32, 23), "dup3": (292, 24),
    "eventfd2": (290, 19), "execve": (59, 221), "execveat": (322, 281),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsopen": (430, 430),
    "init_module": (175, 105), "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "kcmp": (312, 272), "keyctl": (250, 219),
    "kill": (62, 129), "listen": (50, 201), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "mkdirat": (258, 34), "mount": (165, 40),
    "move_mount": (429, 429), "mq_open": (240, 180), "name_to_handle_at": (303, 264),
    "newfstatat": (262, 79), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "openat": (257, 56), "openat2": (437, 437), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pipe2": (293, 59), "pivot_root": (155, 41),
    "prlimit64": (302, 261), "process_madvise": (440, 440),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "readlinkat": (267, 78), "reboot": (169, 142),
    "recvmsg": (47, 212), "renameat2": (316, 276), "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122), "seccomp": (317, 277), "sendmmsg": (307, 269),
    "sendmsg": (46, 211), "setns": (308, 268), "setpriority": (141, 140),
    "setrlimit": (160, 164), "setsid": (112, 157), "setuid": (105, 146),
    "shmget": (29, 194), "signalfd4": (289, 74), "socket": (41, 198),
    "socketpair": (53, 199), "statx": (332, 291), "symlinkat": (266, 36),
    "timer_create": (222, 107), "timerfd_create": (283, 85), "tkill": (200, 130),
    "truncate": (76, 45), "umount2": (166, 39), "unlinkat": (263, 35),
    "unshare": (272, 97), "userfaultfd": (323, 282), "utimensat": (280, 88),
    "wait4": (61, 260),
}  # fmt: skip
X86_ONLY = {
    "arch_prctl": 158, "chmod": 90, "creat": 85, "epoll_create": 213, "fork": 57,
    "iopl": 172, "link": 86, "modify_ldt": 154, "open": 2, "pipe": 22, "rename": 82,
    "stat": 4, "unlink": 87, "vfork": 58,
}  # fmt: skip

FORK = signal.SIGCHLD
THREAD = 0x3D0F00


def verdict(
    machine: str,
    number: int,
    *args: int,
    arch: int | None = None,
    opening: bool = False,
) -> int:
    """Run the filter over one system call."""
    words = [word for arg in args for word in (arg & 0xFFFFFFFF, arg >> 32)]
    data = struct.pack(
        "=IIQ12I",
        number,
        ARCH[machine] if arch is None else arch,
        0,
        *words,
        *[0] * (12 - len(words)),
    )
    code = [
        struct.unpack("=HBBI", chunk)
        for chunk in batched(confine.filter_program(machine, opening=opening))
    ]
    at = accumulator = 0
    while True:
        operation, true, false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x15:
            at += true if accumulator == value else false
        else:
            assert operation == 0x06
            return int(value)


def batched(data: bytes) -> list[bytes]:
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def pick(machine: str, numbers: tuple[int, int]) -> int:
    return numbers[MACHINES.index(machine)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_not_needed_is_not_permitted(machine: str, call: str) -> None:
    assert verdict(machine, pick(machine, CALLS[call])) == EPERM


@pytest.mark.parametrize("call", X86_ONLY)
def test_an_old_call_is_no_way_around(call: str) -> None:
    assert verdict("x86_64", X86_ONLY[call]) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_that_is_not_listed_is_not_permitted(machine: str) -> None:
    listed = sum(verdict(machine, number) == ALLOW for number in range(1000))

    assert listed < 56
    assert {verdict(machine, number) for number in range(1000, 1100)} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "numbers", [(0, 63), (1, 64), (202, 98), (9, 222), (45, 207), (231, 94)]
)
def test_what_a_guest_needs_is_permitted(
    machine: str, numbers: tuple[int, int]
) -> None:
    assert verdict(machine, pick(machine, numbers), 1, 2, 3) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_while_an_artifact_is_mapped_files_may_be_opened_to_read(machine: str) -> None:
    openat, seccomp = pick(machine, CALLS["openat"]), pick(machine, CALLS["seccomp"])
    read, write, make = os.O_CLOEXEC, os.O_CLOEXEC | os.O_RDWR, os.O_CREAT | os.O_RDWR

    assert verdict(machine, openat, 0, 0, read, opening=True) == ALLOW
    assert verdict(machine, openat, 0, 0, write, opening=True) == EPERM
    assert verdict(machine, openat, 0, 0, make, opening=True) == EPERM
    assert verdict(machine, openat, 0, 0, os.O_PATH, opening=True) == EPERM
    assert verdict(machine, openat, 0, 0, read) == EPERM
    # A filter can only be added to those in force.
    assert verdict(machine, seccomp, 1, 1, opening=True) == ALLOW
    assert verdict(machine, seccomp, 0, 0, opening=True) == EPERM
    more = [
        number
        for number in range(1000)
        if number not in {openat, seccomp}
        and verdict(machine, number, opening=True) != verdict(machine, number)
    ]
    assert not more


def test_another_calling_convention_kills() -> None:
    assert verdict("x86_64", 0, arch=0x40000003) == KILL
    assert verdict("aarch64", 63, arch=0x40000028) == KILL


def test_the_x32_numbers_are_not_permitted() -> None:
    assert verdict("x86_64", X32) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_thread_can_be_made_and_a_process_cannot(machine: str) -> None:
    clone = pick(machine, (56, 220))

    assert verdict(machine, clone, THREAD) == ALLOW
    assert verdict(machine, clone, THREAD | 0x400000) == ALLOW
    assert verdict(machine, clone, FORK) == EPERM
    assert verdict(machine, clone, 0x4100 | FORK) == EPERM
    assert verdict(machine, clone, THREAD | 0x10000000) == EPERM
    assert verdict(machine, clone, THREAD & ~0x100) == EPERM
    assert verdict(machine, 435, 0) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_a_message_cannot_be_addressed(machine: str) -> None:
    sendto = pick(machine, (44, 206))

    assert verdict(machine, sendto, 3, 4096, 8, 0, 0, 0) == ALLOW
    assert verdict(machine, sendto, 3, 4096, 8, 0, 4096, 16) == EPERM
    assert verdict(machine, sendto, 3, 4096, 8, 0, 1 << 32, 16) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_file_cannot_be_made_to_send_signals(machine: str) -> None:
    fcntl, ioctl = pick(machine, (72, 25)), pick(machine, (16, 29))

    assert verdict(machine, fcntl, 3, 4, 0x800) == ALLOW
    assert verdict(machine, fcntl, 3, 8, 1) == EPERM
    assert verdict(machine, fcntl, 3, 10, 9) == EPERM
    assert verdict(machine, fcntl, 3, 0, 0) == EPERM
    assert verdict(machine, ioctl, 3, 0x5421) == ALLOW
    assert verdict(machine, ioctl, 3, 0x5412) == EPERM
    assert verdict(machine, ioctl, 3, 0x8901) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_only_this_process_can_be_signalled_and_only_named_otherwise(
    machine: str,
) -> None:
    tgkill, prctl = pick(machine, (234, 131)), pick(machine, (157, 167))

    assert verdict(machine, tgkill, os.getpid(), os.getpid(), 6) == ALLOW
    assert verdict(machine, tgkill, os.getppid(), os.getppid(), 9) == EPERM
    assert verdict(machine, prctl, 15, 4096) == ALLOW
    assert verdict(machine, prctl, 1, 0) == EPERM
    assert verdict(machine, prctl, 4, 1) == EPERM


def test_an_unknown_processor_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "AUDIT_ARCH", None)

    assert confine.filter_calls() is False
    assert kernel.syscall("seccomp", 0, 0) == -1


def test_another_system_has_no_process_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "LINUX", False)

    assert kernel.prctl(15, 0) is False
