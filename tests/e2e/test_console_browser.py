"""The console in a real browser: what a person does there, and what it costs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page

from caxton_host import evidence
from caxton_host.web import ui
from tests import standin
from tests.others import Programs

from .guests import call, guest, many
from .serving import Host, served
from .shell import CAXTON, SOON, Shell, toml
from .test_cli_cancel import until

pytestmark = pytest.mark.browser

CONSOLE = Path(ui.__file__).parent / "static" / "console.js"
PAGE = [
    Path(evidence.__file__).with_name(name)
    for name in ("msgpack.js", "verify.js", "page.js")
]
PAGES = tuple(
    f"/ui/{name}"
    for name in ("runs", "inbox", "agents", "servers", "evidence", "access")
)
SERVERS = ("/ui/servers/broken", "/ui/servers/demo?tool=echo")
TRIED = "/ui/agents/a?toml=&rule=allow[1]"
ASKS = '[[agents.a.allow]]\ntools = ["demo/*"]\n'
BROKEN = "import sys; print('no door at /srv', file=sys.stderr); sys.exit(3)"
#: Without a name a phone in one's hand, 320 px wide, and a desktop.
SIZES = {"phone": (320, 640), "desktop": (1280, 900)}


def configured(shell: Shell, rules: str) -> None:
    """Write a configuration whose agent calls tools of a real server."""
    tables: dict[str, dict[str, object]] = {
        "servers.demo": {**standin.command(f"of={shell.folder}")},
        "servers.broken": {"command": sys.executable, "args": ["-c", BROKEN]},
        **{f"agents.{name}": {"module": f"{name}.wasm"} for name in "abc"},
    }
    shell.write("caxton.toml", toml(tables, rules))


def agent(shell: Shell, rules: str = ASKS) -> None:
    configured(shell, rules)
    shell.write(
        "a.wasm",
        guest(
            call("mcp__demo__echo", text="one"),
            call("mcp__shell__exec", command="rm"),
            call("mcp__demo__echo", text="three"),
            output="done",
        ),
    )


def callers(shell: Shell) -> None:
    """Run an agent that makes a batch of calls, and calls another agent."""
    rules = '[[agents.b.allow]]\ntools = ["demo/*", "agents/c"]\n'
    agent(shell, f'{ASKS}{rules}[[agents.c.allow]]\ntools = ["demo/*"]\n')
    listed, exec_ = call("mcp__demo__list_suppliers"), call("mcp__shell__exec")
    steps = (many(listed, exec_, listed), call("mcp__agents__c"), listed)
    shell.write("b.wasm", guest(*steps, output=None))
    shell.write("c.wasm", guest(listed, exec_, output=None))
    typed(shell, "run", "b")


def typed(shell: Shell, *words: str) -> str:
    """Type a command into a process of its own: here, the driver has its loop."""
    command = [CAXTON, *words]
    return subprocess.run(
        command,
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=SOON,
        check=True,
    ).stdout.strip()


def good(shell: Shell) -> str:
    return typed(shell, "serve", "token", "create", "--scope", "admin")


class Desk:
    """A browser at the console of a host."""

    def __init__(self, page: Page, host: Host) -> None:
        self.page, self.host = page, host
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:  # noqa: ANN401
        if message.type == "error":
            self.wrong.append(message.text)

    def sign_in(self) -> None:
        self.page.goto(f"{self.host.url}/ui")
        self.page.get_by_label("Token").fill(self.host.token)
        self.follow("/ui/runs", self.page.get_by_role("button", name="Sign in"))

    def go(self, path: str) -> None:
        self.page.goto(self.page.url.partition("/ui")[0] + path)

    def follow(self, to: str, link: Locator) -> None:
        """
        Click what leads to an address with *to* in it, and wait until it is loaded.

        A click ends before the next page is there: what is read or typed then is read
        from the page before, or typed into it. A page is loaded when its script runs.
        """
        link.click()
        self.arrive(to)

    def arrive(self, to: str) -> None:
        self.page.wait_for_url(re.compile(re.escape(to)))

    def reload_until(self, path: str, text: str) -> None:
        """Open a page again until it shows a text."""

        def shows() -> bool:
            self.go(path)
            return self.page.get_by_text(text, exact=True).count() > 0

        until(shows)

    def open_run(self) -> None:
        self.go("/ui/runs")
        self.follow("/ui/runs/", self.page.locator("td[data-label=Run] a").first)

    def choose(self, name: str) -> str:
        """Choose a row of the timeline, and return what is shown beside it."""
        row = self.page.locator(".timeline a", has_text=name).first
        self.follow(row.get_attribute("href") or "", row)
        return self.page.locator(".beside").inner_text()


def visited(browser: Browser, host: Host) -> Generator[Desk]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Desk(context.new_page(), host)
    found.sign_in()
    yield found
    context.close()
    assert found.wrong == []


def opened(shell: Shell) -> AbstractContextManager[Host]:
    agent(shell)
    typed(shell, "run", "a")
    return served(shell, good=good(shell))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Generator[Host]:
    """Return a host with one run, for tests that change nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        shell = Shell(tmp_path_factory.mktemp("console"), compiled, patch)
    callers(shell)
    with opened(shell) as host:
        yield host


@pytest.fixture
def desk(house: Host, browser: Browser) -> Generator[Desk]:
    yield from visited(browser, house)


@pytest.fixture
def own(shell: Shell, browser: Browser) -> Generator[Desk]:
    """Return a desk at a host of the test's own."""
    with opened(shell) as host:
        yield from visited(browser, host)


def test_why_was_this_call_denied(desk: Desk) -> None:
    desk.open_run()
    shown = desk.choose("mcp__shell__exec")

    assert "denied" in shown
    assert "not_granted" in shown
    assert "no grant" in shown


def test_why_is_this_server_down_and_does_a_call_by_hand_work(own: Desk) -> None:
    page = own.page
    page.get_by_role("link", name="Servers").click()
    page.get_by_role("link", name="broken").click()
    page.get_by_role("button", name="Test").click()
    page.get_by_text("The server was asked.").wait_for()

    shown = page.locator("main").inner_text()
    assert "Why it is down\n\nthe server ended with exit code 3" in shown
    assert "no door at /srv" in page.get_by_label("Standard error").inner_text()

    own.go("/ui/servers/demo")
    page.get_by_role("button", name="Test").click()
    page.get_by_role("link", name="echo").click()
    page.get_by_text("Call it", exact=True).click()
    page.locator("[name='field:text']").fill("by hand")
    page.locator("#tool").get_by_label("Why").fill("to see whether it works")
    page.get_by_role("button", name="Call", exact=True).click()
    page.get_by_text("The tool was called; this is the record.").wait_for()
    assert "by hand" in page.locator(".beside").inner_text()


def test_which_run_called_this_tool(desk: Desk) -> None:
    button = desk.page.get_by_role("button", name="Filter")
    desk.page.get_by_label("Tool", exact=True).fill("demo/echo")
    desk.follow("tool=demo%2Fecho", button)
    found = desk.page.locator("td[data-label=Run]").count()
    desk.page.get_by_label("Tool", exact=True).fill("demo/other")
    desk.follow("tool=demo%2Fother", button)

    assert found == 1
    desk.page.get_by_text("There is none like that").wait_for()
    desk.page.go_back()
    assert desk.page.locator("td[data-label=Run]").count() == 1


def test_replay_step_by_step_and_fork_with_another_answer(own: Desk) -> None:
    own.open_run()
    first = own.page.url
    own.choose("mcp__demo__echo")
    own.page.get_by_role("link", name="Step forward").click()
    own.page.locator("#chosen", has_text="mcp__shell__exec").wait_for()
    own.page.get_by_role("link", name="Step back").click()
    own.page.locator("#chosen", has_text="mcp__demo__echo").wait_for()
    own.page.get_by_text("Fork here").click()
    own.page.get_by_label("Another answer").fill("another")
    own.page.get_by_role("button", name="Fork").click()

    own.page.get_by_text("This is the fork.").wait_for()
    own.page.locator(".state.completed").first.wait_for()
    own.page.get_by_label("Compare with run").fill(first.rpartition("/")[2])
    own.follow("/diff", own.page.get_by_role("button", name="Compare"))
    assert "1 call differs" in own.page.locator("main").inner_text()
    assert "another" in own.page.locator("#first").inner_text()


def test_what_last_week_would_look_like_under_this_rule(desk: Desk) -> None:
    page = desk.page
    page.get_by_role("link", name="Agents").click()
    page.get_by_role("link", name="a", exact=True).click()
    page.get_by_text("Try a change of allow[1]").click()
    new = '[[agents.a.allow]]\ntools = ["demo/*"]\nparams.text = { one_of = ["one"] }'
    box = page.get_by_label("The changed rule")
    assert 'tools = ["demo/*"]' in box.input_value()
    box.fill(new)
    page.get_by_role("button", name="Try it over history").first.click()

    shown = page.locator("#tried").inner_text()
    assert "1 decision would change" in shown
    assert "newly denied" in shown
    assert "in place of allow[1], at caxton.toml:" in shown
    assert new in shown
    page.locator("#tried td[data-label=Run] a").click()
    assert "three" in page.locator(".beside").inner_text()


def test_approve_one_and_refuse_one(shell: Shell, browser: Browser) -> None:
    agent(shell, f"{ASKS}approve = {{}}\n")
    with served(shell, good=good(shell)) as host:
        context = browser.new_context()
        desk = Desk(context.new_page(), host)
        desk.sign_in()
        host.start("a")
        desk.reload_until("/ui/inbox", "one")
        page = desk.page
        assert page.title().startswith("(1) ")
        page.get_by_label("Why").fill("it is fine")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Your decision is recorded.").wait_for()
        desk.reload_until("/ui/inbox", "three")
        page.get_by_label("Why").fill("not that one")
        page.get_by_role("button", name="Deny").click()
        until(lambda: "RunCompleted" in shell.types())
        context.close()

    said = [one for one in shell.types() if one.startswith("Approval")]
    assert said == ["ApprovalRequested", "ApprovalDecided"] * 2
    assert desk.wrong == []


def test_is_this_log_whole(own: Desk) -> None:
    page = own.page
    page.get_by_role("link", name="Evidence").click()
    page.get_by_role("button", name="Verify").click()
    # Nobody loads the page again.
    page.locator(".state.intact").wait_for()
    assert re.search(r"\d+ events in 4 streams", page.locator("main").inner_text())


def test_where_did_this_address_come_from(own: Desk, shell: Shell) -> None:
    account = "DE02120300000000202051"
    pay = call("mcp__demo__pay", to=account, amount=5)
    shell.write("a.wasm", guest(call("mcp__demo__list_suppliers"), pay, output=None))
    run = own.host.start("a")
    own.reload_until(f"/ui/runs/{run}", "completed")
    own.choose("mcp__demo__pay")
    # The answer is the event behind the call.
    own.follow("seq=3", own.page.get_by_role("link", name="demo/list_suppliers"))

    assert account in own.page.locator(".beside").inner_text()


def test_resolve_a_call_in_doubt_that_an_open_inbox_shows_after_a_restart(
    shell: Shell, browser: Browser
) -> None:
    # law 7
    agent(shell)
    shell.write("a.wasm", guest(call("mcp__demo__slow", seconds=60), output="done"))
    context = browser.new_context()
    with served(shell, good=good(shell)) as host:
        desk = Desk(context.new_page(), host)
        desk.sign_in()
        host.start("a")
        until(lambda: "ToolInvoked" in shell.types())
        desk.go("/ui/inbox")
        desk.page.get_by_text("Nothing waits for a person.").wait_for()
        host.stop(signal.SIGKILL)
    port = str(urlsplit(host.url).port)
    with served(shell, "--port", port, good=host.token):
        # Nobody loads the page again.
        page = desk.page
        page.get_by_role("heading", name="A call in doubt").wait_for()
        page.get_by_label("It happened, and this was its answer").check()
        page.get_by_label("The answer, as text").fill("it slept")
        page.get_by_label("Why").fill("it said so")
        desk.follow("done=resolveCall", page.get_by_role("button", name="Resolve"))
        until(lambda: "RunCompleted" in shell.types())
    context.close()
    assert shell.types().count("ToolInvoked") == 1


def test_a_run_that_goes_on_is_followed(own: Desk, shell: Shell) -> None:
    shell.write("a.wasm", guest(call("mcp__demo__slow", seconds=3), output="late"))
    own.host.start("a")
    own.open_run()
    own.page.locator(".state.running").wait_for()
    # Nobody loads the page again.
    own.page.locator(".state.completed").first.wait_for()
    assert "late" in own.page.locator(".beside").inner_text()


def test_the_cookie_is_of_the_pages_alone(desk: Desk) -> None:
    cookies = desk.page.context.cookies()
    (cookie,) = [one for one in cookies if one["name"] == "caxton"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["domain"].endswith(".localhost")
    assert cookie["path"] == "/ui"
    # What another port of this machine would be sent.
    desk.page.request.get(f"{desk.host.url}/healthz")
    assert desk.page.evaluate("document.cookie") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [*SIZES])
def test_pages_have_no_finding_of_axe_and_fit_the_screen(
    desk: Desk,
    browser: Browser,
    programs: Programs,
    scheme: Literal["light", "dark"],
    size: str,
) -> None:
    axe = (programs.folder / "node_modules/axe-core/axe.min.js").read_text()
    width, height = SIZES[size]
    state = desk.page.context.storage_state()
    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": width, "height": height},
        storage_state=state,
        reduced_motion="reduce",
        bypass_csp=True,  # for axe alone
    )
    page = context.new_page()
    home = desk.page.url.partition("/ui")[0]
    desk.go("/ui/runs?agent=b")
    page.goto(desk.page.locator("td[data-label=Run] a").first.evaluate("a => a.href"))
    with_lanes = page.url.partition("/ui")[2]
    assert page.locator(".timeline ol .name", has_text="list_suppliers").count() == 1
    assert page.locator(".batch", has_text="in a batch: calls 1 to 3").count() == 3
    desk.open_run()
    run = desk.page.url.partition("/ui")[2]
    for path in (
        *PAGES,
        *SERVERS,
        f"/ui{run}",
        f"/ui{run}?seq=2",
        f"/ui{with_lanes}",
        f"/ui{run}/erase",
        TRIED,
    ):
        page.goto(home + path)
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        about = [(one["id"], [n["html"] for n in one["nodes"]]) for one in found]
        assert about == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


def test_everything_is_reached_by_keyboard(desk: Desk) -> None:
    desk.open_run()
    desk.page.keyboard.press("j")
    desk.page.keyboard.press("j")
    desk.page.keyboard.press("Enter")
    desk.arrive("seq=")
    desk.page.keyboard.press("i")
    desk.arrive("/ui/inbox")
    desk.go("/ui/runs")
    desk.page.keyboard.press("/")
    assert desk.page.evaluate("document.activeElement.name") == "agent"
    desk.go("/ui/runs")
    desk.page.keyboard.press("Tab")
    assert desk.page.evaluate("document.activeElement.textContent") == "To the content"


def test_reading_works_without_script(desk: Desk, browser: Browser) -> None:
    context = browser.new_context(
        java_script_enabled=False, storage_state=desk.page.context.storage_state()
    )
    page = context.new_page()
    page.goto(desk.page.url)
    page.locator("td[data-label=Run] a").first.click()
    page.locator(".timeline a", has_text="mcp__shell__exec").click()
    page.locator(".beside", has_text="not_granted").wait_for()
    context.close()


def test_no_page_is_over_100_kb(desk: Desk) -> None:
    sizes: list[int] = []
    desk.page.on("response", lambda one: sizes.append(len(one.body())))
    for path in PAGES:
        desk.go(path)
    assert sizes
    assert max(sizes) < 100_000


@pytest.mark.parametrize("scripts", [[CONSOLE], PAGE], ids=["console", "page"])
def test_the_scripts_are_typed(programs: Programs, scripts: Sequence[Path]) -> None:
    tsc = programs.folder / "node_modules" / ".bin" / "tsc"
    words = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"]
    words += ["--lib", "es2022,dom,dom.iterable", *map(str, scripts)]
    done = subprocess.run(
        [str(tsc), *words], capture_output=True, text=True, timeout=SOON, check=False
    )
    assert done.returncode == 0, done.stdout
    assert sum(len(one.read_text().splitlines()) for one in scripts) < 1500


def test_who_signs_out_is_out(desk: Desk) -> None:
    desk.follow("/sign-in", desk.page.get_by_role("button", name="Sign out"))
    desk.go("/ui/runs")
    desk.page.get_by_role("heading", name="Sign in").wait_for()
    assert json.dumps(desk.page.context.cookies()) == "[]"


def test_a_link_from_another_site_asks_first(desk: Desk, browser: Browser) -> None:
    del browser
    home = desk.page.url.partition("/ui")[0]
    desk.page.goto(f"data:text/html,<a href='{home}/ui/runs'>look</a>")
    desk.page.get_by_text("look").click()
    desk.page.get_by_role("heading", name="Another site led here").wait_for()
    desk.page.get_by_role("link", name="Go on").click()
    desk.page.get_by_role("heading", name="Runs").wait_for()
    desk.wrong.clear()  # The browser reports the 403.


def test_a_token_of_another_is_refused_in_words(shell: Shell, browser: Browser) -> None:
    agent(shell)
    with served(shell, good=good(shell)) as host:
        page = browser.new_page()
        page.goto(f"{host.url}/ui")
        page.get_by_label("Token").fill("cxt_nothing")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        page.close()
