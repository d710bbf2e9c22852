"""`flightlog run`: any command, in any language, recorded as a run of one task; an array of Slurm as one
run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.core.settings import read_settings
from flightlog.events import CostRates
from flightlog.record.child import Child, Ended, Inbox, NotStarted, become, hold_streams
from flightlog.record.command_record import CommandRecord, TreeSampler
from flightlog.record.costs import WorkerCosts
from flightlog.record.joining import COMMAND
from flightlog.record.recording import Recording, record
from flightlog.record.slurm_job import job_here
from flightlog.samplers import Sampler
from flightlog.samplers.cgroup import CgroupSampler
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.host import HostSampler

if TYPE_CHECKING:
    from flightlog.record.array_run import Element

log = logging.getLogger("flightlog")


class CommandResult(Struct, frozen=True):
    """What became of a command."""

    code: int
    """Its exit code; 128 and the signal's number if one ended it; 126 or 127 if it could not be started."""
    run_id: str | None
    """The run it was recorded in, if it was."""
    message: str | None = None
    """Why it could not be started."""


def run_command(
    argv: Sequence[str],
    *,
    project: str | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    tags: Mapping[str, Any] | None = None,
    sample_interval_s: float | None = 1.0,
    rates: CostRates | None = None,
) -> CommandResult:
    """Run a command and record it. Its output, its input, its signals and its exit code are as without
    recording.

    `rates` are what its time costs.

    For the main thread of a process that does nothing else. Where recording is switched off, this process
    becomes the command, and comes back only if that is impossible. Whatever is wrong with recording, the
    command runs.
    """
    closed = hold_streams()
    if not read_settings().enabled:
        problem = become(argv)
        return CommandResult(problem.code, None, str(problem))
    name = os.path.basename(argv[0]) or argv[0]  # noqa: PTH119 - a word of the command line, not a path of ours
    tree = TreeSampler()
    with Inbox() as inbox:
        recording = _recording(argv, project or name, runs_dir, tags or {}, sample_interval_s, tree)
        with recording as run:
            told = CommandRecord(run, name, argv, tree, WorkerCosts(rates))
            told.submitted()
            try:
                child = Child(argv, {**os.environ, **told.place()}, closed)
            except NotStarted as problem:
                told.not_started(problem)
                recording.conclude("failed", str(problem))
                return CommandResult(problem.code, run.run_id or None, str(problem))
            told.started(child)
            ended = child.wait(inbox, told.look)
            tails = {stream: passage.tail for stream, passage in child.passages.items()}
            told.ended(ended, tails, child.unseen)
            recording.conclude(*_verdict(ended))
            return CommandResult(ended.code, run.run_id or None)


def _recording(
    argv: Sequence[str],
    project: str,
    runs_dir: str | os.PathLike[str] | None,
    tags: Mapping[str, Any],
    interval_s: float | None,
    tree: TreeSampler,
) -> Recording | Element:
    """A run of the command's own; in an element of a Slurm array, the run of the whole array."""
    samplers: list[Sampler] = [CgroupSampler(), GpuSampler(), HostSampler(), tree]
    settings, job = read_settings(), job_here()
    if job is not None and job.array_job_id is not None and settings.run is None:
        from flightlog.record.array_run import begin_element

        folder = Path(runs_dir) if runs_dir is not None else settings.runs_dir
        try:
            return begin_element(
                job,
                settings,
                folder,
                project=project,
                argv=argv,
                tags=tags,
                interval_s=interval_s,
                samplers=samplers,
            )
        except Exception as error:  # noqa: BLE001 - the command runs, whatever is wrong with the run of its array
            why = f"the run of array {job.array_job_id} cannot be had ({error})"
            log.warning("%s: this element is recorded as a run of its own", why)
    return record(
        project,
        runs_dir=runs_dir,
        tags=tags,
        sample_interval_s=interval_s,
        samplers=samplers,
        provider=COMMAND,
        target="local",
    )


def _verdict(ended: Ended) -> tuple[str, str | None]:
    """The run's status, and its error in a line."""
    if ended.interrupted_by is not None:
        return "interrupted", ended.interrupted_by
    if ended.status == 0:
        return "completed", None
    return "failed", ended.signal or f"exit code {ended.status}"
