"""What a report says of device memory: why it ran out, and that it will."""

from __future__ import annotations

from pathlib import Path

from builders.device_training import training
from builders.runs import make_run

from flightlog.analyze.report.report import Report, report_on
from flightlog.show.report import wall_time_text
from flightlog.store.run import Run


def report(path: Path) -> Report:
    return report_on(Run(path), details=False)


def test_out_of_memory_after_a_leak_says_the_leak(tmp_path: Path) -> None:
    verdict = report(make_run(tmp_path, training())).verdict
    assert verdict.kind == "device_memory"
    assert verdict.sentence == (
        "Ran out of device memory once, in `train`. Memory grew by 2.0 GiB with each `train`, 54.0 GiB over "
        "28 of them: a leak used it up."
    )
    assert verdict.advice == "finding what keeps tensors alive from one repetition to the next."


def test_a_leak_is_said_before_memory_runs_out(tmp_path: Path) -> None:
    found = report(make_run(tmp_path, training(ends=False)))
    assert found.verdict.kind == "device_leak"
    text = wall_time_text(found)
    assert text is not None
    assert text.startswith("Device memory may leak: 2.0 GiB more with each `evaluate`, ")
    assert "(seen in `train`, too)" in text
    assert "Try finding what keeps tensors alive" in text


def test_a_training_that_keeps_nothing_leaks_nothing(tmp_path: Path) -> None:
    events = [event for event in training() if event.rank != 2]
    assert {one.kind for one in report(make_run(tmp_path, events)).findings} == set()
