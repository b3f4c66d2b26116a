"""
The C interface of wasmtime for components: values, host functions and calls.

wasmtime-py itself converts each value by its type, keeps an exception of a host
function in a global of the process, and crashes on some exceptions. Guarded
by ``tests/integration/sandbox/test_component_engine.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import string_at
from struct import Struct
from typing import Any, cast

import wasmtime
from wasmtime.component import Func, Instance, LinkerInstance

from . import engine
from .engine import ffi, raw

_ptr, _size = ctypes.c_void_p, ctypes.c_size_t
_Callback = ctypes.CFUNCTYPE(_size, _size, _size, _size, _size, _size, _size, _size)

_VALUE = ctypes.sizeof(ffi.wasmtime_component_val_t)
#: A text: its kind, its length, its address.
_TEXT = Struct("<B7xQQ")
_RESULT = Struct("<B7xB7xQ")
_PAYLOAD = 8
_S64, _U64 = ffi.WASMTIME_COMPONENT_S64.value, ffi.WASMTIME_COMPONENT_U64.value
_STRING, _ENUM = ffi.WASMTIME_COMPONENT_STRING.value, ffi.WASMTIME_COMPONENT_ENUM.value
_OPTION = ffi.WASMTIME_COMPONENT_OPTION.value
_IS_RESULT = ffi.WASMTIME_COMPONENT_RESULT.value

_bytes_new = raw("wasm_byte_vec_new", None, _size, _size, ctypes.c_char_p)
_value_new = raw("wasmtime_component_val_new", _size, _size)
_value_delete = raw("wasmtime_component_val_delete", None, _ptr)
_call = raw(
    "wasmtime_component_func_call", _size, _ptr, _size, _ptr, _size, _ptr, _size
)
_define = raw(
    "wasmtime_component_linker_instance_add_func",
    _size,
    _ptr,
    ctypes.c_char_p,
    _size,
    _Callback,
    _size,
    _size,
)
_error_pointer = cast("Any", ctypes.POINTER(ffi.wasmtime_error_t))


def host_callback(
    function: Callable[[int, int, int, int, int, int, int], int],
) -> object:
    """
    Return the callback that `define` takes for a host function.

    It is called with a number, the context, the type, the address and number of its
    arguments, and those of its results. It returns 0 or an error, and must not raise.
    """
    return _Callback(function)


def define(linker: LinkerInstance, name: str, callback: object, number: int) -> None:
    """
    Define a host function. Its type is not compared with what a component declares.

    Args:
        linker: Of the interface that it belongs to.

        name: As components import it.

        callback: It must outlive the linker.

        number: Its first argument, which identifies the function.
    """
    encoded = name.encode()
    if _define(linker.ptr(), encoded, len(encoded), callback, number, 0):
        raise wasmtime.WasmtimeError(f"{name} cannot be defined")


def text(values: int, place: int, kind: int = _STRING) -> tuple[int, int]:
    """Return address and length of the text that is the argument at *place*."""
    found, length, address = _TEXT.unpack(
        string_at(values + place * _VALUE, _TEXT.size)
    )
    if found != kind:
        raise TypeError(f"argument {place} is of kind {found}")
    return address, length


def enumeration(values: int, place: int) -> str:
    """Return the name of the case that is the argument at *place*."""
    return string_at(*text(values, place, _ENUM)).decode()


def give_text(value: int, data: bytes) -> None:
    """Write a text to the address of a result. wasmtime frees its memory."""
    ctypes.c_uint8.from_address(value).value = _STRING
    _bytes_new(value + _PAYLOAD, len(data), data)


def give_some(value: int, data: bytes) -> None:
    """Write an optional text to the address of a result."""
    inner = ctypes.create_string_buffer(_VALUE)
    give_text(ctypes.addressof(inner), data)
    _give(value, _OPTION, _value_new(ctypes.addressof(inner)))


def give_none(value: int) -> None:
    """Write an absent optional text to the address of a result."""
    _give(value, _OPTION, 0)


def give_s64(value: int, number: int) -> None:
    """Write a signed number to the address of a result."""
    _give(value, _S64, number & 0xFFFF_FFFF_FFFF_FFFF)


def give_u64(value: int, number: int) -> None:
    """Write an unsigned number to the address of a result."""
    _give(value, _U64, number)


def _give(value: int, kind: int, payload: int) -> None:
    ctypes.c_uint8.from_address(value).value = kind
    ctypes.c_uint64.from_address(value + _PAYLOAD).value = payload


def entry(store: wasmtime.Store, instance: Instance, name: str) -> Func:
    """
    Return the function that *instance* exports as *name*.

    Raises:
        LookupError: There is no such function.
    """
    found = instance.get_func(store, name)
    if found is None:
        raise LookupError(name)
    return found


def call(store: wasmtime.Store, function: Func, most: int) -> bytes | None:
    """
    Call a function without parameters that returns a ``result<_, string>``.

    Args:
        store: Of the function.

        function: See `entry`.

        most: How many bytes of an error to return.

    Returns:
        ``None``, or its error.

    Raises:
        wasmtime.WasmtimeError: It did not return.
    """
    private: Any = function
    result = ctypes.create_string_buffer(_VALUE)
    error = _call(
        ctypes.byref(private._func),  # noqa: SLF001 -- there is no other way
        engine.context_of(store),
        None,
        0,
        result,
        1,
    )
    if error:
        failure: Any = wasmtime.WasmtimeError
        raise failure._from_ptr(ctypes.cast(error, _error_pointer))  # noqa: SLF001 -- as above
    try:
        kind, is_ok, inner = _RESULT.unpack(result.raw[: _RESULT.size])
        if kind != _IS_RESULT:
            raise TypeError(f"a result of kind {kind}")
        if is_ok:
            return None
        address, length = text(inner, 0)
        return string_at(address, min(length, most))
    finally:
        _value_delete(result)
