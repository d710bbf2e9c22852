"""A run that is slower than the same work was before says so, and why; one that is not does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.runs import at, make_run
from builders.task_events import completed, started, submitted

from flightlog.analyze.report.report import report_on
from flightlog.events import Event, TaskRetried
from flightlog.show.report import wall_time_text
from flightlog.store import layout
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.run import Run


def run_of(folder: Path, number: int, seconds: Sequence[float], *, after: float = 0.0, **info: Any) -> Path:
    """A run of tasks `load` and `sim` by turns, one after another, and `after` seconds at its end."""
    events: list[Event] = []
    now = 0.0
    for n, lasts in enumerate(seconds):
        name = ("load", "sim")[n % 2]
        events += [
            submitted(f"t{n}", now, task=name),
            started(f"t{n}", now, task=name),
            completed(f"t{n}", now + lasts, lasts, task=name),
        ]
        now += lasts
    now += after
    info = {"tasks_submitted": len(seconds), **info}
    path = make_run(folder, events, token=f"{number:08x}", duration_s=now, end_time=at(now), **info)
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    return path


def slower(path: Path) -> str | None:
    run = Run(path)
    past = report_on(run, details=False, history=EarlierRuns(run)).verdict.past
    return None if past is None else past.sentence


def usual(folder: Path, number: int = 8, **info: Any) -> None:
    for n in range(number):
        run_of(folder, n, [1.0, 2.0 + 0.1 * (n % 3), 1.0, 2.0], **info)


def test_the_name_whose_tasks_took_longer_is_the_reason(tmp_path):
    usual(tmp_path)
    past = slower(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1]))
    assert past is not None
    assert past == (
        "2.3 times slower than 8 earlier runs with the same tasks (95 % CI 2.3 to 2.4; 14.2s, usually 6.1s), "
        "because sim took 3.0 times as long (mean 6.1s, usually 2.0s)."
    )


def test_it_stands_before_what_limited_the_run(tmp_path):
    usual(tmp_path)
    run = Run(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1]))
    text = wall_time_text(report_on(run, details=False, history=EarlierRuns(run)))
    assert text is not None
    assert text.startswith("2.3 times slower than")
    assert "Nothing stands out" not in text


def test_time_outside_of_tasks_is_not_blamed_on_them(tmp_path):
    usual(tmp_path)
    past = slower(run_of(tmp_path, 50, [1.0, 2.1, 1.0, 2.0], after=12.0))
    assert past is not None
    assert past.endswith(
        ", though its tasks took as long as usual: concurrency was 0.3 on average, usually 1.0."
    )


def test_a_second_and_a_third_slow_run_are_slow_too_and_then_that_is_usual(tmp_path):
    usual(tmp_path)
    said = [slower(run_of(tmp_path, 50 + n, [1.0, 6.1, 1.0, 6.0 + 0.1 * n])) for n in range(9)]
    assert [past is not None for past in said[:3]] == [True] * 3
    assert said[-1] is None


@pytest.mark.parametrize(
    "seconds",
    [[1.0, 2.2, 1.0, 2.0], [1.0, 2.0, 1.0, 2.8], [1.0, 0.5, 1.0, 0.5]],
    ids=["same", "+13%", "faster"],
)
def test_a_run_that_is_about_as_fast_says_nothing(tmp_path, seconds):
    usual(tmp_path)
    assert slower(run_of(tmp_path, 50, seconds)) is None


def test_more_work_is_not_slower(tmp_path):
    usual(tmp_path)
    assert slower(run_of(tmp_path, 50, [1.0, 2.0] * 6)) is None


def test_of_few_earlier_runs_nothing_is_said(tmp_path):
    usual(tmp_path, 4)
    assert slower(run_of(tmp_path, 50, [1.0, 6.0, 1.0, 6.0])) is None


def test_runs_of_other_projects_and_runs_that_failed_are_not_what_is_usual(tmp_path):
    usual(tmp_path, status="failed")
    usual(tmp_path, project="other")
    assert slower(run_of(tmp_path, 50, [1.0, 6.0, 1.0, 6.0])) is None


def test_a_run_that_failed_is_not_called_slow(tmp_path):
    usual(tmp_path)
    assert slower(run_of(tmp_path, 50, [1.0, 6.0, 1.0, 6.0], status="failed")) is None


def test_without_tasks_only_runs_of_the_same_command_are_the_same_work(tmp_path):
    for n in range(8):
        run_of(tmp_path, n, [], after=5 + n % 2 / 10, command=["python", "fit.py", "--epochs", "1"])
    path = run_of(tmp_path, 50, [], after=50, command=["python", "fit.py", "--epochs", "10"])
    assert slower(path) is None
    slow = slower(run_of(tmp_path, 51, [], after=50, command=["python", "fit.py", "--epochs", "1"]))
    assert slow is not None
    assert slow.startswith("9.9 times slower than 8 earlier runs of the same command")
    assert "because" not in slow


def test_retries_are_said(tmp_path):
    usual(tmp_path)
    path = run_of(tmp_path, 50, [1.0, 2.0, 1.0, 2.0], after=12.0)
    with (path / "tasks.jsonl").open("a") as out:
        for n in range(2):
            retry = TaskRetried(
                timestamp=at(8),
                task="sim",
                task_id="t3",
                attempt=1,
                reason="x",
                writer="w0000001",
                seq=100 + n,
            )
            out.write(msgspec.json.encode(retry).decode() + "\n")
    past = slower(path)
    assert past is not None
    assert "retried, usually 0" in past


def test_tasks_that_were_answered_from_a_cache_are_no_measure(tmp_path):
    for n in range(8):
        path = run_of(tmp_path, n, [0.1, 0.1 + n % 2 / 100, 0.1, 0.1])
        document = msgspec.json.decode((path / layout.SUMMARY).read_bytes())
        document["cache"] = {"lookups": 4, "hits": 4, "bypassed": 0}
        (path / layout.SUMMARY).write_bytes(msgspec.json.encode(document))
    assert slower(run_of(tmp_path, 50, [1.0, 2.0, 1.0, 2.0])) is None


def test_runs_whose_tasks_failed_are_no_measure(tmp_path):
    for n in range(8):
        path = run_of(tmp_path, n, [0.1, 0.1 + n % 2 / 100, 0.1, 0.1])
        document = msgspec.json.decode((path / layout.SUMMARY).read_bytes())
        for name in document["tasks"]["by_name"].values():
            name["completed"], name["failed"] = 0, 2
        (path / layout.SUMMARY).write_bytes(msgspec.json.encode(document))
    assert slower(run_of(tmp_path, 50, [1.0, 2.0, 1.0, 2.0])) is None


def test_tasks_that_nobody_submitted_are_counted_all_the_same(tmp_path):
    for n in range(9):
        path = run_of(tmp_path, n, [1.0, 2.0 + n % 2 / 100] * (20 if n == 8 else 2))
        lines = (path / "tasks.jsonl").read_text().splitlines(keepends=True)
        (path / "tasks.jsonl").write_text("".join(one for one in lines if "task_submitted" not in one))
        (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    assert slower(path) is None


def test_durations_that_cannot_be_hurt_no_report(tmp_path):
    usual(tmp_path)
    path = run_of(tmp_path, 20, [1.0, 2.0, 1.0, 2.0])
    document = (path / layout.RUN).read_text().replace('"duration_s":6.0', '"duration_s":-6.0')
    assert "-6.0" in document
    (path / layout.RUN).write_text(document)
    assert slower(path) is None
    assert slower(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1])) is not None


def test_another_host_is_named(tmp_path):
    usual(tmp_path)
    said = slower(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1], host="node-2"))
    assert said is not None
    assert said.endswith(" It ran on node-2, and they on node-1.")


def test_of_several_other_hosts_none_is_named(tmp_path):
    for n in range(8):
        run_of(tmp_path, n, [1.0, 2.0 + 0.1 * (n % 3), 1.0, 2.0], host=f"node-{n % 2}")
    said = slower(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1], host="node-9"))
    assert said is not None
    assert said.endswith(" It ran on node-9, and they on other hosts.")


def test_a_slow_first_run_does_not_hide_a_slow_last_one(tmp_path):
    run_of(tmp_path, 0, [1.0, 20.0, 1.0, 20.0])
    for n in range(1, 8):
        run_of(tmp_path, n, [1.0, 2.0 + 0.1 * (n % 3), 1.0, 2.0])
    assert slower(run_of(tmp_path, 50, [1.0, 6.1, 1.0, 6.1])) is not None


def test_noise_is_not_called_slow(tmp_path):
    random, called = Random(3), 0
    for draw in range(50):
        walls = [5 * random.lognormvariate(0, 0.2) for _ in range(11)]
        paths = [
            run_of(tmp_path / str(draw), n, [], after=wall, command=["a"]) for n, wall in enumerate(walls)
        ]
        called += slower(paths[-1]) is not None
    assert called <= 1
