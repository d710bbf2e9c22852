"""What is drawn stays small however many tasks, workers and names there are, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import msgspec
import pytest
from builders.runs import make_run

from flightlog.analyze.charts.layout import TimeWindow, lay_out_items
from flightlog.analyze.charts.report_with_charts import durations, load, waits
from flightlog.analyze.charts.results import Timeline
from flightlog.analyze.charts.timeline import timeline
from flightlog.analyze.report.report import ReportContext
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import RunTables, open_tables

S = 1_000_000_000
START = 1_700_000_000 * S
HOUR = TimeWindow(START, 3600 * S)

_ATTEMPTS = """
CREATE OR REPLACE TEMP TABLE attempt_intervals AS
SELECT 'task ' || (n % {names}) AS task, 't' || n AS task_id, 1 AS attempt, 'w' || (n % {workers}) AS worker,
    CASE WHEN n % 7 = 0 THEN 'failed' ELSE 'completed' END AS state, false AS retried,
    {start} + (n * 3000::BIGINT // {tasks}) * 1000000000 + n AS began,
    {start} + (n * 3000::BIGINT // {tasks}) * 1000000000 + n + (n % 10) * 1000000000 AS stopped,
    began - 5 AS waits, (n % 100) / 10.0 AS queue_s, (n % 10) * 1.0 AS duration_s, 'ValueError' AS error_type,
    's' || n AS span_id, '{{}}' AS args
FROM range({tasks}) AS numbers(n)
"""


@contextmanager
def many(tasks: int, workers: int, names: int) -> Iterator[RunTables]:
    with TemporaryDirectory() as folder, open_tables([Run(make_run(Path(folder)))]) as tables:
        tables.make(["attempt_intervals", "span_intervals"])
        tables.execute(_ATTEMPTS.format(tasks=tasks, workers=workers, names=names, start=START))
        tables.execute(
            "CREATE OR REPLACE TEMP TABLE span_intervals AS SELECT 'x' || task_id AS span_id, span_id AS "
            "parent_id, 'inside' AS name, 'ok' AS status, false AS \"open\", began, stopped "
            "FROM attempt_intervals"
        )
        yield tables


def drawn_timeline(tables: RunTables, workers: list[str]) -> Timeline:
    pieces = lay_out_items(tables, HOUR, workers)
    assert pieces is not None
    run = SimpleNamespace(info=SimpleNamespace(span_id=None))
    context = ReportContext(run, tables, None)  # type: ignore[arg-type]
    return timeline(context, HOUR, pieces, {})


@pytest.mark.parametrize(
    ("tasks", "workers", "names"), [(20_000, 300, 5), (200_000, 64, 1000), (200_000, 10_000, 20)]
)
def test_very_many_attempts_are_drawn_by_a_bounded_number_of_cells(
    tasks: int, workers: int, names: int
) -> None:
    with many(tasks, workers, names) as tables:
        found = drawn_timeline(tables, [f"w{n}" for n in range(workers)])
        shown = durations(tables)
        spread = waits(tables, found.names)
        running = load(tables, HOUR)
    cells = found.cells
    assert cells is not None
    assert running is not None
    assert found.bars is None
    assert len(cells.lane) <= 64 * 400
    assert len(found.lanes) == 64
    assert sum(lane.merged for lane in found.lanes) == workers
    assert len(found.names) == min(names, 12)
    assert (found.attempts, found.failures, len(found.marks)) == (tasks, len(range(0, tasks, 7)), 500)
    held_s = sum(
        busy * length_s * found.lanes[lane].merged
        for lane, length_s, busy in zip(cells.lane, cells.length_s, cells.busy, strict=True)
    )
    assert held_s == pytest.approx(4.5 * tasks, rel=1e-6)
    assert sum(value or 0 for value in running.series[0].value) * 15 == pytest.approx(4.5 * tasks, rel=1e-6)
    assert len(shown) == min(names, 20)
    assert spread is not None
    assert (len(spread.queue_s), sum(map(sum, spread.grid))) == (0, tasks)
    assert found.notes[0].startswith(
        f"This shows density and not single attempts: {tasks:,} attempts are drawn"
    )
    assert len(msgspec.json.encode([found, shown, spread, running])) < 3_000_000


def test_five_thousand_attempts_are_drawn_one_by_one() -> None:
    with many(5000, 50, 3) as tables:
        found = drawn_timeline(tables, [f"w{n}" for n in range(50)])
        assert found.cells is None
        assert found.bars is not None
        assert len(found.bars.lane) == 5000
        assert found.nested is None or len(found.nested.lane) <= 2000


def test_the_same_attempts_give_the_same_drawing() -> None:
    with many(20_000, 100, 40) as tables:
        workers = [f"w{n}" for n in range(100)]
        assert msgspec.json.encode(drawn_timeline(tables, workers)) == msgspec.json.encode(
            drawn_timeline(tables, workers)
        )
