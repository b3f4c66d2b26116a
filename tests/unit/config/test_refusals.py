"""What is refused, where the complaint points, and how it says to go on."""

from __future__ import annotations

import pytest

from caxton_host.lib.signing import WitnessKey

from .conftest import Folder

CANARY = "canary-4711-canary"
SERVER = "[servers.a]\ncommand = 'x'\n"
HOOK = "[webhooks.w]\nurl = 'https://h/{p}'\n"
WEB = "[servers.a]\nurl = 'https://h'\n"
LOGIN = WEB + "[servers.a.oauth]\nflow = 'code'\n"
OAUTH = WEB + "[servers.a.oauth]\nclient_id = 'i'\nclient_secret = '" + CANARY + "'\n"
RULE = "[[agents.a.allow]]\ntools = ['demo/x']\n"


@pytest.mark.parametrize(
    ("text", "place", "problem", "fix"),
    [
        ("a = ", "", "broken TOML at line 1, column 5", "correct that line"),
        ("[a]\n[a]", "", "broken TOML at line 2, column 3", "write each table once"),
        ("version = 2", "version", "not a known version", "version = 1"),
        ("version = '1'", "version", "not a known version", "version = 1"),
        ("servres = {}", "servres", "unknown key", "servers"),
        ("zzz = {}", "zzz", "unknown key", "known here: agents, audit, context"),
        ("watch = 1", "watch", "found a number", "true"),
        (
            "[servers.a.tools.t]\ninput_schema = { type = 'array' }",
            "servers.a.tools.t.input_schema",
            "not a JSON Schema of an object",
            "properties",
        ),
        (
            "[servers.a]\non_tool_change = 'ask'",
            "servers.a.on_tool_change",
            "not one of the known values",
            "refuse",
        ),
        ("[servers.agents]\ncommand = 'x'", "servers.agents", "reserved", "name"),
        (
            "[servers.a]\nurl = 'https://a.test/mcp'\nclient_key = 'a.key'",
            "servers.a.client_key",
            "has no certificate",
            "client_cert",
        ),
        (
            "[servers.a]\nurl = 'http://127.0.0.1/mcp'\nclient_cert = 'a.pem'",
            "servers.a.client_cert",
            "https",
            "remove it",
        ),
        (
            "[serve]\ntrusted_proxies = ['10.0.0.1/8']",
            "serve.trusted_proxies.1",
            "not a network",
            "10.1.0.0/16",
        ),
        (
            "[[agents.a.allow]]\ntools = ['agents/*']",
            "agents.a",
            "could call itself: a -> a",
            '[[agents.a.deny]] with tools = ["agents/a"]',
        ),
        (
            "".join(
                f"[[agents.{one}.allow]]\ntools = ['agents/{other}']\n"
                for one, other in ("ab", "bc", "cb")
            ),
            "agents.b",
            "could call itself: b -> c -> b",
            "agents.c.deny",
        ),
        (
            SERVER + "confine = { connect = ['api.example.com'] }",
            "servers.a.confine.connect",
            "'api.example.com' names no port",
            '"api.example.com:443"',
        ),
        (
            SERVER + "confine = { connect = ['https://API.example.com:443'] }",
            "servers.a.confine.connect",
            "'https://API.example.com:443' is no host",
            '"*.example.com"',
        ),
        (
            SERVER + f"confine = {{ connect = {['a.test:443'] * 101} }}",
            "servers.a.confine.connect",
            "over 100 entries",
            "star",
        ),
        (
            SERVER + "confine = { connect = ['a.test:443'], network = 'host' }",
            "servers.a.confine.connect",
            'cannot be combined with network = "host"',
            "remove one",
        ),
        ("[agents.a]\nauthority = 'mine'", "agents.a.authority", "known values", "own"),
        (
            "[audit]\nanchor = 'http://h/x'",
            "audit.anchor",
            "in transit",
            "https",
        ),
        ("[audit]\nanchor = 'h'", "audit.anchor", "is not a valid URL", "https"),
        ("[audit]\ntrusted_keys = ['ab']", "audit.trusted_keys.1", "public key", "64"),
        ("servers = 3", "servers", "wanted a table, found a number", "{"),
        ("[servers]\nx = 1979-05-27", "servers.x", "found a date or time", "{"),
        ("[store]\nurl = 'mysql://h/x'", "store.url", "not supported", "sqlite"),
        ("[store]\npath = 'x'", "store.path", "unknown key", "url"),
        ("import = '.mcp.json'", "import", "wanted a list, found a text", "["),
        ("import = ['']", "import.1", "empty", "name a file"),
        ("import = ['none.json']", "import.1", "cannot be read", "may read"),
        ("[http]\nproxy = 'socks5://h'", "http.proxy", "not a proxy URL", "http://"),
        (
            "[telemetry]\nbaggage = ['ten ant']",
            "telemetry.baggage.1",
            "not a name in W3C baggage",
            "tenant",
        ),
        (
            f"[telemetry]\nbaggage = {['t'] * 17}",
            "telemetry.baggage",
            "more than 16 names",
            "fewer",
        ),
        (
            "[telemetry]\nendpoint = 'h'",
            "telemetry.endpoint",
            "not a valid URL",
            "https",
        ),
        *(
            (
                f"[agents.a]\nfiles = ['data', '{path}']",
                "agents.a.files.2",
                "is not inside the folder of this file",
                "copy it there",
            )
            for path in ("/etc", "../x", "data/../..", "~/x")
        ),
        ("[agents.a]\nargs = 'x'", "agents.a.args", "wanted a list", "["),
        ("[agents.a.env]\n'A=' = 'x'", 'agents.a.env."A="', "variable name", "LOG"),
        ("[sandbox]\nworkers = 0", "sandbox.workers", "at least 1", "1 or more"),
        ("[sandbox]\nthreads = 1", "sandbox.threads", "unknown key", "workers"),
        # Names that two tools would have.
        (
            SERVER + "tools = { x = { expose_as = 'n' }, y = { expose_as = 'n' } }",
            "servers.a.tools.y.expose_as",
            "is also the name of a/x",
            "another name",
        ),
        (
            SERVER + "tools = { x = { expose_as = 'n' } }\n" + HOOK + "expose_as = 'n'",
            "webhooks.w.expose_as",
            "is also the name of a/x",
            "another name",
        ),
        (
            SERVER + "tools = { x = { expose_as = 'mcp__webhook__w' } }\n" + HOOK,
            "servers.a.tools.x.expose_as",
            "is also the name of webhook/w",
            "another name",
        ),
        (
            SERVER + "tools = { y = { expose_as = 'mcp__demo__x' } }\n"
            "[servers.demo]\ncommand = 'x'\n" + RULE,
            "servers.a.tools.y.expose_as",
            "is also the name of demo/x",
            "another name",
        ),
        # Servers.
        (SERVER + "comand = 'x'", "servers.a.comand", "unknown key", "command"),
        (SERVER + "url = 'http://h'", "servers.a", "not both", "command"),
        ("[servers.a]", "servers.a", "either a command or a url", "command"),
        (SERVER + "type = 'http'", "servers.a", "does not match", "url"),
        ("[servers.a]\nurl = 'http://h'\ntype = 'stdio'", "servers.a", "stdio", "url"),
        (SERVER + "type = 'ws'", "servers.a.type", "not one of the known", '"sse"'),
        (SERVER + "start = 'now'", "servers.a.start", "not one of the known", "eager"),
        (SERVER + "timeout = 10", "servers.a.timeout", "wanted a duration", '"10s"'),
        (SERVER + "timeout = 'soon'", "servers.a.timeout", "not a duration", '"10s"'),
        (SERVER + "timeout = '0s'", "servers.a.timeout", "not a duration", '"10s"'),
        (SERVER + "timeout_ms = 0", "servers.a.timeout_ms", "more than zero", "5000"),
        (SERVER + "timeout_ms = 1.5", "servers.a.timeout_ms", "whole number", "20"),
        (
            SERVER + "timeout = '1s'\ntimeout_ms = 1",
            "servers.a.timeout_ms",
            "sets the same value",
            "keep one",
        ),
        (OAUTH, "servers.a.oauth", "needs its issuer", "issuer"),
        (
            OAUTH + "issuer = 'http://h'",
            "servers.a.oauth.issuer",
            "credentials could be read in transit",
            "https",
        ),
        (
            OAUTH + "flow = 'code'",
            "servers.a.oauth",
            "needs its issuer",
            "issuer",
        ),
        (
            OAUTH + "issuer = 'https://h'\nredirect_port = 1",
            "servers.a.oauth.redirect_port",
            "is only valid for logins",
            'flow = "code"',
        ),
        (
            LOGIN + "redirect_port = 65536",
            "servers.a.oauth.redirect_port",
            "not a valid port",
            "65535",
        ),
        (
            LOGIN + "client_metadata = 'https://h'",
            "servers.a.oauth.client_metadata",
            "not a valid client URL",
            "path",
        ),
        (
            LOGIN + "client_id = 'i'\nclient_metadata = 'https://h/c.json'",
            "servers.a.oauth.client_metadata",
            "cannot be combined",
            "remove",
        ),
        (
            LOGIN + "issuer = 'http://127.evil.example'",
            "servers.a.oauth.issuer",
            "not https",
            "https",
        ),
        (
            OAUTH + "issuer = 'https://h'\nendpoints = ['https://i', 'http://j']",
            "servers.a.oauth.endpoints",
            "not https",
            "https",
        ),
        (
            OAUTH + "issuer = 'https://h'\nprivate_key = 'x'",
            "servers.a.oauth.private_key",
            "cannot be combined with client_secret",
            "remove",
        ),
        (
            WEB + f"oauth = {{ private_key = '{CANARY}', client_id = 'i', "
            "issuer = 'https://h' }",
            "servers.a.oauth.private_key",
            "not a private key that can sign",
            "${file:PATH}",
        ),
        (
            WEB
            + "oauth = { flow = 'exchange', client_id = 'i', issuer = 'https://h' }",
            "servers.a.oauth",
            "needs its client_secret",
            "client_secret",
        ),
        (
            WEB + "tools.x = { effect = 'read', cache.ttl = '1s' }\n"
            "oauth = { flow = 'exchange', client_id = 'i', issuer = 'https://h', "
            f"client_secret = '{CANARY}' }}",
            "servers.a.tools.x.cache",
            "tokens are those of a run",
            "remove",
        ),
        (OAUTH + "flow = 'implicit'", "servers.a.oauth.flow", "not one of", "code"),
        (OAUTH + "url = ''", "servers.a.oauth.url", "unknown key", "client_id"),
        (OAUTH + "method = 'jwt'", "servers.a.oauth.method", "not one of", "basic"),
        (
            OAUTH.replace("https", "http") + "issuer = 'https://h'",
            "servers.a.url",
            "tokens could be read in transit",
            "https",
        ),
        (
            OAUTH.replace("url = 'https://h'", "command = 'x'")
            + "issuer = 'https://h'",
            "servers.a.oauth",
            "servers that have a url",
            "env",
        ),
        (
            WEB
            + "headers = { authorization = 'x' }\n"
            + OAUTH.removeprefix(WEB)
            + "issuer = 'https://h'",
            "servers.a.oauth",
            "cannot be combined",
            "remove",
        ),
        (SERVER + "max_result = 5", "servers.a.max_result", "a size", '"64 KiB"'),
        (SERVER + "max_result = '5'", "servers.a.max_result", "not a size", "MB"),
        (SERVER + "required = 1", "servers.a.required", "true or false", "true"),
        (
            SERVER + "concurrency = 0",
            "servers.a.concurrency",
            "at least 1",
            "1 or more",
        ),
        (SERVER + "rate = 60", "servers.a.rate", "wanted a rate", '"60/min"'),
        (SERVER + "rate = 'often'", "servers.a.rate", "not a rate", '"60/min"'),
        (SERVER + "rate = '0/s'", "servers.a.rate", "not a rate", '"60/min"'),
        (SERVER + "rate = '5/0s'", "servers.a.rate", "not a rate", '"60/min"'),
        (SERVER + "health = 'on'", "servers.a.health", "not a duration", '"10s"'),
        (SERVER + "breaker = 5", "servers.a.breaker", "table", "key = value"),
        (SERVER + "retry = { attempts = 0 }", "servers.a.retry.attempts", "10", "1"),
        (SERVER + "retry = { attempts = 11 }", "servers.a.retry.attempts", "10", "1"),
        (SERVER + "concurrency = -1", "servers.a.concurrency", "range", "0"),
        (SERVER + "concurrency = true", "servers.a.concurrency", "whole", "20"),
        (SERVER + "env = { A = 1 }", "servers.a.env.A", "wanted a text", '"'),
        (SERVER + "env = { 'A=B' = '' }", 'servers.a.env."A=B"', "not a valid", "LOG"),
        (SERVER + 'env = { A = "\\u0000" }', "servers.a.env.A", "NUL", "remove"),
        (
            SERVER + "restart = { on = true }",
            "servers.a.restart.on",
            "unknown key",
            "known",
        ),
        (
            SERVER + "tools.t.effect = 'rw'",
            "servers.a.tools.t.effect",
            "not one",
            "read",
        ),
        (SERVER + "tools.t.expose_as = 'a b'", "servers.a.tools.t.expose_as", "", "64"),
        ("[servers.a]\ncommand = []", "servers.a.command", "empty", "python"),
        ("[servers.a]\ncommand = ['']", "servers.a.command", "empty", "python"),
        ("[servers.webhook]", "servers.webhook", "reserved", "another name"),
        ("[servers.a__b]", "servers.a__b", "not a valid server name", "letters"),
        ("[servers.'a/b']", 'servers."a/b"', "not a valid server name", "letters"),
        ("[servers.a]\nurl = ''", "servers.a.url", "not a valid URL", "https://"),
        ("[servers.a]\nurl = 'h'", "servers.a.url", "not a valid URL", "https://"),
        (
            "[servers.a]\nurl = 'http://h:x'",
            "servers.a.url",
            "not a valid URL",
            "https://",
        ),
        (
            "[notify.a]\nurl = 'https://h:99999/'",
            "notify.a.url",
            "not a valid",
            "https:",
        ),
        (
            "[notify.a]\nurl = 'https://u@h/'",
            "notify.a.url",
            "a user name",
            "take it out",
        ),
        (
            "[servers.a]\nurl = 'http://h/ x'",
            "servers.a.url",
            "not a valid URL",
            "https://",
        ),
        (
            "[servers.a]\nurl = 'file:///x'",
            "servers.a.url",
            "not a valid URL",
            "https://",
        ),
        (
            f"[servers.a]\nurl = 'http://u:{CANARY}@h/'",
            "servers.a.url",
            "user name",
            "Authorization",
        ),
        (
            f'[servers.a]\nurl = "http://h/"\nheaders = {{ A = "{CANARY}\\r\\nB: c" }}',
            "servers.a.headers.A",
            "no header may have",
            "printable",
        ),
        (
            "[servers.a]\nurl = 'http://h/'\nheaders = { 'A B' = '' }",
            'servers.a.headers."A B"',
            "not a valid header name",
            "Authorization",
        ),
        (
            "[servers.a]\nurl = 'http://h/'\nheaders = { Host = 'evil' }",
            "servers.a.headers.Host",
            "only the host sets",
            "remove",
        ),
        # Webhooks.
        ("[webhooks.w]", "webhooks.w", "needs a url", "https://"),
        ("[webhooks.'a/b']", 'webhooks."a/b"', "not a valid", "letters"),
        ("[webhooks.w]\nurl = 'https://{p}/'", "webhooks.w.url", "in the host", "host"),
        ("[webhooks.w]\nurl = '{p}'", "webhooks.w.url", "", ""),
        ("[webhooks.w]\nurl = 'https://h/{a b}'", "webhooks.w.url", "brace", "%7B"),
        (
            "[webhooks.w]\nurl = 'https://h/#{p}'",
            "webhooks.w.url",
            "not a valid URL",
            "",
        ),
        (HOOK + "method = 'get'", "webhooks.w.method", "not one of the known", '"GET"'),
        *(
            (text, key, "reserved for the host", "another name")
            for text, key in (
                (
                    SERVER + "tools.x.expose_as = 'caxton__x'",
                    "servers.a.tools.x.expose_as",
                ),
                (HOOK + "expose_as = 'Caxton__x'", "webhooks.w.expose_as"),
                (
                    "[agents.a]\nnames = { caxton__x = 'a/b' }",
                    "agents.a.names.caxton__x",
                ),
                (
                    "[agents.a]\nexpose = { mcp = true, name = 'caxton__x' }",
                    "agents.a.expose.name",
                ),
            )
        ),
        *(
            (
                text.replace("}", f"{effect} }}"),
                key,
                "only valid for a tool that reads",
                '"read"',
            )
            for effect in ("", ", effect = 'idempotent'")
            for text, key in (
                (
                    SERVER + "tools.x = { cache.ttl = '1s'}",
                    "servers.a.tools.x.cache",
                ),
            )
        ),
        (HOOK + "cache.ttl = '1s'", "webhooks.w.cache", "that reads", '"read"'),
        (
            HOOK + "reply = 'none'",
            "webhooks.w.reply",
            "not one of the known",
            '"message"',
        ),
        (HOOK + "cache = {}", "webhooks.w.cache", "needs a ttl", '"60s"'),
        (HOOK + "cache.ttl = 5", "webhooks.w.cache.ttl", "a duration", '"10s"'),
        (
            WEB + "headers = { X = '${context.who}' }\n"
            "tools.x = { effect = 'read', cache.ttl = '1s' }",
            "servers.a.tools.x.cache",
            "server's headers or tokens are those of a run",
            "remove",
        ),
        (HOOK + "concurrency = 0", "webhooks.w.concurrency", "1 to 1000", "16"),
        (HOOK + "concurrency = 1001", "webhooks.w.concurrency", "1 to 1000", "16"),
        (HOOK + "body = 'xml'", "webhooks.w.body", "not one of the known", '"json"'),
        (HOOK + "params = 'x'", "webhooks.w.params", "not a JSON Schema", "object"),
        (HOOK + "params.type = 'array'", "webhooks.w.params", "not a JSON", "object"),
        (HOOK + "params.properties = 1", "webhooks.w.params.properties", "", "{"),
        (
            HOOK + "params = {}",
            "webhooks.w.params",
            "does not describe p",
            "properties.p",
        ),
        (HOOK + "params.x = nan", "webhooks.w.params.x", "not a number", "finite"),
        (HOOK + "params.x = 99999999999999999999", "webhooks.w.params.x", "64", ""),
        (HOOK + "params.x = [2020-01-01]", "webhooks.w.params.x.1", "date", '"'),
        # Context.
        ("[context]\nx = 'y'", "context.x", "wanted a table", "{"),
        ("[context]\n'a b' = {}", 'context."a b"', "not a valid variable name", "_id"),
        # Agents and their grants (law 4).
        ("[agents.'a/b']", 'agents."a/b"', "not a valid name", "letters"),
        ("[agents.a]\nmodul = 'x'", "agents.a.modul", "unknown key", "module"),
        (
            "[agents.a]\nmodule = 'dir/a.py'",
            "agents.a.module",
            "is a program",
            'program = "',
        ),
        (
            "[agents.a]\nmodule = 'x'\nprogram = 'a.py'",
            "agents.a.program",
            "is set beside a module",
            "keep one",
        ),
        (
            "[agents.a]\nprogram = 'a.rb'",
            "agents.a.program",
            "is in no known language",
            'runtime = "python"',
        ),
        (
            "[agents.a]\nprogram = 'caller'",
            "agents.a.program",
            "is in no known language",
            'runtime = "javascript"',
        ),
        (
            "[agents.a]\nprogram = 'a.py'\nruntime = 'javascript'",
            "agents.a.runtime",
            "is javascript, and the program is in python",
            "leave it out",
        ),
        (
            "[agents.a]\nruntime = 'python'",
            "agents.a.runtime",
            "is set without a program",
            "caller",
        ),
        ("[agents.a.limits]\nmem = 1", "agents.a.limits.mem", "unknown key", "mem"),
        ("[agents.a.limits]\nmemory = 1", "agents.a.limits.memory", "size", "KiB"),
        ("[agents.a.limits]\nfuel = 1.5", "agents.a.limits.fuel", "whole", "20"),
        ("[agents.a.limits]\nfuel = inf", "agents.a.limits.fuel", "whole", "20"),
        ("[agents.a.limits]\nfuel = 1e30", "agents.a.limits.fuel", "range", "2**63"),
        ("[agents.a]\nallow = {}", "agents.a.allow", "wanted a list", "["),
        ("[agents.a]\nallow = ['x/y']", "agents.a.allow[1]", "wanted a table", "{"),
        ("[[agents.a.allow]]", "agents.a.allow[1]", "names no tool", "SERVER/TOOL"),
        (
            "[[agents.a.allow]]\ntools = []",
            "agents.a.allow[1]",
            "names no tool",
            "SERVER/TOOL",
        ),
        (
            "[[agents.a.allow]]\ntools = ['*/x']",
            "agents.a.allow[1].tools.1",
            "names every server",
            "name the server",
        ),
        (
            "[[agents.a.deny]]\ntools = ['x']",
            "agents.a.deny[1].tools.1",
            "not a tool pattern",
            "SERVER/TOOL",
        ),
        (RULE + "cals = 1", "agents.a.allow[1].cals", "unknown key", "calls"),
        (RULE + "calls = '5/year'", "agents.a.allow[1].calls", "periods are", "/run"),
        (
            RULE + "calls = 'x'",
            "agents.a.allow[1].calls",
            "not a number of calls",
            "/run",
        ),
        (RULE + "calls = -1", "agents.a.allow[1].calls", "range", "0"),
        (RULE + "expires = 'x'", "agents.a.allow[1].expires", "date and time", "2027"),
        (RULE + "expires = 2027-01-31", "agents.a.allow[1].expires", "a date", "2027"),
        (
            RULE + "expires = 2027-01-31T18:00:00",
            "agents.a.allow[1].expires",
            "time zone",
            "2027-01-31T18:00:00Z",
        ),
        (
            RULE + "redact_result = ['user.email']",
            "agents.a.allow[1].redact_result.1",
            "does not begin with '$'",
            "$.user.email",
        ),
        (
            RULE + "redact_result = []",
            "agents.a.allow[1].redact_result",
            "names 0 places",
            "name 1 to 32",
        ),
        (
            RULE + f"redact_result = {['$.a'] * 33}",
            "agents.a.allow[1].redact_result",
            "names 33 places",
            "name 1 to 32",
        ),
        (RULE + "timeout = 5", "agents.a.allow[1].timeout", "a duration", "10s"),
        (RULE + "max_result = 5", "agents.a.allow[1].max_result", "a size", "64 KiB"),
        (RULE + "hours = {}", "agents.a.allow[1].hours", "time of day", "expires"),
        (RULE + "args = {}", "agents.a.allow[1].args", "another name", "params"),
        (
            RULE + "other_args = 1",
            "agents.a.allow[1].other_args",
            "another name",
            "other",
        ),
        (
            RULE + "delegate = {}",
            "agents.a.allow[1].delegate",
            "pass on its grants",
            "own",
        ),
        (RULE + "max_params = 5", "agents.a.allow[1].max_params", "a size", "64 KiB"),
        (
            RULE + "only_after = ['x']",
            "agents.a.allow[1].only_after.1",
            "not a tool pattern",
            "SERVER",
        ),
        (RULE + "approve = true", "agents.a.allow[1].approve", "a table", "{"),
        (
            RULE + "approve = { by = [] }",
            "agents.a.allow[1].approve.by",
            "names no role",
            "leave it out",
        ),
        (
            RULE + "approve = { by = ['a b'] }",
            "agents.a.allow[1].approve.by.1",
            "not a valid role name",
            "letters",
        ),
        (
            RULE + "approve = { within = '0s' }",
            "agents.a.allow[1].approve.within",
            "not a duration",
            "15m",
        ),
        (
            RULE + "approve = { otherwise = 'allow' }",
            "agents.a.allow[1].approve.otherwise",
            "not one of the known",
            '"deny"',
        ),
        (
            RULE + "approve = { when = { amount = { min = 1 } } }",
            "agents.a.allow[1].approve.when.amount",
            "is not a parameter",
            "params.NAME",
        ),
        (
            RULE + "approve = { when = {} }",
            "agents.a.allow[1].approve.when",
            "names 0 parameters",
            "1 to",
        ),
        (
            RULE + "approve = { when = { params.amount = { least = 1 } } }",
            "agents.a.allow[1].approve.when.amount.least",
            "not a known constraint",
            "min",
        ),
        (
            RULE + "approve = { when = { params.to = { pattern = '(?=x)' } } }",
            "agents.a.allow[1].approve.when.to.pattern",
            "pattern",
            "look-around",
        ),
        (
            RULE + "approve = { whom = ['ops'] }",
            "agents.a.allow[1].approve.whom",
            "unknown key",
            "by",
        ),
        (
            "[[agents.a.deny]]\ntools = ['a/b']\napprove = {}",
            "agents.a.deny[1].approve",
            "unknown key",
            "tools",
        ),
        (
            "[[agents.a.deny]]\ntools = ['a/b']\ncalls = 1",
            "agents.a.deny[1].calls",
            "unknown key",
            "tools",
        ),
        (
            "[agents.a]\nnames.x = 'a/*'",
            "agents.a.names.x",
            "contains a wildcard",
            "one tool",
        ),
        ("[agents.a]\nnames.x = 'a'", "agents.a.names.x", "not a tool", "SERVER/TOOL"),
        (
            "[agents.a]\nnames.'a b' = 'a/b'",
            'agents.a.names."a b"',
            "not a valid tool name",
            "letters",
        ),
        (
            "[agents.a]\nnames = { x = 'a/b', y = 'a/b' }",
            "agents.a.names",
            "twice",
            "one name",
        ),
    ],
)
def test_complaint_names_file_key_and_what_to_do(
    folder: Folder, text: str, place: str, problem: str, fix: str
) -> None:
    error = folder.refusal(text)
    message = str(error)
    assert message.startswith(f"caxton.toml: {place}: " if place else "caxton.toml: ")
    assert problem in message
    assert fix in error.fix
    assert CANARY not in message + error.fix


def test_text_that_is_not_utf8_names_its_line(folder: Folder) -> None:
    assert "line 2" in str(folder.refusal(b"version = 1\n# \xff"))


def test_byte_order_mark_is_no_error(folder: Folder) -> None:
    assert folder.load(b"\xef\xbb\xbfversion = 1").version == 1


def test_large_file_is_not_read(folder: Folder) -> None:
    # law 9
    assert "1 MiB" in str(folder.refusal("#" * (1024 * 1024 + 1)))


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 40 + "]" * 40,
        "x = " + "[" * 100_000 + "]" * 100_000,
        "a." * 40 + "b = 1",
        "x = " + "9" * 100_000,
        "a." * 100_000 + "b = 1",
    ],
)
def test_absurd_nesting_is_refused(folder: Folder, text: str) -> None:
    # law 9
    assert "deeper than" in str(folder.refusal(text))


@pytest.mark.parametrize("what", ["servers", "agents"])
def test_crowd_is_refused(folder: Folder, what: str) -> None:
    # law 9
    text = "\n".join(f"[{what}.x{n}]" for n in range(1001))
    assert "more than 1000" in str(folder.refusal(text))


def witnesses(*numbers: int) -> str:
    keys = [WitnessKey(name=f"w{n}", seed=bytes([n]) * 32) for n in numbers]
    entries = [
        f"{{ url = 'https://{key.name}.org/', key = '{key.verifier().text()}' }}"
        for key in keys
    ]
    return f"[audit]\nwitnesses = [{', '.join(entries)}]\n"


def test_a_log_has_at_most_8_witnesses_and_each_once(folder: Folder) -> None:
    assert len(folder.load(witnesses(*range(8))).audit.witnesses) == 8
    for numbers, words in ((range(9), "more than 8"), ((1, 1), "names one twice")):
        assert words in str(folder.refusal(witnesses(*numbers)))
    many = folder.refusal(f"{witnesses(1, 2)}quorum = 3")
    assert "audit.quorum: is more than" in str(many)


def test_long_list_is_refused(folder: Folder) -> None:
    # law 9
    args = "'',".join([""] * 1002)
    error = folder.refusal(f"[servers.a]\ncommand = 'x'\nargs = [{args}]")
    assert "more than 1000" in str(error)


def test_key_of_another_is_shown_escaped(folder: Folder) -> None:
    error = folder.refusal('"\\u001b[31m" = 1')
    assert "\x1b" not in str(error)


def test_folder_is_no_file(folder: Folder) -> None:
    (folder.path / "import").mkdir()
    assert "cannot be read" in str(folder.refusal("import = ['import']"))
