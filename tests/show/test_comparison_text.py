"""Comparisons as a person reads them."""

from __future__ import annotations

import re

import pytest
from builders.compared_durations import closed_run, task_events
from builders.runs import at
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from flightlog.analyze.compare.compare import compare
from flightlog.analyze.compare.results import Interval
from flightlog.analyze.compare.thresholds import check, parse_thresholds
from flightlog.events import SpanEvent, TaskFailed, WorkerReady, WorkerRemoved
from flightlog.show.comparison import (
    comparison_markdown,
    comparison_text,
    percent_text,
    ratio_text,
    speed_text,
)


def worker(name, end):
    where = {"worker": name, "host": "node-1", "pid": 1}
    return [WorkerReady(timestamp=at(0), **where), WorkerRemoved(timestamp=at(end), reason="done", **where)]


def run(folder, token, factor, *, wall=20.0, extra=(), **info):
    events = worker("w1", wall)
    for i in range(60):
        events += task_events("simulate", i, i / 4, 0.1 * factor * (1 + (i * 37 % 11) / 50), queue_s=i / 4)
    events += task_events("plot", 0, 18, 1.0, queue_s=18)
    return closed_run(folder, [*events, *extra], token=token, duration_s=wall, end_time=at(wall), **info)


@pytest.fixture
def slower(tmp_path):
    lost = TaskFailed(
        timestamp=at(19),
        task="plot",
        task_id="plot-1",
        args={},
        worker="w1",
        duration_s=0.5,
        error_type="KeyError",
        error_message="'year'",
        fingerprint="f1",
    )
    run(tmp_path, "aaaaaaaa", 1.0, git_commit="a" * 40)
    run(tmp_path, "bbbbbbbb", 1.4, wall=24.0, extra=[lost], git_commit="b" * 40)
    return compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)


TEXT = """\
B took 20% longer (20.0s → 24.0s): `simulate` is 1.40x slower (1.36 to 1.44), +4.0s by idle (workers
with nothing to do: 1.0s → 5.0s), 1 new failure (KeyError).

Conditions: 2 of 3 failed
  duration>10%: failed
      a typical simulate rose by 40%, 110 ms → 154 ms
  failures>0: failed
      failures rose, 0 → 1
  wall>10s: passed

Runs:
  A:  run-20260520T035200Z-demo-aaaaaaaa (completed, started 2026-05-20 03:52:00 UTC)
  B:  run-20260520T035200Z-demo-bbbbbbbb (completed, started 2026-05-20 03:52:00 UTC)

Why the wall time differs: +4.0s
  Share              Wall time  From A to B
  idle                   +4.0s  workers with nothing to do: 1.0s → 5.0s
  duration of tasks      +2.6s  simulate: 110 ms → 154 ms each
  queue                  -2.6s  scheduling overhead: 11.4s → 8.8s

Durations: ratio of B to A with its 95 % CI
  Name      Verdict             Typical ratio  Mean   p95   A   B   A p50   B p50  Matched by
  simulate  slower        1.40 (1.36 to 1.44)  1.40  1.40  60  60  110 ms  154 ms  arguments
  plot      inconclusive                 1.00  1.00         1   1    1.0s    1.0s

Failures:
  new, 0 → 1: KeyError: 'year'
      in plot

Figures:
                       A      B  Change
  Wall time        20.0s  24.0s    +20%
  Tasks submitted     61     61    same
  Tasks failed         0      1
  Worker time      20.0s  24.0s    +20%

Environment:
  What        A             B
  git commit  aaaaaaaaaaaa  bbbbbbbbbbbb

Remarks:
  - one run per side does not show how much runs vary, so 1% is assumed; groups show it: flightlog
    compare demo:last5 demo:latest
"""


def test_the_answer_stands_first_then_why_then_everything_that_differs(slower):
    outcomes = check(slower, parse_thresholds(["duration>10%", "failures>0", "wall>10s"]))
    assert comparison_text(slower, outcomes) == TEXT


def test_color_adds_codes_and_nothing_else(slower):
    assert re.sub(r"\x1b\[\d+m", "", comparison_text(slower, color=True)) == comparison_text(slower)


def test_markdown_says_the_same_in_tables(slower):
    text = comparison_markdown(slower)
    assert text.startswith(
        "# What changed\n\nB took 20% longer (20.0s → 24.0s): `simulate` is 1.40x slower (1.36 to 1.44), "
    )
    assert (
        "| simulate | slower | 1.40 (1.36 to 1.44) | 1.40 | 1.40 | 60 | 60 | 110 ms | 154 ms | arguments |"
        in text
    )


def answer(comparison):
    return " ".join(comparison_text(comparison).partition("\n\n")[0].split())


def test_what_goes_against_the_wall_time_is_not_told_as_its_reason(tmp_path):
    run(tmp_path, "aaaaaaaa", 1.4, wall=30.0)
    run(tmp_path, "bbbbbbbb", 1.4 * 1.4, wall=24.0)
    assert answer(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)) == (
        "B took 20% less time (30.0s → 24.0s): -6.0s by idle (workers with nothing to do: 11.0s → 5.0s); "
        "but `simulate` is 1.40x slower (1.36 to 1.44)."
    )


def test_effects_that_make_up_for_each_other_are_both_named(tmp_path):
    def sweep(token, workers, each):
        events = [event for name in workers for event in worker(name, 20.0)]
        for n in range(40):
            place = n // len(workers)
            of = {"queue_s": place * each, "worker": workers[n % len(workers)]}
            events += task_events("trial", n, place * each, each * (1 - n % 3 / 99), **of)
        closed_run(tmp_path, events, token=token, duration_s=20.0, end_time=at(20.0))

    sweep("aaaaaaaa", ["w1"], 0.49)
    sweep("bbbbbbbb", ["w1", "w2"], 0.98)
    assert answer(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)) == (
        "B took about as long as A (20.0s → 20.0s): -15.0s by workers (1 → 2 workers on average); "
        "but `trial` is 2.00x slower (1.95 to 2.06)."
    )


def test_long_command_lines_are_shown_from_where_they_differ(tmp_path):
    common = "python train.py --epochs 100 --model resnet50 --batch-size 256"
    for token, rate in (("aaaaaaaa", "0.1"), ("bbbbbbbb", "0.3")):
        run(tmp_path, token, 1.0, command=[*common.split(), "--lr", rate, "--seed", "1"])
    [row] = [
        line
        for line in comparison_text(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)).splitlines()
        if line.strip().startswith("command")
    ]
    assert row.split("  ") == ["", "command", "… --lr 0.1 --seed 1", "… --lr 0.3 --seed 1"]


def test_a_run_that_did_not_complete_is_called_so_in_the_answer(tmp_path):
    run(tmp_path, "aaaaaaaa", 1.0)
    run(tmp_path, "bbbbbbbb", 1.0, wall=10.0, status="failed")
    assert answer(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)).startswith(
        "B, which failed, took 50% less time (20.0s → 10.0s)"
    )
    assert answer(compare("bbbbbbbb", "aaaaaaaa", runs_dir=tmp_path)).startswith(
        "B took 2x as long as A, which failed, (10.0s → 20.0s)"
    )


def test_no_reason_is_told_for_what_runs_differ_by_themselves(tmp_path):
    for number, wall in enumerate((20.0, 26.0, 23.0, 21.0, 28.0, 24.0)):
        run(tmp_path, f"a000000{number}", 1.0, wall=wall, start_time=at(number))
    first, last = "a0000000,a0000001,a0000002", "a0000003,a0000004,a0000005"
    assert answer(compare(first, last, runs_dir=tmp_path)) == (
        "B took about as long as A (23.0s → 24.3s), within what their runs differ by; no change stands out "
        "from noise "
        "(1 name compared)."
    )


def test_wall_times_that_read_the_same_are_told_by_their_difference(tmp_path):
    run(tmp_path, "aaaaaaaa", 1.0, wall=1.94)
    run(tmp_path, "bbbbbbbb", 1.0, wall=1.87)
    assert answer(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)).startswith(
        "B took 3.6% less time (1.9s, -70 ms)"
    )


def test_of_details_as_many_are_told_as_fit_and_each_in_full(slower):
    told = "; ".join(f"task_number_{n}: 110 ms → 154 ms each" for n in range(3))
    share = structs.replace(slower.explained.shares[0], detail=told)
    changed = structs.replace(slower, explained=structs.replace(slower.explained, shares=[share]))
    [row] = [line for line in comparison_text(changed).splitlines() if line.startswith("  idle ")]
    assert row.endswith("  task_number_0: 110 ms → 154 ms each; …")


def test_runs_of_the_same_thing_show_no_change(tmp_path):
    run(tmp_path, "aaaaaaaa", 1.0)
    run(tmp_path, "bbbbbbbb", 1.0)
    found = comparison_text(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path))
    assert found.startswith(
        "B took about as long as A (20.0s → 20.0s); no change stands out from noise (1 name compared).\n"
    )


def test_runs_with_nothing_in_common_and_runs_of_spans_have_answers_too(tmp_path):
    closed_run(tmp_path, task_events("old", 0, 1, 1), token="aaaaaaaa")
    closed_run(tmp_path, task_events("new", 0, 1, 1), token="bbbbbbbb")
    found = comparison_text(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path))
    assert "they have no task or span in common." in found
    assert "  only in B: new (1 task)\n  only in A: old (1 task)\n" in found
    for token, took in (("cccccccc", 0.1), ("dddddddd", 0.2)):
        spans = [
            SpanEvent(timestamp=at(i / 3), name="solve", span_id=f"s{i}", duration_s=took * (1 + i % 5 / 50))
            for i in range(30)
        ]
        closed_run(tmp_path, spans, token=token, duration_s=10.0 + 60 * took)
    found = comparison_text(compare("cccccccc", "dddddddd", runs_dir=tmp_path))
    assert found.startswith("B took 38% longer (16.0s → 22.0s): `solve` is 2.00x slower (")


def test_names_that_a_run_recorded_cannot_paint_or_break_lines(tmp_path):
    nasty = "fit\x1b[31m\n`|`"
    for token in ("aaaaaaaa", "bbbbbbbb"):
        events = [e for i in range(8) for e in task_events(nasty, i, i, 0.5 if token[0] == "a" else 0.9)]
        closed_run(tmp_path, events, token=token)
    found = compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)
    for text in (comparison_text(found), comparison_markdown(found)):
        assert "\x1b" not in text
        assert "fit\\x1b[31m\\n'|'" in text.partition("\n\n")[0] + text


@pytest.mark.parametrize(
    ("interval", "speed", "ratio"),
    [
        (Interval(ratio=1.14, low=1.11, high=1.17), "1.14x slower (1.11 to 1.17)", "1.14 (1.11 to 1.17)"),
        (Interval(ratio=0.5, low=0.4, high=0.8), "2.00x faster (1.25 to 2.50)", "0.50 (0.40 to 0.80)"),
        (Interval(ratio=25.0), "25x slower", "25"),
    ],
)
def test_ratios_are_said_as_speed(interval, speed, ratio):
    assert (speed_text(interval), ratio_text(interval)) == (speed, ratio)


@given(st.floats(1e-6, 1e6))
def test_a_ratio_in_percent_has_its_sign(ratio):
    text = percent_text(ratio)
    assert text == "same" if abs(ratio - 1) < 0.0005 else text[0] in "+-" or text.endswith("x")
