"""A large run that was compacted keeps its summary: a report that starts from it says what counting anew
says."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest
from builders.large_runs import EVERY, sealed, spans_of, with_usage
from builders.runs import at
from builders.task_events import completed, failed, started, submitted

from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.analyze.report.summary import cached_summary, keep_summary, summarize
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    events = [submitted("t1"), started("t1", 1.0), completed("t1", 2.0, 1.0, span_id="s1")]
    events += [submitted("t2"), started("t2", 2.0), failed("t2", 2.5, 0.5, span_id="s2"), submitted("t3")]
    spans = spans_of([(10, 5, -1, "a", {"loss": 0.5}, "ok"), (12, 2, 0, "b", {}, "error")])
    made = sealed(tmp_path, [*with_usage(events, 3), *spans], end_time=at(9), duration_s=9.0)
    snapshot_run(made)
    return made


def test_a_report_from_a_kept_summary_is_the_report(run: Run) -> None:
    counted = report_bytes(report_on(run))
    assert keep_summary(run, from_bytes=EVERY)
    assert cached_summary(run) == summarize(run)
    assert report_bytes(report_on(run)) == counted


def test_it_is_kept_once_and_only_of_large_runs(run: Run) -> None:
    assert not keep_summary(run)
    assert cached_summary(run) is None
    assert keep_summary(run, from_bytes=EVERY)
    assert not keep_summary(run, from_bytes=EVERY)


def test_a_run_without_snapshots_keeps_none(tmp_path: Path) -> None:
    run = sealed(tmp_path, [submitted("t1"), completed("t1", 2.0, 1.0)])
    assert not keep_summary(run, from_bytes=EVERY)


@pytest.mark.parametrize("name", ["tasks.jsonl", "run.json", "recorder.json"])
def test_a_changed_file_is_counted_anew(run: Run, name: str) -> None:
    keep_summary(run, from_bytes=EVERY)
    file = run.path / name
    file.write_bytes(file.read_bytes() + b"\n")
    assert cached_summary(Run(run.path)) is None


def test_an_added_file_and_a_missing_snapshot_are_counted_anew(run: Run) -> None:
    keep_summary(run, from_bytes=EVERY)
    added = run.path / "workers.jsonl"
    added.touch()
    assert cached_summary(run) is None
    added.unlink()
    assert cached_summary(run) is not None
    (run.path / "parquet" / "views" / "attempts.parquet").unlink()
    assert cached_summary(run) is None


def test_a_copy_with_other_times_is_recognized_by_its_checksums(run: Run) -> None:
    keep_summary(run, from_bytes=EVERY)
    os.utime(run.path / "tasks.jsonl", ns=(1, 1))
    assert cached_summary(run) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sha256": "00", "kept": {"made_by": "x"}}'])
def test_what_is_no_summary_is_passed_over_and_told_and_made_again(run: Run, text: str) -> None:
    keep_summary(run, from_bytes=EVERY)
    file = run.path / "parquet" / "summary.json"
    kept = file.read_bytes()
    file.write_text(text)
    told: list[str] = []
    again = Run(run.path, note=told.append)
    assert cached_summary(again) is None
    assert [note.partition(": parquet/summary.json is damaged")[0] for note in told] == [run.run_id]
    assert keep_summary(Run(run.path), from_bytes=EVERY)
    assert file.read_bytes() == kept


def test_that_of_a_version_without_checksums_is_passed_over(run: Run) -> None:
    keep_summary(run, from_bytes=EVERY)
    file = run.path / "parquet" / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text())["kept"]))
    assert cached_summary(run) is None


def test_that_of_another_version_is_passed_over(run: Run) -> None:
    keep_summary(run, from_bytes=EVERY)
    file = run.path / "parquet" / "summary.json"
    kept = msgspec.json.encode(json.loads(file.read_text())["kept"] | {"made_by": "another"})
    sealed = {"sha256": hashlib.sha256(kept).hexdigest(), "kept": msgspec.Raw(kept)}
    file.write_bytes(msgspec.json.encode(sealed))
    assert cached_summary(run) is None
