"""Advice as a tired scientist reads it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from builders.runs import at, make_run

from flightlog.analyze.advice.advise import advise_on
from flightlog.analyze.history.attempts import read_past
from flightlog.events import Event, ResourceRequest, TaskCompleted
from flightlog.show.advice import advice_text

GB = 10**9


def task(number: int, name: str, gb: float, component: str = "model", **fields: object) -> TaskCompleted:
    given: dict[str, Any] = {
        "timestamp": at(number),
        "task": name,
        "task_id": f"{name}-{number}",
        "component": component,
        "worker": "w1",
        "duration_s": 60.0,
        "cpu_s": 108.0,
        "cpu_scope": "tree",
        "peak_rss_bytes": round(gb * GB),
        "rss_scope": "tree",
        "args": {},
    }
    return TaskCompleted(**(given | fields))


def text(tmp_path: Path, events: list[Event], **options: bool) -> str:
    asked = [
        ResourceRequest(task=None, component=name, cpus=4.0, memory_bytes=16 * GB)
        for name in ("model", "plots", "rare")
    ]
    make_run(tmp_path, [*asked, *events], target="cluster")
    return advice_text(advise_on(read_past(tmp_path, project=None), shape=False), **options)


def test_the_recommendation_has_the_shape_of_the_tutorial(tmp_path: Path) -> None:
    draw = Random(1)
    tasks: list[Event] = [task(n, "run_simulation", 6 * draw.lognormvariate(0, 0.02)) for n in range(40)]
    assert (
        text(tmp_path, tasks)
        == """\
Advice for demo: 1 request to change (from 40 attempts in 1 run)

Resource Recommendation for 'run_simulation' (component model):
  Current:            4 CPUs, 16GB memory
  Recommended:        2 CPUs, 6.3GB memory
  Reason:             95th percentile usage is 1.8 CPUs and 6.2 GB memory, in 40 attempts of 1 run
  Potential savings:  50% of the CPUs and 61% of the memory: 1.33 CPU-hours and 6.47 GB-hours a run
  - 95% of the attempts end within 1m 00s.

Sized for 95% of future attempts; `flightlog advise --apply` writes it into an overlay.
"""
    )


def test_tasks_that_fit_and_tasks_without_history_take_a_line_each(tmp_path: Path) -> None:
    tasks: list[Event] = [task(n, "big", 15.0, cpu_s=235.0) for n in range(40)]
    tasks += [task(n, "plot", 15.0, "plots", cpu_s=235.0) for n in range(40)]
    tasks += [task(n, "rare", 1.0, "rare") for n in range(2)]
    assert (
        text(tmp_path, tasks)
        == """\
Advice for demo: nothing to change (from 82 attempts in 1 run)

No change needed: big, plot

No advice yet:
  - rare (2 attempts): CPUs and memory: only 2 attempts were measured to the end: 3 more are needed
    to say anything, 30 more for a bound without assumptions
"""
    )


def test_names_from_a_run_cannot_paint_the_terminal(tmp_path: Path) -> None:
    tasks: list[Event] = [task(n, "evil\x1b[31m\nname", 2.0, args={"n\x07": n}) for n in range(40)]
    plain = text(tmp_path, tasks)
    assert "\x1b" not in plain
    assert "\x07" not in plain
    assert "evil\\x1b[31m\\nname" in plain


def test_lines_keep_to_the_width(tmp_path: Path) -> None:
    tasks: list[Event] = [task(n, "simulate", 1 + n / 20, args={"n": 10 * n}) for n in range(60)]
    assert max(map(len, text(tmp_path, tasks).splitlines()[:-1])) <= 100
