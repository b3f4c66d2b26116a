"""The admin page: open to all, holds nothing, and lets nothing become markup."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from caxton_host.config import Serve
from caxton_host.web import ui
from tests.office import Office, calling
from tests.others import NODE

FOLDER = Path(ui.__file__).with_name("page")
FILES = ("", "/page.css", "/ask.js", "/make.js", "/page.js", "/text.js")
SCRIPTS = sorted(Path(__file__).with_name("page").glob("test_*.mjs"))
#: What makes markup or a script of text.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    r"|DOMParser|srcdoc|createContextualFragment|localStorage|cookie"
)


async def test_the_page_is_there_for_anybody_and_may_load_only_its_own(
    tmp_path: Path,
) -> None:
    async with calling(Office(tmp_path)) as client:
        client.headers.pop("authorization")
        answers = [await client.get(f"/ui{path}") for path in FILES]
        nothing = await client.get("/ui/../web/ui.py")

    for answer in answers:
        policy = answer.headers["content-security-policy"].split("; ")
        assert answer.status_code == 200
        assert policy[0] == "default-src 'none'"
        assert {"script-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    kinds = [answer.headers["content-type"].partition(";")[0] for answer in answers]
    assert kinds == ["text/html", "text/css", *["text/javascript"] * 4]
    assert nothing.status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/", "/ui", "/ui/", "/metrics", "/healthz", "/readyz", "/api/v1/openapi.json"],
)
async def test_what_is_read_alone_is_not_changed(tmp_path: Path, path: str) -> None:
    async with calling(Office(tmp_path), scrape=lambda: ("text/plain", b"")) as client:
        answer = await client.post(path, json={})

    assert answer.status_code == 405
    assert answer.json()["type"] == "/problems/bad-method"
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/ui/"])
async def test_who_only_knows_the_host_is_sent_to_the_page(
    tmp_path: Path, path: str
) -> None:
    async with calling(Office(tmp_path)) as client:
        client.headers.pop("authorization")
        answer = await client.get(path)

    assert (answer.status_code, answer.headers["location"]) == (307, "/ui")


@pytest.mark.parametrize("serve", [Serve(ui=False), Serve(api=False)])
async def test_without_the_page_or_the_api_there_is_none(
    tmp_path: Path, serve: Serve
) -> None:
    async with calling(Office(tmp_path), serve) as client:
        assert (await client.get("/ui")).status_code == 404
        assert (await client.get("/ui/page.js")).status_code == 404


def test_each_file_of_the_page_is_served() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {
        "index.html",
        *(path[1:] for path in FILES if path),
    }


def test_the_page_names_nothing_elsewhere_and_has_no_inline_script() -> None:
    page = (FOLDER / "index.html").read_text()

    assert re.findall(r'(?:src|href)="([^"]*)"', page) == [
        "/ui/page.css",
        "/ui/page.js",
    ]
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
    assert not re.search(r'<style|\son[a-z]+=|\sstyle="', page)


@pytest.mark.parametrize("name", ["ask.js", "make.js", "page.js", "text.js"])
def test_nothing_on_the_page_makes_markup_of_text(name: str) -> None:
    script = (FOLDER / name).read_text()

    assert SINKS.findall(script) == []
    assert re.findall(r"https?://\w", script) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_page_does_as_it_should(script: Path) -> None:
    done = subprocess.run(
        [NODE, "--no-warnings", "--test", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PAGE": str(FOLDER)},
    )
    assert done.returncode == 0, done.stdout


def test_each_part_of_the_page_is_tried() -> None:
    assert [script.name for script in SCRIPTS] == ["test_page.mjs", "test_text.mjs"]
