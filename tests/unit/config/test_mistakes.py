"""Everything that is wrong is told at once: file, line, key and fix of each."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from caxton_host.errors import ConfigError, UnsetError

from .conftest import Folder

#: Ends the line on which the mistake is.
MARK = "#!"
#: What comes before each: tables, lists and texts of several lines.
BEFORE = '''\
# A configuration
version = 1

[servers.before]
command = "x"
args = [
  "[servers.not]",  # ] {
  """
  several
  lines ""\\"
""",
]
env = { A = "1", B = '[x]' }

[[agents.before.allow]]
tools = ["before/x"]

'''


class Mistake(NamedTuple):
    text: str
    key: str
    fix: str
    #: Unknown keys and values of the wrong kind, which the schema refuses too.
    is_structural: bool = True


def deeper(text: str, key: str, fix: str) -> Mistake:
    """Return a mistake that no schema finds."""
    return Mistake(text, key, fix, is_structural=False)


SERVER = "[servers.a]\ncommand = 'x'\n"
WEB = "[servers.a]\nurl = 'https://h'\n"
HOOK = "[webhooks.w]\nurl = 'https://h/{p}'\n"
RULE = "[[agents.a.allow]]\ntools = ['before/x']\n"
DENY = "[[agents.a.deny]]\ntools = ['before/x']\n"
FIRST = "[[agents.a.allow]]\ntools = ['before/y']\n\n"

KEEP = "[[retention.rules]]\n"

MISTAKES = [
    Mistake("[retention]\narchives = 'a'  #!", "retention.archives", "write archive"),
    Mistake("[[retention.rules]]  #!\nafter = '9d'", "retention.rules.1", "action ="),
    Mistake(
        f"{KEEP}action = 'remove'  #!", "retention.rules.1.action", 'one of "archive"'
    ),
    Mistake(
        f"{KEEP}action = 'erase'\nafter = 'soon'  #!",
        "retention.rules.1.after",
        '"15m"',
    ),
    Mistake(
        f"{KEEP}action = 'keep'\nstates = ['running']  #!",
        "retention.rules.1.states.1",
        'one of "completed"',
    ),
    deeper("[[retention.rules]]  #!\naction = 'erase'", "retention.rules.1", "after ="),
    deeper(
        f"{KEEP}action = 'keep'\nafter = '9d'  #!",
        "retention.rules.1.after",
        "remove it",
    ),
    deeper(
        f"{KEEP}action = 'keep'\nagents = []  #!",
        "retention.rules.1.agents",
        "remove it",
    ),
    deeper(
        f"{KEEP}action = 'keep'\n{KEEP}after = '9d'\naction = 'archive'  #!",
        "retention.rules.2.action",
        'archive = "archive"',
    ),
    # The file.
    Mistake("version = 2  #!", "version", "version = 1"),
    Mistake("servres = {}  #!", "servres", "write servers"),
    Mistake("watch = 1  #!", "watch", "write it like: true"),
    Mistake("import = '.mcp.json'  #!", "import", "write it like: ["),
    deeper("import = [\n  'no.json',  #!\n]", "import.1", "may read"),
    Mistake("[store]\npath = 'x'  #!", "store.path", "known here: url"),
    deeper("[store]\nurl = 'mysql://h'  #!", "store.url", "sqlite:"),
    deeper("[store]\nurl = '${env:UNSET}.db'  #!", "store.url", "export"),
    Mistake("[sandbox]\nworkers = 0  #!", "sandbox.workers", "1 or more"),
    Mistake("[sandbox]\nthreads = 1  #!", "sandbox.threads", "workers"),
    deeper("[audit]\nanchor = 'h'  #!", "audit.anchor", "https://"),
    deeper("[audit]\ntrusted_keys = [\n 'x', #!\n]", "audit.trusted_keys.1", "64"),
    deeper("[http]\nproxy = 'socks5://h'  #!", "http.proxy", "http://"),
    Mistake("[telemetry]\nendpoint = 1  #!", "telemetry.endpoint", '"..."'),
    # What sessions may read.
    deeper(
        "[sessions.s]\nresources = [\n 'docs',  #!\n]",
        "sessions.s.resources.1",
        "docs/*",
    ),
    deeper(
        "[sessions.s]\nprompts = [\n 'd*/x',  #!\n]", "sessions.s.prompts.1", "letters"
    ),
    deeper(
        "[sessions.s]\nprompts = [\n 'd/a**b',  #!\n]", "sessions.s.prompts.1", "**"
    ),
    Mistake(
        "[agents.a]\nresources = ['d/*']  #!", "agents.a.resources", "[sessions.NAME]"
    ),
    Mistake("[agents.a]\nprompts = ['d/*']  #!", "agents.a.prompts", "[sessions.NAME]"),
    # How it is served.
    Mistake("[serve]\nport = '8080'  #!", "serve.port", "20"),
    Mistake("[serve]\nport = 70000  #!", "serve.port", "65535"),
    Mistake("[serve]\nhsot = 'h'  #!", "serve.hsot", "write host"),
    Mistake("[serve]\nmetrics = 'all'  #!", "serve.metrics", '"read", "open"'),
    Mistake("[serve]\ndrain = 30  #!", "serve.drain", '"10s"'),
    Mistake("[serve]\ndrain = 'handover'  #!", "serve.drain", 'or "hand_over"'),
    Mistake("[serve]\nrate = 'often'  #!", "serve.rate", "/min"),
    Mistake("[serve]\nbody = 'much'  #!", "serve.body", "KiB"),
    deeper("[serve]\nallowed_hosts = ['a b']  #!", "serve.allowed_hosts.1", "example"),
    Mistake("[serve.oauth]  #!\nissuer = 'https://h'", "serve.oauth", "audience"),
    # Servers.
    deeper("[servers.a]  #!", "servers.a", "command"),
    deeper("[servers.a__b]  #!\ncommand = 'x'", "servers.a__b", "letters"),
    Mistake(SERVER + "comand = 'x'  #!", "servers.a.comand", "write command"),
    Mistake(SERVER + "timeout = 10  #!", "servers.a.timeout", '"10s"'),
    Mistake(SERVER + "timeout = 'soon'  #!", "servers.a.timeout", '"10s"'),
    Mistake(SERVER + "timeout_ms = '1'  #!", "servers.a.timeout_ms", "20"),
    Mistake(SERVER + "start = 'now'  #!", "servers.a.start", '"eager"'),
    Mistake(SERVER + "required = 'yes'  #!", "servers.a.required", "true"),
    Mistake(SERVER + "args = 'x'  #!", "servers.a.args", "[...]"),
    Mistake(SERVER + "args = ['x',\n 1, #!\n 'y']", "servers.a.args.2", '"..."'),
    Mistake(SERVER + "env = { A = 1 }  #!", "servers.a.env.A", '"..."'),
    Mistake(SERVER + "[servers.a.env]\nA = '1'\nB = 2  #!", "servers.a.env.B", '"'),
    deeper(SERVER + "env.A = '${env:UNSET}'  #!", "servers.a.env.A", "export"),
    deeper(SERVER + "env.A = '${UNSET}'  #!", "servers.a.env.A", "${env:"),
    Mistake(SERVER + "max_result = 5  #!", "servers.a.max_result", "KiB"),
    Mistake(SERVER + "concurrency = 1.5  #!", "servers.a.concurrency", "20"),
    Mistake(SERVER + "breaker = 5  #!", "servers.a.breaker", "key = value"),
    Mistake(SERVER + "retry.attempts = 0  #!", "servers.a.retry.attempts", "1"),
    Mistake(SERVER + "restart = { on = 1 }  #!", "servers.a.restart.on", "enabled"),
    Mistake(
        SERVER + "[servers.a.tools.t]\neffect = 'rw' #!",
        "servers.a.tools.t.effect",
        "read",
    ),
    Mistake(
        SERVER + "tools.'a.b'.effecct = 'read'  #!",
        'servers.a.tools."a.b".effecct',
        "effect",
    ),
    deeper("[servers.a]\nurl = 'h'  #!", "servers.a.url", "https://HOST"),
    deeper(WEB + "headers = { Host = 'h' }  #!", "servers.a.headers.Host", "remove"),
    Mistake(WEB + "oauth.flow = 'implicit'  #!", "servers.a.oauth.flow", '"code"'),
    # Webhooks and variables.
    Mistake("[webhooks.w]  #!", "webhooks.w", "https://"),
    Mistake(HOOK + "method = 'get'  #!", "webhooks.w.method", '"GET"'),
    deeper(HOOK + "params = {}  #!", "webhooks.w.params", "properties.p"),
    Mistake(HOOK + "allow_private = 1  #!", "webhooks.w.allow_private", "true"),
    Mistake("[context]\nx = 'y'  #!", "context.x", "{"),
    Mistake("[context.x]\nrequired = 'no'  #!", "context.x.required", "true"),
    deeper("[context.x]\nfrom = 'sub'  #!", "context.x.from", '"claim:sub"'),
    deeper("[context.x]\nfrom = 'claim:'  #!", "context.x.from", '"claim:sub"'),
    deeper("[context]\n'a b' = {}  #!", 'context."a b"', "customer_id"),
    # Agents and what they may do.
    Mistake("[agents.a]\nmodul = 'x'  #!", "agents.a.modul", "write module"),
    Mistake("[agents.a]\nlimits.memory = 1  #!", "agents.a.limits.memory", "KiB"),
    Mistake("[agents.a.limits]\nmem = 1  #!", "agents.a.limits.mem", "memory"),
    Mistake("[agents.a.limits]\nfuel = '1'  #!", "agents.a.limits.fuel", "20"),
    deeper("[agents.a]\nnames.x = 'before/*'  #!", "agents.a.names.x", "TOOL"),
    Mistake("[agents.a.expose]\nmpc = true  #!", "agents.a.expose.mpc", "write mcp"),
    Mistake(
        "[agents.a.expose]\ninput_schema = {}  #!",
        "agents.a.expose.input_schema",
        "type",
    ),
    Mistake("[agents.a]\nallow = {}  #!", "agents.a.allow", "[...]"),
    Mistake("[[agents.a.allow]]  #!", "agents.a.allow[1]", "SERVER/TOOL"),
    Mistake(FIRST + "[[agents.a.allow]]  #!", "agents.a.allow[2]", "SERVER/TOOL"),
    Mistake(FIRST + RULE + "cals = 1  #!", "agents.a.allow[2].cals", "write calls"),
    Mistake(RULE + "hours = '9-17'  #!", "agents.a.allow[1].hours", "expires"),
    deeper(RULE + "calls = '5/year'  #!", "agents.a.allow[1].calls", "5/run"),
    Mistake(RULE + "calls = true  #!", "agents.a.allow[1].calls", "5/run"),
    deeper(RULE + "expires = 2027-01-31  #!", "agents.a.allow[1].expires", "2027"),
    Mistake(
        RULE + "other_params = 'no'  #!", "agents.a.allow[1].other_params", '"allow"'
    ),
    deeper(
        RULE + "redact_result = ['a']  #!", "agents.a.allow[1].redact_result.1", "$"
    ),
    Mistake(RULE + "sum = { of = 'x' }  #!", "agents.a.allow[1].sum", "max = "),
    Mistake(RULE + "approve = { by = 'ops' }  #!", "agents.a.allow[1].approve.by", "["),
    Mistake(RULE + "approve.whom = 1  #!", "agents.a.allow[1].approve.whom", "by"),
    Mistake(RULE + "params.x.least = 1  #!", "agents.a.allow[1].params.x.least", "min"),
    Mistake(
        RULE + "[agents.a.allow.params]\nx = { min = 1 }\ny = 5 #!",
        "agents.a.allow[1].params.y",
        "type",
    ),
    Mistake(
        "[agents.a]\nallow = [\n  { tools = ['before/x'] },\n  { tool = [] },  #!\n]",
        "agents.a.allow[2].tool",
        "write tools",
    ),
    Mistake(DENY + "calls = 1  #!", "agents.a.deny[1].calls", "tools"),
    deeper("[[agents.a.deny]]\ntools = ['x'] #!", "agents.a.deny[1].tools.1", "SERVER"),
]


def whole(text: str) -> str:
    return BEFORE + text if text.startswith("[") else f"# Mine\n\n{text}\n"


def refused(folder: Folder, text: str | bytes) -> tuple[ConfigError, ...]:
    return folder.refusal(text).each


def marked(text: str) -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(MARK)]


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 60
    assert len({one.text for one in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: one.text[-40:])
def test_a_mistake_names_its_file_its_line_its_key_and_a_fix(
    folder: Folder, one: Mistake
) -> None:
    text = whole(one.text)

    mistakes = refused(folder, text)

    [error] = mistakes  # and no other that follows from it
    found = (error.file, error.line, error.key)
    assert found == ("caxton.toml", *marked(text), one.key)
    assert error.problem
    assert one.fix in error.fix


TOGETHER = """\
verzion = 1  #!
watch = 1  #!
import = [".mcp.json"]

[serve]
port = 70000  #!
drain = 30  #!

[servers.a]
command = "x"
timeout = 10  #!
args = [1, "x"]  #!
env = { A = "${env:UNSET}" }  #!

[servers.b]
url = "h"  #!
concurrency = 0  #!

[servers.c]  #!
timeout = 10  #!

[servers.a__b]  #!

[webhooks.w]  #!
method = "get"  #!

[agents.a]
modul = "x"  #!
module = "x"
wasm = "y"  #!
names = { x = "*" }  #!
limits = { fuel = -1, mem = 1 }  #!

[[agents.a.allow]]
tools = ["x", "before/x"]  #!
calls = "often"  #!
sum = [
  { of = "a", max = 1, per = "day" },
  { of = "a", max = 0, per = "day" },  #!
]
[agents.a.allow.params]
a = { typ = "string" }  #!
b = { one_off = [1] }  #!
c = 1  #!

[[agents.a.allow]]  #!
hours = 1  #!
"""
IMPORTED = """\
{
  // two servers
  "mcpServers": {
    "good": {"command": "x"},
    "bad": {
      "command": "x",
      "args": ["a",
               1]
    },
    "worse": {"url": "${UNSET}"},
  }
}
"""


def test_all_mistakes_are_told_at_once(folder: Folder) -> None:
    folder.write(IMPORTED, ".mcp.json")

    mistakes = refused(folder, TOGETHER)

    own = [error for error in mistakes if error.file == "caxton.toml"]
    assert sorted({error.line or 0 for error in own}) == marked(TOGETHER)
    assert {"agents.a.limits.fuel", "agents.a.limits.mem"} < {one.key for one in own}
    assert "agents.a.allow[1].sum.2.max" in {one.key for one in own}
    fixes = {one.key: one.fix for one in own}
    params = "agents.a.allow[1].params"
    assert fixes[f"{params}.a.typ"].startswith("write type; a name in a map")
    assert fixes[f"{params}.b.one_off"].startswith("write one_of; a name in a map")
    (twice,) = (one for one in own if one.key == "agents.a.wasm")
    assert twice.problem == "sets the same value as module"
    other = [error for error in mistakes if error.file == ".mcp.json"]
    assert [(error.line, error.key) for error in other] == [
        (8, "mcpServers.bad.args.2"),
        (10, "mcpServers.worse.url"),
    ]
    unset = [error for error in mistakes if isinstance(error, UnsetError)]
    assert [error.file for error in unset] == ["caxton.toml", ".mcp.json"]


def test_each_pattern_that_is_none_is_told(folder: Folder) -> None:
    params = "params = { a = { pattern = '(?=x)' }, b = { pattern = '(?=y)' } }"
    found = refused(folder, RULE + params)
    params = "agents.a.allow[1].params"
    assert [one.key for one in found] == [
        f"{params}.a.pattern",
        f"{params}.b.pattern",
    ]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("tools", "[[agents.a.allow]]\ntools = ['before/x', 3]"),
        ("redact_result", RULE + "redact_result = ['$.a', 3]"),
    ],
)
def test_an_item_of_another_kind_is_placed_once(
    folder: Folder, key: str, text: str
) -> None:
    (error,) = refused(folder, text)
    place = f"caxton.toml: agents.a.allow[1].{key}.2"
    assert str(error) == f"{place}: wanted a text, found a number"


def test_mistakes_across_tables_are_told_at_once_too(folder: Folder) -> None:
    same = "agents.{}.expose = {{ mcp = true, name = 'same' }}"
    tools = "tools = { x = { expose_as = 'n' }, y = { expose_as = 'n' } }"
    agents = "\n".join(same.format(name) for name in "xy")

    mistakes = refused(folder, f"{agents}\n{SERVER}{tools}")

    assert [(error.line, error.key) for error in mistakes] == [
        (5, "servers.a.tools.y.expose_as"),
        (2, "agents.y.expose"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"version = 1\na = ", 2),
        (b"version = 1\n\n[a]\n[a]\n", 4),
        (b"version = 1\n# \xff", 2),
    ],
)
def test_a_file_that_cannot_be_parsed_names_the_line(
    folder: Folder, text: bytes, line: int
) -> None:
    [error] = refused(folder, text)
    assert error.line == line


def test_an_imported_file_that_cannot_be_parsed_names_the_line(folder: Folder) -> None:
    folder.write('{\n"mcpServers": [,]}', ".mcp.json")
    [error] = refused(folder, "import = ['.mcp.json']")
    assert (error.file, error.line) == (".mcp.json", 2)
