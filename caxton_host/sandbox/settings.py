"""
The settings under which guests are compiled and run, and their fingerprint.

The host must not import wasmtime; it sends these settings to the processes that do.
Every setting that can change a guest's machine code, its fuel or the end of its stack
is here: otherwise a recorded run would replay under another engine unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..core.limits import Limits

#: Bytes of a page of WebAssembly memory.
PAGE = 64 * 1024
_MIB = 1024 * 1024
#: Bytes of the stack of a guest: by whether it is a component, and whether it declares
#: that it interprets a program. An interpreter has frames of its own for each of its
#: program's: with 8 MiB, a deep recursion in CPython's parser overflows.
STACKS = {
    (False, False): 512 * 1024,
    (True, False): 8 * _MIB,
    (False, True): 16 * _MIB,
    (True, True): 32 * _MIB,
}

#: Bytes of address space of a memory that no address leaves, so that its code need not
#: compare each one. Python runs 1.15 to 1.2 times as fast, and one artifact serves
#: every limit on memory.
_WHOLE = 4096 * _MIB

#: Setting of `wasmtime_config_<name>_set` to its value.
SWITCHES: dict[str, int] = {
    "consume_fuel": True,
    "epoch_interruption": True,
    "cranelift_nan_canonicalization": True,
    "wasm_bulk_memory": True,
    "wasm_multi_value": True,
    # The stock QuickJS component aborts the process if this is off.
    "wasm_multi_memory": True,
    "wasm_reference_types": True,
    "wasm_simd": True,
    "wasm_relaxed_simd": True,
    "wasm_relaxed_simd_deterministic": True,
    "wasm_tail_call": True,
    "concurrency_support": False,
    "gc_support": False,
    "shared_memory": False,
    "wasm_component_model": False,
    "wasm_custom_page_sizes": False,
    "wasm_exceptions": False,
    "wasm_function_references": False,
    "wasm_gc": False,
    "wasm_memory64": False,
    "wasm_stack_switching": False,
    "wasm_threads": False,
    "wasm_wide_arithmetic": False,
    # A copy-on-write image is a file; see `EngineSettings.images`.
    "memory_init_cow": False,
    "memory_may_move": False,
    "memory_reservation_for_growth": 0,
    "parallel_compilation": False,
}

#: For components, where they differ.
COMPONENT_SWITCHES: dict[str, int] = SWITCHES | {
    "wasm_component_model": True,
    "wasm_component_model_accessors": False,
    "wasm_component_model_async": False,
    "wasm_component_model_async_stackful": False,
    "wasm_component_model_canonical_names": False,
    "wasm_component_model_implements": False,
    "wasm_component_model_map": False,
    "wasm_component_model_more_async_builtins": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """
    The settings of an engine. Sizes in bytes.

    Attributes:
        memory: Address space of each linear memory, which cannot grow beyond it. A
            limit on memory may be lower.

        stack: Stack of a guest.

        guard: Unmapped space around a memory.

        wasmtime: The version that compiles and runs.

        machine: The processor family that it compiles for.

        component: Whether it takes components only, or core modules only.

        interpreter: Whether its modules declare that they interpret a program.
    """

    memory: int
    stack: int = STACKS[False, False]
    guard: int = PAGE
    wasmtime: str
    machine: str
    component: bool = False
    interpreter: bool = False

    @property
    def images(self) -> bool:
        """
        Whether guests share their initial memory until they write it.

        Interpreters come with 10 MB and more of it, most of which they only read.
        """
        return self.component or self.interpreter

    @property
    def switches(self) -> dict[str, int]:
        """Return the switches of wasmtime."""
        switches = COMPONENT_SWITCHES if self.component else SWITCHES
        return switches | {"memory_init_cow": self.images}

    @property
    def fingerprint(self) -> str:
        """Version and digest: ``wasmtime-50.0.1/ab12cd34``."""
        everything = json.dumps([self._told(), self.switches], sort_keys=True)
        digest = hashlib.sha256(everything.encode()).hexdigest()
        return f"wasmtime-{self.wasmtime}/{digest[:8]}"

    def to_json(self) -> str:
        """Return the settings as JSON, for `from_json`."""
        return json.dumps(self._told(), sort_keys=True)

    def _told(self) -> dict[str, object]:
        told = asdict(self)
        # Logs name engines from before there were components and interpreters.
        for name in ("component", "interpreter"):
            if not told[name]:
                del told[name]
        return told

    @classmethod
    def from_json(cls, text: str) -> EngineSettings:
        """Return the settings that `to_json` wrote."""
        return cls(**json.loads(text))


def settings_for(
    limits: Limits, *, component: bool = False, interpreter: bool = False
) -> EngineSettings:
    """Return the settings under which a module with *limits* is compiled and run."""
    from importlib.metadata import version  # noqa: PLC0415 -- 8 ms, not for workers

    memory = limits.memory_of(large=component)
    return EngineSettings(
        memory=_WHOLE if interpreter else -(-memory // PAGE) * PAGE,
        stack=STACKS[component, interpreter],
        component=component,
        interpreter=interpreter,
        wasmtime=version("wasmtime"),
        machine=platform.machine(),
    )


def share(maxima: Sequence[int | None], limit: int) -> int:
    """
    Return how large each memory may grow, so that all together stay within *limit*.

    wasmtime has one bound a guest, which holds for each memory separately.

    Args:
        maxima: What each memory declares as its most, or ``None``. In pages.

        limit: Bytes.

    >>> share([None], 10 * 65536) // 65536
    10
    >>> share([None, 1, None], 10 * 65536) // 65536
    4
    """
    left = limit // PAGE
    declared = sorted(left if most is None else min(most, left) for most in maxima)
    for place, most in enumerate(declared):
        sharers = len(declared) - place
        if most * sharers > left:
            return left // sharers * PAGE
        left -= most
    return limit // PAGE * PAGE
