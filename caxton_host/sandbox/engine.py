"""
The engine: the only module that configures wasmtime and uses its private parts.

Imported by workers and compile children, never by the host. wasmtime-py keeps an
exception of a host function in one global of the process, so that it can surface in
another guest, and has no epoch callback. So this module uses the C interface below it,
as guarded by ``tests/integration/sandbox/test_engine.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import wasmtime
from wasmtime import _ffi

from .settings import EngineSettings

# Untyped: private parts of wasmtime-py.
ffi: Any = _ffi
_dll: Any = _ffi.dll
_ptr, _size, _u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64

_Callback = ctypes.CFUNCTYPE(_size, _size, _size, _size, _size)

# The same for each guest that is stopped: the reason is in its stop slot.
_REASON = b"stopped by the host"


def raw(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 -- ctypes types have no common one
    """Return a function of the C interface, with plain integers for pointers."""
    # By item, not by attribute: a separate function object, beside the typed and
    # slower one of wasmtime-py.
    function = _dll[name]
    function.restype, function.argtypes = result, arguments
    return cast("Callable[..., Any]", function)


memory_base = raw("wasmtime_memory_data", _size, _size, _ptr)
memory_size = raw("wasmtime_memory_data_size", _size, _size, _ptr)
set_epoch_deadline = raw("wasmtime_context_set_epoch_deadline", None, _size, _u64)
_get_fuel = raw("wasmtime_context_get_fuel", _size, _size, _ptr)
set_fuel = raw("wasmtime_context_set_fuel", _size, _size, _u64)
_trap_new = raw("wasmtime_trap_new", _size, ctypes.c_char_p, _size)
_error_new = raw("wasmtime_error_new", _size, ctypes.c_char_p)
_export = raw(
    "wasmtime_caller_export_get", ctypes.c_bool, _size, ctypes.c_char_p, _size, _ptr
)
_on_epoch = raw(
    "wasmtime_store_epoch_deadline_callback", None, _ptr, _Callback, _ptr, _ptr
)
_define = raw(
    "wasmtime_linker_define_func_unchecked",
    _size,
    _ptr,
    ctypes.c_char_p,
    _size,
    ctypes.c_char_p,
    _size,
    _ptr,
    _Callback,
    _size,
    _ptr,
)


def build_engine(
    settings: EngineSettings, *, parallel: bool = False
) -> wasmtime.Engine:
    """
    Return an engine in which a guest can be bounded, stopped and repeated.

    Args:
        settings: What it is built from.

        parallel: Whether it compiles in several threads, to the same bytes.
    """
    config = wasmtime.Config()
    pointer = config.ptr()
    for name, value in settings.switches.items():
        getattr(ffi, f"wasmtime_config_{name}_set")(pointer, value)
    ffi.wasmtime_config_parallel_compilation_set(pointer, parallel)
    if settings.images:
        # Nothing runs on this stack, but wasmtime requires it to be the larger one.
        ffi.wasmtime_config_async_stack_size_set(pointer, settings.stack)
    ffi.wasmtime_config_max_wasm_stack_set(pointer, settings.stack)
    ffi.wasmtime_config_memory_reservation_set(pointer, settings.memory)
    ffi.wasmtime_config_memory_guard_size_set(pointer, settings.guard)
    return wasmtime.Engine(config)


def host_callback(function: Callable[[int, int, int, int], int]) -> object:
    """
    Return a callback for `define`: ``function(number, caller, values, count)``.

    It returns 0 or a trap, and must not raise.
    """
    return _Callback(function)


def epoch_callback(function: Callable[[int, int, int, int], int]) -> object:
    """
    Return a callback for `on_epoch`: ``function(context, data, delta, kind)``.

    It returns 0 and writes to the last two, or an error, and must not raise.
    """
    return _Callback(function)


def context_of(store: wasmtime.Store) -> int:
    """Return the address that the functions below take for *store*."""
    private: Any = store
    address: int = ctypes.cast(private._context(), _ptr).value or 0  # noqa: SLF001 -- there is no other way
    return address


def define(
    linker: wasmtime.Linker,
    path: tuple[str, str],
    type_: wasmtime.FuncType,
    callback: object,
    number: int,
) -> None:
    """
    Define a host function.

    Args:
        linker: Where to.

        path: The names of module and function, as guests import them.

        type_: What guests may declare it as.

        callback: It must outlive the linker.

        number: Its first argument, which identifies the function.
    """
    module, field = path[0].encode(), path[1].encode()
    if _define(
        linker.ptr(),
        module,
        len(module),
        field,
        len(field),
        type_.ptr(),
        callback,
        number,
        None,
    ):
        raise wasmtime.WasmtimeError(f"{path} cannot be defined")


def on_epoch(store: wasmtime.Store, callback: object) -> None:
    """Call *callback* at each deadline of *store*, which it must outlive."""
    _on_epoch(store.ptr(), callback, None, None)


def get_fuel(context: int) -> int:
    """Return what fuel is left."""
    left = _u64()
    _get_fuel(context, ctypes.byref(left))
    return left.value


def new_trap() -> int:
    """Return a trap, to be returned by a host function."""
    address: int = _trap_new(_REASON, len(_REASON))
    return address


def new_error() -> int:
    """Return an error, to be returned by an epoch callback."""
    address: int = _error_new(_REASON)
    return address


def caller_memory(caller: int) -> object:
    """Return the memory that the calling guest exports as ``memory``, or ``None``."""
    item = ffi.wasmtime_extern_t()
    if not _export(caller, b"memory", 6, ctypes.byref(item)):
        return None
    if item.kind != ffi.WASMTIME_EXTERN_MEMORY.value:
        return None
    memory: object = item.of.memory
    return memory


def exported_function(
    store: wasmtime.Store, instance: wasmtime.Instance, name: str
) -> Callable[[wasmtime.Store], Any]:
    """
    Return the function that *instance* exports as *name*.

    By name: the listing of wasmtime-py is quadratic in the number of exports.

    Raises:
        LookupError: There is no such function.
    """
    item, raw = ffi.wasmtime_extern_t(), name.encode()
    private: tuple[Any, Any, Any] = store, instance, wasmtime.Func
    found = ffi.wasmtime_instance_export_get(
        private[0]._context(),  # noqa: SLF001 -- as above
        ctypes.byref(private[1]._instance),  # noqa: SLF001 -- as above
        ctypes.create_string_buffer(raw),
        len(raw),
        ctypes.byref(item),
    )
    if not found or item.kind != ffi.WASMTIME_EXTERN_FUNC.value:
        raise LookupError(name)
    function: Callable[[wasmtime.Store], Any] = private[2]._from_raw(item.of.func)  # noqa: SLF001 -- as above
    return function
