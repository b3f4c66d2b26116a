"""``caxton grant``, as the person types it who writes grants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import standin

from .guests import call, guest
from .shell import Shell, toml

DEMO = {"servers.demo": standin.command()}
WEATHER = """
[agents.weather]
module = "weather.wasm"
[[agents.weather.allow]]
tools = ["demo/get_weather"]
calls = "2/run"
[[agents.weather.allow]]
tools = ["demo/echo"]
only_after = ["demo/get_weather"]
[[agents.weather.deny]]
tools = ["demo/fail"]
"""
MODULE = guest(
    call("mcp__demo__echo", text="hi"),
    call("mcp__demo__get_weather", location="Seattle"),
    call("mcp__demo__echo", text="hi"),
    call("mcp__demo__fail", message="no"),
)
SCHEMA = {"type": "object", "maxProperties": 0}
PLACE = "caxton.toml:17: agents.weather.allow[3]"


@pytest.fixture
def weather(shell: Shell) -> Shell:
    shell.write("caxton.toml", toml(DEMO, WEATHER))
    shell.write("weather.wasm", MODULE)
    return shell


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """Return the files of a folder in which the agent ran once, when it did."""
    return {}


@pytest.fixture
def ran(weather: Shell, kept: dict[str, bytes]) -> Shell:
    if not kept:
        assert weather("run", "weather", "-q").code == 0
        signed = Path(weather.environ["XDG_STATE_HOME"], "caxton", "signed")
        files = (*weather.folder.iterdir(), *signed.iterdir())
        kept |= {str(path): path.read_bytes() for path in files if path.is_file()}
    for name, data in kept.items():
        # The folder of the log, and what is remembered of it, as they were then.
        path = Path(name)
        (
            path if path.parent.name == "signed" else weather.folder / path.name
        ).write_bytes(data)
    return weather


# -- explain ---------------------------------------------------------------------


def test_call_that_is_allowed_is_explained(weather: Shell) -> None:
    done = weather("grant", "explain", "weather", "demo/get_weather", "location=Oslo")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "verdict   allowed, rule allow[1]",
        "  deny[1]  deny demo/fail: does not match  (caxton.toml:14)",
        "  allow[1]  allow demo/get_weather: matches  (caxton.toml:8)",
        "  allow[2]  allow demo/echo: does not match  (caxton.toml:11)",
    ]


def test_call_that_is_denied_is_explained_with_what_would_allow_it(
    weather: Shell,
) -> None:
    words = ("grant", "explain", "weather", "demo/echo", '{"text": "hi"}')

    done = weather(*words)

    assert done.code == 1
    assert done.out.splitlines()[-3:] == [
        "what would allow it:",
        "# in allow[2] (caxton.toml:11):",
        "# only_after: call demo/get_weather first, in the same run",
    ]
    assert weather(*words, "--after", "demo/get_weather").code == 0
    document = weather(*words, "--json").document
    assert document["$type"] == "caxton.judgement/v1"
    assert (document["verdict"], document["rule"]) == ("order", "allow[2]")
    assert document["params"] == {"text": "hi"}
    assert document["considered"][2]["refusal"]["code"] == "order"


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (
            "demo/get_wether",
            "# demo has no tool get_wether; did you mean demo/get_weather?",
        ),
        (
            "dmo/get_weather",
            "# there is no server dmo; did you mean demo/get_weather?",
        ),
        ("zzz/x", "# there is no server zzz; caxton server list shows all"),
    ],
)
def test_no_grant_is_proposed_for_what_is_misspelt(
    ran: Shell, tool: str, told: str
) -> None:
    done = ran("grant", "explain", "weather", tool, "{}")

    assert done.code == 1
    assert done.out.splitlines()[-2:] == ["what would allow it:", told]


def test_what_a_run_did_before_spends_what_it_would(weather: Shell) -> None:
    after = ["--after", "demo/get_weather"] * 2
    words = ("grant", "explain", "weather", "demo/get_weather", *after)

    assert 'calls = "3/run"' in weather(*words, "--after", "demo/none").out


def test_explanation_starts_and_records_nothing(weather: Shell) -> None:
    weather("grant", "explain", "weather", "demo/echo")

    assert not (weather.folder / "caxton.db").exists()


def test_agent_that_is_not_there(weather: Shell) -> None:
    done = weather("grant", "explain", "wether", "demo/echo")

    assert (done.code, done.fix) == (2, "write weather")
    assert weather("grant", "check", "x").fix == (
        "caxton agent list shows what there is"
    )


def test_recorded_call_is_explained_as_things_stood_then(ran: Shell) -> None:
    events = ran("events", "list", "@last", "--json").document
    invoked = [e["seq"] for e in events if e["type"] == "ToolInvoked"]

    early, _, late, denied = (
        ran("runs", "explain", "@last", str(seq), "--json").document for seq in invoked
    )

    assert (early["verdict"], late["verdict"]) == ("order", "allowed")
    assert early["considered"][2]["refusal"]["code"] == "order"
    assert late["considered"][2]["refusal"] is None
    assert "call demo/get_weather first" in early["remedy"]
    assert late["remedy"] is None
    assert denied["remedy"].startswith("# deny[1] (caxton.toml:14) forbids it")


# -- check -----------------------------------------------------------------------


def test_grants_without_findings(ran: Shell) -> None:
    done = ran("grant", "check")

    assert (done.code, done.out) == (0, "")
    assert done.err == "0 findings in 1 agent\n"


def test_every_finding_has_its_line_and_what_to_do(ran: Shell) -> None:
    more = '[[agents.weather.allow]]\ntools = ["demo/fail", "demo/get_wether"]\n'
    ran.write("caxton.toml", toml(DEMO, WEATHER, more))

    done = ran("grant", "check", "weather")

    assert done.code == 1
    assert done.out.splitlines() == [
        f"{PLACE}: demo/fail is never allowed: deny[1] (caxton.toml:14) forbids it",
        "  to fix: remove one of the two, or narrow deny[1]",
        f"{PLACE}: it allows demo/get_wether, and no server offers such a tool",
        "  to fix: write demo/get_weather",
    ]
    found = ran("grant", "check", "--json").document
    assert [one["code"] for one in found] == ["forbidden", "no_tool"]
    assert {one["$type"] for one in found} == {"caxton.finding/v1"}


def test_what_a_server_offers_is_known_only_once_it_was_asked(weather: Shell) -> None:
    grant = '[[agents.weather.allow]]\ntools = ["demo/get_wether"]\n'
    weather.write("caxton.toml", toml(DEMO, WEATHER, grant))

    unasked, asked = weather("grant", "check"), weather("grant", "check", "--start")

    assert unasked.code == 0
    assert "tools unknown for: demo; to list them, add --start" in unasked.err
    assert asked.code == 1
    assert not (weather.folder / "caxton.db").exists()


def test_server_that_does_not_answer_is_told(weather: Shell) -> None:
    weather.write("caxton.toml", toml({"servers.demo": {"command": "no-such"}}))

    assert "demo does not answer" in weather("grant", "check", "--start").err


def test_webhooks_are_known_without_asking(weather: Shell) -> None:
    hook = {"webhooks.lookup": {"url": "https://example.com/x"}}
    grant = '[agents.a]\n[[agents.a.allow]]\ntools = ["webhook/lookup", "webhook/x"]\n'
    weather.write("caxton.toml", toml(hook, grant))

    (one,) = weather("grant", "check", "--json").document

    assert (one["code"], one["source"]) == ("no_tool", "caxton.toml:5")


# -- matrix ----------------------------------------------------------------------


def test_matrix_of_a_pipe_is_a_line_for_each_agent_and_tool(ran: Shell) -> None:
    done = ran("grant", "matrix", "weather")

    assert done.code == 0
    assert "demo/echo\tweather\tif\tallow[2]\n" in done.out
    assert "demo/fail\tweather\tdeny\tdeny[1]\n" in done.out
    assert "demo/slow\tweather\t-\t\n" in done.out
    cells = ran("grant", "matrix", "--json").document
    assert cells[0] == {
        "$type": "caxton.grant-cell/v1",
        "agent": "weather",
        "tool": "demo/echo",
        "may": "if",
        "rule": "allow[2]",
        "asks": False,
    }


def test_matrix_of_a_terminal_has_a_column_for_each_agent(
    weather: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.cli.grant.on_terminal", lambda: True)
    monkeypatch.setattr("caxton_host.cli.output.on_terminal", lambda: True)

    out = weather("grant", "matrix").out

    assert ["tool", "weather"] in [line.split() for line in out.splitlines()]
    assert ["demo/echo", "if"] in [line.split() for line in out.splitlines()]
    weather.write("caxton.toml", "version = 1\n")
    assert "no tools are known" in weather("grant", "matrix").err


# -- what-if ---------------------------------------------------------------------


def test_same_grants_change_nothing(ran: Shell) -> None:
    done = ran("grant", "what-if", "caxton.toml")

    assert (done.code, done.out) == (0, "")
    assert done.err == "4 calls of 1 run judged: 0 decisions would change\n"


def test_decisions_that_would_change_are_listed(ran: Shell) -> None:
    before = ran.rows("SELECT count(*) FROM events")
    ran.write(
        "new.toml",
        '[agents.weather]\n[[agents.weather.allow]]\ntools = ["demo/echo"]\n',
    )

    done = ran("grant", "what-if", "new.toml")

    assert done.code == 1
    assert done.err == "4 calls of 1 run judged: 2 decisions would change\n"
    first, change, second, other = done.out.splitlines()
    assert 'demo/echo {"text": "hi"}' in first
    assert change == "  denied (order) by allow[2] -> allowed by allow[1]"
    assert 'demo/get_weather {"location": "Seattle"}' in second
    assert other == "  allowed by allow[1] -> denied (not_granted)"
    lines = ran("grant", "what-if", "new.toml", "--json").out.splitlines()
    *changes, total = map(json.loads, lines)
    assert [(one["was"], one["now"]) for one in changes] == [
        (
            {"verdict": "order", "rule": "allow[2]"},
            {"verdict": "allowed", "rule": "allow[1]"},
        ),
        (
            {"verdict": "allowed", "rule": "allow[1]"},
            {"verdict": "not_granted", "rule": None},
        ),
    ]
    assert total == {
        "$type": "caxton.what-if/v1",
        "runs": 1,
        "calls": 4,
        "changed": 2,
        "erased": 0,
        "without_agent": {},
    }
    assert ran.rows("SELECT count(*) FROM events") == before


def test_runs_that_are_not_judged_are_told(ran: Shell) -> None:
    ran.write("new.toml", "[agents.other]\n")
    done = ran("grant", "what-if", "new.toml")
    assert done.code == 0
    assert "not judged: 1 run of weather, not in new.toml\n" in done.err
    assert ran("grant", "what-if", "new.toml", "--agent", "weather").code == 2

    ran("audit", "erase", "@last", "--reason", "asked")
    assert (
        "not judged: 1 run that is erased" in ran("grant", "what-if", "caxton.toml").err
    )


def test_runs_are_chosen_by_agent_and_beginning(ran: Shell) -> None:
    words = ("grant", "what-if", "caxton.toml", "--agent", "weather")

    assert ran(*words, "--since", "1h").err.startswith("4 calls of 1 run")
    assert ran(*words, "--since", "3000-01-01").err.startswith("0 calls of 0 runs")


def test_fork_is_judged_with_what_it_inherited(ran: Shell) -> None:
    assert ran("runs", "fork", "@last", "--at", "5").code == 0

    done = ran("grant", "what-if", "caxton.toml")

    # Its echo waits for a call that only its parent made.
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("6 calls of 2 runs judged")


def test_fork_of_an_erased_run_is_not_judged(ran: Shell) -> None:
    parent = ran("runs", "show", "@last", "--json").document["run_id"]
    ran("runs", "fork", "@last", "--at", "5")
    ran("audit", "erase", parent, "--reason", "asked")

    done = ran("grant", "what-if", "caxton.toml")

    assert "0 calls of 0 runs judged" in done.err
    assert "not judged: 2 runs that are erased" in done.err
    assert "nothing is suggested" in ran("grant", "suggest", "weather").err


def test_sizes_are_judged_by_the_shortest_way_to_write_them_down(ran: Shell) -> None:
    more = '[[agents.weather.allow]]\ntools = ["demo/*"]\nmax_params = "{} B"\n'
    # {"location": "Seattle"} has 18 bytes in msgpack.
    for size, change in ((18, "-> allowed"), (17, "-> denied (too_large)")):
        ran.write("new.toml", f"[agents.weather]\n{more.format(size)}")
        told = ran("grant", "what-if", "new.toml").out
        assert ("get_weather" not in told) == (size == 18), change


def test_budgets_that_runs_share_are_spent_again_in_the_times_of_the_log(
    ran: Shell,
) -> None:
    monthly = WEATHER.replace('"2/run"', '["2/run", "1/month"]')
    ran.write("caxton.toml", toml(DEMO, monthly))
    ran("run", "weather", "-q")
    ran("run", "weather", "-q")
    third = ran("runs", "explain", "@last", "5")
    assert "matches, but rejects the call (budget): all 1 calls" in third.out
    assert "what would allow it:\n# in allow[1]" in third.out

    same = ran("grant", "what-if", "caxton.toml")
    ran.write("new.toml", toml(DEMO, WEATHER))
    other = ran("grant", "what-if", "new.toml")

    # The oldest of the runs spent nothing then, and would now; its echo after it stays.
    assert same.out.count("-> denied (budget) by allow[1]") == 1
    assert other.out.count("denied (budget) by allow[1] -> allowed") == 1


def test_schema_that_the_run_had_is_asked_again(weather: Shell) -> None:
    strict = {"servers.demo.tools.echo": {"input_schema": SCHEMA}}
    grant = WEATHER.replace('only_after = ["demo/get_weather"]', "")
    weather.write("caxton.toml", toml({**DEMO, **strict}, grant))
    weather("run", "weather", "-q")

    done = weather("grant", "what-if", "caxton.toml")

    # Both were denied by the schema of the operator, and the answer stays.
    assert (done.code, done.out) == (0, ""), done.err
    assert "schema" in weather("runs", "explain", "@last", "2").out


def test_words_are_read_as_the_schema_of_the_operator_wants_them(
    weather: Shell,
) -> None:
    own = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text", "why"],
    }
    table = {"servers.demo.tools.echo": {"input_schema": own}}
    weather.write("caxton.toml", toml({**DEMO, **table}, WEATHER))
    done = weather("tool", "call", "demo/echo", "text=7")
    assert (done.code, done.fix) == (2, "add why=VALUE")


def test_key_that_the_host_adds_is_no_mismatch(weather: Shell) -> None:
    wanted = {"type": "object", "required": ["key"]}
    keyed: dict[str, object] = {
        "input_schema": wanted,
        "effect": "keyed",
        "key_argument": "key",
    }
    grant = WEATHER.replace('only_after = ["demo/get_weather"]', "")
    tables: dict[str, dict[str, object]] = {"servers.demo": {**DEMO["servers.demo"]}}
    tables["servers.demo.tools.echo"] = keyed
    weather.write("caxton.toml", toml(tables, grant))
    weather("run", "weather", "-q")

    assert "verdict   allowed" in weather("runs", "explain", "@last", "2").out
    assert weather("grant", "what-if", "caxton.toml").code == 0
    assert weather("grant", "explain", "weather", "demo/echo", "text=hi").code == 0


def test_name_that_led_nowhere_is_judged_by_where_it_would_lead(
    weather: Shell,
) -> None:
    weather.write("caxton.toml", toml(DEMO, '[agents.weather]\nmodule="weather.wasm"'))
    weather("run", "weather", "-q")
    weather.write("new.toml", toml(DEMO, WEATHER))

    done = weather("grant", "what-if", "new.toml")

    assert "mcp__demo__get_weather" in done.out
    assert "  denied (not_granted) -> allowed by allow[1]" in done.out


# -- suggest ---------------------------------------------------------------------


def test_suggestion_of_an_agent_is_what_its_runs_did(ran: Shell) -> None:
    done = ran("grant", "suggest", "weather")

    assert done.code == 0
    assert done.out.splitlines() == [
        "# 1 call in 1 run",
        "[[agents.weather.allow]]",
        'tools = ["demo/echo"]',
        'calls = "2/run"',
        'params.text = { const = "hi" }',
        "",
        "# 1 call in 1 run",
        "[[agents.weather.allow]]",
        'tools = ["demo/get_weather"]',
        'calls = "1/run"',
        'params.location = { const = "Seattle" }',
    ]
    # The first echo came too early for the grant that the run had.
    assert done.err.startswith(
        "held against 4 recorded calls: 1 decision would change\n"
    )
    assert "denied (order) by allow[2] -> allowed by allow[1]" in done.err


def test_suggestion_is_a_configuration_under_which_nothing_changes(ran: Shell) -> None:
    text = ran("grant", "suggest", "@last", "--with-denied").out
    assert text.count("[[agents.weather.allow]]") == 3
    ran.write("caxton.toml", toml(DEMO, f"{WEATHER.partition('[[')[0]}\n{text}"))
    ran("run", "weather", "-q")

    last = ran("grant", "suggest", "@last")

    assert "held against 4 recorded calls: 0 decisions would change" in last.err
    ran.write("new.toml", last.out)
    assert ran("grant", "what-if", "new.toml", "--since", "1h").code == 1
    assert ran("grant", "check").code == 0


def test_suggestion_is_a_document_too(ran: Shell) -> None:
    ran("runs", "fork", "@last", "--at", "5")
    document = ran("grant", "suggest", "weather", "--json", "--since", "1h").document

    assert document["$type"] == "caxton.grant-suggestion/v1"
    assert document["agents"] == ["weather"]
    assert document["calls"] == 6
    assert "# 2 calls in 2 runs" in document["toml"]


def test_suggestion_is_of_calls_or_of_a_manifest(ran: Shell) -> None:
    assert (
        ran("grant", "suggest").fix
        == "name agents or runs, or pass --manifest FILE.wasm"
    )
    done = ran("grant", "suggest", "nobody")
    assert done.code == 2
    assert "no agent has run as 'nobody'" in done.err
    for option in (("--since", "7d"), ("--with-denied",)):
        words = ("grant", "suggest", "--manifest", "weather.wasm", *option)
        assert "do not apply to a manifest" in ran(*words).err


def test_what_is_erased_suggests_nothing(ran: Shell) -> None:
    ran("audit", "erase", "@last", "--reason", "asked")

    assert "nothing is suggested" in ran("grant", "suggest", "weather").err


def test_parameter_that_failed_is_told_with_what_was_wanted(weather: Shell) -> None:
    grant = WEATHER + 'params.message = { glob = "no*" }\n'
    weather.write("caxton.toml", toml(DEMO, grant))

    done = weather("grant", "explain", "weather", "demo/fail", "message=yes")

    assert (
        "deny[1]  deny demo/fail: matches, but does not apply (params): $.message does "
        'not fit the glob of the grant: glob = "no*"'
    ) in done.out


def test_call_that_waits_for_people_says_for_whom(weather: Shell) -> None:
    grant = 'module = "weather.wasm"\n[[agents.weather.allow]]\ntools = ["demo/echo"]\n'
    asks = 'approve = { by = ["ops", "finance"] }\n'
    weather.write("caxton.toml", toml(DEMO, f"[agents.weather]\n{grant}{asks}"))

    done = weather("grant", "explain", "weather", "demo/echo", "text=hi")

    assert done.code == 3
    assert done.out.startswith(
        "verdict   asks, rule allow[1]\nasks      ops or finance, for allow[1]\n"
    )
    weather.write("new.toml", f"[agents.weather]\n{grant}")
    weather("run", "weather", "-q")
    waiting = weather("runs", "explain", "@last", "2")
    assert "verdict   asks, rule allow[1]\nasks      ops or finance" in waiting.out
    assert "ended     waits for a person's word" in waiting.out
    weather("approval", "deny", "@last", "--reason", "no", "--as", "ops")
    told = weather("grant", "what-if", "new.toml").out
    assert "  asks people by allow[1] -> allowed by allow[1]" in told
    assert weather("grant", "what-if", "caxton.toml").code == 0
    explained = weather("runs", "explain", "@last", "2")
    assert "verdict   approval, rule allow[1]\nasks      ops" in explained.out


def test_schema_of_the_tool_is_asked_where_it_is_known(ran: Shell) -> None:
    done = ran("grant", "explain", "weather", "demo/get_weather", "place=Oslo")

    assert done.code == 1
    assert "verdict   schema, rule allow[1]" in done.out


def test_words_are_read_as_the_schema_of_the_tool_wants_them(ran: Shell) -> None:
    words = ("grant", "explain", "weather", "demo/get_weather")
    done = ran(*words, "location=42", "--json")
    assert (done.code, done.document["params"]) == (0, {"location": "42"})


# -- tools that are not there ----------------------------------------------------


def test_a_misspelt_tool_is_told_to_the_operator_and_never_to_the_agent(
    weather: Shell,
) -> None:  # law 4
    meant = "demo has no tool ehco; did you mean demo/echo?"
    weather.write("weather.wasm", guest(call("mcp__demo__ehco", text="hi")))

    done = weather("run", "weather")

    assert f"  {meant}\n" in done.err
    assert "ehco" not in done.err.split(meant)[1]
    explained = weather("runs", "explain", "@last", "call", "1")
    assert explained.out.endswith(f"what would allow it:\n# {meant}\n")
    assert weather("grant", "suggest", "weather", "--with-denied").out == ""
    logged = weather("events", "list", "@last", "--json").out
    assert "this agent has no grant for that tool" in logged
    assert "did you mean" not in logged


def test_a_build_warns_of_a_tool_that_no_server_here_has(ran: Shell) -> None:
    ran.write("mine/agent.c", '#include "caxton.h"\nCX_RUN { return 0; }\n')
    wishes = '[[tools]]\nname = "demo/ehco"\n[[tools]]\nname = "other/ehco"\n'
    ran.write("mine/agent.toml", wishes)

    done = ran("agent", "build", "mine")

    assert done.code == 0
    assert done.err.startswith(
        "warning: agent.toml asks for demo/ehco: demo has no tool ehco; did you mean "
        "demo/echo?\nnext: "
    )
