"""
What the standard library does in an agent: an expression, and what comes of it.

The host of these says that it is `NOW`, and that each eight random bytes are `WORD`.
"""

from __future__ import annotations

from collections.abc import Mapping

NOW = 1_700_000_000_123_456
WORD = bytes(range(1, 9))

_FILES = r"PermissionError: .*an agent has no files:.*"
_SOCKETS = r"PermissionError: .*an agent has no network:.*"
_PROCESS = r"PermissionError: .*an agent has no process:.*"

#: An expression, and a pattern of its value's `repr` or of the exception.
STILL: Mapping[str, str] = {
    "time.time()": r"1700000000\.123456",
    "time.time_ns()": "1700000000123456000",
    "time.monotonic()": r"1700000000\.123456",
    "time.monotonic_ns()": "1700000000123456000",
    "time.perf_counter()": r"1700000000\.123456",
    "time.process_time_ns()": "1700000000123456000",
    "time.clock_gettime(time.CLOCK_REALTIME)": r"1700000000\.123456",
    "time.gmtime()[:6]": r"\(2023, 11, 14, 22, 13, 20\)",
    "time.gmtime(None)[:6]": r"\(2023, 11, 14, 22, 13, 20\)",
    "time.gmtime(0)[:6]": r"\(1970, 1, 1, 0, 0, 0\)",
    "time.localtime(0) == time.gmtime(0)": "True",
    "time.asctime(time.gmtime(0))": "'Thu Jan  1 00:00:00 1970'",
    "time.ctime(), time.asctime()": r"\('Tue Nov 14 22:13:20 2023', 'Tue Nov .*'\)",
    "time.strftime('%Y-%m-%d')": "'2023-11-14'",
    "time.strftime('%Y', time.gmtime(0))": "'1970'",
    "time.get_clock_info('time').monotonic": "True",
    "select.select([], [], [], 0)": _SOCKETS,
    "time.sleep(-1)": "ValueError: sleep length must be non-negative",
    "datetime.datetime.now()": r"datetime\.datetime\(2023, 11, 14, .*20, 123456\)",
    "datetime.datetime.now(datetime.UTC).isoformat()": r"'.*\.123456\+00:00'",
    "datetime.date.today()": r"datetime\.date\(2023, 11, 14\)",
    "datetime.datetime.strptime('2020', '%Y').year": "2020",
    "os.urandom(11)": r"b'\\x01\\x02.*\\x08\\x01\\x02\\x03'",
    "secrets.token_hex(4)": "'01020304'",
    "secrets.choice('abcdefgh')": "'.'",
    "uuid.uuid4()": r"UUID\('01020304-0506-4708-8102-030405060708'\)",
    "random.Random(7).random()": r"0\.32383276483316237",
    "random.Random().random() == random.Random().random()": "True",
    "type('R', (random.Random,), {'random': lambda _: 0.5})().random()": r"0\.5",
    "random.seed(7), random.random()": r"\(None, 0\.32383276483316237\)",
    "random.SystemRandom().getrandbits(16)": str(0x0102),
    "open('x')": _FILES,
    "io.open('x', 'w')": _FILES,
    "os.open('x', 0)": _FILES,
    "os.listdir()": _FILES,
    "os.stat('x')": _FILES,
    "os.mkdir('x')": _FILES,
    "os.remove('x')": _FILES,
    "os.path.exists('/')": "False",
    "pathlib.Path('x').read_text()": _FILES,
    "shutil.copy('a', 'b')": _FILES,
    "list(os.walk('/'))": r"\[\]",
    "tempfile.mkdtemp()": "(FileNotFound|Permission)Error: .*",
    "os.abort()": _PROCESS,
    "os._exit(3)": _PROCESS,
    "socket.socket()": _SOCKETS,
    "socket.create_connection(('localhost', 1))": _SOCKETS,
    "socket.getaddrinfo('localhost', 1)": _SOCKETS,
    "asyncio.run(asyncio.sleep(3, 'slept'))": "'slept'",
    "asyncio.run(asyncio.open_connection('localhost', 1))": _SOCKETS,
    "asyncio.run(asyncio.to_thread(print))": "RuntimeError: an agent has one thread.*",
    "threading.Event().wait(1)": "False",
    "threading.Event().wait()": "RuntimeError: an agent has one thread: .*",
    "input()": "EOFError: .*",
    "sys.stdin.read()": "''",
    "sys.exit(3)": "SystemExit: 3",
    "'\N{EURO SIGN}'.encode('cp1252')": r"b'\\x80'",
}

#: Where a component differs from the machine of whoever tests an agent.
COMPONENT: Mapping[str, str] = {
    "uuid.uuid1().time == uuid.uuid1().time - 1": "True",
    "pathlib.Path('/').exists()": "False",
    "os.environ": r"environ\(\{\}\)",
    "os.getcwd()": "'/'",
    "os.getpid()": "42",
    "os.cpu_count()": "1",
    "subprocess.run(['true'])": "OSError: .*wasi does not support processes.*",
    "threading.Thread(target=print).start()": "RuntimeError: an agent has one thread.*",
    "uuid.getnode() == uuid.getnode()": "True",
    "(lambda f: f(f))(lambda f: f(f))": "RecursionError: .*",
    "ast.literal_eval('(1,')": "SyntaxError: .*",
    "compile('x =', 'f', 'exec')": r"SyntaxError: .*f, line 1.*",
    "json.loads('[' * 100_000)": "RecursionError: .*",
    "_io.FileIO('x')": _FILES,
    "_socket.socket()": _SOCKETS,
    "(lambda lock: (lock.acquire(), lock.acquire(timeout=1)))(threading.Lock())": (
        r"\(True, False\)"
    ),
    "decimal.Decimal('0.1') + 1, zlib.crc32(b'x')": r"\(Decimal\('1.1'\), 2363233923\)",
    "hashlib.sha256(b'').hexdigest()[:8]": "'e3b0c442'",
    "re.findall(r'\\w+', html.unescape('a &amp; b'))": r"\['a', 'b'\]",
    "statistics.mean([1, 2, 3])": "2",
    "base64.b64encode(b'x'), urllib.parse.quote('ö')": r"\(b'eA==', '%C3%B6'\)",
    "textwrap.wrap('a b', 1), math.isqrt(17)": r"\(\['a', 'b'\], 4\)",
    "str(datetime.timedelta(days=1))": "'1 day, 0:00:00'",
}

#: What differs in an agent that was built from what a program does.
BUILT: Mapping[str, str] = {
    "at_build": r".\(1577836800\.0, 0\.\d+, UUID\(.*",
    "__import__('colorsys')": "ModuleNotFoundError: .*'colorsys'.* top of the file",
    "sys.argv": r"\[\]",
}
