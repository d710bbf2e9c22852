"""What is kept up to date beside the streams: the heartbeat, the environment, the choice of samplers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flightlog.record.clock import monotonic_ns
from flightlog.record.environment import Environment, read_environment
from flightlog.record.followers import follower_pids
from flightlog.record.run import LiveRun
from flightlog.record.task import lane_name
from flightlog.samplers import Sampler, installed_samplers
from flightlog.samplers.process import ProcessSampler
from flightlog.store import layout
from flightlog.store.documents import write_document


def save_heartbeat(run: LiveRun, cpu_s: float) -> None:
    """Say in `run.json` and `writer.json` that this process lives, and what it has recorded so far."""
    recorder, info = run.recorder, run.info
    now = recorder.clock.now()
    recorder.files.info.heartbeat = now
    recorder.files.info.counts = {**recorder.counts, **recorder.bus.counts()}
    recorder.files.info.background_cpu_s = cpu_s
    recorder.files.save()
    if not run.owned:
        return
    info.heartbeat = now
    info.duration_s = (monotonic_ns() - run.started_ns) / 1e9
    note_tasks(run)
    save_run(run)


def note_tasks(run: LiveRun) -> None:
    """Put the tasks that this process has recorded so far into `run.info`."""
    info, counts = run.info, run.recorder.counts
    info.tasks_submitted = counts.get("task_submitted", 0)
    info.tasks_completed = counts.get("task_completed", 0)
    info.tasks_failed = counts.get("task_failed", 0)


def save_run(run: LiveRun) -> None:
    """Write `run.json`, in a folder that may have to be made again."""
    _save(run, run.path / layout.RUN, run.info)


def save_environment(run: LiveRun, environment: Environment | None = None) -> None:
    """Write the environment down, once a run; read now unless it is given."""
    environment = environment or read_environment()
    run.info.git_dirty = environment.git_dirty
    run.info.git_commit = environment.git_commit
    _save(run, run.path / layout.ENVIRONMENT, environment)


def make_samplers(run: LiveRun, chosen: Sequence[Sampler] | None) -> Sequence[Sampler]:
    """The samplers of a run: those chosen, else one of each kind that is installed."""
    if chosen is not None:
        return chosen
    found = installed_samplers()
    made: list[Sampler] = []
    for name, kind in found.found.items():
        try:
            if kind is ProcessSampler:
                worker = lane_name(run.recorder.host, os.getpid(), main=True)
                made.append(ProcessSampler(worker=worker, besides=partial(follower_pids, run.path)))
            else:
                made.append(kind())
        except Exception as error:  # noqa: BLE001 - a sampler of somebody else's
            run.recorder.trouble(f"sampler {name}", f"sampler {name} cannot be used: {error!r}")
    for name, problem in found.failed.items():
        run.recorder.trouble(f"sampler {name}", f"sampler {name} cannot be used: {problem}")
    return made


def _save(run: LiveRun, path: Path, document: object) -> None:
    try:
        try:
            write_document(path, document)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_document(path, document)
    except OSError as error:
        reason = error.strerror or str(error)
        run.recorder.trouble(reason, f"cannot write {path}: {reason}")
