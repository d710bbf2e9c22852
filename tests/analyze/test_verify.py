"""Whether a run is as it was recorded, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.runs import make_run
from builders.task_events import completed, failed, started, submitted

from flightlog.analyze.report.summary import summarize
from flightlog.analyze.verify import verify
from flightlog.events import Event
from flightlog.store import layout
from flightlog.store.completing import open_run
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run


def some_events() -> list[Event]:
    return [
        submitted("a", seed=1),
        started("a", 1),
        completed("a", 3.3, 2.1),
        submitted("b", seed=2),
        failed("b", 2.7, 1.7, "w2"),
        submitted("c"),
        started("c", 4),
    ]


def closed_run(tmp_path: Path, **info: object) -> Path:
    path = make_run(tmp_path, some_events(), **info)
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    write_checksums(path)
    return path


def test_a_run_that_is_whole_verifies(tmp_path: Path) -> None:
    result = verify(open_run(closed_run(tmp_path)))
    assert result.ok
    assert [(check.name, check.ok) for check in result.checks] == [
        ("files", True),
        ("summary.json", True),
        ("lines", True),
    ]


def test_a_lost_line_fails_all_three_checks_and_is_named(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    tasks = path / "tasks.jsonl"
    lines = tasks.read_bytes().splitlines(keepends=True)
    tasks.write_bytes(b"".join(lines[:2] + lines[3:]))
    files, summary, found = verify(open_run(path)).checks
    assert (files.ok, summary.ok, found.ok) == (False, False, False)
    assert "tasks.jsonl changed" in files.findings[0]
    assert summary.findings[:2] == (
        "completeness.lost.tasks is absent, counted 1",
        "tasks.by_name.sim.completed is 1, counted 0",
    )
    assert found.findings == ("tasks: 1 line of writer w0000001 lost: no. 2",)


def test_a_summary_that_was_changed_is_found_by_what_differs(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    file = path / layout.SUMMARY
    file.write_bytes(file.read_bytes().replace(b'"submitted": 3', b'"submitted": 4'))
    _, summary, _ = verify(open_run(path)).checks
    assert (summary.ok, summary.findings) == (
        False,
        (
            "tasks.by_name.sim.submitted is 4, counted 3",
            "tasks.submitted is 4, counted 3",
        ),
    )


def test_a_run_too_large_to_have_a_summary_is_not_wrong(tmp_path: Path) -> None:
    path = make_run(tmp_path, some_events())
    write_checksums(path)
    result = verify(open_run(path))
    assert result.ok
    assert result.checks[1].ok is None


def test_a_summary_of_an_early_recording_that_holds_a_whole_report_verifies(tmp_path: Path) -> None:
    path = make_run(tmp_path, some_events())
    (path / layout.SUMMARY).write_bytes(msgspec.json.encode(summarize(Run(path))))
    write_checksums(path)
    _, summary, _ = verify(open_run(path)).checks
    assert (summary.ok, summary.findings) == (True, ())
    assert summary.detail == "computed again, the same numbers; the file holds more"


def test_of_many_numbers_that_differ_the_first_are_named(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    (path / layout.SUMMARY).write_bytes(b"{}")
    _, summary, _ = verify(open_run(path)).checks
    assert (summary.ok, summary.findings[0]) == (False, "cache.bypassed is null, counted 0")
    assert (len(summary.findings), summary.findings[-1].endswith(" more numbers differ")) == (9, True)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"\xff"])
def test_a_summary_that_is_none_is_said(tmp_path: Path, data: bytes) -> None:
    path = closed_run(tmp_path)
    (path / layout.SUMMARY).write_bytes(data)
    _, summary, _ = verify(open_run(path)).checks
    assert (summary.ok, len(summary.findings)) == (False, 1)
