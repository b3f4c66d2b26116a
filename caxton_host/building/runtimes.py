"""
Runtimes: made once a machine, found again, exported and imported.

A runtime is named after what it is made of, so another version of this package or of
a tool makes another one beside it.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import MappingProxyType

from ..core.programs import RUNTIMES, Runtime
from ..core.sections import is_interpreter
from ..errors import UsageError
from ..lib.codec import sha256
from ..lib.files import replace_file
from ..runs.modules import LARGEST_RUNTIME, not_installed, read_module
from ..sandbox.gate import inspect
from . import javascript, python
from .shipped import Inputs, digest_of
from .tools import Progress, listening

_DIGITS = 12
_IMPORTED = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """
    How a runtime is made.

    Attributes:
        build: Makes it: target, and an empty folder for scratch.

        inputs: What decides its bytes.

        fetches: It downloads sources, so it is only built by command.
    """

    build: Callable[[Path, Path], None]
    inputs: Inputs
    fetches: bool = False


_RECIPES: Mapping[str, _Recipe] = MappingProxyType(
    {
        "python": _Recipe(
            build=python.build_python_runtime,
            inputs=Inputs(
                shared=("runtimes/python", "sdk/python", "wit"),
                made_by=("python.py", "componentize.py", "still.c"),
                tools=("componentize-py", "ziglang"),
            ),
        ),
        "javascript": _Recipe(
            build=javascript.build_javascript_runtime,
            inputs=javascript.INPUTS,
            fetches=True,
        ),
        "javascript-typescript": _Recipe(
            build=javascript.build_with_typescript,
            inputs=javascript.INPUTS,
            fetches=True,
        ),
    }
)
#: The recipes of each runtime; the first one that is installed is used.
_VARIANTS: Mapping[Runtime, tuple[str, ...]] = MappingProxyType(
    {
        "python": ("python",),
        "javascript": ("javascript-typescript", "javascript"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """
    A runtime on this machine.

    Attributes:
        path: Its file.

        size: In bytes.

        sha256: Digest of its bytes, in hex: what ``RunStarted`` names it by.

        origin: ``built``; ``imported``; or ``old``: built by other versions.

        used: Programs run in it.
    """

    runtime: Runtime
    path: Path
    size: int
    sha256: str
    origin: str
    used: bool


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """The runtimes of a machine, in a *folder* that need not exist."""

    folder: Path

    def find(self, runtime: Runtime) -> Path | None:
        """
        Return the runtime that programs use, or ``None``.

        One that these versions of package and tools built comes first, then the one
        that was imported last.
        """
        built = (self.place(variant) for variant in _VARIANTS[runtime])
        imported = sorted(
            self.folder.glob(f"{runtime}-{_IMPORTED}-*.wasm"),
            key=lambda path: path.stat().st_mtime_ns,
            reverse=True,
        )
        found = (path for path in (*built, *imported) if path and path.is_file())
        return next(found, None)

    def installed(self, runtime: Runtime) -> Path:
        """
        Return the runtime that programs use.

        Raises:
            UsageError: There is none.
        """
        found = self.find(runtime)
        if found is None:
            raise not_installed(runtime)
        return found

    @staticmethod
    def fetches(runtime: Runtime) -> bool:
        """Return whether a build downloads something."""
        return _RECIPES[_VARIANTS[runtime][-1]].fetches

    def build(
        self,
        runtime: Runtime,
        progress: Progress | None = None,
        *,
        typescript: bool = False,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Path:
        """
        Return a runtime, which is built unless it is there.

        Another process that builds the same one is waited for, within *waiting*. The
        one of JavaScript erases types with *typescript*.

        Raises:
            UsageError: A tool is missing; the fix names the command that installs it.
        """
        variant = _VARIANTS[runtime][0 if typescript else -1]
        target = self.place(variant)
        if target is None:
            raise UsageError(
                f"the tools that build the {runtime} runtime are not installed",
                fix='pip install "caxton-host[programs]"',
            )
        with _writing(self.folder), self._locked(target.stem, waiting):
            if not target.is_file():
                with (
                    tempfile.TemporaryDirectory(prefix="caxton-runtime-") as made,
                    listening(progress),
                ):
                    module, scratch = Path(made, "out.wasm"), Path(made, "scratch")
                    scratch.mkdir()
                    _RECIPES[variant].build(module, scratch)
                    replace_file(target, module.read_bytes())
        return target

    def list(self) -> list[Installed]:
        """Return the runtimes that are here."""
        found: list[Installed] = []
        for runtime in RUNTIMES:
            built = {self.place(variant) for variant in _VARIANTS[runtime]}
            used = self.find(runtime)
            for path in sorted(self.folder.glob(f"{runtime}-*.wasm")):
                data = path.read_bytes()
                imported = path.name.startswith(f"{runtime}-{_IMPORTED}-")
                found.append(
                    Installed(
                        runtime=runtime,
                        path=path,
                        size=len(data),
                        sha256=sha256(data),
                        origin="imported"
                        if imported
                        else ("built" if path in built else "old"),
                        used=path == used,
                    )
                )
        return found

    def take(self, runtime: Runtime, source: Path) -> Path:
        """
        Import a runtime from a file, which was exported elsewhere.

        Raises:
            UsageError: The file cannot be read, or is not a runtime.
        """
        data = read_module(source, LARGEST_RUNTIME)
        if not is_interpreter(data) or not any(
            each.name == "program" for each in inspect(data).imports
        ):
            raise UsageError(
                f"{source} is not a runtime",
                fix="name a file that caxton runtime export wrote",
            )
        name = f"{runtime}-{_IMPORTED}-{sha256(data)[:_DIGITS]}.wasm"
        target = self.folder / name
        with _writing(self.folder):
            replace_file(target, data)
        return target

    def place(self, variant: str) -> Path | None:
        """Return where these versions put a runtime; ``None`` without the tools."""
        try:
            digest = digest_of(_RECIPES[variant].inputs)
        except PackageNotFoundError:
            return None
        return self.folder / f"{variant}-{digest}.wasm"

    @contextmanager
    def _locked(
        self, name: str, waiting: Callable[[], AbstractContextManager[None]]
    ) -> Generator[None]:
        # Closing the file ends the lock.
        with (self.folder / f"{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with waiting():
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    """Make *folder*, and explain why it cannot be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as exc:
        raise UsageError(
            f"{folder} cannot be written: {exc.strerror}",
            fix="make room there, or set XDG_CACHE_HOME to another folder",
        ) from None
