"""
The system call filter of tool servers: all but what no tool server needs.

They are programs of any kind, so this is a list of what is refused: other processes'
memory, mounts and namespaces, keys, kernel programs, ``io_uring`` (whose requests no
filter sees), System V IPC and message queues (which have no path, so Landlock does not
see them), and sockets. A server keeps its pipes and socket pairs.

A Unix socket can reach every other one by path, and an unconnected datagram socket too:
only connected pairs are allowed.
"""

from __future__ import annotations

from .kernel import (
    ALLOW,
    AT_ARGUMENTS,
    DENY,
    IF_AT_LEAST,
    IF_EQUAL,
    LOAD,
    MACHINES,
    RETURN,
    allowing,
    assembled,
    prologue,
)

# Numbers on x86_64 and aarch64; -1: no such call.
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "vhangup": (153, 58),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
_TRUNCATE = (76, 45)
_CLONE = (56, 220)
_PRLIMIT64 = (302, 261)
_IOCTL = (16, 29)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)

#: Numbers of the other convention that x86_64 has.
_X32 = 0x40000000
_ALL = 0xFFFFFFFF
_NEW_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _PACKETS = 1, 2, 5
_KIND = 0xF
_TCP, _UDP = 6, 17


def filter_program(machine: str, *, network: bool, truncates: bool) -> bytes:
    """
    Return the filter, in classic BPF.

    Args:
        machine: The processor.

        network: Whether there may be TCP and UDP sockets.

        truncates: Whether Landlock covers ``truncate``.
    """
    column = MACHINES.index(machine)
    code = prologue(machine)
    code += [(IF_AT_LEAST, 0, 1, _X32), (RETURN, 0, 0, DENY)]
    refused = [*_REFUSED.values(), *([] if truncates else [_TRUNCATE])]
    for numbers in refused:
        if numbers[column] >= 0:
            code += [(IF_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, DENY)]
    inet = (0, _ALL, (_AF_INET, _AF_INET6)), (2, _KIND, (_STREAM, _DATAGRAM))
    code += (
        allowing(_SOCKET[column], *inet, (4, _ALL, (0, _TCP, _UDP)))
        if (network)
        else [(IF_EQUAL, 0, 1, _SOCKET[column]), (RETURN, 0, 0, DENY)]
    )
    pair = (0, _ALL, (_AF_UNIX,)), (2, _KIND, (_STREAM, _PACKETS))
    code += allowing(_SOCKETPAIR[column], *pair)
    code += allowing(_CLONE[column], (0, _NEW_NAMESPACES, (0,)))
    # The limits of others: the host's, too, are those of the same user.
    code += allowing(_PRLIMIT64[column], (0, _ALL, (0,)))
    code += [
        (IF_EQUAL, 0, 4, _IOCTL[column]),
        (LOAD, 0, 0, AT_ARGUMENTS + 4 * 2),
        (IF_EQUAL, 1, 0, _TIOCSTI),
        (IF_EQUAL, 0, 1, _TIOCLINUX),
        (RETURN, 0, 0, DENY),
        (RETURN, 0, 0, ALLOW),
    ]
    return assembled(code)
