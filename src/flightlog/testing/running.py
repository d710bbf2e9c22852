"""What the contract tests of engines stand on: an engine that runs, a gate that tasks wait at, a run to
record into.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flightlog.engines.contract import Engine, Outcome
from flightlog.record.recording import record
from flightlog.testing.reports import Reported, make_work


class RunningEngine:
    """Makes engines for tests, and ends them."""

    timeout_s = 0.2
    """A timeout that a task which waits at a gate runs over."""
    launches_workers = True
    """Whether the engine launches its workers, and knows how long that took; False where it finds them
    running."""

    def make_engine(self, workers: int) -> Engine:
        """An engine with so many workers at most, of one task at a time each; not started."""
        raise NotImplementedError

    @contextmanager
    def running(self, workers: int = 1, run_path: str | None = None) -> Iterator[tuple[Engine, Reported]]:
        """An engine that has been started, and its reports; closed at the end."""
        engine, reported = self.make_engine(workers), Reported()
        engine.start(run_path, reported)
        try:
            yield engine, reported
        finally:
            engine.close(timeout_s=0.0)

    def outcome_of(self, function: Any, *args: Any, **options: Any) -> Outcome:
        """What becomes of a single attempt."""
        with self.running() as (engine, reported):
            work = make_work(function, *args, **options)
            engine.submit(work)
            return reported.outcome(work)


@contextmanager
def gate(folder: Path) -> Iterator[str]:
    """A named pipe for `tasks.hold`, opened at the end, so that no thread waits there for ever, however late
    it comes.
    """
    name = str(folder / "gate")
    os.mkfifo(name)
    try:
        yield name
    finally:
        fd = os.open(name, os.O_RDWR | os.O_NONBLOCK)  # readers that wait get through, and read the end
        opened = folder / "gate-opened"
        opened.touch()
        opened.replace(name)  # those that come later find an empty file
        os.close(fd)


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[Path, str]]:
    """A run that is being recorded: its folder, as a path and as text."""
    with record("engine", runs_dir=folder / "runs", sample_interval_s=None) as run:
        yield run.path, str(run.path)
