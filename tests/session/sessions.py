"""Sessions for tests: a small manifest, two local processes, no sampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flightlog.analyze.report.summary import Summary, summarize
from flightlog.events import Event
from flightlog.session.session import Session
from flightlog.store.run import Run

HEAD = "version: 1\nproject:\n  name: trial\n"
PROCESSES = "targets:\n  local:\n    provider: local\n    max_workers: 2\n"
THREADS = PROCESSES + "    processes: false\n"


def session_in(
    folder: Path, more: str = "", *, where: str = PROCESSES, project: str = "", **options: Any
) -> Session:
    """A session of a manifest that is written into the folder, recorded there."""
    manifest = folder / "flightlog.yaml"
    manifest.write_text(HEAD + project + where + more)
    return Session.from_yaml(
        manifest, **{"runs_dir": folder / "runs", "sample_interval_s": None, "target": "local", **options}
    )


def run_of(session: Session) -> Run:
    """The run that a session left."""
    return Run(session.path)


def events_of(session: Session, stream: str, kind: type[Event]) -> list[Any]:
    """Its events of one kind, in the order of the file."""
    return [event for event in run_of(session).events(stream) if isinstance(event, kind)]


def counts(summary: Summary) -> dict[str, int]:
    """How the tasks of a run stand; zeros are left out."""
    names = ("submitted", "completed", "failed", "cancelled", "retried", "running", "pending")
    return {name: getattr(summary.tasks, name) for name in names if getattr(summary.tasks, name)}


def summary_of(session: Session) -> Summary:
    """The summary of the run that a session left."""
    return summarize(run_of(session))
