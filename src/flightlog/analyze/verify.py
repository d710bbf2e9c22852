"""Whether a run is as it was recorded: its files, its headline numbers, its lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.kept import kept_damage
from flightlog.analyze.report.report import keep_report
from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.documents import replace_bytes
from flightlog.store.headline import Headline, decode_headline, headline_bytes, headline_of
from flightlog.store.integrity import note_checksum, verify_files
from flightlog.store.read.events import Completeness
from flightlog.store.read.files import find_parts, read_regular
from flightlog.store.run import Run
from flightlog.store.tables.parquet import move_folder_aside, snapshot_run
from flightlog.store.tables.snapshots import SNAPSHOT, Snapshots
from flightlog.version import __version__


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was checked. `ok` is null where there was nothing to check yet."""

    name: str
    ok: bool | None
    detail: str
    findings: tuple[str, ...] = ()


class Verification(Struct, frozen=True, kw_only=True):
    """All checks of one run."""

    run_id: str
    status: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.ok is not False for check in self.checks)


def verify(run: Run) -> Verification:
    """Compare checksums, count the headline numbers again, and look for lost lines.

    A run that is running has neither checksums nor a summary yet, which is no fault; lines lost so far are.
    """
    reading = run.read()
    headline = headline_of(run, reading)
    lines = _lines(run, run.completeness(reading))
    checks = (_files(run), _summary(run, headline), lines, *_snapshots(run))
    return Verification(run_id=run.run_id, status=run.status, checks=checks)


def repair(run: Run, complete: Callable[[Path], object]) -> tuple[str, ...]:
    """Make again what is damaged and can be made from the lines; gives a sentence for each thing that was
    done.

    That is `summary.json`, the Parquet files and the report that was kept. A run that ended without
    being closed is closed by `complete`. The lines are never changed; what is wrong with them, `verify` says
    afterwards. A run that is running is a `UsageError`. Raises `OSError` or `duckdb.Error` where files cannot
    be read or written.
    """
    if run.status == "running":
        raise UsageError(f"{run.run_id} is running: it can be repaired when it has ended")
    done: list[str] = []
    path = run.path
    if not (path / layout.CHECKSUMS).exists() or (path / layout.SEGMENTS).exists():
        complete(path)
        if (path / layout.CHECKSUMS).exists() and not (path / layout.SEGMENTS).exists():
            # Of a large run no headline numbers are written.
            written = "summary and checksums" if (path / layout.SUMMARY).exists() else "checksums"
            done.append(f"the run was closed: lines put together, {written} written")
    run = Run(path, observer=run.observer)
    headline = headline_of(run)
    others = [found.file for found in verify_files(path) if found.file != layout.SUMMARY]
    if _summary(run, headline).ok is False and not others:
        move_folder_aside(path / layout.SUMMARY)
        replace_bytes(path / layout.SUMMARY, headline_bytes(headline), durable=True)
        note_checksum(path, layout.SUMMARY)
        done.append(f"{layout.SUMMARY} was computed again")
    if any(check.ok is False for check in _snapshots(run)):
        made = snapshot_run(run) if os.path.lexists(path / layout.PARQUET / SNAPSHOT) else {}
        kept = keep_report(run)
        names = [f"{name}.parquet" for name in sorted(made)] + ([layout.KEPT_REPORT] if kept else [])
        done.append(f"{layout.PARQUET}: {', '.join(names) or 'what was damaged'} made again from the lines")
    return tuple(done)


def _files(run: Run) -> Check:
    if run.status == "running":
        return Check(name="files", ok=None, detail="no checksums yet: the run is still running")
    findings = verify_files(run.path)
    if not findings:
        return Check(name="files", ok=True, detail="as they were when the run closed")
    return Check(
        name="files",
        ok=False,
        detail="not as they were when the run closed",
        findings=tuple(f"{found.file} {found.kind}: {found.detail}" for found in findings),
    )


def _snapshots(run: Run) -> Iterator[Check]:
    """Whether what was compacted is as it was written; nothing for a run that was not compacted."""
    folder = run.path / layout.PARQUET
    if not os.path.lexists(folder):
        return
    found = Snapshots(run.path, find_parts(run.path))
    findings = [f"{layout.PARQUET}/{name}.parquet {what}" for name, what in found.damaged().items()]
    if found.problem is not None:
        findings.insert(0, f"{layout.PARQUET}/{found.problem}")
    damage = kept_damage(run)
    if damage is not None:
        findings.append(f"{layout.PARQUET}/{layout.KEPT_REPORT} {damage}")
    if findings:
        command = f"flightlog verify {run.run_id} --repair"
        detail = f"not as they were written: the lines are read instead; `{command}` makes them again"
        yield Check(name=layout.PARQUET, ok=False, detail=detail, findings=tuple(findings))
        return
    if not found.noted:
        return
    current, outdated = len(found.current), len(found.noted.keys() - found.current)
    detail = f"{current:,} snapshots, as they were written" + (
        f"; {outdated:,} out of date, which are not read" if outdated else ""
    )
    yield Check(name=layout.PARQUET, ok=True if current else None, detail=detail)


def _summary(run: Run, headline: Headline) -> Check:
    name = layout.SUMMARY
    try:
        stored = read_regular(run.path / name)
    except FileNotFoundError:
        return Check(name=name, ok=None, detail="not written; a reader counts what it needs")
    except OSError as error:
        return Check(name=name, ok=False, detail=f"cannot be read: {error.strerror or error}")
    if stored == headline_bytes(headline):
        return Check(name=name, ok=True, detail="computed again, byte for byte the same")
    by = run.info.flightlog_version
    version = (
        f"; it was written by Flightlog {by}, this is {__version__}" if by not in {None, __version__} else ""
    )
    found = _differences(stored, headline)
    if not found:
        detail = f"computed again, the same numbers; the file holds more{version}"
        return Check(name=name, ok=True, detail=detail)
    return Check(name=name, ok=False, detail=f"computed again, not the same{version}", findings=found)


def _differences(stored: bytes, headline: Headline) -> tuple[str, ...]:
    """What is not the same in `summary.json` and in what was counted; nothing where the file only holds more
    than headline numbers, as in early recordings.
    """
    try:
        document = msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return (f"not JSON: {error}",)
    if not isinstance(document, dict):
        return ("holds no JSON object",)
    counted = msgspec.json.decode(headline_bytes(headline))
    known = decode_headline(stored)
    before = dict(_numbers({} if known is None else msgspec.json.decode(headline_bytes(known))))
    after = dict(_numbers(counted))
    differ = [
        f"{key} is {_shown(before, key)}, counted {_shown(after, key)}"
        for key in sorted(before.keys() | after.keys())
        if not key.startswith("cost.") and (key not in before or before[key] != after.get(key, _ABSENT))
    ]
    if (left := len(differ) - ReportLimits.max_listed_differences) > 0:
        return (*differ[:-left], f"{left:,} more numbers differ")
    if differ:
        return tuple(differ)
    return () if document.keys() - counted.keys() else ("the same numbers, written differently",)


_ABSENT = object()


def _shown(numbers: Mapping[str, Any], key: str) -> str:
    return msgspec.json.encode(numbers[key]).decode() if key in numbers else "absent"


def _numbers(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What a document holds, by its place: `tasks.completed`."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _lines(run: Run, found: Completeness) -> Check:
    lost, whole = found.lost_lines, found.lines + found.lost_lines
    of = f" of {whole:,}" if lost or found.loss_known else ""
    detail = f"{found.lines:,}{of} read, {found.lost_text}"
    if run.status == "running":
        return Check(name="lines", ok=not lost, detail=f"{detail} so far", findings=found.problems)
    ok = None if not found.problems and not found.loss_known else not found.problems
    return Check(name="lines", ok=ok, detail=detail, findings=found.problems)
