"""Sources of values are marked, and nobody writes there unless that is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.config import Config, check_grant, load
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ConfigError, UsageError

FILE = """\
[servers.crm]
command = ["crm"]
[servers.crm.tools.find]
effect = "read"
source = true
[servers.bank]
command = ["bank"]
[servers.bank.tools.open]
effect = "unsafe"
[agents.a]
trusted = ["input", "crm/find$.people[*].iban"]
[[agents.a.allow]]
tools = ["crm/find"]
[[agents.a.allow]]
tools = ["bank/pay"]
params.to = { from = ["trusted"] }
"""


def loaded(tmp_path: Path, old: str = "", new: str = "") -> Config:
    assert old in FILE
    (tmp_path / "caxton.toml").write_text(FILE.replace(old, new) if old else FILE)
    return load(None, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


def test_trusted_is_recorded_as_what_it_stands_for(tmp_path: Path) -> None:
    (wanted,) = loaded(tmp_path).agents["a"].grant.wanted

    assert [one.text for one in wanted.origins] == ["input", "crm/find$.people[*].iban"]


@pytest.mark.parametrize(
    ("old", "new", "key", "fix"),
    [
        (
            "source = true",
            "",
            "agents.a.trusted: names the source crm/find",
            "add source = true to [servers.crm.tools.find]",
        ),
        (
            'effect = "read"\n',
            "",
            "servers.crm.tools.find.source",
            'write effect = "read" beside it, or remove source',
        ),
        ("source = true", 'source = true\nrecord = "hash"', "find.source", "full"),
        ("source = true", 'source = true\nreply = "message"', "find.source", "full"),
        ("source = true", 'shared_writes = "accepted"', "shared_writes", "remove it"),
        (
            'tools = ["crm/find"]',
            'tools = ["crm/*"]',
            "servers.crm.tools.find.source: is true, and allow[1] of a",
            'add shared_writes = "accepted"',
        ),
        (
            'tools = ["crm/find"]',
            'tools = ["crm/find", "crm/add"]',
            "servers.crm.tools.find.source",
            "narrow the rule",
        ),
        ('trusted = ["input"', 'trusted = ["program"', "agents.a.trusted.1", "write"),
        ('trusted = ["input"', 'trusted = ["trusted"', "agents.a.trusted.1", "remove"),
        (
            'trusted = ["input", "crm/find$.people[*].iban"]\n',
            "",
            "agents.a.trusted: is missing",
            'write trusted = ["input"]',
        ),
        ('["trusted"]', '["agents/b$.x"]', "names the source agents/b", "never"),
        ('["trusted"]', '["bank/pay$.x"]', "names the source bank/pay", "bank.tools"),
        ('["trusted"]', '["own:bank/list$.x"]', "own:bank/list", "effect"),
        ('["trusted"]', '["own:crm/find$.x"]', "own:crm/find", "effect"),
        ('["trusted"]', '["own:agents/b$.x"]', "own:agents/b", "never"),
        ('["trusted"]', '["own:bnk/open$.x"]', "there is no server bnk", "write bank"),
        ('["trusted"]', '["own:webhook/w$.x"]', "own:webhook/w", "[webhooks.w]"),
        ('["trusted"]', '["crn/find$.x"]', "there is no server crn", "write crm"),
        ('["trusted"]', '["webhook/w$.x"]', "webhook/w", "never a source"),
        ('["trusted"]', '["context.user"]', "context.user", "add [context.user]"),
        (
            'trusted = ["input"',
            'prompt = "Help {{agent}}"\ntrusted = ["context.prompt"',
            "a template",
            "filled",
        ),
        ('trusted = ["input"', 'trusted = ["context.user"', "a.trusted", "add"),
        ('trusted = ["input"', 'trusted = ["agents/b$.x"', "a.trusted", "never"),
        (
            'command = ["crm"]\n[servers.crm.tools.find]',
            """url = "https://crm.example/mcp"
[agents.b]
[[agents.b.allow]]
tools = ["other/*"]
[servers.other]
url = "https://CRM.example/mcp?y=1"
[servers.crm.tools.find]""",
            "servers.crm.tools.find.source: is true, and allow[1] of b",
            "shared_writes",
        ),
    ],
)
def test_source_that_strangers_may_fill_is_refused(
    tmp_path: Path, old: str, new: str, key: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, old, new)

    assert key in str(refused.value)
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            'source = true\n[servers.bank]\ncommand = ["bank"]\n',
            """source = true
shared_writes = "accepted"
[servers.bank]
command = ["bank"]
[[agents.b.allow]]
tools = ["crm/*"]
""",
        ),
        (
            'tools = ["crm/find"]',
            'tools = ["crm/find", "crm/add"]\n[[agents.a.deny]]\ntools = ["crm/add"]',
        ),
        ('["trusted"]', '["own:bank/open$.id"]'),
    ],
)
def test_source_is_taken_if_nobody_writes_there_or_that_is_accepted(
    tmp_path: Path, old: str, new: str
) -> None:
    assert loaded(tmp_path, old, new).agents


def test_grant_from_the_command_line_obeys_the_same(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    grant = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("crm/add"),)),))

    with pytest.raises(UsageError, match=r"crm\.tools\.find\.source is true"):
        check_grant(grant, config)
