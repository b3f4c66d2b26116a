"""Execute one program: get it from the host, compile it, and run it."""

from __future__ import annotations

import base64
import importlib
import io
import json
import linecache
import marshal
import sys
import types
import zlib

from caxton_agent._bridge import decode, host
from caxton_agent._run import end

from .errors import PACKAGES, explain
from .library import Finder, pack, read_folder

__all__ = ["FINDER", "LOCK", "start"]

#: The name of the request to compile packages instead of executing a program.
LOCK = "caxton:lock"
_TOOL = 4  # Of sys.monitoring; 0 to 3 and 5 are for debuggers and the like.

#: Modules that programs often import. Their memory costs a run nothing until it is
#: used.
_AHEAD = """
abc argparse ast asyncio base64 binascii bisect calendar cmath codecs collections
collections.abc colorsys concurrent.futures configparser contextlib contextvars copy csv
dataclasses datetime decimal difflib email email.message email.parser email.policy enum
fnmatch fractions functools getpass glob gzip hashlib heapq hmac html html.parser
http http.client http.cookies importlib.metadata importlib.resources importlib.util
inspect io ipaddress itertools json keyword linecache locale logging logging.config math
mimetypes numbers operator os pathlib pickle platform pprint queue random re reprlib
sched secrets select shlex shutil signal socket sqlite3 statistics string struct
subprocess sys tempfile textwrap threading time timeit tokenize tomllib traceback types
typing unicodedata unittest urllib.error urllib.parse urllib.request uuid warnings
weakref xml.etree.ElementTree zipfile zlib zoneinfo
_strptime encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1
encodings.utf_8_sig encodings.utf_16 encodings.utf_32
caxton_agent.aio
"""

# First: what follows takes the memory that compiling has left free.
FINDER = Finder(dict(pack(read_folder("/python"), "/python")))
for _name in _AHEAD.split():
    importlib.import_module(_name)


def start() -> str | None:
    """Execute the program of this run, and return the reason of its failure, if any."""
    return end(_program, explain)


def _program() -> object:
    program = decode(host().program())
    if program is None:
        raise RuntimeError("this module is a runtime: it needs a program")
    if program["name"] == LOCK:
        return _lock(json.loads(program["source"]))
    if packages := program["packages"]:
        locked = marshal.loads(zlib.decompress(base64.b64decode(packages)))
        sys.meta_path.append(Finder(locked))
    return _execute(program["name"], program["source"])


def _lock(modules: dict[str, tuple[bool, str]]) -> str:
    library = dict(
        pack(((name, *module) for name, module in modules.items()), PACKAGES)
    )
    return base64.b64encode(zlib.compress(marshal.dumps(library))).decode()


def _execute(name: str, source: str) -> object:
    """Execute the statements of a file, and then its function ``run``."""
    lines = [*io.StringIO(source, newline=None)]
    linecache.cache[name] = (len(source), None, lines, name)
    code = compile(source, name, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    sys.argv[:] = [name]
    called = _watch(code)
    exec(code, main.__dict__)
    run = main.__dict__.get("run")
    return run() if _is_entry(run) and not called else None


def _is_entry(run: object) -> bool:
    """Return whether *run* is a function of the program that needs no arguments."""
    if not isinstance(run, types.FunctionType) or run.__module__ != "__main__":
        return False
    needed = run.__code__.co_argcount - len(run.__defaults__ or ())
    named = run.__code__.co_kwonlyargcount - len(run.__kwdefaults__ or ())
    return needed <= 0 and named <= 0


def _watch(code: types.CodeType) -> list[types.CodeType]:
    """Return a list that a call of the function ``run`` of *code* will fill."""
    called: list[types.CodeType] = []
    events = sys.monitoring.events
    sys.monitoring.use_tool_id(_TOOL, "caxton")
    sys.monitoring.register_callback(
        _TOOL, events.PY_START, lambda run, _offset: called.append(run)
    )
    for each in code.co_consts:
        if isinstance(each, types.CodeType) and each.co_name == "run":
            sys.monitoring.set_local_events(_TOOL, each, events.PY_START)
    return called
