"""The chain that set the wall time, on runs small enough to draw."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from builders.runs import at, make_run
from builders.task_events import completed, started

from flightlog.analyze.report.critical_path import CriticalPath
from flightlog.analyze.report.report import report_on
from flightlog.events import Event, SpanEvent, TaskSubmitted
from flightlog.store.run import Run


def path_of(tmp_path: Path, events: Iterable[Event], lasts: float = 10.0) -> CriticalPath:
    run = make_run(tmp_path, events, end_time=at(lasts), duration_s=lasts)
    chain = report_on(Run(run), details=False).critical_path
    assert chain is not None
    return chain


def parts(chain: CriticalPath) -> dict[tuple[str, str], tuple[float, float | None]]:
    return {(part.kind, part.name): (part.seconds, part.saves_s) for part in chain.parts}


def task(name: str, worker: str, since: float, until: float, *needs: str, when: float = 0.0) -> list[Event]:
    return [
        TaskSubmitted(timestamp=at(when), task=name, task_id=name, args={"of": name}, depends_on=list(needs)),
        started(name, since, worker, task=name),
        completed(name, until, until - since, worker, task=name, args={"of": name}),
    ]


def test_the_chain_goes_through_the_dependency_that_ended_last(tmp_path: Path) -> None:
    chain = path_of(
        tmp_path,
        [
            *task("load", "w1", 0, 4),
            *task("fetch", "w2", 0, 3),
            *task("train", "w2", 4, 9, "load", "fetch"),
        ],
    )
    # Without `load` the run waits for `fetch`, which is a second shorter; `train` alone is all of its own
    # time.
    assert parts(chain) == {
        ("task", "train"): (5.0, 5.0),
        ("task", "load"): (4.0, 1.0),
        ("program", "after the last task"): (1.0, None),
    }
    assert (chain.wall_s, chain.links) == (10.0, 3)
    longest = chain.longest[0]
    assert (longest.name, longest.task_id, longest.args, longest.worker) == (
        "train",
        "train",
        {"of": "train"},
        "w2",
    )


def test_shared_ancestors_move_with_what_is_shortened(tmp_path: Path) -> None:
    chain = path_of(
        tmp_path,
        [
            *task("base", "w1", 0, 4),
            *task("left", "w1", 4, 7, "base"),
            *task("right", "w2", 4, 6.5, "base"),
            *task("join", "w1", 7, 9, "left", "right"),
        ],
    )
    assert parts(chain)["task", "base"] == (4.0, 4.0)  # both branches would begin earlier
    assert parts(chain)["task", "left"] == (3.0, 0.5)  # then the right one sets the time


def test_what_was_submitted_after_a_result_waited_for_it(tmp_path: Path) -> None:
    chain = path_of(tmp_path, [*task("ask", "w1", 0, 3), *task("tell", "w2", 6, 9, when=5)])
    assert parts(chain) == {
        ("task", "ask"): (3.0, 3.0),
        ("task", "tell"): (3.0, 3.0),
        ("program", "between tasks"): (2.0, None),
        ("wait", "tell"): (1.0, None),
        ("program", "after the last task"): (1.0, None),
    }


def test_a_task_waited_for_the_last_that_had_ended_of_those_at_once_on_its_worker(tmp_path: Path) -> None:
    chain = path_of(
        tmp_path,
        [
            *task("long", "w1", 0, 5),
            *task("short", "w1", 0, 3),
            *task("middle", "w1", 2, 8, when=2),
            *task("next", "w1", 3, 9),
        ],
        lasts=9.0,
    )
    assert {part: seconds for part, (seconds, _) in parts(chain).items()} == {
        ("task", "next"): 6.0,
        ("task", "short"): 3.0,
    }


def test_a_run_without_tasks_has_the_chain_of_its_spans(tmp_path: Path) -> None:
    def span(name: str, since: float, until: float, parent: str | None = None) -> SpanEvent:
        return SpanEvent(
            timestamp=at(since), name=name, span_id=name, parent_id=parent, duration_s=until - since
        )

    chain = path_of(
        tmp_path,
        [
            span("job", 1, 9),
            span("read", 1, 3, "job"),
            span("slow", 3, 8, "job"),
            span("beside", 3, 7, "job"),
        ],
    )
    assert chain.of == "spans"
    assert parts(chain) == {
        ("span", "slow"): (5.0, None),
        ("program", "outside of spans"): (2.0, None),
        ("span", "read"): (2.0, None),
        ("span", "job"): (1.0, None),
    }
    saves = {link.name: link.saves_s for link in chain.longest if link.kind == "span"}
    assert saves == {"slow": 1.0, "read": 2.0, "job": 1.0}  # beyond one second `beside` sets the time


def test_parallel_spans_are_waited_for_once(tmp_path: Path) -> None:
    events = [
        SpanEvent(timestamp=at(0), name="all", span_id="all", duration_s=10.0),
        *(
            SpanEvent(timestamp=at(1), name="part", span_id=f"p{n}", parent_id="all", duration_s=5.0 + n)
            for n in range(3)
        ),
    ]
    assert parts(path_of(tmp_path, events)) == {("span", "part"): (7.0, None), ("span", "all"): (3.0, None)}
