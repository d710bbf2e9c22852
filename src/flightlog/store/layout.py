"""Where everything stands in a run directory, and what its documents hold.

    run-20260520T035200Z-demo-a1b2c3d4/
      run.json  environment.json  recorder.json  summary.json  checksums.json
      manifest.yaml  plan.json  manifest.lock  of a session: what was requested, planned and resolved
      tasks.jsonl  spans.jsonl  …              the process that made the run writes these
      oom/<n>-<time>/                          what was known when a device ran out of memory
      segments/<writer>/                       one folder per writing process, its own included
        writer.json                            who writes, since when, what was lost
        writer.page                            the same counts, memory-mapped: writable on a full disk
        tasks.jsonl  spans-000001.jsonl        lines of a child process; rotated files
        tasks.tail-a  tasks.tail-b             memory-mapped tails: lines not yet in the files
      .followers/                              state of copying the run elsewhere, not part of the run

When a run that has ended is completed, segments are folded into the top-level files and the folder is
removed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from flightlog.events import SCHEMA_VERSION

RUN = "run.json"
ENVIRONMENT = "environment.json"
RECORDER = "recorder.json"
SUMMARY = "summary.json"
CHECKSUMS = "checksums.json"
MANIFEST = "manifest.yaml"
PLAN = "plan.json"
LOCK = "manifest.lock"
WRITER = "writer.json"
PAGE = "writer.page"
SEGMENTS = "segments"
OOM = "oom"
PARQUET = "parquet"
KEPT_REPORT = "report.json"
"""Stands in `parquet/`: the report of a large run, used while no file of the run changes."""
FOLLOWERS = ".followers"
FIRED_ALERTS = "alerts.jsonl"
"""In that folder: the alerts that were sent, one per line."""
ALERTS_KEY = "alerts.key"
"""There, too: random, for hashes of addresses."""

ENDED = frozenset({"completed", "failed", "interrupted", "crashed"})
"""Statuses of a run that is over."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
_RUN_ID = re.compile(r"^run-(\d{8}T\d{6}Z)-.+-[0-9a-f]{8}$")


class WriterInfo(Struct, kw_only=True):
    """One process that writes, or wrote, into a run."""

    writer: str
    pid: int
    host: str
    pid_start: float | None = None
    """Start of the process as the kernel counts it: a later process of the same number is another one."""
    started: str = ""
    heartbeat: str = ""
    closed: bool = False
    died: bool = False
    """Its process ended without closing."""
    counted: bool = False
    """It kept a page: what it recorded and lost is known whatever ended it."""
    unheard: bool = False
    """It recorded where the run directory is not seen, and its end has not come over: what it recorded last
    may be missing."""
    owner: bool = False
    wall_anchor_ns: int = 0
    """Unix time at the writer's monotonic zero: every timestamp of the writer is this plus monotonic time."""
    lines: dict[str, int] = field(default_factory=dict)
    """Numbers given out so far, by stream."""
    lost: dict[str, int] = field(default_factory=dict)
    """Lines that could not be written, by stream."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why, with counts."""
    counts: dict[str, int] = field(default_factory=dict)
    """Other things worth counting: values cleaned, late events, subscriber drops."""
    drain_s: float | None = 0.0
    """Null where only the page tells of the writer, as are the CPU time and the bytes."""
    background_cpu_s: float | None = 0.0
    line_cost_s: float | None = None
    """What recording a span costs the program here, measured once by the recorder itself."""
    bytes: int | None = 0


class RunInfo(Struct, kw_only=True):
    """`run.json`: who, what, when."""

    run_id: str
    project: str
    status: str
    start_time: str
    target: str | None = None
    provider: str | None = None
    end_time: str | None = None
    duration_s: float | None = None
    """Wall time; of a run that lives, up to its last heartbeat."""
    tasks_submitted: int = 0
    tasks_completed: int = 0
    tasks_failed: int = 0
    manifest_hash: str | None = None
    command: list[str] = field(default_factory=list)
    cwd: str | None = None
    host: str = ""
    pid: int = 0
    pid_start: float | None = None
    heartbeat: str | None = None
    python: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    tags: dict[str, Any] = field(default_factory=dict)
    trace_id: str = ""
    span_id: str = ""
    """The run itself as a span: the parent of its outermost spans."""
    parent_id: str | None = None
    """The span this run happened in, where its environment named one or OpenTelemetry had one open."""
    writer: str = ""
    error: str | None = None
    """Why it failed or was interrupted, in a line."""
    exit_code: int | None = None
    signal: str | None = None
    sample_interval_s: float | None = None
    schema_version: int = SCHEMA_VERSION
    flightlog_version: str | None = None
    overhead: dict[str, Any] | None = None
    """What recording cost, in this process; the other processes' figures stand in `recorder.json`."""
    engine_start_s: float | UnsetType = UNSET
    """How long the session took to start its engine, and to end it; not written where there was none."""
    engine_end_s: float | UnsetType = UNSET
    adopted: Adopted | UnsetType = UNSET
    """Where it came from, if another tool recorded it; otherwise not written at all."""
    lines_lost: int | UnsetType = UNSET
    """Lines of the record that are known to be lost; not written where none is. The report has them by
    stream, with reasons."""
    to_complete: bool | UnsetType = UNSET
    """True where the run has ended and is not in its final form yet; otherwise not written at all.

    Its files are then as its processes left them, and all lines are there: see `store/completing.py`.
    """
    to_snapshot: bool | UnsetType = UNSET
    """True where Parquet copies were asked for and whoever completes the run has yet to write them; otherwise
    not written."""


def stream_file(folder: Path, stream: str) -> Path:
    """The file of a stream: of the whole run, or in a writer's folder."""
    return folder / f"{stream}.jsonl"


def rotated_file(folder: Path, stream: str, number: int) -> Path:
    """A file of a stream that grew to its full size and was put aside."""
    return folder / f"{stream}-{number:06d}.jsonl"


def tail_file(folder: Path, stream: str, side: str) -> Path:
    """One of the two memory-mapped tails of a stream, `a` or `b`."""
    return folder / f"{stream}.tail-{side}"


def writer_folder(run: Path, writer: str) -> Path:
    """Where one process keeps its segments."""
    return run / SEGMENTS / writer


def make_run_id(project: str, started: datetime, token: str) -> str:
    """A run's name: when, what, and eight hex digits; safe as a folder's name whatever the project is
    called.
    """
    label = _UNSAFE.sub("-", project).strip("-.")[:64] or "run"
    return f"run-{started.astimezone(UTC):%Y%m%dT%H%M%SZ}-{label}-{token[:8]}"


def is_run_id(name: str) -> bool:
    """Whether a folder's name is that of a run."""
    return _RUN_ID.match(name) is not None


ELAPSED = "elapsed_s"
"""The metric of an adopted task that has the tool's own duration, where that includes waiting."""


class Adopted(Struct, kw_only=True, frozen=True):
    """What became of a recording. Numbers are of lines, records or files, as the words beside them say."""

    kind: str
    """What it was: `scalable`, `rhapsody`, …"""
    title: str
    """The same in words: `Scalable run directory`."""
    source: str
    """The path it was adopted from."""
    digest: str
    """SHA-256 of the recording: the same one is not adopted twice."""
    kept: dict[str, int] = field(default_factory=dict)
    """What stands in the run as the recording had it."""
    mapped: dict[str, int] = field(default_factory=dict)
    """What stands there as something else, and as what."""
    dropped: dict[str, int] = field(default_factory=dict)
    """What no event has a place for, and why."""
    notes: list[str] = field(default_factory=list)
    """What to know before trusting a figure, in sentences."""
    problems: list[str] = field(default_factory=list)
    """What could not be read, in sentences."""


class Adoption(Adopted, kw_only=True, frozen=True):
    """The same, and the run it became."""

    run_id: str
    path: str
    made: bool
    """False where the recording had been adopted before: nothing was changed then."""
    events: dict[str, int] = field(default_factory=dict)
    """Events of the run by kind; empty where nothing was made."""
