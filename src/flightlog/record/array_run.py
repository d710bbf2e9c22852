"""A Slurm array as one run: every element that records joins the run of its array, and the last to end ends
it.

Elements find each other in the folder of runs, which all of them must see: `.array-<digest of cluster and
array>-<n>` holds the run's name. Who makes that file, which only one can, makes the run. No process owns it:
`run.json` names no process, and the elements keep its heartbeat fresh, so that it counts as crashed a minute
after the last has vanished without having been the last. Each element that ends leaves its number in
`ended/`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flightlog.core.errors import FlightlogError
from flightlog.core.redaction import redact_command, redact_text
from flightlog.core.settings import Settings
from flightlog.core.threads import sleep
from flightlog.events import JobStarted, TaskCancelled, TaskEnded, TaskFailed
from flightlog.record.background import Sampling, Ticker, make_samplers, save_environment
from flightlog.record.context import deactivate
from flightlog.record.environment import read_identity
from flightlog.record.followers import finish_followers, start_asked
from flightlog.record.joining import COMMAND, join, leave_run
from flightlog.record.limits import RecordLimits
from flightlog.record.run import LiveRun
from flightlog.record.values import clean
from flightlog.samplers import Sampler
from flightlog.store import layout
from flightlog.store.completing import complete
from flightlog.store.documents import read_document, write_document
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import unix_time
from flightlog.store.run import Run
from flightlog.store.write.finalize import finalizing
from flightlog.store.write.writer import new_token
from flightlog.version import __version__

ENDED = "ended"
ALL = "all"
"""Stands in `ended/` for all elements, once all have ended: one that comes again is the last each time."""
TAG = "slurm_array_job_id"
"""The tag that names the array of a run."""
BEAT_S = StoreLimits.heartbeat_timeout_s / 3
"""How old the run's heartbeat may become before an element renews it."""


class ArrayElement:
    """One element's part in the run of its array, from its start to its end. Nothing here raises but
    `begin_element`.
    """

    def __init__(
        self,
        run: LiveRun,
        job: JobStarted,
        settings: Settings,
        interval_s: float | None,
        samplers: Sequence[Sampler],
    ) -> None:
        self.run, self._job, self._settings = run, job, settings
        self._done = False
        self._pulse = Ticker("flightlog-array", BEAT_S / 2, self._beat, run.recorder.trouble)
        self._sampling = (
            Sampling(lambda: make_samplers(run, samplers), interval_s, run.emit, run.recorder.trouble)
            if interval_s is not None
            else None
        )

    def __enter__(self) -> LiveRun:
        return self.run

    def __exit__(self, *_: object) -> None:
        self.conclude("", None)

    # The run's own end is all elements'.
    def conclude(self, status: str, error: str | None) -> None:  # noqa: ARG002
        """End this element's part; the run is over, too, if it was the last."""
        if self._done:
            return
        self._done = True
        run = self.run
        try:
            if self._sampling is not None:
                self._sampling.stop()
            self._pulse.stop()
            if not (run.path / layout.ENVIRONMENT).exists():
                save_environment(run)
            leave_run(run.path)
            deactivate(run)
            finish(run.path, self._job, self._settings)
        # The command has its own end, whatever recording it meets.
        except Exception as problem:  # noqa: BLE001
            run.recorder.trouble("close", f"the element could not be closed in good order: {problem!r}")

    def _beat(self) -> None:
        """Renew the run's heartbeat where no other element has."""
        file = self.run.path / layout.RUN
        info = read_document(file, layout.RunInfo).value
        if info is None or info.status in layout.ENDED:
            return
        now, beat = time.time(), unix_time(info.heartbeat)
        if beat is None or now - beat > BEAT_S / 2:
            info.heartbeat = self.run.recorder.clock.now()
            write_document(file, info)


def begin_element(
    job: JobStarted,
    settings: Settings,
    runs_dir: Path,
    project: str,
    argv: Sequence[str],
    tags: Mapping[str, Any],
    interval_s: float | None,
    samplers: Sequence[Sampler],
) -> ArrayElement:
    """Join the run of an array, or make it; raises OSError or `FlightlogError` where neither can be done."""
    project = redact_text(project)

    def make(run_id: str, started: datetime) -> layout.RunInfo:
        identity = read_identity()
        now = started.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return layout.RunInfo(
            run_id=run_id,
            project=project,
            status="running",
            start_time=now,
            heartbeat=now,
            target="slurm",
            provider=COMMAND,
            command=clean({"command": redact_command(argv)})[0]["command"],
            cwd=identity.cwd,
            python=identity.python,
            git_commit=identity.git_commit,
            host=f"slurm:{job.cluster}" if job.cluster else "slurm",
            tags=clean({**dict(tags), TAG: job.array_job_id})[0],
            trace_id=os.urandom(16).hex(),
            span_id=os.urandom(8).hex(),
            sample_interval_s=interval_s,
            flightlog_version=__version__,
        )

    # Resolve() follows links.
    path = find_or_make(Path(os.path.abspath(runs_dir)), job, project, make)  # noqa: PTH100
    _open_again(path)
    run = join(path)
    if run is None:
        raise FlightlogError(f"the run of array {job.array_job_id} at {path} cannot be joined")
    return ArrayElement(run, job, settings, interval_s, samplers)


def array_of(info: layout.RunInfo) -> str | None:
    """The array that a run is of as a whole; None for all other runs."""
    found = info.tags.get(TAG)
    return found if isinstance(found, str) and info.pid == 0 else None


def find_or_make(
    runs_dir: Path, job: JobStarted, project: str, make: Callable[[str, datetime], layout.RunInfo]
) -> Path:
    """The run of an array: that which another element has made, or a new one if there is none."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"slurm\n{job.cluster or ''}\n{job.array_job_id}".encode()).hexdigest()[:16]
    number = 0
    while True:
        number += 1
        started = datetime.now(UTC)
        mine = layout.make_run_id(project, started, new_token())
        pointer = runs_dir / f".array-{key}-{number}"
        name = _claim(pointer, mine)
        path = runs_dir / name
        if name == mine:
            path.mkdir()
            write_document(path / layout.RUN, make(mine, started))
            return path
        # Its maker may still be at work, by the clock of the folder's server, or nearly so.
        is_fresh = time.time() - pointer.stat().st_mtime < 6 * RecordLimits.array_run_wait_s
        info = _wait_for(path, make, RecordLimits.array_run_wait_s if is_fresh else 0.0)
        ended = unix_time(info.end_time) if info is not None and info.status in layout.ENDED else None
        if info is not None and (ended is None or time.time() - ended < RecordLimits.stale_array_age_s):
            return path


def _claim(pointer: Path, run_id: str) -> str:
    """The run that the pointer names: this one, if there was no pointer. A link is made by one process alone,
    on NFS too.
    """
    fresh = pointer.with_name(f"{pointer.name}.{new_token()}")
    fresh.write_text(run_id, encoding="ascii")
    try:
        os.link(fresh, pointer)
    except FileExistsError:
        found = pointer.read_text(encoding="ascii", errors="replace").strip()
        return found if layout.is_run_id(found) else ""
    finally:
        fresh.unlink()
    return run_id


def _wait_for(
    path: Path, make: Callable[[str, datetime], layout.RunInfo], patience_s: float
) -> layout.RunInfo | None:
    """The run's document, which another element is about to write; one that has died before is stood in for.

    None where the run was removed since: its array is another one.
    """
    deadline = time.monotonic() + patience_s
    while True:
        info = read_document(path / layout.RUN, layout.RunInfo).value
        if info is not None or not layout.is_run_id(path.name):
            return info
        if time.monotonic() >= deadline:
            if not path.exists():
                return None
            write_document(path / layout.RUN, make(path.name, datetime.now(UTC)))
            return read_document(path / layout.RUN, layout.RunInfo).value
        sleep(0.05)


def _open_again(path: Path) -> None:
    """A run that ended goes on: an element was put back into the queue, or runs a second command."""
    with finalizing(path, wait_s=RecordLimits.array_run_wait_s):
        info = read_document(path / layout.RUN, layout.RunInfo).value
        if info is not None and info.status in layout.ENDED:
            info.status, info.end_time, info.error = "running", None, None
            info.heartbeat = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            write_document(path / layout.RUN, info)


def finish(path: Path, job: JobStarted, settings: Settings) -> None:
    """Note that an element has ended, and end the run if all have. Raises OSError."""
    ended = path / ENDED
    ended.mkdir(exist_ok=True)
    (ended / str(job.array_index)).touch()
    noted = {entry.name for entry in ended.iterdir()}
    if job.array_size is None or (ALL not in noted and len(noted) < job.array_size):
        return
    with finalizing(path, wait_s=RecordLimits.array_run_wait_s):
        run = Run(path)
        verdict = _verdict(run)
        if verdict is None or run.info.status in layout.ENDED:
            return
        info = run.info
        info.status, info.error = verdict
        info.end_time = info.heartbeat = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        info.duration_s = max(0.0, (unix_time(info.end_time) or 0.0) - (unix_time(info.start_time) or 0.0))
        write_document(path / layout.RUN, info)
        (ended / ALL).touch()
        for name in noted - {ALL}:
            (ended / name).unlink(missing_ok=True)
    complete(path, settings)
    start_asked(path, settings)  # not earlier: the job of an element ends with all that it started
    finish_followers(path, settings.followers_wait_s)


def _verdict(run: Run) -> tuple[str, str | None] | None:
    """Status and error by the ends of all tasks; None while one has none."""
    begun: set[str] = set()
    over: set[str] = set()
    failed = cancelled = 0
    for event in run.events("tasks"):
        task_id = getattr(event, "task_id", None)
        if task_id is None:
            continue
        begun.add(task_id)
        if isinstance(event, TaskEnded):
            over.add(task_id)
            failed += isinstance(event, TaskFailed)
            cancelled += isinstance(event, TaskCancelled)
    if begun - over:
        return None
    if failed:
        return "failed", f"{failed} of {len(begun)} tasks failed"
    if cancelled:
        return "interrupted", f"{cancelled} of {len(begun)} tasks were cancelled"
    return "completed", None
