"""The report of a large run is kept beside it: read from there it is the one that a new reading gives, and
it is known to be stale when anything changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.large_runs import EVERY, sealed, spans_of, with_usage
from builders.runs import at
from builders.task_events import completed, failed, started, submitted

import flightlog
from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report import kept, report
from flightlog.analyze.report.report import keep_report, kept_report, report_bytes, report_on
from flightlog.analyze.report.summary import Summary
from flightlog.core.stats import Distribution
from flightlog.events import CostRates
from flightlog.store import layout
from flightlog.store.layout import WriterInfo
from flightlog.store.run import Run
from flightlog.store.write.page import Page


@pytest.fixture
def run(tmp_path: Path) -> Run:
    events = [submitted("t1"), started("t1", 1.0), completed("t1", 2.0, 1.0, span_id="s1")]
    events += [submitted("t2"), started("t2", 2.0), failed("t2", 2.5, 0.5, span_id="s2"), submitted("t3")]
    events += [submitted("t4"), started("t4", 3.0)]
    spans = spans_of([(10, 5, -1, "a", {"loss": 0.5}, "ok"), (12, 2, 0, "b", {}, "error")])
    return sealed(tmp_path, [*with_usage(events, 3), *spans], end_time=at(9), duration_s=9.0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs whose tables were opened for a report."""
    found: list[Path] = []
    opened = report.open_context

    def open_context(run: Run, *args: Any) -> Any:
        found.append(run.path)
        return opened(run, *args)

    monkeypatch.setattr(report, "open_context", open_context)
    return found


@pytest.fixture
def every_report_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReportLimits, "min_kept_report_bytes", 0)


@pytest.mark.usefixtures("every_report_is_kept")
@pytest.mark.parametrize("details", [True, False])
def test_a_kept_report_is_the_report_and_reads_nothing(run: Run, reads: list[Path], details: bool) -> None:
    first = report_on(run, details=details)
    assert reads == [run.path]
    assert report_bytes(report_on(Run(run.path), details=details)) == report_bytes(first)
    assert reads == [run.path]


@pytest.mark.usefixtures("every_report_is_kept")
def test_details_that_were_not_kept_are_read_and_kept_from_then_on(run: Run, reads: list[Path]) -> None:
    brief = report_on(run, details=False)
    whole = report_on(run)
    assert (brief.details, whole.details is None, len(reads)) == (None, False, 2)
    assert report_bytes(report_on(run, details=False)) == report_bytes(brief)
    assert report_bytes(report_on(run)) == report_bytes(whole)
    assert len(reads) == 2


@pytest.mark.usefixtures("every_report_is_kept")
def test_what_is_drawn_is_kept_with_it(run: Run, reads: list[Path]) -> None:
    first = report_with_charts(run)
    assert report_with_charts(Run(run.path)) == first
    assert len(reads) == 1
    assert report_bytes(report_on(run)) == report_bytes(first.report)
    assert len(reads) == 1


@pytest.mark.usefixtures("every_report_is_kept")
def test_earlier_runs_that_tell_what_is_stuck_make_another_report(run: Run, reads: list[Path]) -> None:
    report_on(run)
    usual = Distribution(count=9, p50=0.1, p95=0.2, max=0.3)
    again = report_on(run, history={"sim": usual})
    assert again.in_flight[0].usual is not None
    assert len(reads) == 2


@pytest.mark.usefixtures("every_report_is_kept")
def test_a_report_at_other_rates_is_neither_kept_nor_taken_from_what_was_kept(
    run: Run, reads: list[Path]
) -> None:
    rates = CostRates(currency="EUR", source="test", per_cpu_hour=1.0)
    report_on(run, rates=rates)
    assert kept_report(run) is None
    report_on(run)
    report_on(run, rates=rates)
    assert len(reads) == 3


def test_the_report_of_a_small_run_is_not_kept(run: Run) -> None:
    report_on(run)
    assert not (run.path / "parquet").exists()


@pytest.mark.usefixtures("every_report_is_kept")
def test_nothing_is_kept_of_a_run_that_goes_on(tmp_path: Path) -> None:
    with flightlog.record("trial", runs_dir=tmp_path) as recorded, recorded.task("simulate"):
        report_on(Run(recorded.path))
    assert not (recorded.path / "parquet").exists()


@pytest.mark.usefixtures("every_report_is_kept")
def test_nothing_is_written_through_a_link(run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run.path / "parquet").symlink_to(elsewhere)
    report_on(run)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.usefixtures("every_report_is_kept")
def test_a_run_that_changes_while_it_is_read_is_not_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(context: Any) -> None:
        with (context.run.path / "tasks.jsonl").open("a") as out:
            out.write("\n")

    report.report_and(run, change)
    assert kept_report(Run(run.path)) is None


def test_it_is_made_once_and_only_of_large_runs(run: Run) -> None:
    assert not keep_report(run)
    assert kept_report(run) is None
    assert keep_report(run, from_bytes=EVERY)
    assert kept_report(run) == report_on(run, details=False)
    assert not keep_report(run, from_bytes=EVERY)


@pytest.mark.parametrize("name", ["tasks.jsonl", "spans.jsonl", "run.json", "recorder.json"])
def test_a_changed_file_makes_it_stale(run: Run, name: str) -> None:
    keep_report(run, from_bytes=EVERY)
    file = run.path / name
    file.write_bytes(file.read_bytes() + b"\n")
    assert kept_report(Run(run.path)) is None


def test_a_file_with_other_bytes_of_the_same_number_makes_it_stale(run: Run) -> None:
    keep_report(run, from_bytes=EVERY)
    file = run.path / "tasks.jsonl"
    file.write_bytes(file.read_bytes().replace(b"t1", b"t9"))
    assert kept_report(Run(run.path)) is None


def test_an_added_and_a_missing_file_make_it_stale(run: Run) -> None:
    keep_report(run, from_bytes=EVERY)
    added = run.path / "workers.jsonl"
    added.touch()
    assert kept_report(run) is None
    added.unlink()
    assert kept_report(run) is not None
    (run.path / "spans.jsonl").unlink()
    assert kept_report(run) is None


def test_a_copy_with_other_times_is_recognized_by_its_checksums(run: Run, tmp_path: Path) -> None:
    keep_report(run, from_bytes=EVERY)
    copy = tmp_path / "copies" / run.path.name
    shutil.copytree(run.path, copy)
    os.utime(copy / "tasks.jsonl", ns=(1, 1))
    assert kept_report(Run(copy)) == kept_report(run)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sha256": "00", "kept": {"made_by": "x"}}'])
def test_what_is_no_report_is_passed_over_and_told_and_made_again(run: Run, text: str) -> None:
    keep_report(run, from_bytes=EVERY)
    file = run.path / "parquet" / "report.json"
    before = file.read_bytes()
    file.write_text(text)
    told: list[str] = []
    assert kept_report(Run(run.path, note=told.append)) is None
    assert [note.partition(": parquet/report.json is damaged")[0] for note in told] == [run.run_id]
    assert keep_report(Run(run.path), from_bytes=EVERY)
    assert file.read_bytes() == before


def test_that_of_another_version_is_passed_over(run: Run) -> None:
    keep_report(run, from_bytes=EVERY)
    file = run.path / "parquet" / "report.json"
    encoded = msgspec.json.encode(json.loads(file.read_text())["kept"] | {"made_by": "another"})
    sealed = {"sha256": hashlib.sha256(encoded).hexdigest(), "kept": msgspec.Raw(encoded)}
    file.write_bytes(msgspec.json.encode(sealed))
    assert kept_report(run) is None


def test_what_earlier_versions_kept_is_removed(run: Run) -> None:
    earlier = run.path / "parquet" / "summary.json"
    earlier.parent.mkdir()
    earlier.write_text("{}")
    keep_report(run, from_bytes=EVERY)
    assert not earlier.exists()


@pytest.mark.usefixtures("every_report_is_kept")
@pytest.mark.parametrize("name", [b"out\xff.bin", b"out\xff.jsonl"])
def test_a_name_that_is_not_utf_8_costs_no_report(run: Run, name: bytes) -> None:
    before = report_on(run).tasks
    Path(os.fsdecode(os.fsencode(run.path) + b"/" + name)).write_bytes(b"{}\n")
    assert report_on(Run(run.path)).tasks == before
    assert report_on(Run(run.path)).tasks == before


@pytest.mark.usefixtures("every_report_is_kept")
def test_whatever_stands_in_the_way_of_keeping_it_there_is_a_report(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise RuntimeError

    monkeypatch.setattr(report, "keep", refuse)
    assert report_on(run).tasks.submitted == 4


def test_what_the_page_of_a_dead_process_says_makes_it_stale(run: Run) -> None:
    folder = layout.writer_folder(run.path, "w2")
    folder.mkdir(parents=True)
    info = WriterInfo(writer="w2", pid=77, host="elsewhere", heartbeat=at(3), lines={"spans": 1})
    (folder / layout.WRITER).write_bytes(msgspec.json.encode(info))
    page = Page(folder / layout.PAGE, info)
    page.beat(at(4))
    assert keep_report(Run(run.path), from_bytes=EVERY)
    times = (folder / layout.PAGE).stat()
    page.count("spans", 9, 8)
    os.utime(folder / layout.PAGE, ns=(times.st_atime_ns, times.st_mtime_ns))  # as memory leaves it
    assert kept_report(Run(run.path)) is None


def test_what_a_link_leads_to_makes_it_stale(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    (run.path / "tasks.jsonl").rename(lines)
    (run.path / "tasks.jsonl").symlink_to(lines)
    assert keep_report(Run(run.path), from_bytes=EVERY)
    with lines.open("a") as out:
        out.write("\n")
    assert kept_report(Run(run.path)) is None


@pytest.mark.usefixtures("every_report_is_kept")
def test_a_run_whose_documents_changed_since_it_was_opened_is_not_kept(run: Run) -> None:
    file = run.path / layout.RUN
    info = json.loads(file.read_bytes())
    file.write_bytes(msgspec.json.encode(info | {"duration_s": 4.5}))
    assert report_on(run).run.duration_s == info["duration_s"]
    assert not keep_report(run, from_bytes=EVERY)
    assert report_on(Run(run.path)).run.duration_s == 4.5


def test_lines_that_were_damaged_when_it_was_made_and_repaired_since_make_it_stale(run: Run) -> None:
    file = run.path / "tasks.jsonl"
    whole, closed = file.read_bytes(), file.stat()
    file.write_bytes(whole.replace(b'"duration_s":1.0', b'"duration_s":9.0'))
    os.utime(file, ns=(1, closed.st_mtime_ns - 1))  # before the checksums were noted
    assert keep_report(run, from_bytes=EVERY)
    file.write_bytes(whole)
    assert kept_report(Run(run.path)) is None


def test_the_size_of_lines_decides_and_other_files_do_not_count(run: Run) -> None:
    artifact = run.path / "weights.bin"
    artifact.write_bytes(bytes(1 << 20))
    assert not keep_report(run, from_bytes=1 << 20)
    assert keep_report(run, from_bytes=EVERY)
    artifact.write_bytes(b"")
    assert kept_report(Run(run.path)) is not None


def test_that_of_other_sources_of_the_same_version_is_passed_over(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_report(run, from_bytes=EVERY)
    monkeypatch.setattr(kept, "_sources_digest", lambda: b"others")
    assert kept_report(run) is None


@pytest.mark.usefixtures("every_report_is_kept")
def test_what_closures_of_one_name_give_is_not_mixed_up(run: Run) -> None:
    def named(name: str) -> Callable[[Any], Summary]:
        def give(context: Any) -> Summary:
            run = msgspec.structs.replace(context.summary.run, run_id=name)
            changed: Summary = msgspec.structs.replace(context.summary, run=run)
            return changed

        return give

    assert [report.report_and(run, named(name))[1].run.run_id for name in ("a", "b")] == ["a", "b"]
