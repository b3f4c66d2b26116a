"""``caxton agent``: sign, verify, pin and rebuild the files of agents."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.pins import PublicKey, Signature
from ..core.programs import language_of
from ..errors import BadBytes, UsageError
from ..lib.codec import sha256
from ..lib.files import replace_file
from ..lib.machine import SystemClock
from ..lib.minisign import SecretKey, signer_of
from ..runs.locked import packages_of
from ..runs.modules import LARGEST_RUNTIME, Library, read_module
from ..runs.pinning import read_signature, signature_of
from .context import HostApi, as_json, check_known, on_host
from .output import FAILED, complain, note, patience, say, show, ticker

if TYPE_CHECKING:
    from ..config import Agent, Config

#: Holds the password of a secret key.
PASSWORD = "CAXTON_KEY_PASSWORD"  # noqa: S105 -- the name of a variable

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.command("key")
@_FILE
@as_json
def key(file: Path, as_json: bool) -> None:
    """
    Create the secret key FILE, and FILE.pub.

    Only you can read FILE, which is not encrypted. The key is one of minisign, which
    also makes encrypted keys. The public key goes into signers of agents.

    \b
    Examples:
      caxton agent key release.key
    """
    made, public = SecretKey.new(), file.with_name(f"{file.name}.pub")
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as out:  # noqa: PTH123 -- a descriptor
            out.write(made.to_bytes())
        replace_file(
            public, f"untrusted comment: {file.name}\n{made.public}\n".encode()
        )
    except OSError as exc:
        raise UsageError(
            f"the key {file} cannot be made: {exc.strerror}",
            fix="name a file that does not exist, in a folder that does",
        ) from None
    if as_json:
        show({"$type": "caxton.key/v1", "path": str(file), "public": str(made.public)})
        return
    say(str(made.public))
    note(f'next: signers = ["{made.public}"] in caxton.toml')


@click.command("sign")
@_FILE
@click.option(
    "--key",
    "secret",
    metavar="SECRET",
    required=True,
    type=click.Path(path_type=Path),
    help="The file of the secret key.",
)
@click.option("--comment", help="The trusted comment; default: the time and the name.")
@as_json
def sign(file: Path, secret: Path, comment: str | None, as_json: bool) -> None:
    """
    Sign a module or a program: write FILE.minisig.

    The locked packages of a program are signed too: FILE.packages.minisig. The
    password of an encrypted key is asked for, or is CAXTON_KEY_PASSWORD.

    \b
    Examples:
      caxton agent sign hello.wasm --key release.key
      caxton agent sign report.py --key ~/.minisign/minisign.key
    """
    made, found = SecretKey.read(secret, _password), _files(file)
    now = SystemClock().now() // 1_000_000
    for path, data in found.items():
        said = comment or f"timestamp:{now}\tfile:{path.name}\thashed"
        signature = made.sign(data, said).to_bytes()
        try:
            Signature.parse(signature)
            replace_file(signature_of(path), signature)
        except BadBytes as exc:
            raise UsageError(
                f"the comment cannot be signed: {exc}", fix="pass --comment TEXT"
            ) from None
        except OSError as exc:
            raise UsageError(
                f"{signature_of(path)} cannot be written: {exc.strerror}",
                fix="sign a file in a folder that you may write to",
            ) from None
    _tell(found, dict.fromkeys(found, made.public), as_json=as_json)


@click.command("verify")
@_FILE
@click.option(
    "--key",
    "keys",
    metavar="PUBLIC",
    required=True,
    multiple=True,
    help="A public key, RW..., or its file. Repeatable: any of them may have signed.",
)
@as_json
def verify(file: Path, keys: tuple[str, ...], as_json: bool) -> None:
    """
    Verify the signature of a module or a program.

    \b
    Exit codes: 0 signed by a key; 2 it is not, or a file cannot be read.

    \b
    Examples:
      caxton agent verify hello.wasm --key release.key.pub
    """
    signers = [_public(text) for text in keys]
    found, signed = _files(file), dict[Path, PublicKey]()
    for path, data in found.items():
        try:
            signed[path] = signer_of(data, read_signature(path), signers)
        except BadBytes as exc:
            raise UsageError(
                f"{path} is not signed by that key: {signature_of(path).name} {exc}",
                fix="get the file and its signature again, or name another --key",
            ) from None
    _tell(found, signed, as_json=as_json)


def _password() -> str:
    given = os.environ.get(PASSWORD)
    return given if given is not None else click.prompt("Password", hide_input=True)


def _public(text: str) -> PublicKey:
    path = Path(text)
    try:
        # A key is also the name of a file that is not there.
        return PublicKey.parse(path.read_text() if path.is_file() else text)
    except (BadBytes, OSError, ValueError) as exc:
        raise UsageError(
            f"--key {text} is no public key: {exc}",
            fix="pass the line that begins with RW, or its file",
        ) from None


def _files(path: Path) -> dict[Path, bytes]:
    """Return what is signed of a program, or of a module."""
    files = [path]
    if language_of(path.name) == "python" and packages_of(path).exists():
        files.append(packages_of(path))
    return {one: read_module(one, LARGEST_RUNTIME) for one in files}


def _tell(
    files: Mapping[Path, bytes], signed: Mapping[Path, PublicKey], *, as_json: bool
) -> None:
    rows: list[dict[str, JSON]] = [
        {
            "path": str(path),
            "sha256": sha256(data),
            "signer": str(signed[path]),
            "comment": Signature.parse(read_signature(path)).comment,
        }
        for path, data in files.items()
    ]
    if as_json:
        show({"$type": "caxton.signatures/v1", "files": [*rows]})
        return
    for row in rows:
        say(f"{row['path']}  signed by {row['signer']}  sha256 {row['sha256']}")
        note(f"trusted comment: {row['comment']}")


@on_host(click.command("pin"))
@click.argument("name")
def pin(host: HostApi, name: str, as_json: bool) -> None:
    """
    Pin agent NAME to its files as they are now.

    Writes sha256 into caxton.toml, in place of an earlier one.

    \b
    Examples:
      caxton agent pin hello
    """
    from ..config.edit import pin_agent
    from ..runs.modules import files_of, read_program

    config = host.load()
    agent = _agent(config, name)
    if isinstance(agent.program, Path) and agent.language:
        files = files_of(agent.program, read_program(agent.program, agent.language))
    else:
        files = files_of(
            _module(agent), read_module(_module(agent), agent.limits.module)
        )
    digests = [sha256(data) for data in files.values()]
    assert config.path is not None  # noqa: S101 -- it names the agent
    pin_agent(config.path, name, digests, environ=os.environ)
    if as_json:
        show({"$type": "caxton.pin/v1", "agent": name, "sha256": [*digests]})
        return
    for path, digest in zip(files, digests, strict=True):
        say(f"{path}  sha256 {digest}")
    note("next: caxton config reload")


@on_host(click.command("rebuild"))
@click.argument("name")
@click.option(
    "--source",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the source; default beside the module.",
)
def rebuild(host: HostApi, name: str, source: Path | None, as_json: bool) -> None:
    """
    Build agent NAME again, and compare the module.

    The same source, SDK and compiler give the same bytes, in each language that caxton
    builds. Another version of the compiler or of caxton may give others. Nothing is
    written.

    \b
    Exit codes: 0 the same bytes; 1 others; 2 it cannot be built.

    \b
    Examples:
      caxton agent rebuild hello
      caxton agent rebuild hello --source sources/hello
    """
    from ..building import build_agent

    agent = _agent(host.load(), name)
    module = _module(agent)
    before = sha256(Library().module(agent))
    folder = source or _source(module)
    with (
        tempfile.TemporaryDirectory(prefix="caxton-rebuild-") as made,
        patience(f"compiling {folder}"),
    ):
        built = build_agent(
            folder,
            into=Path(made),
            cache=host.paths().cache / "build",
            progress=ticker(f"compiling {folder}"),
        )
    same = built.sha256 == before
    if as_json:
        show(
            {
                "$type": "caxton.rebuild/v1",
                "agent": name,
                "source": str(folder),
                "lang": built.lang,
                "same": same,
                "sha256": {"module": before, "rebuilt": built.sha256},
            }
        )
    elif same:
        say(f"{module} is what {folder} builds: sha256 {before}")
    else:
        say(f"{module}  sha256 {before}")
        say(f"rebuilt from {folder}  sha256 {built.sha256}")
    if not same:
        complain(
            f"{folder} does not build the module of {name}",
            "compare the source, and the versions of caxton and of the compiler, with "
            "those of the first build",
        )
        raise Exit(FAILED)


def _agent(config: Config, name: str) -> Agent:
    otherwise = f"no agent {name!r} in the configuration"
    check_known(name, config.executed, otherwise, "caxton agent list")
    return config.executed[name]


def _module(agent: Agent) -> Path:
    if agent.module is None:
        raise UsageError(
            f"[agents.{agent.name}] has no module",
            fix="name an agent with a module; a program is its own source",
        )
    return agent.module


def _source(module: Path) -> Path:
    from ..building import source_of

    folders = (module.parent / module.stem, module.parent)
    for folder in folders:
        try:
            source_of(folder)
        except UsageError:
            continue
        return folder
    raise UsageError(
        f"no source of {module.name} in {folders[0]} or {folders[1]}",
        fix="name its folder with --source",
    )


COMMANDS = (key, sign, verify, pin, rebuild)
