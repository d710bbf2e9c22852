"""The plots of a report in a terminal, and that a pipe gets none."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.charts.report_with_charts import (
    Overview,
    OverviewDurations,
    overview_of,
)
from flightlog.analyze.report.report import report_and
from flightlog.cli.main import main
from flightlog.events import Event, ResourceSample, TaskCompleted, TaskStarted, TaskSubmitted
from flightlog.show.plot import report_plots
from flightlog.show.terminal import ascii_text, width_of
from flightlog.store.run import Run


def task(number: int, name: str = "sim", *, duration_s: float = 2.0) -> list[Event]:
    start = float(number)
    same = {"task": name, "task_id": f"{name}-{number}"}
    return [
        TaskSubmitted(timestamp=at(start), args={}, **same),
        TaskStarted(timestamp=at(start), worker="w1", queue_s=0.0, **same),
        TaskCompleted(timestamp=at(start + duration_s), args={}, worker="w1", duration_s=duration_s, **same),
    ]


def sample(second: float, host: str, cpu: float | None, used: int | None) -> ResourceSample:
    return ResourceSample(
        timestamp=at(second),
        scope="node",
        host=host,
        cpu_percent=cpu,
        memory_used_bytes=used,
        memory_total_bytes=1000,
    )


def events() -> list[Event]:
    found = [event for number in range(8) for event in task(number)]
    found += task(1, "reduce", duration_s=0.05)
    for second in range(1, 10):
        found += [sample(second, "a", 10.0 * second, 100 * second), sample(second, "b", 50.0, 500)]
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(make_run(tmp_path / "runs", events()))


def glance(run: Run) -> Overview:
    return report_and(run, overview_of, details=False)[1]


def test_machines_are_a_line_each_and_durations_are_counted_in_bins(run: Run) -> None:
    found = glance(run)
    assert found.cpu is not None
    assert found.memory is not None
    assert [(one.label, one.value) for one in found.cpu.series] == [
        ("a", [10.0 * second for second in range(1, 10)]),
        ("b", [50.0] * 9),
    ]
    assert [(one.label, max(one.value), one.limit) for one in found.memory.series] == [
        ("a", 900, 1000),
        ("b", 500, 1000),
    ]
    assert isinstance(found.durations, OverviewDurations)
    assert {name: sum(counts) for name, counts in found.durations.counts.items()} == {"sim": 8, "reduce": 1}
    assert found.durations.edges_s[0] <= 0.05 < 2.0 <= found.durations.edges_s[-1]


def test_a_run_without_samples_and_tasks_has_nothing_to_plot(tmp_path: Path) -> None:
    empty = Run(make_run(tmp_path / "runs"))
    report, found = report_and(empty, overview_of, details=False)
    assert found == Overview(cpu=None, memory=None, durations=None)
    assert report_plots(report, found, width=100) == []


def test_the_plots_say_what_they_show_in_ascii_too(run: Run) -> None:
    report, found = report_and(run, overview_of, details=False)
    rows = report_plots(report, found, width=80)
    text = ascii_text("\n".join(rows))
    assert text.isascii()
    assert len(rows) == 13
    assert max(map(width_of, rows)) <= 80
    titles = [
        "Concurrency: mean 1.6, peak 3",
        "How long tasks took (logarithmic)",
        "CPU of 2 machines: mean 50%, peak 90%",
        "Memory: peak 1.4 KiB in all",
    ]
    assert [title for title in titles if title not in text] == [], text


def test_in_a_narrow_terminal_titles_are_shorter_and_not_cut(run: Run) -> None:
    report, found = report_and(run, overview_of, details=False)
    rows = report_plots(report, found, width=60)
    assert max(map(width_of, rows)) <= 60
    assert [rows[0].split("   ")[0], rows[0].split("   ")[-1].strip()] == [
        "Running: mean 1.6, peak 3",
        "How long tasks took",
    ]
    assert [part.strip() for part in rows[7].split("   ")] == [
        "CPU: mean 50%, peak 90%",
        "",
        "Memory: peak 1.4 KiB in all",
    ]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, *args: str, terminal: bool = True) -> str:
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", *args]) == 0
    return out.getvalue()


def test_a_terminal_gets_plots_and_a_pipe_gets_none(run: Run, monkeypatch) -> None:
    path = str(run.path)
    drawn, plain = printed(monkeypatch, path), printed(monkeypatch, path, terminal=False)
    assert "Concurrency: mean 1.6, peak 3" in drawn
    assert "How long tasks took" not in plain
    assert printed(monkeypatch, path, "--no-plots") == plain
    assert printed(monkeypatch, path, "--plots", terminal=False).count("How long tasks took") == 1
    said = [line for line in plain.splitlines() if line]
    assert [line for line in drawn.splitlines() if line in said] == said


def test_a_section_alone_has_no_plots(run: Run, monkeypatch, capsys) -> None:
    assert "How long tasks took" not in printed(monkeypatch, str(run.path), "--tasks")
    assert main(["report", str(run.path), "--tasks", "--plots"]) == 2
    assert main(["report", str(run.path), "--format", "json", "--plots"]) == 2
    assert capsys.readouterr().err == "flightlog: --plots goes with the whole report as text\n" * 2
