"""Where a host is, and what lets one in there."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.cli.remote_host import RemoteHost
from caxton_host.errors import UsageError
from caxton_host.remote.address import Address, token_of


@pytest.mark.parametrize(
    ("text", "api"),
    [
        ("https://host.example", "https://host.example/api/v1"),
        (
            "https://host.example:8443/caxton/",
            "https://host.example:8443/caxton/api/v1",
        ),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/api/v1"),
        ("http://127.8.0.1:8080/", "http://127.8.0.1:8080/api/v1"),
        ("http://localhost:8080", "http://localhost:8080/api/v1"),
        ("http://[::1]:8080", "http://[::1]:8080/api/v1"),
    ],
)
def test_a_host_is_named_by_its_url(text: str, api: str) -> None:
    assert Address.parse(text).api == api


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host.example",
        "ftp://host.example",
        "https://",
        "https://host.example/?q=1",
        "https://host.example/#top",
        "https://host.example/a b",
        "https://host.example/%2e%2e",
        "https://host.example:port",
        "https://[::1",
        "https://host.example/\x1b[31m",
    ],
)
def test_what_is_not_the_url_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Address.parse(text)
    assert "https://" in caught.value.fix


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:  # law 8
    with pytest.raises(UsageError) as caught:
        Address.parse("https://ann:hunter22@host.example")
    assert "hunter22" not in str(caught.value) + caught.value.fix


@pytest.mark.parametrize(
    "text", ["http://host.example", "http://10.0.0.1:8080", "http://127.0.0.1.example"]
)
def test_a_token_goes_unencrypted_over_a_network_only_if_told_to(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Address.parse(text)
    assert "--plain-http" in caught.value.fix
    assert Address.parse(text, plain=True).url == text


def test_the_token_is_of_the_environment_or_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("cx_file\n")
    file.chmod(0o600)
    environ = {"CAXTON_TOKEN": "cx_environment"}
    assert token_of(None, environ).text == "cx_environment"
    assert token_of(file, environ).text == "cx_file"
    assert token_of(None, {}).text is None
    assert not token_of(file, environ).warning


def test_a_token_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("cx_file")
    file.chmod(0o640)
    found = token_of(file, {})
    assert found.text == "cx_file"
    assert found.warning == f"others may read {file}; chmod 600 {file}"


@pytest.mark.parametrize(
    "held", [b"", b"two words", b"line\r\nHost: evil", b"\xff\xfe", b"a" * 9000]
)
def test_what_is_no_token_is_refused_and_not_shown(  # law 8
    tmp_path: Path, held: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    file.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        token_of(file, {})
    for word in held.decode("latin-1").split():
        assert word not in str(caught.value) + caught.value.fix


def test_a_file_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        token_of(tmp_path / "none", {})


def test_a_token_is_in_no_repr() -> None:  # law 8
    assert "cx_secret" not in repr(token_of(None, {"CAXTON_TOKEN": "cx_secret"}))


def test_commands_are_printed_as_they_are_typed_for_the_host() -> None:
    host = RemoteHost(url="http://h:1", token_file="my file", plain=True)  # noqa: S106 -- its name
    assert host.command() == (
        "caxton --host http://h:1 --token-file 'my file' --plain-http"
    )
    told = "caxton runs list shows them; caxton serve, or caxton approval list"
    assert host.named(told) == (
        f"{host.command()} runs list shows them; caxton serve, or "
        f"{host.command()} approval list"
    )
