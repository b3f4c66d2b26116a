"""
The gate: decides which modules may be compiled.

It parses the binary before anything else interprets a byte of it. A module
may import the host functions and nothing else, must export ``memory`` and its entry
point, and declares no more than its limits allow. A component may import the same
functions in another form; the compile child checks their types. The gate saves time
and gives good messages; the confinement of that child makes compiling harmless.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.commands import ABI, MODULE
from ..core.limits import COMPONENT, Limits, is_component
from ..core.names import clean_name, nearest
from ..errors import ModuleRefused
from .binary import HEADER, MAX_NAME, Import, ModuleInfo, parse_module
from .component_binary import parse_component
from .interface import (
    CORE_ENTRY_TYPE,
    FUNCTIONS,
    HOST_FUNCTIONS,
    INTERFACE,
    NAMESPACE,
    WASI_ENTRY_TYPE,
    WASI_FUNCTIONS,
)

#: How to build a component without WASI.
_STUB = (
    "build it with its WASI stubbed out: componentize-py ... --stub-wasi, "
    "componentize-qjs ... --stub-wasi, jco componentize --disable all"
)
_NAMESPACES = {NAMESPACE: HOST_FUNCTIONS, MODULE: WASI_FUNCTIONS}
_PAGE = 65_536
_SHOWN = 128

#: Changes when `inspect` refuses more than before, or finds something else.
VERSION = 1

#: Common causes of an import: the prefixes of its module and name, and the fix.
_REMEDIES = (
    (
        "wasi",
        "",
        "build a command of WASI preview 1, without threads (wasm32-wasi, wasip1)",
    ),
    ("env", "abort", "compile with --use abort= (AssemblyScript)"),
    ("env", "memory", "let the module own its memory: drop --import-memory"),
    ("env", "__linear_memory", "link the object file first: zig cc, wasm-ld"),
    ("env", "__", "link a module of its own: drop -shared, -fPIC and --import-table"),
    ("env", "emscripten", "build with -sSTANDALONE_WASM --no-entry, without WASI"),
    (
        "env",
        "",
        'define it in the agent, or import it from module "caxton" if the host has it',
    ),
    ("__wbindgen", "", "build without wasm-bindgen and crates that need a browser"),
    ("go", "", "build for WASI instead: GOOS=wasip1 GOARCH=wasm go build"),
)


def inspect(module: bytes) -> ModuleInfo:
    """
    Return what a module declares, whether or not an agent may use it.

    Raises:
        ModuleRefused: It is neither a core module nor a component, or is too large
            to parse.
    """
    if is_component(module):
        return parse_component(module)
    _check_header(module)
    return parse_module(module)


def check(
    module: bytes,
    limits: Limits,
    entry: str,
    look: Callable[[bytes], ModuleInfo] = inspect,
) -> ModuleInfo:
    """
    Return what a module declares, or refuse it.

    Args:
        module: Its bytes, of any quality.

        limits: Bounds on what it declares.

        entry: The function it must export, without parameters, giving an i32; of a
            component, a ``result<_, string>``; of a WASI program, nothing.

        look: Returns what `inspect` does, or did earlier for the same bytes.

    Raises:
        ModuleRefused: It is neither a core module nor a component, or declares too
            much.
    """
    if len(module) > limits.module:
        raise ModuleRefused(
            f"the module has {len(module):,} bytes, at most {limits.module:,}",
            fix="strip it (-Wl,--strip-all, -C strip=symbols), or raise limits.module",
        )
    info = look(module)
    component = info.kind == "component"
    for wanted in info.imports:
        _check_interface(wanted) if component else _check_import(wanted)
    if component:
        _check_entry(info, entry)
    else:
        _check_exports(info, entry)
    _check_declared(info, limits.of(module))
    return info


def _check_header(module: bytes) -> None:
    rebuild = "build it again: the file is cut or damaged"
    if not module:
        raise ModuleRefused("the module is empty", fix=rebuild)
    if module.startswith(HEADER):
        return
    if module[:64].lstrip().startswith((b"(", b";;")):
        raise ModuleRefused(
            "the module is WebAssembly text, not binary",
            fix="assemble it first: wat2wasm agent.wat -o agent.wasm",
        )
    if HEADER.startswith(module) or COMPONENT.startswith(module):
        raise ModuleRefused("the module is cut off in its first bytes", fix=rebuild)
    if module.startswith(HEADER[:4]):
        version = clean_name(module[4:8])
        raise ModuleRefused(
            f"the module has an unknown version, {version}",
            fix="build it for WebAssembly version 1, or as a component of today",
        )
    raise ModuleRefused(
        "this is not a WebAssembly module",
        fix="name a .wasm file, which begins with the bytes 00 61 73 6d; a program "
        "needs the suffix .py, .js or .ts, or --language",
    )


def _check_import(wanted: Import) -> None:
    shown = f'"{wanted.module[:_SHOWN]}" "{wanted.name[:_SHOWN]}"'
    known = _NAMESPACES.get(wanted.module)
    if known is None:
        raise ModuleRefused(
            f"the module imports the {wanted.kind} {shown}; no agent may import it",
            fix=_remedy(wanted),
        )
    expected = known.get(wanted.name)
    if wanted.kind != "function" or expected is None:
        close = nearest(wanted.name[:_SHOWN], list(known))
        raise ModuleRefused(
            f"the module imports the {wanted.kind} {shown}, which does not exist",
            fix=f'import "{close}"'
            if close
            else "import one of the functions " + ", ".join(known),
        )
    if wanted.type != expected:
        raise ModuleRefused(
            f"the module imports {shown} as {wanted.type[:_SHOWN]}",
            fix=f"declare it as {expected}",
        )


def _check_interface(wanted: Import) -> None:
    interface_, name = wanted.module[:_SHOWN], wanted.name[:_SHOWN]
    if wanted.module.startswith("wasi:"):
        raise ModuleRefused(
            f'the component imports "{interface_}", and no agent has WASI',
            fix=_STUB,
        )
    if wanted.module != INTERFACE:
        package = INTERFACE.partition("@")[0]
        other = wanted.module.partition("@")[0] == package
        raise ModuleRefused(
            f'the component imports "{interface_}", which does not exist',
            fix=f'import "{INTERFACE}"'
            + (
                ": build it with the WIT of this host" if other else " and nothing else"
            ),
        )
    if not name and wanted.kind == "instance":  # of which it takes nothing
        return
    if wanted.kind != "function" or wanted.name not in FUNCTIONS:
        close = nearest(name, list(FUNCTIONS))
        raise ModuleRefused(
            f'the component imports the {wanted.kind} "{name}" of "{interface_}", '
            "which does not exist",
            fix=f'import "{close}"'
            if close
            else "import one of the functions " + ", ".join(FUNCTIONS),
        )


def _check_entry(info: ModuleInfo, entry: str) -> None:
    entry = clean_name(entry.encode(errors="backslashreplace"), MAX_NAME)
    found = next((export for export in info.exports if export.name == entry), None)
    if found is None or found.kind != "function":
        raise ModuleRefused(
            f'the component does not export its entry point "{entry[:_SHOWN]}"',
            fix='build it for the world "agent" of package caxton:agent',
        )


def _remedy(wanted: Import) -> str:
    for module, name, remedy in _REMEDIES:
        if wanted.module.startswith(module) and wanted.name.startswith(name):
            return remedy
    return f'import from module "{NAMESPACE}" only'


def _check_exports(info: ModuleInfo, entry: str) -> None:
    exports = {export.name: export for export in info.exports}
    memory = exports.get("memory")
    if memory is None or memory.kind != "memory":
        raise ModuleRefused(
            'the module does not export a memory named "memory"',
            fix="link with --export-memory, or without --import-memory",
        )
    wanted = WASI_ENTRY_TYPE if info.abi == ABI else CORE_ENTRY_TYPE
    entry = clean_name(entry.encode(errors="backslashreplace"), MAX_NAME)
    found = exports.get(entry)
    if found is None:
        others = [name for name, one in exports.items() if one.type == wanted]
        close = nearest(entry, others)
        fix = f"export it: a function {wanted}"
        if info.abi == ABI:
            fix = "build a command, a program with a main function; no library"
        raise ModuleRefused(
            f'the module does not export its entry point "{entry[:_SHOWN]}"',
            fix=f'set entry = "{close[:_SHOWN]}"' if close else fix,
        )
    if found.type != wanted:
        raise ModuleRefused(
            f'the entry point "{entry[:_SHOWN]}" is '
            f"{found.type[:_SHOWN] or 'a ' + found.kind}",
            fix=f"make it a function {wanted}",
        )


def _check_declared(info: ModuleInfo, limits: Limits) -> None:
    minimum = sum(memory.minimum for memory in info.memories) * _PAGE
    largest = max((table.minimum for table in info.tables), default=0)
    for limit, what, number in (
        ("memories", "memories", len(info.memories)),
        ("memory", "bytes of memory", minimum),
        ("tables", "tables", len(info.tables)),
        ("table_elements", "elements in one table", largest),
    ):
        most: int = getattr(limits, limit)
        if number > most:
            raise ModuleRefused(
                f"the module declares {number:,} {what}, at most {most:,}",
                fix=f"make it smaller, or raise limits.{limit}",
            )
