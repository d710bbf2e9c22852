"""What the time of workers was paid for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from builders.examples import FEW
from builders.pictures import Row, counted, drawn_run, pictures
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.cost.cost import CostSplit, run_cost
from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.events import CostRates, TaskRetried, WorkerLaunched, WorkerReady, WorkerRemoved
from flightlog.store.run import Run

PARTS = {
    "useful": ("run",),
    "retried": ("retried",),
    "failed": ("failed",),
    "unfinished": ("unfinished",),
    "idle": ("scheduler", "behind", "alone"),
    "starting": ("startup",),
}


def test_every_part_of_a_workers_time_is_paid_for_once(tmp_path: Path) -> None:
    who = {"worker": "w1", "host": "n1", "pid": 1}
    events = [
        CostRates(timestamp=at(0), currency="EUR", source="x", per_worker_hour=3600.0),
        WorkerLaunched(timestamp=at(0), **who),
        WorkerReady(timestamp=at(1), **who),
        submitted("t1", 1),
        started("t1", 1),
        completed("t1", 4, 3.0),
        submitted("t2", 4),
        started("t2", 4),
        TaskRetried(timestamp=at(5), task="sim", task_id="t2", reason="OSError"),
        started("t2", 5, attempt=2),
        failed("t2", 7, 2.0, attempt=2),
        WorkerRemoved(timestamp=at(9), reason=None, **who),
    ]
    assert report_on(Run(make_run(tmp_path, events))).cost_split == CostSplit(
        total=9.0, currency="EUR", useful=3.0, retried=1.0, failed=2.0, unfinished=0.0, idle=2.0, starting=1.0
    )


price = st.floats(0, 1000, allow_subnormal=False)


@FEW
@given(pictures(), st.booleans(), price, price, st.sampled_from([1.0, 0.5, 3.0]))
def test_the_parts_cost_what_can_be_counted_and_add_up_to_the_total(
    rows: list[Row], closed: bool, per_worker: float, per_cpu: float, cpus: float
) -> None:
    named = CostRates(
        timestamp=at(0),
        currency="EUR",
        source="x",
        per_worker_hour=per_worker,
        per_cpu_hour=per_cpu,
        components={"cpu": {"cpus": cpus}, "gpu": {"cpus": 2.0}},
    )
    sizes = {"cpu": cpus, "gpu": 2.0, None: max(cpus, 2.0)}
    exact = dict.fromkeys(PARTS, Fraction(0))
    for row in rows:
        hourly = Fraction(per_worker) + Fraction(per_cpu) * Fraction(sizes[row.component])
        spent = counted(rows)[row.worker]
        for part, names in PARTS.items():
            exact[part] += sum(spent.get(one, 0) for one in names) * hourly / 3600
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = Run(drawn_run(Path(folder), *rows, closed=closed, more=[named]))
        report, cost = report_on(run), run_cost(run)
        assert summarize(run).cost == report.cost
    split = report.cost_split
    assert split is not None
    nano = {part: round(getattr(split, part) * 1e9) for part in PARTS}
    assert all(abs(nano[part] - exact[part] * 10**9) <= 1 for part in PARTS)
    assert sum(nano.values()) == round(split.total * 1e9) == round(sum(exact.values()) * 10**9)
    assert (report.cost.workers_total, report.cost.total) == (split.total, cost.total)
