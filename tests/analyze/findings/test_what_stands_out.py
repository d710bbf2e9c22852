"""Findings, calibration loops, what is in flight, failures and the slowest tasks, held against the slow
path."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import pytest
from builders import slow_report_parts as slow
from builders.examples import FEW
from builders.random_runs import Shape
from builders.runs import at, make_run
from builders.slow_findings import Findings
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.analyze.report.report import Report, report_on
from flightlog.analyze.report.spans import CalibrationLoop
from flightlog.demo.sweep import sweep
from flightlog.store.run import Run

OTHERS = {
    *("dependency_chain", "interpreter_lock", "oversubscription", "busy_machine", "cpu_wait"),
    *("slow_workers", "memory_growth", "not_finite", "serialization", "one_at_a_time", "taking_turns"),
    *("data_loading", "waiting_span", "hung_tasks", "io_wait", "swapping", "stolen_time", "diverging"),
    *("costly_cache", "before_tasks", "lock_waits"),
}
"""Findings that tests of their own try, on programs that have them."""
STREAMS = ("tasks", "workers", "spans", "failures", "cache", "resources")


def close(value: Any) -> Any:
    """The same to the nanosecond, inside of dicts too."""
    if isinstance(value, dict):
        return {name: close(one) for name, one in value.items()}
    return pytest.approx(value, rel=1e-12, abs=1e-9) if isinstance(value, float) else value


def check(path: Path) -> Report:
    report = report_on(Run(path))
    check_findings(report, path)
    check_loops(report.calibration, slow.loops(path))
    found = [
        (
            one.kind,
            one.name,
            one.args,
            one.worker,
            one.since,
            one.elapsed_s,
            one.usual and (one.usual.count, one.usual.p50, one.usual.p95, one.usual.max, one.usual.of),
            one.ratio,
            one.stuck,
        )
        for one in report.in_flight
    ]
    expected = slow.in_flight(path)
    assert [one[:6] for one in found] == [tuple(map(close, one[:6])) for one in expected]
    assert [one[8] for one in found] == [one[8] for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[7] == close(other[7])
        assert one[6] == (other[6] and tuple(map(close, other[6])))
    details = report.details
    assert details is not None
    rows = {
        task: [(row.task, row.task_id, row.args, row.duration_s, row.worker) for row in rows]
        for task, rows in details.slowest.items()
    }
    assert rows == slow.slowest(path)
    assert sum(cause.count for cause in details.failures) == report.failures.count
    return report


def check_findings(report: Report, path: Path) -> None:
    expected = Findings(path)
    if report.time is not None:
        assert round(report.time.whole.total_s * 1e9) == expected.total
    wanted = expected.all()
    known_ways = [one for one in report.findings if one.kind not in OTHERS]
    assert {one.kind for one in known_ways} == wanted.keys()
    for one in known_ways:
        seconds, share, evidence, where = wanted[one.kind]
        known = {name: value for name, value in one.evidence.items() if name != "cause"}
        assert (one.kind, one.seconds, one.share) == (one.kind, close(seconds), close(share))
        assert known == close(evidence), one.kind
        assert where is None or one.where == where, one.kind
    costs = [one.seconds for one in report.findings if one.seconds is not None]
    assert costs == sorted(costs, reverse=True)
    assert [one.seconds is None for one in report.findings] == [True] * (
        len(report.findings) - len(costs)
    ) + [False] * len(costs)


def check_loops(found: list[CalibrationLoop], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for loop, other in zip(found, expected, strict=True):
        for name, value in other.items():
            if name == "listed":
                turns = [
                    (
                        turn.iteration,
                        turn.started_at,
                        turn.open,
                        turn.duration_s,
                        turn.ask_s,
                        turn.submit_s,
                        turn.gather_s,
                        turn.tell_s,
                        turn.trials,
                        turn.min_loss,
                        turn.best_loss,
                    )
                    for turn in loop.listed
                ]
                assert turns == [tuple(map(close, turn)) for turn in value]
            elif name != "start":
                assert getattr(loop, name) == close(value), name


def damage(path: Path, seed: int) -> None:
    """Some lines are lost, some stand twice, all stand anywhere; some are foreign or torn."""
    dice = Random(seed)
    for stream in STREAMS:
        file = path / f"{stream}.jsonl"
        if not file.exists():
            continue
        lines = [line for line in file.read_bytes().splitlines(keepends=True) if dice.random() > 0.15]
        lines += dice.sample(lines, len(lines) // 4)
        lines += [
            b"\xff\xfe\n",
            b'{"no": "event"}\n',
            b"[1, 2]\n",
            b"\n",
            b'{"event": "of_tomorrow", "x": {}}\n',
        ]
        dice.shuffle(lines)
        whole = b"".join(lines)
        file.write_bytes(whole + whole[: dice.randrange(1, 40)])  # a torn tail of a line that stands before


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sweep(tmp_path_factory.mktemp("demo") / "runs", 12, workers=2).path
    assert path is not None
    return path


def test_what_the_demo_says_is_what_the_slow_path_says(demo: Path) -> None:
    report = check(demo)
    assert report.details is not None
    assert report.details.failures


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_demo_says_what_is_left_of_it(demo: Path, tmp_path: Path, seed: int) -> None:
    path = tmp_path / demo.name
    shutil.copytree(demo, path)
    damage(path, seed)
    check(path)


@FEW
@given(st.integers(0, 2**32), st.booleans())
@example(43020, False)  # nothing ran, and the quota held it back
def test_runs_of_any_shape_say_what_the_slow_path_says(seed: int, closed: bool) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    try:
        check(shaped(folder, seed, closed=closed))
    finally:
        shutil.rmtree(folder)


@FEW
@given(st.integers(0, 2**32))
def test_so_they_do_when_they_are_damaged(seed: int) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    try:
        path = shaped(folder, seed, closed=True)
        damage(path, seed)
        check(path)
    finally:
        shutil.rmtree(folder)


def shaped(folder: Path, seed: int, *, closed: bool) -> Path:
    facts: dict[str, Any] = {"end_time": at(50), "duration_s": 50.0}
    if not closed:
        facts = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(45)}
    return make_run(folder, Shape(seed).events(), **facts)
