"""What a server gets of the host, and what its configuration shows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from caxton_host.core.text.redact import Redactor, plain
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp.transport import stdio
from caxton_host.mcp.transport.stdio import descendants, end

HOST = {
    "HOME": "/home/ada",
    "PATH": "/bin",
    "LANG": "C",
    "TOKEN": "x",
    "https_proxy": "p",
    "SSL_CERT_FILE": "c",
}


def test_only_the_named_variables_are_passed_on() -> None:
    # attack 38
    env = stdio.environment(HOST, {"MINE": "1"})
    here = str(Path(sys.executable).parent)
    assert env == {
        "HOME": "/home/ada",
        "LANG": "C",
        "MINE": "1",
        "PATH": f"{here}:/bin",
    }


def test_what_is_configured_wins() -> None:
    assert stdio.environment(HOST, {"PATH": "/opt", "HOME": "/"})["PATH"] == "/opt"


def test_proxies_and_certificates_are_named_unless_they_are_passed() -> None:
    assert stdio.withheld(HOST, {}) == ["https_proxy", "SSL_CERT_FILE"]
    assert stdio.withheld(HOST, {"https_proxy": "q"}) == ["SSL_CERT_FILE"]


def test_no_value_that_may_be_secret_is_shown() -> None:
    # law 8
    config = ServerConfig(
        name="crm",
        command=("serve", "--key", "s3cret-value"),
        env={"KEY": "s3cret-value"},
        headers={"Authorization": "s3cret-value"},
        url="https://x/?k=s3cret-value",
    )
    assert "s3cret" not in repr(
        ServerConfig(name="crm", env=config.env, headers=config.headers, url=config.url)
    )
    shown = stdio.shown(config, Redactor(["s3cret-value"]))
    assert shown == "serve --key [redacted]"


def test_without_setpriv_a_server_is_started_plainly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    assert stdio._tied_to_host.__wrapped__() == ()


def test_a_signal_without_a_name_has_its_number() -> None:
    assert (stdio._signal_name(9), stdio._signal_name(99)) == ("SIGKILL", "signal 99")


def test_a_long_text_is_cut_and_one_line() -> None:
    assert plain("a\nb", Redactor()) == r"a\nb"
    assert plain("x" * 10, Redactor(), 4) == "xxxx..."


def test_the_children_of_children_are_found_and_ended() -> None:
    # attack 37
    sleeps = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", f"{sleeps}; print(1, flush=True)"],
        stdout=subprocess.PIPE,
    ) as process:
        found: list[int] = []
        while not found:
            found = descendants(process.pid)
        end(found)
        assert process.communicate(timeout=20)[0] == b"1\n"


def test_a_process_that_ends_while_it_is_looked_at_has_none() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- counts itself too
    for _ in range(50):
        process = subprocess.Popen(["true"])
        # Another thread waits for it, as the event loop's does.
        waiting = threading.Thread(target=process.wait)
        waiting.start()
        while waiting.is_alive():
            assert descendants(process.pid) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 -- as above
