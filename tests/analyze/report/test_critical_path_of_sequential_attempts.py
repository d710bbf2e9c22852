"""Workers that take one task after the other: the chain that is followed by leaps is the one through all
attempts."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from tempfile import mkdtemp

from builders.examples import FEW
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.analyze.report.critical_path import CriticalPath, critical_path, order_attempts
from flightlog.core.time import moment
from flightlog.events import Event, TaskRetried, WorkerReady
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_tables

ALL, NEVER_REPLAYED = 1 << 60, -1


def in_turn(seed: int, workers: int, tasks: int) -> list[Event]:
    """Tasks in tenths of seconds, so that much happens at the same moment; some fail once and run again
    elsewhere."""
    dice = random.Random(seed)
    free = {f"w{n}": dice.randrange(4) for n in range(workers)}
    events: list[Event] = []
    for n in range(tasks):
        name, task_id = dice.choice(("load", "sim", "fit")), f"t{dice.randrange(1000)}-{n}"
        came = dice.randrange(0, 10 + 4 * tasks // workers) if dice.random() < 0.6 else 0
        events.append(submitted(task_id, came / 10, task=name))
        for attempt in (1, 2) if dice.random() < 0.2 else (1,):
            worker = dice.choice(sorted(free))
            began = max(free[worker] + dice.choice((0, 0, 1, 3)), came)
            free[worker] = came = stopped = began + dice.randrange(1, 6)
            lasted = (stopped - began) / 10
            queue_s = dice.choice((None, 0.0, 0.2))
            facts = {"worker": worker, "task": name, "attempt": attempt}
            events.append(started(task_id, began / 10, **facts, queue_s=queue_s))
            if attempt == 2 or dice.random() < 0.9:
                events.append(completed(task_id, stopped / 10, lasted, **facts, queue_s=queue_s))
            else:
                events.append(failed(task_id, stopped / 10, lasted, **facts, queue_s=queue_s))
            if attempt == 1:
                events.append(
                    TaskRetried(timestamp=at(stopped / 10), task=name, task_id=task_id, attempt=1, reason="x")
                )
    return events


def chain(run: Run, *, by_leaps: bool) -> CriticalPath | None:
    until = moment(at(100))
    with open_tables([run]) as tables:
        assert order_attempts(tables)
        traced = critical_path(tables, (moment(at(0)), until), leaps=by_leaps, replayed=NEVER_REPLAYED)
        return traced.path if traced is not None else None


@FEW
@given(st.integers(0, 1 << 32), st.integers(1, 4), st.integers(1, 40), st.booleans())
@example(0, 1, 1, True)
def test_the_chain_is_the_same(seed: int, workers: int, tasks: int, with_startups: bool) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    dice = random.Random(seed)
    startups = [
        WorkerReady(timestamp=at(k + lasted), worker=f"w{n}", host=None, pid=None, launch_s=lasted)
        for n in range(workers)
        if with_startups
        for k in range(dice.randrange(3))
        for lasted in (dice.randrange(1, 9) / 10,)
    ]
    events = [*startups, *in_turn(seed, workers, tasks)]
    try:
        run = Run(make_run(folder, events, end_time=at(100), duration_s=100.0))
        assert chain(run, by_leaps=True) == chain(run, by_leaps=False)
    finally:
        shutil.rmtree(folder)


def turns(folder: Path, events: list[Event]) -> bool:
    with open_tables([Run(make_run(folder, events))]) as tables:
        return order_attempts(tables)


def test_attempts_side_by_side_instant_or_without_a_worker_do_not_take_turns(tmp_path: Path) -> None:
    one = [submitted("t1"), completed("t1", 2.0, 1.0)]
    assert turns(tmp_path / "one", one)
    assert not turns(tmp_path / "beside", [*one, submitted("t2"), completed("t2", 2.5, 1.0)])
    assert not turns(tmp_path / "instant", [*one, submitted("t2"), completed("t2", 2.0, 0.0)])
    assert not turns(tmp_path / "nowhere", [*one, submitted("t2"), completed("t2", 4.0, 1.0, worker=None)])
