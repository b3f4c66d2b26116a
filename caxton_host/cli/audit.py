"""``caxton audit``: verify, export, sign and erase the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.log.checkpoint import Verifier, parse_note
from ..core.log.runs import erasure_document
from ..core.names import stream_of
from ..errors import BadBytes, StoreError, UsageError
from ..lib.machine import local_actor
from .context import SIGNED, HostApi, on_host, wait
from .output import AUDIT, FAILED, complain, counted, note, patience, say, show
from .overrides import check_text
from .verdict import (
    audit_line,
    keyring,
    of_bundle,
    refuse,
    say_signed,
    say_witnessed,
    trusted,
    watchers,
    witnessed_document,
)

if TYPE_CHECKING:
    from ..core.log.chain import Verdict
    from ..core.log.checkpoint import Note
    from ..core.log.events import RunErased
    from ..store.verified import Verified


@click.group("audit")
def command() -> None:
    """
    Verify, sign and export the log.

    \b
    Examples:
      caxton audit verify
      caxton audit export @last -o run.caxton
      caxton audit verify --bundle run.caxton --key 3b6a27bc...
    """


#: Adds ``--key``.
keys_option = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBKEY",
    help="Trust only this public key. Repeatable.",
)
#: Adds ``--checkpoint``.
outside_option = click.option(
    "--checkpoint",
    "outside",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of checkpoints that was kept elsewhere. Repeatable.",
)


@on_host(command.command("verify"))
@click.argument("run", required=False)
@outside_option
@keys_option
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Verify this bundle, without a database.",
)
@click.option(
    "--witness-key",
    "witness_keys",
    multiple=True,
    metavar="VKEY",
    help="Demand the signature of this witness. Repeatable.",
)
@click.option(
    "--quorum",
    type=click.IntRange(1),
    help="How many of these witnesses are enough; default all.",
)
@click.option("--copy", is_flag=True, help="The log is a copy, and may be older.")
@click.option("--full", is_flag=True, help="Also what was verified before.")
def verify(
    host: HostApi,
    run: str | None,
    outside: tuple[Path, ...],
    keys: tuple[str, ...],
    bundle: Path | None,
    witness_keys: tuple[str, ...],
    quorum: int | None,
    copy: bool,
    full: bool,
    as_json: bool,
) -> None:
    """
    Verify all hashes and roots, or those of RUN.

    Detects an edited payload, salt or envelope, even if the chain was recomputed; a
    removed event or run; events moved between runs; a forged checkpoint; and the
    removal of events before the newest checkpoint that it is given. Nobody can detect
    that events after that checkpoint were removed: keep checkpoints elsewhere.
    Nothing is written to the log and no key is created.

    Of a log of more than 50,000 events, the first ones that this machine has verified
    before are not checked again: a change of those in place is not noticed.
    The output says how many they are; --full checks all. With RUN, --checkpoint, --key
    or --copy everything is checked.

    The log is also compared with what this machine signed last. With --copy it may
    have less: the number of missing events is printed.

    With --witness-key, the log must hold a checkpoint that these witnesses have
    cosigned: of a bundle its own one, of a log the newest that this machine or
    --checkpoint has.

    The trusted keys are those of --key, or else [audit] trusted_keys and the keys of
    this host. A log that no trusted key has signed is signer_unknown.

    \b
    Exit codes: 0 intact; 2 no such run; 5 broken, or signer_unknown.

    \b
    Examples:
      caxton audit verify
      caxton audit verify @last --json
      caxton audit verify --full
      caxton audit verify --checkpoint anchored.txt
      caxton --db sqlite:///copy.db audit verify --copy
      caxton audit verify --bundle run.caxton --key 3b6a27bc...
      caxton audit verify --witness-key witness.example.com+0f3c...+BA...
    """
    from ..app.verification import CHECKED, audit_document

    known, witnesses = trusted(host, keys), watchers(witness_keys, quorum)
    kept = [note for path in outside for note in notes_in(path)]
    if bundle is None:
        again = not (run or outside or keys or copy)
        if witnesses:
            kept += wait(_cosigned(host))
        work = _verify(host, run, known, kept, copy=copy, again=again, full=full)
        found, before = wait(work)
        seen = witnesses.of(kept) if witnesses else None
    elif run is None:
        before, (it, found) = None, of_bundle(bundle, known, kept)
        own = [parse_note(it.header.checkpoint)] if it and found.checkpoint else []
        seen = witnesses.of(own) if witnesses else None
    else:
        raise UsageError("a bundle is of one run", fix="leave RUN or --bundle out")
    if as_json:
        show({**audit_document(found, before), **witnessed_document(seen, witnesses)})
    else:
        say(f"{audit_line(found)}, checked: {', '.join(CHECKED)}")
        say_signed(found, before)
        say_witnessed(seen)
    if found.verdict != "intact":
        refuse(found, bundled=bundle is not None)
        raise Exit(AUDIT)
    if witnesses and seen is None:
        witnesses.refuse()
        raise Exit(AUDIT)


async def _cosigned(host: HostApi) -> list[Note]:
    """Return the newest checkpoint of the log that this machine has cosigned."""
    from ..app.witnessing import folder_of, kept

    origin = await _origin(host)
    found = kept(folder_of(host.paths().state), origin) if origin else None
    return [found] if found else []


async def _verify(
    host: HostApi,
    run: str | None,
    known: tuple[bytes, ...],
    kept: list[Note],
    *,
    copy: bool,
    again: bool,
    full: bool,
) -> tuple[Verdict, Verified | None]:
    """Verify the log, and return the verification before it if this one goes on."""
    from ..app.verification import verify_log

    async with host.log() as store:
        stream = stream_of(await store.reader.find_run(run)) if run else None
        with patience("verifying"):
            return await verify_log(
                store,
                host.paths().state,
                known,
                stream=stream,
                outside=kept,
                copy=copy,
                again=again,
                full=full,
            )


@on_host(command.command("export"))
@click.argument("run")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the bundle.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A page that holds the bundle and verifies itself.",
)
@click.option(
    "--since",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of older checkpoints to include. Repeatable.",
)
def export(
    host: HostApi,
    run: str,
    output: Path | None,
    html: Path | None,
    since: tuple[Path, ...],
    as_json: bool,
) -> None:
    """
    Export RUN as a bundle that other machines can verify.

    The log is signed first. The bundle has the events of the run, and the module and
    tool definitions that it used, so it can be verified and replayed elsewhere. If
    the run was erased, or answers were kept as digests, the bundle can be verified but
    not replayed; a warning says so.

    With --html, the bundle is inside a page that a browser opens from disk, without a
    server or network: it verifies itself against the public key that its reader enters,
    and shows the run. A page holds at most 64 MiB.

    With --host, the host there signs; ask its operator for the public key.

    \b
    Exit codes: 0 written; 2 no such run; 5 the log is not what was signed.

    \b
    Examples:
      caxton audit export @last -o run.caxton
      caxton audit export @last --html run.html
      caxton audit export 0198 -o run.caxton --since anchored.txt
    """
    if output is None and html is None:
        raise UsageError("no file is named", fix="add -o run.caxton or --html run.html")
    older = [note for path in since for note in notes_in(path)]
    found = host.export(run, older)
    if html is not None:
        from ..evidence.page import html_page

        _write(html, html_page(found.data))
    if output is not None:
        _write(output, found.data)
    if as_json:
        show(
            {
                "$type": "caxton.export/v1",
                "run_id": found.run_id,
                "path": str(output) if output else None,
                "html": str(html) if html else None,
                "bytes": len(found.data),
                "public_key": found.public_key,
                "not_kept": found.not_kept,
            }
        )
        return
    for path in filter(None, (output, html)):
        say(str(path))
    note(f"run {found.run_id}, {len(found.data)} bytes")
    if found.not_kept:
        note(f"warning: {found.not_kept}: the bundle can be verified, not replayed")
    key = found.public_key or "PUBKEY"
    if output is not None:
        note(f"next: caxton audit verify --bundle {output} --key {key}")
    if html is not None:
        note(f"next: open {html} in a browser, and enter the key {key}")


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.part")
    draft.write_bytes(data)
    draft.replace(path)


@on_host(command.command("checkpoint"))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append it to this file instead of printing it.",
)
def checkpoint(host: HostApi, output: Path | None, as_json: bool) -> None:
    """
    Sign the log and print the checkpoint.

    Keep it where nobody who can write to the database can change it: caxton audit
    verify --checkpoint detects every change before it. With --host, the newest
    checkpoint of that host is printed.

    \b
    Examples:
      caxton audit checkpoint
      caxton audit checkpoint -o /mnt/elsewhere/checkpoints.txt
    """
    told = host.checkpoint()
    text = str(told["note"])
    if output is not None:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    if as_json:
        show({**told})
    elif output is None:
        say(text.removesuffix("\n"))


@on_host(command.group("key", invoke_without_command=True))
@click.pass_context
def key(ctx: click.Context, host: HostApi, as_json: bool) -> None:
    """
    Show the public key of this host, or rotate it.

    The key is created on first use. Give the public key to verifiers over a channel
    that you both trust; they compare the fingerprint. Of a log that is signed, the
    verifier is for its witnesses: caxton witness serve --log.

    \b
    Examples:
      caxton audit key
      caxton audit key --json
      caxton audit key rotate
    """
    if ctx.invoked_subcommand is None:
        keys = keyring(host)
        document = _key_document(keys.public_key(), wait(_origin(host)))
        former = [_key_document(one) for one in keys.former()]
        if as_json:
            show({"$type": "caxton.key/v1", **document, "former": [*former]})
        else:
            for name, value in document.items():
                say(f"{name:<12} {value}")
            for one in former:
                say(f"{'former':<12} {one['public_key']}")


async def _origin(host: HostApi) -> str | None:
    """Return the origin of the log, if there is one that is signed."""
    try:
        async with host.log() as store:
            newest = await store.reader.checkpoint()
    except (StoreError, UsageError):
        return None
    return parse_note(newest.encode()).checkpoint.origin if newest else None


@on_host(key.command("rotate"))
def rotate(host: HostApi, as_json: bool) -> None:
    """
    Replace the signing key with a new one.

    The old key signs the first checkpoint of the new one, and is then deleted; its
    signatures stay valid. Running hosts with this state folder switch by themselves.

    \b
    Examples:
      caxton audit key rotate
    """
    document = _key_document(wait(_rotate(host)))
    if as_json:
        show({"$type": "caxton.key/v1", **document})
        return
    for name, value in document.items():
        say(f"{name:<12} {value}")
    note("next: give the new public key to those who verify")


async def _rotate(host: HostApi) -> bytes:
    from ..app.bootstrap import open_signed
    from ..app.maintenance import record_rotation

    with keyring(host).rotating() as rotation:
        state = host.paths().state
        async with open_signed(host.look(*SIGNED), rotation, state) as store:
            await record_rotation(store, rotation, local_actor())
            await store.seal()
        return rotation.public_key()


def notes_in(path: Path) -> list[Note]:
    """Return the checkpoints in a file."""
    from ..core.log.checkpoint import parse_notes

    try:
        return parse_notes(path.read_bytes())
    except BadBytes as exc:
        raise UsageError(
            f"{path}: {exc}", fix="name a file that caxton audit checkpoint wrote"
        ) from None


def _key_document(public_key: bytes, origin: str | None = None) -> dict[str, JSON]:
    from ..core.log.checkpoint import fingerprint

    mark = fingerprint(public_key)
    verifier = Verifier(origin, public_key).text() if origin else None
    return {
        "name": f"caxton-host/{mark[:8]}",
        "fingerprint": mark,
        **({"verifier": verifier} if verifier else {}),
        # Last, where scripts look for it.
        "public_key": public_key.hex(),
    }


@on_host(command.command("erase"))
@click.argument("run")
@click.option("--reason", required=True, help="The reason; recorded.")
@click.option(
    "--keep-file",
    is_flag=True,
    help="Do not rewrite the database file; hosts wait for it.",
)
def erase(
    host: HostApi,
    run: str,
    reason: str,
    keep_file: bool,
    as_json: bool,
) -> None:
    """
    Delete the data of RUN permanently.

    Input, calls, answers, log lines and output are deleted. The envelopes of its
    events stay, with their hashes: the log verifies as before. An event records who
    erased the run and why. Modules and tool definitions stay, since other runs use
    them. A run that has not ended is not erased.

    An SQLite file is then rewritten, so that nothing is left in it; hosts wait for
    that, about a second for 100 MB. PostgreSQL and every backup keep copies of their
    own: see "What a host must keep out of its log" in the docs.

    \b
    Exit codes: 0 erased; 1 erased, but the file may still hold the data; 2 no such
      run, or it has not ended.

    \b
    Examples:
      caxton audit erase 0198 --reason "asked for by the customer, ticket 4711"
    """
    check_text("--reason", [reason])
    erased, is_gone = wait(_erase(host, run, reason, keep_file=keep_file))
    events = counted(erased.events, "event")
    if as_json:
        show(erasure_document(erased, scrubbed=is_gone))
    else:
        say(f"erased the data of {events} of run {erased.run}")
    if not is_gone and not keep_file:
        complain(
            "the database file could not be rewritten and may still contain the data",
            "close what has it open, check that its disk has room, and run: sqlite3 "
            "FILE 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'",
        )
        raise Exit(FAILED)


async def _erase(
    host: HostApi, run: str, reason: str, *, keep_file: bool
) -> tuple[RunErased, bool]:
    from ..app.maintenance import keeping

    async with host.log() as store:  # Do not create a missing database.
        run_id = await store.reader.find_run(run)
    async with keeping(host.look(*SIGNED, guarded=True), host.paths()) as keeper:
        with patience("erasing"):
            erased = await keeper.erase(run_id, reason)
            return erased, not keep_file and await keeper.scrub()
