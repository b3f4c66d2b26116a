"""``caxton audit``: is the log what was written, and how does it prove itself?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.log.checkpoint import checkpoint_document
from ..core.names import stream_of
from ..errors import UsageError
from ..lib.machine import local_actor
from . import erase
from .context import SIGNED, Frame, as_json, wait
from .exits import AUDIT
from .output import note, patience, say, show
from .verdict import (
    CHECKED,
    audit_document,
    audit_line,
    keyring,
    of_bundle,
    refuse,
    say_signed,
    trusted,
)

if TYPE_CHECKING:
    from ..core.log.chain import Verdict
    from ..core.log.checkpoint import Note
    from ..errors import NotKeptError
    from .host_option import There


@click.group("audit")
def command() -> None:
    """
    Check that the log is what was written, and prove it to others.

    \b
    Examples:
      caxton audit verify
      caxton audit export @last -o run.caxton
      caxton audit verify --bundle run.caxton --key 3b6a27bc...
    """


command.add_command(erase.command)

_keys = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBKEY",
    help="Believe this public key, and no other. Repeatable.",
)
_outside = click.option(
    "--checkpoint",
    "outside",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of checkpoints that was kept elsewhere. Repeatable.",
)


@command.command("verify")
@click.argument("run", required=False)
@_outside
@_keys
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Check this bundle, without a database.",
)
@click.option("--copy", is_flag=True, help="The log is a copy, and may be older.")
@as_json
@click.pass_obj
@click.pass_context
def verify(
    ctx: click.Context,
    frame: Frame,
    run: str | None,
    outside: tuple[Path, ...],
    keys: tuple[str, ...],
    bundle: Path | None,
    copy: bool,
    as_json: bool,
) -> None:
    """
    Compute every hash and root again, of RUN in its log, or of all.

    Finds an edited payload, salt or envelope, whether or not the chain was computed
    again; an event or a run that was removed; events moved across runs; a forged
    checkpoint; and a tail that was cut off behind the newest checkpoint it is given.
    A tail cut off before it is not to be seen by anyone: keep checkpoints elsewhere.
    Nothing is written and no key is made.

    The log is also compared with what this machine has signed of it last. With --copy
    it may have less: how far it lags is told.

    Believed are the keys that are given, or else those of [audit] trusted_keys and of
    this host. What no such key has signed is signer_unknown.

    \b
    Exit codes: 0 intact; 2 no such run; 5 broken, or signer_unknown.

    \b
    Examples:
      caxton audit verify
      caxton audit verify @last --json
      caxton audit verify --checkpoint anchored.txt
      caxton --db sqlite:///copy.db audit verify --copy
      caxton audit verify --bundle run.caxton --key 3b6a27bc...
    """
    known = trusted(frame, keys)
    kept = [note for path in outside for note in _notes(path)]
    if bundle is None:
        found = wait(_verify(frame, run, known, kept, copy=copy))
    elif run is None:
        _, found = of_bundle(bundle, known, kept)
    else:
        raise UsageError("a bundle is of one run", fix="leave RUN or --bundle out")
    if as_json:
        show(audit_document(found))
    else:
        say(f"{audit_line(found)}, checked: {', '.join(CHECKED)}")
        say_signed(found)
    if found.verdict != "intact":
        refuse(found, bundled=bundle is not None)
        ctx.exit(AUDIT)


async def _verify(
    frame: Frame,
    run: str | None,
    known: tuple[bytes, ...],
    kept: list[Note],
    *,
    copy: bool,
) -> Verdict:
    from ..lib.signing import judge
    from ..store.incarnation import Marks, signed_here
    from ..store.verify import verify

    async with frame.log() as store:
        stream = stream_of(await store.reader.find_run(run)) if run else None
        signed = signed_here(store.engine, Marks.of(frame.paths().state))
        if signed and judge(signed, known) == "trusted":
            kept.append(signed)
        with patience("verifying"):
            return await verify(
                store.reader, stream=stream, trusted=known, outside=kept, copy=copy
            )


@command.command("export")
@click.argument("run")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the bundle goes.",
)
@click.option(
    "--since",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of older checkpoints that the bundle is to be compared with.",
)
@as_json
@click.pass_obj
def export(
    frame: Frame, run: str, output: Path, since: tuple[Path, ...], as_json: bool
) -> None:
    """
    Write RUN into a file that proves itself on another machine.

    The log is signed first. The file has all that the run recorded, and the module
    and tool definitions that it used: whoever has it can verify it and replay it. Of
    a run that was erased, or had answers kept as digests, it has what is left: that
    is said, and it can be verified alone.

    \b
    Exit codes: 0 written; 2 no such run; 5 the log is not what was signed.

    \b
    Examples:
      caxton audit export @last -o run.caxton
      caxton audit export 0198 -o run.caxton --since anchored.txt
    """
    older = [note for path in since for note in _notes(path)]
    run_id, data, lack = wait(_export(frame, run, older))
    draft = output.with_name(f"{output.name}.part")
    draft.write_bytes(data)
    draft.replace(output)
    public = keyring(frame).public_key().hex()
    if as_json:
        show(
            {
                "$type": "caxton.export/v1",
                "run_id": run_id,
                "path": str(output),
                "bytes": len(data),
                "public_key": public,
                "not_kept": str(lack) if lack else None,
            }
        )
    else:
        say(str(output))
        note(f"run {run_id}, {len(data)} bytes")
        if lack:
            note(f"warning: {lack}: the bundle can be verified, not replayed")
        note(f"next: caxton audit verify --bundle {output} --key {public}")


async def _export(
    frame: Frame, run: str, since: list[Note]
) -> tuple[str, bytes, NotKeptError | None]:
    from ..app.bootstrap import open_signed
    from ..runs.recording import lacking
    from ..store.export import export

    keys = keyring(frame)
    async with open_signed(frame.look(*SIGNED), keys, frame.paths().state) as store:
        run_id = await store.reader.find_run(run)
        with patience("exporting"):
            signed = await store.seal()
            key = keys.public_key()
            data = await export(store.reader, run_id, signed, key, since=since)
            return run_id, data, await lacking(run_id, store.reader)


@command.command("checkpoint")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add it to this file, instead of printing it.",
)
@as_json
@click.pass_obj
def checkpoint(frame: Frame, output: Path | None, as_json: bool) -> None:
    """
    Sign the log as it is now, and print the checkpoint.

    Keep it where nobody who can write the database can: caxton audit verify
    --checkpoint finds whatever was changed before it. With --host it is the newest
    one that was signed there.

    \b
    Examples:
      caxton audit checkpoint
      caxton audit checkpoint -o /mnt/elsewhere/checkpoints.txt
    """
    told = wait(_newest(frame.there) if frame.there else _signed(frame))
    text = str(told["note"])
    if output is not None:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    if as_json:
        show({**told})
    elif output is None:
        say(text.removesuffix("\n"))


async def _newest(there: There) -> Mapping[str, JSON]:
    from ..remote.documents import mapping

    async with there.reach() as remote:
        return mapping(await remote.get("/checkpoints/latest"))


async def _signed(frame: Frame) -> Mapping[str, JSON]:
    signed = await _checkpoint(frame)
    return checkpoint_document(signed.checkpoint, signed.text())


async def _checkpoint(frame: Frame) -> Note:
    from ..app.bootstrap import open_signed

    state = frame.paths().state
    async with open_signed(frame.look(*SIGNED), keyring(frame), state) as store:
        return await store.seal()


@command.group("key", invoke_without_command=True)
@as_json
@click.pass_obj
@click.pass_context
def key(ctx: click.Context, frame: Frame, as_json: bool) -> None:
    """
    Show the public key of this host, or rotate it.

    It is made on first use. Give the public key to those who verify, by a way that
    you both trust; they compare the fingerprint.

    \b
    Examples:
      caxton audit key
      caxton audit key --json
      caxton audit key rotate
    """
    if ctx.invoked_subcommand is None:
        keys = keyring(frame)
        document = _key_document(keys.public_key())
        former = [_key_document(one) for one in keys.former()]
        if as_json:
            show({"$type": "caxton.key/v1", **document, "former": [*former]})
        else:
            for name, value in document.items():
                say(f"{name:<12} {value}")
            for one in former:
                say(f"{'former':<12} {one['public_key']}")


@key.command("rotate")
@as_json
@click.pass_obj
def rotate(frame: Frame, as_json: bool) -> None:
    """
    Sign with a new key from now on.

    The old key signs the new one's first checkpoint, and is then deleted; what it
    signed stays valid. Hosts that run with this state folder go over by themselves.

    \b
    Examples:
      caxton audit key rotate
    """
    document = _key_document(wait(_rotate(frame)))
    if as_json:
        show({"$type": "caxton.key/v1", **document})
        return
    for name, value in document.items():
        say(f"{name:<12} {value}")
    note("next: give the new public key to those who verify")


async def _rotate(frame: Frame) -> bytes:
    from ..app.bootstrap import open_signed
    from ..app.maintenance import record_rotation

    with keyring(frame).rotating() as rotation:
        state = frame.paths().state
        async with open_signed(frame.look(*SIGNED), rotation, state) as store:
            await record_rotation(store, rotation, local_actor())
            await store.seal()
        return rotation.public_key()


def _notes(path: Path) -> list[Note]:
    from ..core.log.checkpoint import parse_notes
    from ..errors import BadBytes

    try:
        return parse_notes(path.read_bytes())
    except BadBytes as exc:
        raise UsageError(
            f"{path}: {exc}", fix="name a file that caxton audit checkpoint wrote"
        ) from None


def _key_document(public_key: bytes) -> dict[str, JSON]:
    from ..core.log.checkpoint import fingerprint

    mark = fingerprint(public_key)
    return {
        "name": f"caxton-host/{mark[:8]}",
        "fingerprint": mark,
        "public_key": public_key.hex(),
    }
