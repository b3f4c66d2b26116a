"""An injected payment, traced, judged by another rule, and denied by it."""

from __future__ import annotations

import re
import shlex

from .shell import Shell
from .test_docs import ROOT, blocks, commands, type_in

EVIL, SUPPLIER = "LT601010012345678901", "DE02120300000000202051"


def test_the_demo_of_an_injection_and_every_command_that_it_prints(
    shell: Shell,
) -> None:  # law 4
    done = shell("demo", "injection")

    assert done.code == 0
    assert "office/read_mail $.messages[1].body" in done.out
    assert "call 3: allowed -> params" in done.out
    printed = re.findall(r"^  (caxton .*)$", done.err, re.MULTILINE)
    assert len(printed) >= 3
    for line in printed:
        assert shell(*shlex.split(line)[1:]).code == 0, line


def test_the_demo_of_an_injection_as_a_document(shell: Shell) -> None:
    told = shell("demo", "injection", "--json").document

    assert told["without"]["output"] == {"paid": EVIL, "denied": None}
    assert told["what_if"] == {"was": "allowed", "now": "params"}
    assert told["with"]["output"] == {"paid": SUPPLIER, "denied": EVIL}
    (step,) = told["trace"][0]["way"]
    assert (step["call"], step["asked"]) == (1, None)

    traced = shell("runs", "trace", "@last", "call", "4", "to", "--json").document
    assert traced["$type"] == "caxton.trace/v1"
    assert [one["source"] for one in traced["values"][0]["way"]] == [
        "office/list_suppliers"
    ]
    by_event = shell("runs", "trace", "@last", str(traced["event"]), "$.to", "--json")
    assert by_event.document == traced

    suggested = shell("grant", "suggest", "@last", "--json").document["toml"]
    assert (
        '# params.to = { from = ["office/list_suppliers$.suppliers[*].iban"] }\n'
        "#   of 1 value, 0 came from elsewhere" in suggested
    )

    wrong = {
        ("call", "9"): "has no call 9",
        ("call", "4", "nope"): "no value at $.nope; its parameters are: to, amount",
        ("event", "1"): "event 1 is RunStarted, not of a call",
        ("event", "99"): "event 99 does not exist",
        ("foo",): "'foo' is not a call or event number",
    }
    for place, message in wrong.items():
        refused = shell("runs", "trace", "@last", *place)
        assert refused.code == 2, place
        assert message in refused.err
        assert "To fix:" in refused.err


def test_the_page_about_tracing(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "trace-values.md"
    shown = [block.text for block in blocks(page)]
    typed: dict[str, str] = {}
    for language, _, text in blocks(page):
        for line in commands(language, text):
            if "new.toml" not in line:
                typed[line] = type_in(shell, line)

    told = typed["caxton runs trace @last call 3 to"]
    assert told in shown
    assert "office/list_suppliers" in typed["caxton runs trace @last call 4 to"]
