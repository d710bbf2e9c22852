"""Nextflow's trace files: durations, sizes, states and attempts, readable and raw, with the columns that are
there."""

from __future__ import annotations

from pathlib import Path

import pytest
from adopting import adopt_all, adopt_one, events_of
from hypothesis import given
from hypothesis import strategies as st

from flightlog.adopt.nextflow import bytes_of, seconds_of, share_of, time_of, whole_of
from flightlog.analyze.report.report import report_on
from flightlog.core.errors import UsageError
from flightlog.events import (
    CacheLookup,
    Failure,
    ResourceRequest,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)

DEFAULT = (
    "task_id hash native_id name status exit submit duration realtime %cpu peak_rss peak_vmem rchar wchar"
).split()
ROWS = [
    [
        "1",
        "d6/4a9080",
        "3711",
        "ALIGN:GUNZIP (a.gz)",
        "COMPLETED",
        "0",
        "2026-05-20 03:52:00.053",
        "4.9s",
        "4s",
        "72.5%",
        "2.5 MB",
        "7 MB",
        "40 MB",
        "792 MB",
    ],
    [
        "2",
        "65/1b01a6",
        "3712",
        "ALIGN:STAR (s1)",
        "FAILED",
        "137",
        "2026-05-20 03:52:00.000",
        "1m 3s",
        "1m",
        "100.0%",
        "2 GB",
        "7 GB",
        "1 GB",
        "3 GB",
    ],
    [
        "3",
        "65/1b01a7",
        "3713",
        "ALIGN:STAR (s1)",
        "COMPLETED",
        "0",
        "2026-05-20 03:53:04.000",
        "2m 3s",
        "2m",
        "150.0%",
        "3 GB",
        "7 GB",
        "1 GB",
        "3 GB",
    ],
    [
        "4",
        "65/1b01a8",
        "3714",
        "ALIGN:STAR (s2)",
        "CACHED",
        "0",
        "2026-05-19 03:53:04.000",
        "2m 3s",
        "2m",
        "150.0%",
        "3 GB",
        "7 GB",
        "1 GB",
        "3 GB",
    ],
    [
        "5",
        "65/1b01a9",
        "-",
        "QC (s2)",
        "ABORTED",
        "-",
        "2026-05-20 03:54:00.000",
        "-",
        "-",
        "-",
        "-",
        "-",
        "-",
        "-",
    ],
    [
        "6",
        "65/1b01b0",
        "3716",
        "QC (s1)",
        "COMPLETED",
        "0",
        "2026-05-20 03:54:00.000",
        "276ms",
        "55ms",
        "0.0%",
        "0",
        "0",
        "0",
        "0",
    ],
]


def table(folder: Path, columns: list[str], rows: list[list[str]], name: str = "trace.txt") -> Path:
    file = folder / name
    file.write_text("".join("\t".join(cells) + "\n" for cells in [columns, *rows]))
    return file


def test_a_default_trace_gives_tasks_with_durations_usage_and_ends(tmp_path: Path) -> None:
    adoption, run = adopt_one(table(tmp_path, DEFAULT, ROWS), tmp_path / "runs")
    tasks = sorted(events_of(run, "tasks"), key=lambda event: event.timestamp)
    done = [event for event in tasks if isinstance(event, TaskCompleted)]
    assert [
        (e.task, e.task_id, e.attempt, e.duration_s, e.cpu_s, e.peak_rss_bytes, e.timestamp[11:23])
        for e in done
    ] == [
        ("ALIGN:GUNZIP", "1", 1, 4.0, 2.9, 2_621_440, "03:52:04.953"),
        ("QC", "6", 1, 0.055, None, None, "03:54:00.276"),
        ("ALIGN:STAR", "2", 2, 120.0, 180.0, 3 << 30, "03:55:07.000"),
    ]
    [failed] = [event for event in tasks if isinstance(event, TaskFailed)]
    assert (failed.task_id, failed.attempt, failed.exit_code, failed.error_message) == (
        "2",
        1,
        137,
        "exit code 137 (SIGKILL)",
    )
    [failure] = events_of(run, "failures")
    assert isinstance(failure, Failure)
    assert (failure.task_id, failure.attempt, failure.signal) == ("2", 1, "SIGKILL")
    [cancelled] = [event for event in tasks if isinstance(event, TaskCancelled)]
    assert (cancelled.task_id, cancelled.duration_s, cancelled.worker) == ("5", None, None)
    assert {event.task_id for event in tasks if isinstance(event, TaskSubmitted)} == {"1", "2", "5", "6"}
    assert done[0].metrics == {"peak_vmem_bytes": 7 << 20, "rchar_bytes": 40 << 20, "wchar_bytes": 792 << 20}
    assert done[1].metrics == {}  # zeros of a task too short to be measured are no figures
    assert adoption.dropped == {"zeros in place of figures, of tasks too short to be measured": 1}


def test_a_retry_is_a_further_attempt_of_the_task_that_failed(tmp_path: Path) -> None:
    _, run = adopt_one(table(tmp_path, DEFAULT, ROWS), tmp_path / "runs")
    [retried] = [event for event in events_of(run, "tasks") if isinstance(event, TaskRetried)]
    assert (retried.task, retried.task_id, retried.attempt, retried.reason) == (
        "ALIGN:STAR",
        "2",
        1,
        "exit code 137 (SIGKILL)",
    )
    tasks = report_on(run).tasks
    assert (tasks.submitted, tasks.completed, tasks.failed, tasks.cancelled, tasks.retried) == (4, 3, 0, 1, 1)


def test_the_attempt_column_tells_retries_of_one_name_apart(tmp_path: Path) -> None:
    columns = ["task_id", "name", "status", "exit", "attempt", "submit", "complete"]
    at = [f"{1_779_249_120_000 + 1000 * n}" for n in range(8)]
    rows = [
        ["1", "F (a)", "FAILED", "1", "1", at[0], at[1]],
        ["2", "F (a)", "COMPLETED", "0", "1", at[0], at[2]],
        ["3", "F (a)", "FAILED", "2", "2", at[2], at[3]],
        ["4", "F (a)", "COMPLETED", "0", "3", at[4], at[5]],
    ]
    _, run = adopt_one(table(tmp_path, columns, rows), tmp_path / "runs")
    ended = [event for event in events_of(run, "tasks") if isinstance(event, TaskCompleted | TaskFailed)]
    assert [(e.task_id, e.attempt, isinstance(e, TaskFailed)) for e in ended] == [
        ("1", 1, True),
        ("2", 1, False),
        ("1", 2, True),
        ("1", 3, False),
    ]


def test_a_cached_task_is_a_hit_and_its_old_times_do_not_stretch_the_run(tmp_path: Path) -> None:
    adoption, run = adopt_one(table(tmp_path, DEFAULT, ROWS), tmp_path / "runs")
    [hit] = events_of(run, "cache")
    assert isinstance(hit, CacheLookup)
    assert (hit.task, hit.result, hit.key, hit.saved_s) == ("ALIGN:STAR", "hit", "65/1b01a8", 120.0)
    assert (run.info.start_time, run.info.end_time) == (
        "2026-05-20T03:52:00.000000Z",
        "2026-05-20T03:55:07.000000Z",
    )
    assert adoption.notes[0].startswith("1 task was taken from Nextflow's cache")


def test_a_raw_trace_with_every_time_is_exact(tmp_path: Path) -> None:
    columns = [
        "task_id",
        "hash",
        "process",
        "tag",
        "name",
        "status",
        "exit",
        "cpus",
        "memory",
        "time",
        "attempt",
        "submit",
        "start",
        "complete",
        "duration",
        "realtime",
        "%cpu",
        "peak_rss",
        "read_bytes",
        "write_bytes",
        "hostname",
        "script",
    ]
    row = [
        "7",
        "aa/bb",
        "STAR",
        "s1",
        "STAR (s1)",
        "COMPLETED",
        "0",
        "4",
        str(8 << 30),
        "3600000",
        "1",
        "1779249120000",
        "1779249125250",
        "1779249130250",
        "10250",
        "5000",
        "390.1",
        "123456789",
        "1000",
        "2000",
        "node7",
        "star --run",
    ]
    adoption, run = adopt_one(table(tmp_path, columns, [row]), tmp_path / "runs")
    [_, started, done] = events_of(run, "tasks")
    assert isinstance(started, TaskStarted)
    assert isinstance(done, TaskCompleted)
    assert (started.timestamp, started.worker, started.queue_s) == (
        "2026-05-20T03:52:05.250000Z",
        "node7",
        5.25,
    )
    assert (done.duration_s, done.queue_s, done.cpu_s, done.peak_rss_bytes) == (
        5.0,
        5.25,
        19.505,
        123_456_789,
    )
    assert (done.read_bytes, done.write_bytes, done.tags["tag"]) == (1000, 2000, "s1")
    [request] = events_of(run, "resources")
    assert isinstance(request, ResourceRequest)
    assert (request.cpus, request.memory_bytes, request.walltime_s, request.task_id) == (
        4,
        8 << 30,
        3600.0,
        "7",
    )
    assert (adoption.notes, adoption.dropped) == ([], {"column script": 1})


def test_lines_of_another_shape_are_skipped_and_counted(tmp_path: Path) -> None:
    file = table(tmp_path, DEFAULT, [ROWS[0], ["what", "is", "this"], ROWS[5]])
    with file.open("a") as out:
        out.write("9\tcut")
    adoption, _ = adopt_one(file, tmp_path / "runs")
    assert adoption.kept["tasks COMPLETED"] == 2
    assert adoption.problems == [
        "trace.txt: the last line ends in the middle, and was skipped",
        "trace.txt: 1 lines have another number of cells than the first, and were skipped",
    ]


def test_every_trace_of_a_folder_is_a_run_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline_info"
    folder.mkdir()
    table(folder, DEFAULT, ROWS[:3], "execution_trace_1.txt")
    table(folder, DEFAULT, ROWS[3:], "execution_trace_2.txt")
    (folder / "software_versions.txt").write_text("name\tversion\n")
    adoptions = adopt_all(folder, tmp_path / "runs")
    assert [(Path(one.source).name, one.kept["tasks submitted"]) for one in adoptions] == [
        ("execution_trace_1.txt", 2),
        ("execution_trace_2.txt", 2),
    ]


def test_a_trace_without_any_time_says_which_columns_it_needs(tmp_path: Path) -> None:
    file = table(
        tmp_path, ["task_id", "name", "status", "exit", "hash"], [["1", "F", "COMPLETED", "0", "a/b"]]
    )
    with pytest.raises(UsageError, match="one of submit, start and complete"):
        adopt_one(file, tmp_path / "runs")


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("350ms", 0.35),
        ("4.9s", 4.9),
        ("1m 3s", 63.0),
        ("1h", 3600.0),
        ("2d 4h 1m", 187_260.0),
        ("9min 30s", 570.0),
        ("0", 0.0),
        ("5000", 5.0),
        ("-", None),
        ("soon", None),
        ("1m x", None),
        (None, None),
    ],
)
def test_durations_are_read_as_nextflow_writes_them(cell: str | None, seconds: float | None) -> None:
    assert seconds_of(cell) == seconds


@pytest.mark.parametrize(
    ("cell", "size"),
    [
        ("1 KB", 1024),
        ("2.4 MB", 2_516_582),
        ("1.5 GB", 1_610_612_736),
        ("0", 0),
        ("123", 123),
        ("7 B", 7),
        ("big", None),
        (None, None),
    ],
)
def test_sizes_count_in_1024s_as_nextflow_does(cell: str | None, size: int | None) -> None:
    assert bytes_of(cell) == size


@given(st.text(max_size=30) | st.text(alphabet="0123456789.msMGB% -", max_size=600))
def test_no_cell_is_too_odd_to_read(cell: str) -> None:
    for read in (seconds_of, bytes_of, time_of, share_of, whole_of):
        found = read(cell)
        assert found is None or found >= 0
