"""Agents that execute only the files that their pin names."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from caxton_host.config import Agent
from caxton_host.core.pins import Pin
from caxton_host.errors import UsageError
from caxton_host.lib.minisign import SecretKey
from caxton_host.runs.modules import Library
from caxton_host.runs.pinning import check_blobs, signature_of

CORE = b"\0asm\1\0\0\0"
KEY = SecretKey.new()
PINNED = Pin(sha256=(sha256(CORE).hexdigest(),))
SIGNED = Pin(signers=(SecretKey.new().public, KEY.public))
BOTH = Pin(PINNED.sha256, SIGNED.signers)


def agent(folder: Path, pin: Pin, data: bytes = CORE) -> Agent:
    path = folder / "mine.wasm"
    path.write_bytes(data)
    return Agent(name="mine", module=path, pin=pin)


def sign(path: Path, key: SecretKey = KEY) -> bytes:
    signature = key.sign(path.read_bytes(), "by hand").to_bytes()
    signature_of(path).write_bytes(signature)
    return signature


def test_the_file_of_a_digest_is_executed_and_no_other(tmp_path: Path) -> None:
    mine, library = agent(tmp_path, PINNED), Library()
    assert library.code(mine, None).module == CORE

    agent(tmp_path, PINNED, CORE + b"\0")
    for refuses in (library.check, library.module, library.card):
        with pytest.raises(UsageError, match=r"SHA-256 [0-9a-f]{64}, which") as caught:
            refuses(mine)
        assert caught.value.fix.endswith("caxton agent pin mine")
    with pytest.raises(UsageError, match=r"\[agents.mine\] does not pin"):
        library.code(mine, None)


def test_any_one_signer_is_enough_and_is_recorded(tmp_path: Path) -> None:
    mine, library = agent(tmp_path, SIGNED), Library()
    with pytest.raises(UsageError, match=r"cannot read the signature .*\.minisig"):
        library.code(mine, None)
    text = sign(tmp_path / "mine.wasm")
    row: dict[str, Any] = {
        "sha256": sha256(CORE).hexdigest(),
        "signer": str(KEY.public),
        "signature": text.decode(),
    }
    assert library.code(mine, None).signatures == (row,)

    sign(tmp_path / "mine.wasm", SecretKey.new())
    with pytest.raises(UsageError, match=r"mine\.wasm\.minisig is of another key"):
        library.code(mine, None)


def test_a_digest_and_a_signature_must_both_hold(tmp_path: Path) -> None:
    mine, library = agent(tmp_path, BOTH), Library()
    with pytest.raises(UsageError, match="signature"):
        library.code(mine, None)
    sign(tmp_path / "mine.wasm")
    assert library.code(mine, None).signatures
    agent(tmp_path, BOTH, CORE + b"\0")
    sign(tmp_path / "mine.wasm")
    with pytest.raises(UsageError, match="SHA-256"):
        library.code(mine, None)


def test_what_is_executed_is_what_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 9
    mine = agent(tmp_path, BOTH)
    path, signature = tmp_path / "mine.wasm", sign(tmp_path / "mine.wasm")
    opened = Path.open

    def swapping(self: Path, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if self == signature_of(path):  # After the module, before the decision.
            path.write_bytes(CORE + b"evil")
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", swapping)
    code = Library().code(mine, None)
    assert path.read_bytes() != CORE
    assert code.module == CORE
    assert code.signatures[0] == {
        "sha256": sha256(CORE).hexdigest(),
        "signer": str(KEY.public),
        "signature": signature.decode(),
    }


def test_a_program_is_pinned_with_its_locked_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, packages = b"x = 1\n", b"compiled"
    path = tmp_path / "report.py"
    path.write_bytes(source)
    runtime = tmp_path / "python.wasm"
    runtime.write_bytes(CORE)
    library = Library(runtimes=lambda _: runtime)
    monkeypatch.setattr(
        "caxton_host.runs.modules.read_locked", lambda *_: (packages, ())
    )
    one, two = (sha256(data).hexdigest() for data in (source, packages))
    code = library.code(Agent(name="r", program=path, pin=Pin((one, two))), None)
    assert code.program
    assert code.program.packages == packages
    with pytest.raises(UsageError, match=r"report\.py\.packages has the SHA-256"):
        library.code(Agent(name="r", program=path, pin=Pin((one,))), None)

    (tmp_path / "report.py.packages").write_bytes(packages)
    sign(path)
    with pytest.raises(UsageError, match=r"report\.py\.packages\.minisig"):
        library.check(Agent(name="r", program=path, pin=SIGNED))
    sign(tmp_path / "report.py.packages")
    code = library.code(Agent(name="r", program=path, pin=SIGNED), None)
    assert code.program
    check_blobs(Agent(name="r", pin=SIGNED), code.program.blobs, code.signatures)


def test_what_waited_in_a_queue_is_checked_without_its_files(tmp_path: Path) -> None:
    mine = agent(tmp_path, BOTH)
    sign(tmp_path / "mine.wasm")
    digest, found = sha256(CORE).hexdigest(), Library().code(mine, None).signatures
    check_blobs(mine, {digest: CORE}, found)
    with pytest.raises(UsageError, match="is not signed by a signer"):
        check_blobs(mine, {digest: CORE}, ())
    other = Agent(name="mine", pin=Pin(sha256=("0" * 64,)))
    with pytest.raises(UsageError, match="does not pin"):
        check_blobs(other, {digest: CORE}, found)
    check_blobs(Agent(name="mine"), {digest: CORE}, ())
