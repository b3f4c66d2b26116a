"""``caxton runs sample`` and ``replace``: the golden runs of a project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.analysis.sampling import TYPES, Courses, Sample, sample
from ..core.log.diff import diff, first_difference
from ..core.log.runs import GOING_ON, RunFilter, RunRow
from ..core.names import run_of, stream_of
from ..errors import UsageError
from ..runs.recording import Recording
from .approval_prompt import can_ask
from .context import SIGNED, HostApi, on_host, wait
from .differences import tell_diff
from .options import of_list
from .output import (
    AUDIT,
    FAILED,
    counted,
    note,
    patience,
    plain,
    say,
    show,
    table,
)
from .verdict import believe

if TYPE_CHECKING:
    from ..core.log.bundle import Bundle

_PAGE = 1000


@on_host(click.command("sample"))
@of_list
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the bundles.",
)
@click.option(
    "--most",
    default=200,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Keep at most this many runs.",
)
@click.option("--code", is_flag=True, help="Include modules and programs.")
def sample_(
    host: HostApi,
    output: Path,
    most: int,
    *,
    code: bool,
    as_json: bool,
    **only: Any,  # noqa: ANN401 -- the fields of a filter
) -> None:
    """
    Export a few runs that stand for all.

    Runs of an agent with the same sequence of tools, outcomes and end count as one,
    and the newest of them is kept: first those with a tool, outcome, denial or end
    that no other kept run has, then those that stand for most runs. The same log
    gives the same sample. Bundles that the folder has stay.

    Left out are runs that have not ended, were erased, or have an answer that the
    log keeps as a digest. The bundles have no modules and programs: the project
    that tests them has its own. With --code they can be replayed anywhere.

    \b
    Exit codes: 0 written; 2 no such run.

    \b
    Examples:
      caxton runs sample -o golden
      caxton runs sample --agent weather --since 30d --most 50 -o golden --json
    """
    with patience("reading runs"):
        found, left_out = wait(_sampled(host, RunFilter(**only), most))
    if not found.runs:
        raise UsageError(
            "no run that was selected can be executed again",
            fix="caxton runs list, with the same filter, shows what there is",
        )
    before = {*output.glob("*")}
    with patience("exporting"):
        names = wait(_export(host, found.runs, output, code=code))
    written = len({output / name for name in names} - before)
    if as_json:
        show({**found.to_document(), "left_out": left_out, "written": written})
        return
    table(("of", "kept", "all"), ((k, *part) for k, part in found.coverage.items()))
    say(f"{counted(len(found.runs), 'run')} in {output}, of which {written} new")
    if left_out:
        note(f"left out: {counted(left_out, 'run')}, which cannot be executed")
    note(f"next: pytest --caxton-history={output}")


async def _sampled(host: HostApi, only: RunFilter, most: int) -> tuple[Sample, int]:
    """Return the sample, and how many runs are left out."""
    rows, courses = dict[str, RunRow](), Courses()
    async with host.log() as store:
        before = None
        while page := await store.reader.runs(_PAGE, only, before=before):
            before = page[-1].started_at, page[-1].run_id
            rows.update((row.run_id, row) for row in page)
        async for recorded in store.reader.of_runs(TYPES, only):
            if run_of(recorded.stream) in rows:
                courses.take(recorded)
    known = {
        run_id: course
        for run_id, row in rows.items()
        if row.state not in GOING_ON and (course := courses.of(row, stream_of(run_id)))
    }
    return sample(known, most), len(rows) - len(known)


async def _export(
    host: HostApi, runs: Sequence[str], folder: Path, *, code: bool
) -> list[str]:
    """Write the bundles that are not there, and return the names of all."""
    from ..app.maintenance import keeping

    async with keeping(host.look(*SIGNED), host.paths()) as keeper:
        archive = await keeper.archive(folder, code=code)
        return [str((await archive.bundle(one))["name"]) for one in runs]


@on_host(click.command("replace"))
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def replace(
    ctx: click.Context,
    host: HostApi,
    bundle: Path,
    run: str,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """
    Replace the golden run in BUNDLE by RUN, after a review.

    Shows how RUN differs from the run in BUNDLE, and asks. The new file is beside the
    old one, by the id of its run. A recording is of what happened: an agent that
    changed has to run again, on its tools.

    \b
    Exit codes: 0 replaced; 1 not replaced; 2 no such run, or one of another agent;
      5 the bundle is broken, or not signed by a trusted key.

    \b
    Examples:
      caxton runs replace golden/0198c1d2.caxton @last
    """
    if (believed := believe(host, bundle, ())) is None:
        ctx.exit(AUDIT)
    run_id, old, new = wait(_both(host, believed, run))
    if old.started.agent != new.started.agent:
        raise UsageError(
            f"{bundle} has a run of {old.started.agent}, and {run_id} is one of "
            f"{new.started.agent}",
            fix="name a run of the same agent",
        )
    found = diff(old.history, new.history)
    if not as_json:
        if other := first_difference(old.started.input, new.started.input):
            path, was, now = map(plain, other)
            note(f"warning: the input differs, {path}: {was} became {now}")
        tell_diff(found)
    if not yes and (as_json or not can_ask()):
        raise UsageError("nobody can be asked here", fix="review it, then add --yes")
    if not yes and not click.confirm("Replace it?", err=True):
        ctx.exit(FAILED)
    code = old.started.module_sha256 in believed.blobs
    (name,) = wait(_export(host, [run_id], bundle.parent, code=code))
    if name != bundle.name:
        bundle.unlink()
    path = str(bundle.with_name(name))
    if as_json:
        difference = found.to_document()
        show({"$type": "caxton.replaced/v1", "path": path, "difference": difference})
    else:
        say(path)


async def _both(
    host: HostApi, bundle: Bundle, run: str
) -> tuple[str, Recording, Recording]:
    from ..store.bundle_store import BundleStore

    old = await Recording.load(bundle.header.run, BundleStore(bundle))
    async with host.log() as store:
        run_id = await store.reader.find_run(run)
        return run_id, old, await Recording.load(run_id, store.reader)
