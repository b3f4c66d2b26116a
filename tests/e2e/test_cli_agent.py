"""From a language to a module, and what a module says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from caxton_host.building import tools
from caxton_host.cli import output
from caxton_host.core.tools.manifest import section

from .guests import call, guest
from .shell import Shell

LANGUAGES = ("c", pytest.param("rust", marks=pytest.mark.debian))
ANSWERS = guest(output={"done": True})
SOURCES = {
    "agent.c": '#include "caxton.h"\nCX_RUN { return 0; }\n',
    "agent.rs": "caxton::agent!(run); fn run() -> Result<(), String> { Ok(()) }",
}


def described(module: bytes, **manifest: object) -> bytes:
    return module + section(json.dumps({"name": "mine", **manifest}).encode())


# -- build ---------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_language_is_found_and_the_module_says_what_it_is(
    shell: Shell, lang: str
) -> None:
    shell("agent", "new", "hello", "--lang", lang)
    built = shell("agent", "build", "hello", "--json").document
    assert built["lang"] == lang
    found = shell("agent", "inspect", "hello.wasm", "--json").document
    assert (found["sha256"], found["size"]) == (built["sha256"], built["size"])
    assert found["manifest"]["name"] == "hello"
    assert found["manifest"]["tools"][0]["name"] == "time/get_current_time"


def test_building_says_where_the_module_is_how_large_and_its_digest(
    shell: Shell,
) -> None:
    shell("agent", "new", "hello")
    done = shell("agent", "build", "hello")
    assert done.code == 0
    path, size, digest = done.out.split("  ")
    assert path == "hello.wasm"
    assert size.endswith(" bytes")
    assert digest.startswith("sha256 ")


def test_a_build_leaves_nothing_to_compile_to_the_first_run(shell: Shell) -> None:
    shell.set(XDG_CACHE_HOME=str(shell.folder / "cache"))
    modules = shell.folder / "cache" / "caxton" / "modules"
    shell("agent", "new", "hello")
    shell("agent", "build", "hello", "--no-compile")
    assert not modules.exists()
    done = shell("agent", "build", "hello")
    assert done.err.endswith("next: caxton run hello.wasm\n")
    (artifact,) = modules.iterdir()
    written = artifact.stat().st_ino
    shell("run", "hello.wasm")
    assert [one.stat().st_ino for one in modules.iterdir()] == [written]


@pytest.mark.long
def test_a_module_that_no_host_takes_is_built_with_a_warning(shell: Shell) -> None:
    large = "static volatile char large[1 << 30];\nCX_RUN { return large[7]; }"
    source = SOURCES["agent.c"].replace("CX_RUN { return 0; }", large)
    shell.write("mine/agent.c", source)
    done = shell("agent", "build", "mine")
    assert done.code == 0
    assert "warning: mine.wasm: " in done.err


def test_a_build_warns_of_a_property_that_takes_a_value_of_any_type(
    shell: Shell,
) -> None:
    shell.write("mine/agent.c", SOURCES["agent.c"])
    properties = "[input_schema.properties]\nplace.description = 'x'\n"
    shell.write("mine/agent.toml", properties + "days.type = 'integer'\n")

    done = shell("agent", "build", "mine")

    assert done.code == 0
    [warning] = [line for line in done.err.splitlines() if "warning: " in line]
    assert "no type of place" in warning
    assert 'add a type such as "string"' in warning


def test_a_folder_of_several_languages_needs_to_be_told_which(shell: Shell) -> None:
    for name, text in SOURCES.items():
        shell.write(f"both/{name}", text)
    done = shell("agent", "build", "both")
    assert done.code == 2
    assert "agent.c and agent.rs" in done.err
    assert done.fix == "say which, for example --lang c"
    assert shell("agent", "build", "both", "--lang", "c").code == 0


def test_a_tool_that_is_missing_is_named_with_the_command_that_installs_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from caxton_host.building import rust  # noqa: PLC0415 -- only to hide Debian's

    shell.write("mine/agent.rs", SOURCES["agent.rs"])
    monkeypatch.setattr(rust, "_ALSO", "nowhere")
    shell.set(PATH=str(shell.folder))
    done = shell("agent", "build", "mine")
    assert done.code == 2
    assert done.err.startswith("Error: the Rust compiler is not installed")
    assert done.fix == "apt-get install rustc libstd-rust-dev-wasm32 lld"


def test_a_tool_that_fails_is_quoted(shell: Shell) -> None:
    shell.write("mine/agent.c", "this is no program")
    done = shell("agent", "build", "mine")
    assert done.code == 2
    assert "the compiler refused agent.c" in done.err
    assert "unknown type name" in done.err
    assert done.fix.startswith("change agent.c")


def test_a_manifest_that_is_none_is_refused_at_the_build(shell: Shell) -> None:
    shell.write("mine/agent.c", SOURCES["agent.c"])
    shell.write("mine/agent.toml", "[input_schema]\ntype = 'text'\n")
    done = shell("agent", "build", "mine")
    assert done.code == 2
    assert "agent.toml: input_schema: it is no JSON Schema" in done.err
    assert done.fix == "correct it; docs/reference/manifest.md has every key"


def test_a_long_build_is_heard_of_in_a_log(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write("mine/agent.c", SOURCES["agent.c"])
    monkeypatch.setattr(output, "_EVERY_S", 0.01)
    monkeypatch.setattr(tools, "_FIRST_REPORT_S", 0.02)
    monkeypatch.setattr(tools, "_REPORT_EVERY_S", 0.02)
    assert "compiling mine: " in shell("agent", "build", "mine").err


def test_languages_complete_in_the_shell(shell: Shell) -> None:
    shell.set(
        _CAXTON_COMPLETE="bash_complete",
        COMP_WORDS="caxton agent new x --lang r",
        COMP_CWORD="5",
    )
    assert shell.typed().out.split() == ["plain,rust"]


# -- inspect -------------------------------------------------------------------


def test_a_module_is_shown_with_all_it_asks_for(shell: Shell) -> None:
    shell.write(
        "mine.wasm",
        described(
            guest(call("mcp__demo__echo")),
            version="1.2",
            description="Says it again.",
            tools=[{"name": "demo/echo", "reason": "to say it"}],
            input_schema={"type": "object"},
        ),
    )
    done = shell("agent", "inspect", "mine.wasm")
    assert done.code == 0
    rows = dict(line.split("\t") for line in done.out.splitlines() if "\t" in line)
    assert rows["name"] == "mine 1.2"
    assert rows["says"] == "Says it again."
    assert rows["wants demo/echo"] == "to say it"
    assert rows["input_schema"] == '{"type": "object"}'
    assert "mcp_call" in rows["imports"]
    assert "run" in rows["exports"]
    assert done.out.endswith("a host would take it\n")


def test_a_document_of_it_has_every_key(shell: Shell) -> None:
    shell.write("mine.wasm", ANSWERS)
    document = shell("agent", "inspect", "mine.wasm", "--compile", "--json").document
    assert document.keys() == {
        "$type",
        "path",
        "size",
        "sha256",
        "accepted",
        "problem",
        "manifest",
        "kind",
        "imports",
        "exports",
        "memory",
        "functions",
    }
    assert document["accepted"] is True
    assert document["problem"] is None
    assert document["manifest"] is None
    assert document["kind"] == "core module"


WASI = bytes.fromhex(  # imports wasi_snapshot_preview1.fd_write as () -> ()
    "0061736d01000000 01040160 0000"
    "0223 01 16 776173695f736e617073686f745f7072657669657731"
    "08 66645f7772697465 0000".replace(" ", "")
)


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (b"no module", "this is not a WebAssembly module"),
        (WASI, 'imports "wasi_snapshot_preview1" "fd_write" as () -> ()'),
        (described(ANSWERS, input_schema={"$ref": "#"}), "'#' refers to itself"),
        (ANSWERS + section(b"{"), "not JSON"),
    ],
)
def test_a_module_that_no_host_takes_is_shown_with_why_not(
    shell: Shell, module: bytes, problem: str
) -> None:
    shell.write("mine.wasm", module)
    done = shell("agent", "inspect", "mine.wasm", "--json")
    assert done.code == 2
    assert done.document["accepted"] is False
    assert problem in done.document["problem"]["message"]
    assert done.document["problem"]["fix"] == done.fix
    assert problem in shell("agent", "inspect", "mine.wasm").err


def test_what_only_compiling_shows_is_shown_when_asked(shell: Shell) -> None:
    shell.write("mine.wasm", guest(then="(i64.const 0)"))  # of another type
    assert shell("agent", "inspect", "mine.wasm").code == 0
    done = shell("agent", "inspect", "mine.wasm", "--compile")
    assert done.code == 2
    assert done.fix


def test_another_entry_point_can_be_asked_for(shell: Shell) -> None:
    shell.write("mine.wasm", ANSWERS)
    done = shell("agent", "inspect", "mine.wasm", "--entry", "main")
    assert done.code == 2
    assert 'does not export its entry point "main"' in done.err


# -- inputs and outputs --------------------------------------------------------


def test_an_input_that_is_wrong_begins_no_run(shell: Shell) -> None:
    schema = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
    shell.write("mine.wasm", described(ANSWERS, input_schema=schema))
    done = shell("run", "mine.wasm", "-i", '{"city": 7}')
    assert done.code == 2
    assert '$.city: the value is not of type "string"' in done.err
    assert done.fix
    assert shell.runs() == []
    assert shell("run", "mine.wasm", "-i", '{"city": "Lima"}').code == 0


def test_a_module_with_a_broken_manifest_begins_no_run(shell: Shell) -> None:
    shell.write("mine.wasm", ANSWERS + section(b"{" * 1_000))
    done = shell("run", "mine.wasm")
    assert done.code == 2
    assert "the manifest of the module cannot be used: not JSON" in done.err
    assert done.fix == "correct agent.toml and build the module again"
    assert shell.runs() == []


def test_an_output_that_was_not_promised_is_a_warning(shell: Shell) -> None:
    promised = {"properties": {"done": {"type": "string"}}}
    shell.write("mine.wasm", described(ANSWERS, output_schema=promised))
    done = shell("run", "mine.wasm")
    assert (done.code, done.out) == (0, '{"done": true}\n')
    assert (
        "warning: the output is not what the manifest promises: "
        '$.done: the value is not of type "string"'
    ) in done.err
    assert "warning" not in shell("run", "mine.wasm", "--quiet").err


# -- grant suggest -------------------------------------------------------------


@pytest.fixture
def proposed(shell: Shell) -> Callable[..., str]:
    def propose(*tools: object) -> str:
        shell.write("mine.wasm", described(ANSWERS, tools=tools))
        done = shell("grant", "suggest", "--manifest", "mine.wasm")
        assert done.code == 0
        return done.out

    return propose


def test_a_proposal_is_text_for_the_configuration(
    shell: Shell, proposed: Callable[..., str]
) -> None:
    text = proposed({"name": "demo/echo", "reason": "to say it"}, {"name": "look"})
    assert "# to say it\n" in text
    shell.write("caxton.toml", f"version = 1\n[servers.demo]\ncommand = 'x'\n{text}")
    agent = shell("agent", "list", "--json").document[0]
    assert agent["name"] == "mine"
    assert [rule["tools"] for rule in agent["grants"]["allow"]] == [["demo/echo"]]
    assert '# names = { "look" = "SERVER/TOOL" }' in text


def test_where_no_agent_is_configured_that_is_said(shell: Shell) -> None:
    shell.write("caxton.toml", "version = 1\n")
    done = shell("agent", "list")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("no agent is configured; ")


def test_what_a_stranger_gives_for_a_reason_stays_in_its_line(  # law 9
    proposed: Callable[..., str],
) -> None:
    text = proposed(
        {"name": "demo/echo", "reason": "x\n[[agents.mine.allow]]\r\x1b[2J\u2028y"}
    )
    assert "# x\\n[[agents.mine.allow]]\\r\\x1b[2J\\u2028y\n" in text
    assert text.count("\n[[agents.mine.allow]]") == 1


def test_wishing_grants_nothing(shell: Shell) -> None:  # law 4
    wishes = [{"name": "demo/echo", "reason": "please"}]
    module = described(guest(call("mcp__demo__echo")), tools=wishes)
    shell.write("mine.wasm", module)
    shell("run", "mine.wasm", "--server", "demo=false")
    assert shell.types()[1:3] == ["ToolInvoked", "ToolDenied"]


def test_a_module_without_a_manifest_proposes_nothing(shell: Shell) -> None:
    shell.write("mine.wasm", ANSWERS)
    done = shell("grant", "suggest", "--manifest", "mine.wasm")
    assert done.code == 2
    assert done.fix.startswith("build it with caxton agent build")
    shell.write("mine.wasm", described(ANSWERS))
    assert (
        "asks for no tool" in shell("grant", "suggest", "--manifest", "mine.wasm").err
    )


def test_a_proposal_is_a_document_too(shell: Shell) -> None:
    shell.write("mine.wasm", described(ANSWERS, tools=[{"name": "demo/echo"}]))
    done = shell("grant", "suggest", "--manifest", "mine.wasm", "--json")
    assert done.document["agent"] == "mine"
    assert done.document["tools"] == ["demo/echo"]
    assert "[agents.mine]" in done.document["toml"]


def test_agents_are_listed_as_tools_and_not_called_by_hand(shell: Shell) -> None:
    shell("init")

    assert shell("tool", "list", "--server", "agents").out.startswith("agents/weather")
    assert "mcp__agents__weather" in shell("tool", "show", "agents/weather").out
    called = shell("tool", "call", "agents/weather")
    assert (called.code, called.fix) == (2, "caxton run weather")
