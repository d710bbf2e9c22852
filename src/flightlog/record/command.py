"""`flightlog run`: any command, in any language, recorded as a run of one task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.record.child import Child, Ended, Inbox, NotStarted, become, hold_streams
from flightlog.record.command_record import CommandRecord, TreeSampler
from flightlog.record.joining import COMMAND
from flightlog.record.recording import record
from flightlog.samplers.cgroup import CgroupSampler
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.host import HostSampler
from flightlog.settings import read_settings


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
) -> CommandResult:
    """Run a command and record it. Its output, its input, its signals and its exit code are as without recording.

    For the main thread of a process that does nothing else. Where recording is switched off, this process becomes
    the command, and comes back only if that is impossible. Whatever is wrong with recording, the command runs.
    """
    closed = hold_streams()
    if not read_settings().enabled:
        problem = become(argv)
        return CommandResult(problem.code, None, str(problem))
    name = os.path.basename(argv[0]) or argv[0]  # noqa: PTH119 - a word of the command line, not a path of ours
    tree = TreeSampler()
    with Inbox() as inbox:
        recording = record(
            project or name, runs_dir=runs_dir, tags=tags, sample_interval_s=sample_interval_s,
            samplers=[CgroupSampler(), GpuSampler(), HostSampler(), tree], provider=COMMAND, target="local",
        )  # fmt: skip
        with recording as run:
            told = CommandRecord(run, name, argv, tree)
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


def _verdict(ended: Ended) -> tuple[str, str | None]:
    """The run's status, and its error in a line."""
    if ended.interrupted_by is not None:
        return "interrupted", ended.interrupted_by
    if ended.status == 0:
        return "completed", None
    return "failed", ended.signal or f"exit code {ended.status}"
