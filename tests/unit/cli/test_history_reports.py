"""Files about a judged history: whatever a run says stays text in them."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import parse

from caxton_host.cli.history_reports import reporting
from caxton_host.core.analysis.history import Finding, History
from tests.hostile_texts import HOSTILE


class Tags(HTMLParser):
    """Notes the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, ...]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add((tag, *(name for name, _ in attrs)))


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    # law 9
    history = History(against={"kind": "module", "name": HOSTILE[0]})
    junit, html = tmp_path / "junit.xml", tmp_path / "page.html"
    with reporting(history, junit, html) as take:
        for number, text in enumerate(HOSTILE):
            one = Finding(run_id=str(number), agent=text, verdict="diverged", at=text)
            take(replace(one, how=text, was=text, now=text))
        take(Finding(run_id="x", agent="a", verdict="incomplete", how="]]>"))
        history.complete = True

    suite = parse(junit).getroot()[0]  # noqa: S314 -- our own
    assert len(suite) == len(HOSTILE) + 1
    assert {one.tag for one in suite.iter()} <= {
        *("testsuite", "testcase", "failure", "skipped")
    }
    tags = Tags()
    tags.feed(html.read_text())
    assert {one[0] for one in tags.seen} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "p", "b", "code"),
        *("table", "tr", "th", "td", "br"),
    }
    attributes = {name for one in tags.seen for name in one[1:]}
    assert attributes == {"lang", "charset", "http-equiv", "content", "scope"}
