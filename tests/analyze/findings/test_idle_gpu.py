"""A GPU that waits for the program: the report says for how much of the time, where nothing else explains
more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run
from builders.task_events import span

from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.verdict import ReportVerdict
from flightlog.events import Event, ResourceSample
from flightlog.store.run import Run

GIB = 2**30


def samples(busy: float, *, ours: int | None = GIB, index: int = 0, seconds: int = 20) -> list[Event]:
    known = {"gpu_index": index, "gpu_uuid": f"GPU-{index}", "gpu_process_memory_bytes": ours}
    known |= {"scope": "gpu", "host": "n1", "cpu_percent": None, "interval_s": 1.0, "gpu_percent": busy}
    return [
        ResourceSample(timestamp=at(n), **known)  # type: ignore[arg-type]
        for n in range(1, seconds + 1)
    ]


def verdict(folder: Path, *events: Event, seconds: float = 20.0) -> ReportVerdict:
    path = make_run(folder, events, duration_s=seconds, end_time=at(seconds))
    return report_on(Run(path), details=False).verdict


def test_a_gpu_that_waits_is_named(tmp_path: Path) -> None:
    found = verdict(tmp_path, span("train", 0, 20, "s1"), *samples(48.0))
    assert (found.kind, found.sentence) == ("idle_gpu", "The GPU was idle 52% of the time.")
    assert found.advice is not None
    assert found.advice.startswith("preparing data ahead, larger batches")


def test_of_several_the_mean_counts(tmp_path: Path) -> None:
    found = verdict(tmp_path, span("train", 0, 20, "s1"), *samples(60.0), *samples(20.0, index=1))
    assert found.sentence == "The 2 GPUs were idle 60% of the time."


def test_one_that_is_idle_beside_a_busy_one_is_told_from_it(tmp_path: Path) -> None:
    found = verdict(tmp_path, span("train", 0, 20, "s1"), *samples(98.0), *samples(0.0, index=1))
    assert found.sentence == "1 of 2 GPUs was idle 100% of the time."
    assert found.advice is not None
    assert found.advice.startswith("giving all of them work, or fewer")


def test_without_spans_it_is_still_named(tmp_path: Path) -> None:
    assert verdict(tmp_path, *samples(5.0)).kind == "idle_gpu"


def test_a_few_samples_of_a_long_run_tell_nothing(tmp_path: Path) -> None:
    events = [span("train", 0, 200, "s1"), *samples(0.0, seconds=5)]
    assert verdict(tmp_path, *events, seconds=200.0).kind == "none"


def test_what_it_waited_for_is_named_where_spans_tell(tmp_path: Path) -> None:
    spans = [span("train", 0, 5, "s1"), span("data.load", 5, 15, "s2")]
    computed = [
        ResourceSample(timestamp=at(n), scope="worker", host="n1", pid=1, cpu_percent=None, cpu_s=n * 0.2)
        for n in (0, 20)
    ]
    assert verdict(tmp_path / "measured", *spans, *samples(25.0), *computed).kind == "data_loading"
    assert verdict(tmp_path / "unmeasured", *spans, *samples(25.0)).kind == "idle_gpu"


@pytest.mark.parametrize(
    ("busy", "ours", "seconds"), [(90.0, GIB, 20), (5.0, None, 20), (5.0, 0, 20), (5.0, GIB, 4)]
)
def test_a_busy_gpu_one_of_others_and_a_short_run_are_not(
    tmp_path: Path, busy: float, ours: int | None, seconds: int
) -> None:
    events = [span("train", 0, seconds, "s1"), *samples(busy, ours=ours, seconds=seconds)]
    assert verdict(tmp_path, *events, seconds=seconds).kind == "none"
