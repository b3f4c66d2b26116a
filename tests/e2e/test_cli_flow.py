"""The ways of a newcomer: each command as it is printed, one after the other."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from .shell import Shell

MCP = {
    "mcpServers": {
        "time": {"command": "python", "args": ["-m", "mcp_server_time"], "env": {}}
    }
}
TIME = "time=python -m mcp_server_time"


def test_the_demo_and_every_command_that_it_prints(shell: Shell) -> None:
    done = shell("demo")
    assert done.code == 0
    assert "weather" in done.out
    assert "denied" in done.out
    assert "identical" in done.out
    assert "intact" in done.out
    printed = re.findall(r"^  (caxton .*)$", done.err, re.MULTILINE)
    assert "caxton events list @last" in printed
    assert len(printed) >= 5
    for line in printed:
        assert shell(*shlex.split(line)[1:]).code == 0, line
    assert not list(shell.folder.glob("*.db*"))


def test_the_demo_as_a_document(shell: Shell) -> None:
    done = shell("demo", "--json")
    assert done.code == 0
    assert done.document["run"]["calls"]["denied"] == 1
    assert done.document["run"]["calls"]["ok"] == 2
    assert done.document["replay"]["verdict"] == "identical"
    assert done.document["audit"]["verdict"] == "intact"


def test_an_agent_from_nothing(shell: Shell) -> None:
    assert shell("agent", "new", "hello", "--lang", "c").code == 0
    built = shell("agent", "build", "hello", "--json")
    assert built.code == 0
    assert built.document["size"] == (shell.folder / "hello.wasm").stat().st_size

    again = shell("agent", "build", "hello")
    assert again.out.startswith(f"hello.wasm  {built.document['size']} bytes  sha256 ")
    assert again.err == "next: caxton run hello.wasm\n"

    grant = ("--allow", "time/get_current_time")
    ran = shell("run", "hello.wasm", "--server", TIME, *grant)
    assert ran.code == 0
    assert "datetime" in json.loads(ran.out)["time"]
    assert "1 call, 0 denied" in ran.err

    explained = shell("runs", "explain", "@last", "2")
    assert "allowed, rule allow[1]" in explained.out
    assert "time/get_current_time" in explained.out
    assert shell("replay", "@last").out.startswith("identical: 1 call ")
    assert shell("audit", "verify").out.startswith("intact: ")
    assert "ToolCompleted" in shell("events", "list", "@last").out
    assert "hello" in shell("runs", "list").out
    assert "completed" in shell("runs", "show", "@last").out


def test_init_takes_the_servers_that_are_there_and_its_next_command_works(
    shell: Shell,
) -> None:
    shell.write(".mcp.json", json.dumps(MCP))
    done = shell("init")
    assert done.code == 0
    (line,) = re.findall(r"^next: (caxton .*)$", done.err, re.MULTILINE)
    listed = shell("server", "list", "--json").document
    assert [server["name"] for server in listed] == ["demo", "time"]

    ran = shell(*shlex.split(line)[1:])
    assert ran.code == 0
    assert json.loads(ran.out)["summary"].startswith("Seattle: ")
    assert shell("runs", "show", "@last", "--json").document["agent"] == "weather"
    assert shell.database == shell.folder / "caxton.db"
    # Importing grants nothing.
    assert "time" not in json.dumps(shell("agent", "list", "--json").document)


def test_init_in_another_folder_imports_from_this_one(shell: Shell) -> None:
    shell.write("servers.json", json.dumps(MCP))
    done = shell("init", "there", "--import", "servers.json", "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.document["servers"] == ["demo", "time"]
    assert (
        'import = ["../servers.json"]'
        in (shell.folder / "there" / "caxton.toml").read_text()
    )
    told = shell("init", "elsewhere").err
    assert told.startswith("next: cd elsewhere && caxton run weather ")


def test_init_writes_over_nothing(shell: Shell) -> None:
    shell.write("caxton.toml", "version = 1\n")
    done = shell("init")
    assert done.code == 2
    assert done.fix
    assert (shell.folder / "caxton.toml").read_text() == "version = 1\n"
    assert not (shell.folder / "agents").exists()


def test_init_says_what_an_imported_file_needs(shell: Shell) -> None:
    shell.write(".mcp.json", json.dumps(MCP).replace("{}", '{"KEY": "${NO_SUCH}"}'))
    done = shell("init")
    assert done.code == 0
    assert "warning: .mcp.json: " in done.err
    assert "NO_SUCH" in done.err


def test_a_server_is_added_tested_called_and_removed(shell: Shell) -> None:
    command = ("python", "-m", "caxton_host.demo_server")
    added = shell("server", "add", "mine", "--", *command)
    assert added.out == "added mine to caxton.toml\n"
    (server,) = shell("server", "list", "--json").document
    assert server["address"] == "python -m caxton_host.demo_server"
    assert shell("server", "list").out.startswith("mine\tstdio\tpython ")
    assert server["protocol"] is server["generation"] is None

    tested = shell("server", "test", "mine")
    assert tested.code == 0
    assert tested.out.startswith("mine: caxton-demo ")
    assert "mine/echo  Says what it is told." in tested.out
    listed = shell("tool", "list").out.splitlines()
    assert "mine/echo\tmcp__mine__echo\tunsafe\tSays what it is told." in listed

    assert shell("tool", "call", "mine/echo", "text=a=b").out == "a=b\n"
    assert shell("tool", "call", "mine/echo", '{"text": "1"}').out == "1\n"
    assert shell("tool", "call", "mine/echo", "text=007").out == "007\n"
    shown = shell("tool", "show", "mine/slow").out.splitlines()
    assert shown[0] == "mine/slow  unsafe, exposed as mcp__mine__slow"
    assert "seconds\tnumber\trequired\t" in shown
    listed = shell("server", "tools", "mine", "--json").document
    assert "slow" in [tool["tool"] for tool in listed]
    assert shell("tool", "show", "mine/slow", "--json").document in listed
    slow = shell("tool", "call", "mine/slow", "seconds=0.01", "--json")
    assert slow.document["message"] == "waited 0.01 s"
    assert "iVBOR" in shell("tool", "call", "mine/picture").out

    removed = shell("server", "remove", "mine")
    assert removed.out == "removed mine from caxton.toml\n"
    assert "no servers" in shell("server", "list").err


def test_a_tool_that_fails_ends_with_1_and_its_answer_on_stdout(shell: Shell) -> None:
    shell("init")
    done = shell("tool", "call", "demo/fail", "message=out of paper")
    assert (done.code, done.out) == (1, "out of paper\n")
    assert done.fix


def test_the_database_is_made_and_described(shell: Shell) -> None:
    shell("init")
    assert shell("db", "status").code == 2
    made = shell("db", "migrate", "--json").document
    assert made["state"] == "current"
    assert made["schema"] == made["wanted"]
    told = shell("db", "status")
    assert told.code == 0
    assert str(shell.database) in told.out
    assert shell("runs", "list").err == "no runs yet; caxton demo makes one\n"
    wrong = shell("runs", "list", "--agent", "wether").err
    assert wrong == "no agent 'wether' is known; did you mean weather?\n"
    assert shell("runs", "list", "--agent", "weather").err == "no such runs\n"
    assert shell("runs", "list", "--json").document == []


def test_a_machine_is_examined(shell: Shell) -> None:
    done = shell("doctor")
    assert "wasmtime" in done.out
    found = shell("doctor", "--json")
    assert found.code == (1 if found.document["missing"] else 0)
    assert {guard["name"] for guard in found.document["guards"]} >= {"no-files"}


def test_events_are_exported_for_other_programs(shell: Shell) -> None:
    shell("demo", "--json")
    lines = shell("events", "export", "@last").out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    array = shell("events", "export", "@last", "--json").document
    assert array == events
    listed = shell("events", "list", "@last", "--json").document
    assert all(
        one.items() <= line.items() for one, line in zip(listed, events, strict=True)
    )
    everything = shell("events", "export", "--all", "--format", "json").document
    assert {event["stream"].partition("/")[0] for event in everything} == {
        "run",
        "host",
    }


def test_a_run_is_named_by_any_unique_beginning(shell: Shell) -> None:
    run_id = shell("demo", "--json").document["run"]["run_id"]
    for name in (run_id, run_id[:6], f"run/{run_id}", "@last"):
        assert shell("runs", "show", name, "--json").document["run_id"] == run_id


def test_the_completion_script_of_each_shell(shell: Shell) -> None:
    for name in ("bash", "zsh", "fish"):
        done = shell("completion", name)
        assert done.code == 0
        assert "_CAXTON_COMPLETE" in done.out
        assert shell("completion", name, "--json").document["script"] in done.out


def test_the_shell_is_told_how_a_word_goes_on(shell: Shell) -> None:
    shell.set(
        _CAXTON_COMPLETE="bash_complete", COMP_WORDS="caxton runs ex", COMP_CWORD="2"
    )
    assert shell.typed().out == "plain,explain\n"


def completed(shell: Shell, words: str) -> list[str]:
    """Return how the last of *words* may go on, as bash is told."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    shell.environ |= {"_CAXTON_COMPLETE": "bash_complete", **asked}
    done = shell.typed()
    assert (done.code, done.err) == (0, "")
    return [line.removeprefix("plain,") for line in done.out.split()]


def test_servers_and_tools_go_on_as_configuration_and_log_know_them(
    shell: Shell,
) -> None:
    assert completed(shell, "caxton server test ") == []
    shell("init")
    shell("server", "add", "dusk", "--", "no-such-program")
    assert completed(shell, "caxton server test d") == ["demo", "dusk"]
    assert completed(shell, "caxton tool show de") == ["demo/"]
    assert not shell.database.exists()
    assert shell("tool", "accept", "demo/echo").code == 0
    file = shell.folder / "caxton.toml"
    text = file.read_text() + '[servers.dusk.tools.fall]\neffect = "read"\n'
    file.write_text(text)
    tools = ["demo/echo", "dusk/fall"]
    for words in ("tool call", "tool accept", "run weather --allow"):
        assert completed(shell, f"caxton {words} d") == tools
    file.write_text(text + "odd = 1\n")
    assert completed(shell, "caxton tool call d") == []


def test_what_is_odd_in_a_configuration_is_told_and_nothing_stops(
    shell: Shell,
) -> None:
    shell("init")
    file = shell.folder / "caxton.toml"
    file.write_text(file.read_text().replace('["demo/get_weather"]', '["dmo/x"]'))
    done = shell("agent", "list")
    assert done.code == 0
    assert done.out.startswith("weather\t")
    assert done.err.startswith("warning: caxton.toml: agents.weather.")
    assert "did you mean demo?" in done.err


def test_a_remote_server_is_listed_by_its_address(shell: Shell) -> None:
    changed = shell("server", "add", "crm", "--url", "https://crm.test/mcp", "--json")
    assert changed.document["change"] == "added"
    assert (
        shell("server", "list").out
        == "crm\thttp\thttps://crm.test/mcp\t-\t-\t-\t-\t-\t-\t-\n"
    )
    removed = shell("server", "remove", "crm", "--json")
    assert removed.document["change"] == "removed"


def test_a_remote_server_of_2024_is_added_by_its_transport(shell: Shell) -> None:
    url = "sse+https://crm.test/sse"
    assert shell("server", "add", "crm", "--url", url).code == 0
    assert shell("server", "list").out.startswith("crm\tsse\thttps://crm.test/sse\t")
    assert shell("server", "add", "x", "--url", "sse+ftp://crm.test").code == 2


def test_an_environment_is_written_as_it_was_said(shell: Shell) -> None:
    words = ("--env", "A=b=c", "--env", "KEY=${env:HOME}", "--", "x")
    assert shell("server", "add", "mine", *words).code == 0
    env = shell("config", "show", "--json").document["servers"]["mine"]["env"]
    assert env["A"] == "b=c"
    assert env["KEY"] == "***"
    assert "${env:HOME}" in (shell.folder / "caxton.toml").read_text()


def test_a_run_is_traced_from_the_agent_to_the_tool(shell: Shell) -> None:
    shell.set(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    shell("init")
    done = shell("run", "weather", "-i", '{"location": "Lima"}')
    assert done.code == 0
    events = shell("events", "list", "@last", "--json").document
    assert all(re.fullmatch("[0-9a-f]{16}", event["span_id"]) for event in events)
    assert len({event["trace_id"] for event in events}) == 1
    assert done.err.count("warning: ") == 1


def test_the_configuration_is_shown_as_it_is_understood(shell: Shell) -> None:
    shell("init")
    shown = json.loads(shell("config", "show").out)
    assert shown == shell("config", "show", "--json").document
    assert shown["agents"]["weather"]["names"] == {"weather": "demo/get_weather"}


def test_another_configuration_and_another_database(shell: Shell) -> None:
    shell.write("other/caxton.toml", "version = 1\n")
    other = ("--config", "other/caxton.toml")
    shell(*other, "db", "migrate")
    assert (shell.folder / "other" / "caxton.db").exists()
    copy = f"sqlite:///{shell.folder / 'copy.db'}"
    assert shell("--db", copy, "db", "migrate", "--json").document["url"] == copy
    assert Path(shell.folder / "copy.db").exists()
