"""Programs in Python that mean harm, and how each has to end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .attacks import ABORTED, Attack, completes, error, limit

_ASK = "import caxton_agent as ca\n"
_OUT = "from caxton_agent import output\n"
_WIT = "import wit_world.imports.host as wit\n"
_LOOP = "import asyncio\n"

#: What a program tries, in a list of texts: it gets the exceptions back.
_TRY = """\
found = []
def tried(*actions):
    for action in actions:
        try:
            found.append(repr(action()))
        except BaseException as e:
            found.append(type(e).__name__)
"""


def nested(depth: int) -> str:
    """Return statements that make a list in a list, so often."""
    return f"x = []\nfor _ in range({depth}): x = [x]\n"


def refused(imports: str, *actions: str, by: str = "PermissionError") -> Attack:
    """Return a program that tries each of *actions*; all raise the exception *by*."""
    lines = [imports, _TRY, *(f"tried(lambda: {action})\n" for action in actions)]
    source = f"{''.join(lines)}{_OUT}output(found)"
    return Attack(source, completes([by] * len(actions)))


MEMORY: Mapping[str, Attack] = {
    "one_large_block": Attack("bytearray(10**9)", error("MemoryError")),
    "many_blocks": Attack(
        "x = []\nwhile True: x.append(bytearray(1 << 20))", error("MemoryError")
    ),
    "blocks_and_a_deaf_ear": Attack(
        "x = []\nwhile True:\n"
        "  try:\n    x.append(bytearray(1 << 16))\n  except MemoryError: pass",
        limit("fuel"),
    ),
    "repeated_text": Attack("'a' * 10**12", error("OverflowError")),
    "padded_text": Attack("'%*d' % (10**9, 1)", error("MemoryError")),
    "list_that_doubles": Attack("x = [0]\nwhile True: x += x", error("MemoryError")),
    "compressed_zeros": Attack(
        "import zlib\nd = zlib.compressobj(1, wbits=-15)\n"
        "z = d.compress(bytes(1 << 16)) + d.flush(zlib.Z_FULL_FLUSH)\n"
        "zlib.decompress(z * 10_000, -15)",
        limit("fuel"),
    ),
    "entities_of_xml": Attack(
        "import xml.etree.ElementTree as t\n"
        "e = ''.join(f'<!ENTITY a{n} \"{9 * f\"&a{n-1};\"}\">' for n in range(1, 9))\n"
        "t.fromstring(f'<!DOCTYPE x [<!ENTITY a0 \"ha\">{e}]><x>&a8;</x>')",
        limit("fuel"),
    ),
    "number_of_many_bits": Attack("1 << 10**12", error("OverflowError")),
}

STACK: Mapping[str, Attack] = {
    "function": Attack("def f(): f()\nf()", error("RecursionError")),
    "without_a_limit": Attack(
        "import sys\nsys.setrecursionlimit(2**31 - 1)\ndef f(): f()\nf()",
        error("RecursionError"),
    ),
    "hash_in_c": Attack(
        "import gc\ngc.disable()\nt = ()\nfor _ in range(400_000): t = (t,)\nhash(t)",
        limit("stack"),
    ),
    "pickle_in_c": Attack(
        f"import pickle\n{nested(20_000)}pickle.dumps(x)", error("RecursionError")
    ),
    "json_in_c": Attack(
        f"import json\n{nested(20_000)}json.dumps(x)", error("RecursionError")
    ),
    "comparison_in_c": Attack(
        f"{nested(100_000)}y = x\n{nested(100_000)}x == y", error("RecursionError")
    ),
    "deep_params": Attack(
        f"{_ASK}{nested(20_000)}ca.mcp_call('mcp__x__ask', {{'x': x}})",
        error("RecursionError"),
    ),
    "deep_json_text": Attack(
        "import json\njson.loads('[' * 10**6)", error("RecursionError")
    ),
    "deep_tuple_is_dropped": Attack(
        "t = ()\nfor _ in range(10**5): t = (t,)\ndel t", completes(None)
    ),
    "deep_generators": Attack(
        "g = iter([])\nfor _ in range(30_000): g = (x for x in g)\nlist(g)",
        completes(None),
    ),
    "getattr_of_itself": Attack(
        "class A:\n  def __getattr__(self, n): return getattr(self, n)\nA().x",
        error("RecursionError"),
    ),
    "brackets": Attack("(" * 100_000, error("MemoryError")),
    "closed_brackets": Attack("eval('[' * 10**5 + ']' * 10**5)", error("MemoryError")),
    "signs": Attack("eval('-' * 10**5 + '1')", error("MemoryError")),
    "sum": Attack("eval('+'.join('1' * 30_000))", error("RecursionError")),
    "starts_itself": Attack(
        "import caxton_runtime.main\nraise RuntimeError(caxton_runtime.main.start())",
        error("tool 4 is already in use"),
    ),
}

TIME: Mapping[str, Attack] = {
    "loop": Attack("while True: pass", limit("fuel")),
    "loop_in_c": Attack("sum(iter(int, 1))", limit("fuel")),
    "loop_that_catches_everything": Attack(
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        limit("fuel"),
    ),
    "calls_that_catch_everything": Attack(
        f"{_ASK}while True:\n"
        "  try: ca.mcp_call('mcp__x__none')\n  except BaseException: pass",
        limit("host_calls"),
        sent=2_000,
    ),
    "regex": Attack("import re\nre.match(r'(a+)+$', 'a' * 50 + 'b')", limit("fuel")),
    "power": Attack("10**10**8", limit("fuel")),
    "digits": Attack("int('9' * 10**6)", error("ValueError")),
    "digits_without_a_limit": Attack(
        "import sys\nsys.set_int_max_str_digits(0)\nint('9' * 10**7)", limit("fuel")
    ),
    "text_of_a_number": Attack(
        "import sys\nsys.set_int_max_str_digits(0)\nstr(1 << 10**7)", limit("fuel")
    ),
    "endless_generator": Attack(
        "def g():\n  while True: yield 1\nsum(g())", limit("fuel")
    ),
    "generator_that_will_not_close": Attack(
        "def g():\n  while True:\n    try: yield\n    except BaseException: pass\n"
        "x = g(); next(x); x.close()",
        error("RuntimeError: generator ignored GeneratorExit"),
    ),
    "query": Attack(
        "import sqlite3\nsqlite3.connect(':memory:').execute('WITH RECURSIVE c(x) AS "
        "(SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c').fetchall()",
        limit("fuel"),
    ),
    "log_lines": Attack("while True: print('x')", limit("host_calls"), logs=2_000),
    "long_log_line": Attack("print('x' * 10**7)", completes(None), logs=1),
    "random_bytes": Attack(
        f"{_ASK}while True: ca.random_bytes(8)", limit("host_calls")
    ),
    "sleeps": Attack(
        "import time\nb = time.time()\nfor _ in range(10): time.sleep(10**6)\n"
        f"{_OUT}output(time.time() - b)",
        completes(10_000_000.0),
    ),
    "sleeps_backwards": refused(
        "import time\n",
        "time.sleep(-1)",
        "time.sleep(float('nan'))",
        by="ValueError",
    ),
    "sleeps_for_ever": Attack(
        "import time\ntime.sleep(float('inf'))", error("OverflowError")
    ),
}

OBJECTS: Mapping[str, Attack] = {
    "repr_raises": Attack(
        "class E(Exception):\n  def __repr__(self): raise self\n  __str__ = __repr__\n"
        "raise E",
        error("E: <exception str() failed>"),
    ),
    "str_never_ends": Attack(
        "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E",
        limit("fuel"),
    ),
    "str_recurses": Attack(
        "class E(Exception):\n  def __str__(self): return str(self)\nraise E",
        error("E: <exception str() failed>"),
    ),
    "str_is_no_text": Attack(
        "class E(Exception):\n  def __str__(self): return 1\nraise E",
        error("E: <exception str() failed>"),
    ),
    "str_is_half_a_character": Attack(
        "raise Exception('\\ud800' * 9)", error(r"Exception: \ud800")
    ),
    "huge_message": Attack("raise Exception('x' * 10**7)", error("xxx")),
    "cause_of_itself": Attack(
        "a, b = ValueError(1), ValueError(2)\na.__context__, b.__context__ = b, a\n"
        "raise a",
        error("ValueError: 1"),
    ),
    "chain_of_causes": Attack(
        "e = None\nfor n in range(2_000):\n"
        "  new = ValueError(n); new.__cause__ = e; e = new\nraise e",
        error("ValueError: 1999"),
    ),
    "nested_groups": Attack(
        "e = ValueError(1)\nfor _ in range(2_000): e = ExceptionGroup('g', [e])\n"
        "raise e",
        error("ExceptionGroup: g"),
    ),
    "class_without_a_name": Attack(
        "class M(type):\n  __name__ = property(lambda s: 1/0)\n"
        "  __qualname__ = __module__ = __name__\n"
        "class E(BaseException, metaclass=M): pass\nraise E",
        error("TypeError: type __qualname__"),
    ),
    "del_recurses": Attack("class A:\n  def __del__(self): A()\nA()", completes(None)),
    "del_that_revives": Attack(
        "kept = []\nclass A:\n  def __del__(self): kept.append(self)\n"
        f"for _ in range(9): A()\nkept.clear()\n{_OUT}output(len(kept))",
        completes(0),
    ),
    "eq_changes_the_dict": Attack(
        "d = {}\nclass K:\n  def __hash__(self): return 1\n"
        "  def __eq__(self, o): d.clear(); return False\n"
        "for _ in range(99): d[K()] = 1\n"
        f"{_OUT}output(int(len(d) < 99))",
        completes(1),
    ),
    "dict_that_grows": Attack(
        "d = {1: 1}\nfor k in d: d[k + 1] = 1",
        error("RuntimeError: dictionary changed"),
    ),
    "output_in_itself": Attack(
        f"{_OUT}x = []; x.append(x); output(x)",
        error("ValueError: the output: Circular reference"),
    ),
    "endless_output": Attack(
        f"{_OUT}class D(dict):\n  def items(self):\n    while True: yield 'a', 1\n"
        "output(D(a=1))",
        limit("fuel"),
    ),
    "hostile_run": Attack(
        "class R:\n  def __getattribute__(self, n): raise KeyboardInterrupt\n"
        "  def __bool__(self): raise KeyboardInterrupt\nrun = R()",
        error("KeyboardInterrupt"),
    ),
    "collector": Attack(
        "import gc\ngc.set_threshold(1)\n"
        "gc.callbacks.append(lambda *a: 1/0)\n"
        "for _ in range(9): x = []; x.append(x)\ngc.collect()",
        completes(None),
    ),
    "finalizer_calls": Attack(
        f"{_ASK}import weakref\nclass A: pass\na = A()\n"
        "weakref.finalize(a, ca.mcp_call, 'mcp__x__ask')\ndel a",
        completes(None),
        sent=1,
    ),
}

INTERPRETER: Mapping[str, Attack] = {
    "empty_builtins": Attack(
        "import builtins\nbuiltins.__dict__.clear()\nx", error("the agent broke")
    ),
    "other_builtins": Attack(
        "import builtins\nfor n in dir(builtins):\n"
        "  if n[0] != '_': setattr(builtins, n, None)\n1/0",
        error("the agent broke"),
    ),
    "no_builtins_in_exec": Attack(
        "exec('open', {'__builtins__': {}})", error("NameError")
    ),
    "empty_modules": Attack(
        "import sys\nsys.modules.clear()\nimport json", error("AttributeError")
    ),
    "module_of_its_own": Attack(
        "import sys\nsys.modules['json'] = sys.modules['traceback'] = 1\n"
        "import json\njson.dumps(1)",
        error("AttributeError: 'int' object has no attribute 'dumps'"),
    ),
    "import_hook": Attack(
        "import sys, types\nclass F:\n  def find_spec(self, n, p=None, t=None):\n"
        "    raise SystemError(n)\nsys.meta_path.insert(0, F())\nimport nowhere",
        error("SystemError: nowhere"),
    ),
    "no_stdout": Attack(
        "import sys\nsys.stdout = sys.stderr = None\nprint(1)", completes(None)
    ),
    "stdout_that_prints": Attack(
        "import sys\nclass S:\n  def write(self, t): print(t)\nsys.stdout = S()\n"
        "print(1)",
        error("RecursionError"),
    ),
    "exit_hook": Attack(
        "import atexit\natexit.register(lambda: print('late'))", completes(None)
    ),
    "trace": Attack(
        "import sys\ndef t(*a): raise MemoryError\nsys.settrace(t)\nsys.setprofile(t)\n"
        "(lambda: 1)()",
        error("MemoryError"),
    ),
    "monitoring": Attack(
        "import sys\nsys.monitoring.free_tool_id(4)\n"
        "sys.monitoring.use_tool_id(4, 'x')\ndef run(): return 1",
        completes(1),
    ),
    "audit": Attack(
        "import sys\ndef a(*_): raise RuntimeError('audited')\nsys.addaudithook(a)\n"
        "compile('1', 'x', 'eval')",
        error("RuntimeError: audited"),
    ),
    "bytecode": Attack(
        "def f(): pass\nf.__code__ = f.__code__.replace(co_code=b'\\xff' * 64)\nf()",
        error(f"{ABORTED}: unreachable"),
    ),
    "bytecode_without_an_end": Attack(
        "def f(): pass\n"
        "f.__code__ = f.__code__.replace(co_code=bytes([9, 0]) * 999)\nf()",
        error(ABORTED),
    ),
    "marshalled_rubbish": Attack(
        "import marshal\nfor n in range(256):\n"
        "  try: marshal.loads(bytes([n]) * 64)\n  except Exception: pass",
        completes(None),
    ),
    "frames": Attack(
        "import sys\nf = sys._getframe()\nwhile f:\n  g = f; f = f.f_back\n"
        "  for n in list(g.f_globals):\n"
        "    if n != '__builtins__': g.f_globals[n] = None",
        completes(None),
    ),
    "everything_cleared": Attack(
        "import gc\nfor o in gc.get_objects():\n"
        "  if type(o) is dict:\n"
        "    try: o.clear()\n    except BaseException: pass",
        error("the agent broke"),
    ),
    "lock_held_twice": Attack(
        "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
        error("RuntimeError"),
    ),
}

OUTSIDE: Mapping[str, Attack] = {
    "files": refused(
        "import io, os, pathlib, tempfile, _io\n",
        "open('/etc/passwd')",
        "io.FileIO('/proc/self/environ')",
        "_io.open('/etc/passwd')",
        "os.open('/etc/passwd', 0)",
        "os.listdir('/')",
        "os.scandir('/')",
        "os.stat('/etc/passwd')",
        "os.readlink('/proc/self/exe')",
        "os.mkdir('/tmp/x')",
        "os.unlink('/tmp/x')",
        "pathlib.Path('/etc/passwd').read_text()",
    ),
    "descriptors": refused(
        "import os\n",
        "os.read(0, 1)",
        "os.write(1, b'out')",
        "os.dup(0)",
        "os.close(3)",
        "os.fdopen(3)",
        "open(3, 'wb')",
    ),
    "the_functions_below": Attack(
        "import os\nos.open.__wrapped__('/etc/passwd', 0)", error("PermissionError")
    ),
    "the_clock_below": Attack("import time\ntime.time.__wrapped__()", error(ABORTED)),
    "the_entropy_below": Attack("import os\nos.urandom.__wrapped__(8)", error(ABORTED)),
    "the_generator_below": Attack(
        "import _random, random\nprint(random.Random.__bases__[0]().random())",
        error(ABORTED),
    ),
    "database_file": Attack(
        "import sqlite3\nc = sqlite3.connect(':memory:')\n"
        "c.execute(\"ATTACH DATABASE '/tmp/x.db' AS x\")\n"
        "c.execute('CREATE TABLE x.t(a)')",
        error("DatabaseError: not authorized"),
    ),
    "copy_of_a_database": Attack(
        "import sqlite3\nc = sqlite3.connect(':memory:')\n"
        "c.execute(\"VACUUM INTO '/tmp/x.db'\")",
        error("DatabaseError: "),
    ),
    "ends_of_the_process": refused("import os\n", "os._exit(0)", "os.abort()"),
    "processes": refused(
        "import os\n",
        "os.execv('/bin/sh', ['sh'])",
        "os.fork()",
        "os.kill(1, 9)",
        "os.system('id')",
        by="AttributeError",
    ),
    "subprocesses": refused(
        "import os, subprocess\n",
        "os.popen('id')",
        "subprocess.run(['id'])",
        by="OSError",
    ),
    "pickled_shell": Attack(
        "import pickle, os\nclass A:\n  def __reduce__(self): return os.abort, ()\n"
        "pickle.loads(pickle.dumps(A()))",
        error("PermissionError"),
    ),
    "sockets": refused(
        "import socket, http.client\n",
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', 80))",
        "socket.gethostbyname('localhost')",
        "socket.socketpair()",
        "http.client.HTTPConnection('127.0.0.1').request('GET', '/')",
    ),
    "url": Attack(
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1/')",
        error("URLError"),
    ),
    "threads": Attack(
        "import threading\nthreading.Thread(target=print).start()",
        error("RuntimeError"),
    ),
    "signals": refused("import signal\n", "signal.raise_signal(9)"),
    "crash": refused("import faulthandler\n", "faulthandler._sigsegv()"),
    "parts_in_c": refused(
        "",
        "__import__('ctypes')",
        "__import__('_ctypes')",
        "__import__('mmap')",
        "__import__('multiprocessing')",
        by="ModuleNotFoundError",
    ),
    "environment": Attack(
        f"import os, sys\n{_OUT}output([dict(os.environ), sys.argv, __file__])",
        completes([{}, ["program.py"], "program.py"]),
    ),
    "standard_input": Attack("input()", error("EOFError")),
}

BRIDGE: Mapping[str, Attack] = {
    "answers_its_own_calls": Attack(
        f"{_ASK}import caxton_agent._bridge as b\nclass Mine:\n"
        '  def mcp_call(self, *a): return \'{"status":"ok","message":"mine",'
        '"data":null}\'\n'
        "real = b._host; b._host = Mine()\n"
        "m = ca.mcp_call('mcp__x__ask').message\nb._host = real\nca.output(m)",
        completes("mine"),
    ),
    "forges_replies": Attack(
        f"{_ASK}import caxton_agent._calls as c\n"
        "c.decode = lambda t: {'status': 'ok', 'message': 'forged', 'data': None}\n"
        "ca.output(ca.mcp_call('mcp__x__none').message)",
        completes("forged"),
        sent=1,
    ),
    "forges_a_status": Attack(
        f"{_ASK}import caxton_agent._calls as c\nc.decode = lambda t: {{}}\n"
        "ca.mcp_call('mcp__x__ask')",
        error("KeyError"),
        sent=1,
    ),
    "replaces_the_import": Attack(
        f"{_WIT}{_ASK}wit.mcp_call = lambda *a: '1'\nca.mcp_call('mcp__x__ask')",
        error("TypeError"),
    ),
    "clears_the_bridge": Attack(
        "import sys\nfor n, m in list(sys.modules.items()):\n"
        "  if n.startswith(('caxton', 'wit_', 'componentize')): m.__dict__.clear()",
        error(ABORTED),
    ),
    "output_that_is_no_json": Attack(
        f"{_WIT}wit.output('{{not json')", error("output: not JSON")
    ),
    "arguments_of_other_types": Attack(f"{_WIT}wit.mcp_call(1, [2])", error(ABORTED)),
    "too_few_arguments": Attack(
        f"{_WIT}import componentize_py_runtime as r\nr.call_import(0, [])",
        error(ABORTED),
    ),
    "half_a_character_below": Attack(
        f"{_WIT}wit.mcp_call('\\ud800', '{{}}')", error(ABORTED)
    ),
    "numbers_that_json_lacks": refused(
        _ASK,
        "ca.mcp_call('mcp__x__ask', {'x': float('nan')})",
        "ca.mcp_call('mcp__x__ask', {'x': float('inf')})",
        "ca.mcp_call('mcp__x__ask', {'\\ud800': 1})",
        by="ValueError",
    ),
    "values_that_json_lacks": refused(
        _ASK,
        "ca.mcp_call('mcp__x__ask', {'x': {1, 2}})",
        "ca.mcp_call('mcp__x__ask', {'x': b'bytes'})",
        "ca.mcp_call('mcp__x__ask', {(1, 2): 1})",
        by="TypeError",
    ),
    "huge_key": Attack(
        f"{_ASK}ca.mcp_call('mcp__x__ask', {{'k' * 2**21: 1}})",
        error("BadRequest: 2,097,158 bytes, of 2,097,152 allowed"),
    ),
    "huge_name": Attack(f"{_ASK}ca.mcp_call('n' * 2**21)", error("Denied"), sent=1),
    "huge_output": Attack(f"{_OUT}output('x' * 2**21)", limit("output")),
    "65_calls_awaited_together": Attack(
        f"{_LOOP}from caxton_agent import aio\nasync def run():\n"
        "  r = await asyncio.gather(*(aio.mcp_call('mcp__x__ask') "
        "for _ in range(65)))\n  return len(r)",
        completes(65),
        sent=65,
    ),
}

ASYNC: Mapping[str, Attack] = {
    "future_that_never_settles": Attack(
        f"{_LOOP}async def run(): await asyncio.Future()", error("DeadlockError")
    ),
    "a_million_tasks": Attack(
        f"{_LOOP}async def one(): await asyncio.Future()\n"
        "async def run():\n"
        "  t = [asyncio.ensure_future(one()) for _ in range(10**6)]\n"
        "  await asyncio.gather(*t)",
        limit("fuel"),
    ),
    "tasks_without_an_end": Attack(
        f"{_LOOP}async def run():\n  while True: await asyncio.sleep(0)",
        limit("fuel"),
    ),
    "callback_that_calls_itself": Attack(
        f"{_LOOP}async def run():\n  loop = asyncio.get_running_loop()\n"
        "  def again(): loop.call_soon(again)\n  again()\n"
        "  await asyncio.Future()",
        limit("fuel"),
    ),
    "task_that_is_not_cancelled": Attack(
        f"{_LOOP}async def deaf():\n  while True:\n"
        "    try: await asyncio.sleep(1)\n    except BaseException: pass\n"
        "async def run():\n  t = asyncio.ensure_future(deaf())\n"
        "  await asyncio.wait_for(t, 1)",
        limit("fuel"),
    ),
    "loop_in_a_loop": Attack(
        f"{_LOOP}async def f(): pass\nasync def run(): asyncio.run(f())",
        error("RuntimeError"),
    ),
    "exit_from_a_task": Attack(
        f"{_LOOP}async def leave(): raise SystemExit(3)\n"
        "async def run(): await asyncio.gather(leave(), asyncio.Future())",
        error("SystemExit: 3"),
    ),
    "reply_of_another_length": Attack(
        f"{_LOOP}from caxton_agent import aio\nimport caxton_agent._loop as l\n"
        "l.decode = lambda t: []\nasync def run():\n"
        "  await asyncio.gather(*(aio.mcp_call('mcp__x__ask') for _ in range(2)))",
        error("ValueError"),
        sent=2,
    ),
}

ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        f"{group}: {name}": attack
        for group, attacks in {
            "memory": MEMORY,
            "stack": STACK,
            "time": TIME,
            "objects": OBJECTS,
            "interpreter": INTERPRETER,
            "outside": OUTSIDE,
            "bridge": BRIDGE,
            "async": ASYNC,
        }.items()
        for name, attack in attacks.items()
    }
)
