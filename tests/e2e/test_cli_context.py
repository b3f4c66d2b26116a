"""Variables, resources and prompts, from the command line to the agent and back."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON

from .guests import call, guest
from .shell import Shell, toml
from .test_cli_run import payload

LIBRARY = Path(__file__).parents[1] / "integration" / "mcp" / "library_server.py"
PIN = "pin-0123456789"


@pytest.fixture
def support(shell: Shell) -> Shell:
    """A folder with an agent that is told who calls, and looks up who that is."""
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.crm": {
                    "command": sys.executable,
                    "args": [str(LIBRARY)],
                    "resources": True,
                },
                "servers.crm.resource_vars": {"customer_id": "${context.customer_id}"},
                "context.customer_id": {"required": True},
                "context.user_name": {"default": "there"},
                "context.pin": {"private": True},
                "agents.support": {
                    "module": "support.wasm",
                    "prompt": "Hi {user_name}, of {resources.crm.company.name}. "
                    "You are {resources.crm.customer.id}, {nobody}. {agent}, {trigger}",
                },
            },
            '[[agents.support.allow]]\ntools = ["crm/*"]',
        ),
    )
    shell.write("support.wasm", guest(call("mcp__crm__now", who="{customer_id}")))
    return shell


def test_a_customer_is_looked_up_and_greeted_before_the_agent_begins(
    support: Shell,
) -> None:
    done = support("run", "support", "--var", "customer_id=8675309")
    assert done.code == 0, done.err
    context = payload(support, "RunStarted")["context"]
    assert isinstance(context, dict)
    assert context["prompt"] == (
        "Hi there, of Analytical Engines. You are 8675309, {nobody}. support, cli"
    )
    assert "the prompt of support keeps {nobody}" in done.err
    assert "resource crm://broken left out" in done.err
    assert support("replay", "@last").code == 0  # law 5


def test_what_was_read_is_recorded(support: Shell) -> None:
    assert support("run", "support", "--var", "customer_id=7").code == 0
    resources = payload(support, "RunStarted")["resources"]
    assert isinstance(resources, dict)
    entries = resources["crm"]
    assert isinstance(entries, list)
    found: dict[JSON, JSON] = {}
    for entry in entries:
        assert isinstance(entry, dict)
        found[str(entry["uri"])] = entry.get("bytes")
    assert found["crm://customers/7"] == len('{"id": "7"}')
    assert found["crm://broken"] is None


def test_bytes_of_a_resource_leave_with_the_run(support: Shell) -> None:
    assert support("run", "support", "--var", "customer_id=7").code == 0
    done = support("audit", "export", "@last", "-o", "run.bundle")
    assert done.code == 0, done.err
    assert b64encode(b"\x89PNG") in (support.folder / "run.bundle").read_bytes()


def test_an_agent_that_passes_a_placeholder_on_is_told_of(support: Shell) -> None:
    done = support("run", "support", "--var", "customer_id=7")
    assert "passes {customer_id} on" in done.err


def test_a_private_variable_is_in_no_event_and_no_line(support: Shell) -> None:
    words = ("--var", "customer_id=7", "--var", f"pin={PIN}")
    done = support("run", "support", *words)
    assert done.code == 0, done.err
    events = support("events", "list", "@last", "--json")
    assert PIN not in done.out + done.err + events.out  # law 8
    context = payload(support, "RunStarted")["context"]
    assert isinstance(context, dict)
    assert "pin" not in context


def test_only_private_variables_are_given_once_more(support: Shell) -> None:
    assert support("run", "support", "--var", "customer_id=7").code == 0
    done = support("runs", "resume", "@last", "--var", "customer_id=8")
    assert done.code == 2
    assert "is recorded and cannot be changed" in done.err
    done = support("runs", "resume", "@last", "--var", f"pin={PIN}")
    assert done.code == 2
    assert "has completed already" in done.err


def test_names_of_the_host_are_no_variables(shell: Shell) -> None:
    shell.write("a.wasm", guest())
    done = shell("run", "a.wasm", "--var", "prompt=obey")
    assert done.code == 2
    assert "the host sets the run variable 'prompt'" in done.err


def test_a_short_private_value_is_warned_of(support: Shell) -> None:
    done = support("run", "support", "--var", "customer_id=7", "--var", "pin=1234")
    assert "warning: pin is shorter than 8 bytes" in done.err


def test_testing_a_server_shows_what_runs_would_read(support: Shell) -> None:
    done = support("server", "test", "crm")
    assert done.code == 0, done.err
    assert "crm://company  company, 30 bytes" in done.out
    assert "resource_vars has no value for customer_id" in done.err
    words = ("server", "test", "crm", "--var", "customer_id=7", "--var", f"pin={PIN}")
    told = support(*words)
    assert "crm://customers/7  customer, 11 bytes" in told.out
    assert PIN not in told.out + told.err  # law 8
    document = support("server", "test", "crm", "--json").document
    assert {one["uri"] for one in document["resources"]} >= {"crm://motto"}


def test_testing_a_server_warns_if_it_has_nothing_to_read(shell: Shell) -> None:
    faulty = LIBRARY.with_name("faulty_server.py")
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.crm": {
                    "command": sys.executable,
                    "args": ["-S", str(faulty), "sound", str(shell.folder / "state")],
                    "resources": {"required": True},
                }
            }
        ),
    )
    done = shell("server", "test", "crm")
    assert done.code == 0, done.err
    assert "the server has no resources" in done.err
