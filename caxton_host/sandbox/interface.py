"""
What a guest may import and must export: as a core module, and as a component.

The functions of components are the same as in `agents/wit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NAMESPACE = "caxton"

#: Everything a core module can reach, with its WebAssembly type.
HOST_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "mcp_call": "(i32, i32, i32, i32, i32, i32) -> i64",
        "mcp_call_many": "(i32, i32, i32, i32) -> i64",
        "take_reply": "(i32, i32) -> i32",
        "tools": "(i32, i32) -> i64",
        "context": "(i32, i32, i32, i32) -> i64",
        "input": "(i32, i32) -> i64",
        "output": "(i32, i32) -> ()",
        "now": "() -> i64",
        "random": "(i32, i32) -> ()",
        "log": "(i32, i32, i32) -> ()",
        "program": "(i32, i32) -> i64",
        "fail": "(i32, i32) -> ()",
    }
)
CORE_ENTRY_TYPE = "() -> i32"

#: The type of what a WASI program exports as its entry point.
WASI_ENTRY_TYPE = "() -> ()"

#: Every function of preview 1, in the module `commands.MODULE`. `wasi` answers all,
#: some with ``ENOTSUP``.
WASI_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "args_get": "(i32, i32) -> i32",
        "args_sizes_get": "(i32, i32) -> i32",
        "environ_get": "(i32, i32) -> i32",
        "environ_sizes_get": "(i32, i32) -> i32",
        "clock_res_get": "(i32, i32) -> i32",
        "clock_time_get": "(i32, i64, i32) -> i32",
        "fd_advise": "(i32, i64, i64, i32) -> i32",
        "fd_allocate": "(i32, i64, i64) -> i32",
        "fd_close": "(i32) -> i32",
        "fd_datasync": "(i32) -> i32",
        "fd_fdstat_get": "(i32, i32) -> i32",
        "fd_fdstat_set_flags": "(i32, i32) -> i32",
        "fd_fdstat_set_rights": "(i32, i64, i64) -> i32",
        "fd_filestat_get": "(i32, i32) -> i32",
        "fd_filestat_set_size": "(i32, i64) -> i32",
        "fd_filestat_set_times": "(i32, i64, i64, i32) -> i32",
        "fd_pread": "(i32, i32, i32, i64, i32) -> i32",
        "fd_prestat_get": "(i32, i32) -> i32",
        "fd_prestat_dir_name": "(i32, i32, i32) -> i32",
        "fd_pwrite": "(i32, i32, i32, i64, i32) -> i32",
        "fd_read": "(i32, i32, i32, i32) -> i32",
        "fd_readdir": "(i32, i32, i32, i64, i32) -> i32",
        "fd_renumber": "(i32, i32) -> i32",
        "fd_seek": "(i32, i64, i32, i32) -> i32",
        "fd_sync": "(i32) -> i32",
        "fd_tell": "(i32, i32) -> i32",
        "fd_write": "(i32, i32, i32, i32) -> i32",
        "path_create_directory": "(i32, i32, i32) -> i32",
        "path_filestat_get": "(i32, i32, i32, i32, i32) -> i32",
        "path_filestat_set_times": "(i32, i32, i32, i32, i64, i64, i32) -> i32",
        "path_link": "(i32, i32, i32, i32, i32, i32, i32) -> i32",
        "path_open": "(i32, i32, i32, i32, i32, i64, i64, i32, i32) -> i32",
        "path_readlink": "(i32, i32, i32, i32, i32, i32) -> i32",
        "path_remove_directory": "(i32, i32, i32) -> i32",
        "path_rename": "(i32, i32, i32, i32, i32, i32) -> i32",
        "path_symlink": "(i32, i32, i32, i32, i32) -> i32",
        "path_unlink_file": "(i32, i32, i32) -> i32",
        "poll_oneoff": "(i32, i32, i32, i32) -> i32",
        "proc_exit": "(i32) -> ()",
        "proc_raise": "(i32) -> i32",
        "random_get": "(i32, i32) -> i32",
        "sched_yield": "() -> i32",
        "sock_accept": "(i32, i32, i32) -> i32",
        "sock_recv": "(i32, i32, i32, i32, i32, i32) -> i32",
        "sock_send": "(i32, i32, i32, i32, i32) -> i32",
        "sock_shutdown": "(i32, i32) -> i32",
    }
)

INTERFACE = "caxton:agent/host@1.0.0"
LEVELS = ("debug", "info", "warning", "error")

#: Everything a component can reach, with its type. Names of parameters do not count.
FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "mcp-call": "(string, string) -> string",
        "mcp-call-many": "(string) -> string",
        "tools": "() -> string",
        "context": "(string) -> option<string>",
        "input": "() -> string",
        "output": "(string)",
        "now": "() -> s64",
        "random": "() -> u64",
        "log": f"(enum {{{', '.join(LEVELS)}}}, string)",
        "program": "() -> string",
    }
)
ENTRY_TYPE = "() -> result<_, string>"
