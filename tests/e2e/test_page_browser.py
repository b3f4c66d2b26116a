"""A run as one file, in the browser of somebody who has nothing else."""

from __future__ import annotations

import re
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from caxton_host.core.calls import JSON
from caxton_host.evidence.page import html_page
from caxton_host.web.ui.render import visible
from tests.hostile_texts import HOSTILE
from tests.unit.evidence.logs import OLD, Log, public, vectors

from .shell import Shell
from .test_console_browser import agent, typed

pytestmark = pytest.mark.browser


class Reader:
    """A browser without a network, which notes what a page asks for and says."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.wrong: list[str] = []
        page.on("request", lambda one: self.asked.append(one.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda one: self.wrong.append(one.message))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:  # noqa: ANN401
        if message.type == "error":
            self.wrong.append(message.text)

    def open(self, path: Path, *keys: str) -> str:
        """Open a file from disk, and return the verdict."""
        self.page.goto(path.as_uri())
        if keys:
            self.page.get_by_label("Public key of the host").fill(" ".join(keys))
            self.page.get_by_role("button", name="Verify").click()
        self.page.locator("#progress").wait_for(state="hidden")
        return self.page.locator("#verdict").inner_text()

    def choose(self, name: str) -> str:
        """Choose a row, and return what is shown beside it."""
        self.page.locator(".timeline a", has_text=name).first.click()
        self.page.locator("h2", has_text=name).wait_for()
        return self.page.locator(".beside").inner_text()


@pytest.fixture
def reader(browser: Browser) -> Generator[Reader]:
    context = browser.new_context(offline=True)
    found = Reader(context.new_page())
    yield found
    context.close()
    assert found.wrong == []
    assert {one.partition(":")[0] for one in found.asked} <= {"file", "blob"}


def test_a_file_shows_the_run_and_which_event_was_changed(
    shell: Shell, reader: Reader
) -> None:
    # law 9
    agent(shell)
    typed(shell, "run", "a")
    typed(shell, "audit", "export", "@last", "--html", "run.html", "-o", "run.caxton")
    key = typed(shell, "audit", "key").partition("public_key")[2].split()[0]
    file = shell.folder / "run.html"

    assert "signed by a key that you have not named" in reader.open(file)
    assert reader.open(file, key).startswith("Whole, signed by the key")
    again = "Executed again in this browser: identical, 3 calls."
    reader.page.get_by_text(again, exact=True).wait_for()
    assert "one" in reader.choose("mcp__demo__echo")
    denied = reader.choose("mcp__shell__exec")
    assert "not_granted" in denied
    assert "rm" in denied
    with reader.page.expect_download() as saving:
        reader.page.get_by_role("button", name="Save the bundle").click()
    saved = Path(saving.value.path()).read_bytes()
    assert saved == (shell.folder / "run.caxton").read_bytes()

    text = file.read_bytes()
    at = text.index(b'"at":', text.index(b'"type":"ToolInvoked"'))
    file.write_bytes(text[: at + 5] + b"2" + text[at + 6 :])
    said = reader.open(file, key)
    assert said.startswith("Broken: event 3 of run/")
    assert reader.page.locator("main").inner_text() == ""


def hostile() -> bytes:
    """Return a bundle that has the hostile texts wherever a text can be."""
    log, run = Log(), f"run/{HOSTILE[0]}"
    source = "\n".join(HOSTILE).encode(errors="replace")
    drawn = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    for data in (source, drawn):
        log.blobs[sha256(data).hexdigest()] = data
    image: JSON = {"sha256": sha256(drawn).hexdigest(), "media_type": "image/svg+xml"}
    program: JSON = {"name": HOSTILE[0], "sha256": sha256(source).hexdigest()}
    whole: dict[str, JSON] = {
        "agent": HOSTILE[0],
        "actor": {"id": HOSTILE[1]},
        "program": program,
    }
    log.put(run, "RunStarted", {**whole, "input": [*HOSTILE], "forked_from": None})
    for n, text in enumerate(HOSTILE, 1):
        own: dict[str, JSON] = {
            "call": n,
            "name": text,
            "params": {text: text},
            "rule": text,
        }
        log.put(run, "LogWritten", {"n": n, "level": text, "text": text})
        log.put(run, "ToolInvoked", {**own, "effect": text, "sources": [text]})
        log.put(run, "ToolRetried", {"call": n, "attempt": text, "reason": text})
        log.put(
            run, "CallResolved", {"call": n, "verdict": text, "actor": {"id": text}}
        )
        if n % 2:
            log.put(run, "ToolDenied", {**own, "code": text, "message": text})
        else:
            said: dict[str, JSON] = {
                "message": text,
                "data": {text: [text]},
                "blobs": [image, text],
            }
            log.put(run, "ToolCompleted", {"call": n, "is_error": text, **said})
        if text.isascii() and text.isprintable():
            log.put(run, text, {text: text}, trace=text)
    log.put(run, "RunFailed", {"kind": HOSTILE[0], "message": HOSTILE[1]})
    return log.bundle(run)


TAGS = (
    "a b button code dd details div dl dt h1 h2 h3 li ol p section small span summary"
)
#: Open every row and every branch of it, and return what is there besides texts.
LOOK = """async () => {
  const known = ["class", "id", "open", "start", "aria-current"];
  const tags = new Set(), odd = new Set(), texts = [];
  const links = [...document.querySelectorAll(".timeline a")];
  const look = (shown) => {
    texts.push(shown.textContent);
    for (const one of shown.querySelectorAll("*")) {
      tags.add(one.localName);
      for (const { name, value } of one.attributes)
        if (!known.includes(name) && !/^#\\d+\\.\\d+$/.test(value)) odd.add(name);
    }
  };
  look(document.querySelector("main"));
  for (const link of [null, ...links]) {
    link?.click();
    for (let n = 0; n < 3; n++) {
      for (const one of document.querySelectorAll(".beside details")) one.open = true;
      await new Promise((done) => setTimeout(done));
    }
    look(document.querySelector(".beside"));
  }
  return { tags: [...tags], odd: [...odd], texts: texts.join("\\n") };
}"""


def test_no_text_of_a_bundle_is_more_than_text(tmp_path: Path, reader: Reader) -> None:
    # law 9
    file = tmp_path / "run.html"
    file.write_bytes(html_page(hostile()))
    assert reader.open(file, public(OLD).hex()).startswith("Whole, signed")
    reader.page.locator(".timeline a").first.wait_for()
    found = reader.page.evaluate(LOOK)

    assert {*found["tags"]} <= {*TAGS.split()}
    assert {*found["odd"]} == {"hidden"}
    for text in HOSTILE:
        assert visible(text) in found["texts"]
    assert reader.page.evaluate("them => them.map(visible)", [*HOSTILE]) == [
        visible(one) for one in HOSTILE
    ]
    assert reader.page.title() == visible(f"{HOSTILE[0]} {HOSTILE[0]}")


DIVERGES = """onmessage = ({ data: { events, blobs, run } }) => postMessage({
  type: 'done', verdict: 'diverged', calls: 3, at: 2, recorded: null, now: '\u202e',
  why: `<b>${run} ${events.length} ${blobs.size} ${events[1].payload.level}`,
});"""
DIVERGED = """Executed again in this browser: diverged at call 2: <b>a 4 1 info
Now
\\u{202e}"""
ENDS = """onmessage = () => postMessage({
  type: 'done', verdict: 'ended', calls: 1, why: 'x',
});"""
ENDED = "Executed again in this browser as far as it is recorded: identical, 1 call: x"
#: What a worker does, the button that is pressed then, and what the page says at last.
WORKERS = (
    ("for (;;);", "Stop", "Execution stopped."),
    ("throw Error('<b>')", "", "It could not be executed here."),
    (DIVERGES, "", DIVERGED),
    (ENDS, "", ENDED),
)


@pytest.mark.parametrize(("script", "button", "said"), WORKERS)
def test_what_a_worker_says_is_text_and_it_can_be_ended(
    tmp_path: Path, reader: Reader, script: str, button: str, said: str
) -> None:
    page = html_page(vectors()["run"][0]).decode()
    start, rest = page.split('id="executor">')
    file = tmp_path / "run.html"
    file.write_text(f'{start}id="executor">{script}{rest[rest.index("</script>") :]}')
    reader.open(file, public(OLD).hex())
    if button:
        reader.page.get_by_role("button", name=button).click()
    shown = reader.page.locator("#again")
    shown.filter(has_text=said.splitlines()[0]).wait_for()

    assert re.sub("\n+", "\n", shown.inner_text()) == said
    assert not reader.page.get_by_role("button", name="Stop").is_visible()
