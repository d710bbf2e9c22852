"""What charts show: loads, resources, device memory, durations, waiting and lookups, each of bounded size."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders.charts import drawn
from builders.examples import FEW
from builders.runs import at, make_run
from builders.task_events import completed, failed, started
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.layout import TimeWindow
from flightlog.analyze.charts.lines import concurrency_chart, with_gaps
from flightlog.analyze.charts.report_with_charts import bin_of, edges
from flightlog.analyze.charts.results import ChartSeries, DurationSpread
from flightlog.events import CacheLookup, DeviceMemory, Event, ResourceSample, WorkerReady
from flightlog.store.tables.connection import private_connection

GIB = 1 << 30


def sample(when: float, scope: str, **values: Any) -> Event:
    return ResourceSample(
        timestamp=at(when), scope=scope, **{"host": "node-1", "cpu_percent": None, **values}
    )  # type: ignore[arg-type]


def test_running_waiting_and_workers_are_means_over_stretches_that_lose_no_time(tmp_path: Path) -> None:
    events = [
        WorkerReady(timestamp=at(2), worker="w1", host="node-1", pid=1),
        completed("a", 5, 2, queue_s=1.0),
        completed("b", 9, 4, queue_s=0.5),
        started("c", 8),
    ]
    chart = drawn(make_run(tmp_path, events)).concurrency
    assert chart is not None
    each = 10 / 240
    assert {one.label: pytest.approx(sum(v or 0 for v in one.value) * each) for one in chart.series} == {
        "running": 8.0,
        "waiting": 1.5,
        "workers up": 8.0,
    }
    running = chart.series[0]
    assert (len(running.at_s), running.at_s[0]) == (240, pytest.approx(each / 2))
    assert [value for moment, value in zip(running.at_s, running.value, strict=True) if 8 < moment < 8.9] == [
        2.0
    ] * 22
    assert chart.notes == ["Each point is the mean over 41.7 ms."]


def test_where_it_is_not_known_when_tasks_ran_none_is_said_to_run(tmp_path: Path) -> None:
    assert drawn(make_run(tmp_path, [completed("a", 5, None, worker=None)])).concurrency is None


@FEW
@given(
    st.integers(1, 1000),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=12),
)
def test_means_over_stretches_are_those_of_the_intervals(
    length: int, most: int, found: list[tuple[int, int]]
) -> None:
    intervals = [(min(one, length), min(max(one, other), length)) for one, other in found]
    stretches = TimeWindow(0, length).stretches(most)
    bounds = [stretches.begins(n) for n in range(stretches.number + 1)]
    assert (bounds[0], bounds[-1], len(bounds) <= most + 1) == (0, length, True)
    line = (
        f"SELECT unnest({[since for since, _ in intervals]}::BIGINT[]) AS since, "
        f"unnest({[until for _, until in intervals]}::BIGINT[]) AS until"
    )
    with private_connection({}) as connection:
        chart = concurrency_chart(connection, TimeWindow(0, length), {"running": line}, points=most)
    shown = [0.0] * (len(bounds) - 1) if chart is None else chart.series[0].value
    assert shown == [
        pytest.approx(
            sum(max(0, min(until, high) - max(since, low)) for since, until in intervals) / (high - low),
            abs=1e-9,
        )
        for low, high in pairwise(bounds)
    ]


def test_samples_are_drawn_where_they_were_taken_with_what_they_cannot_exceed(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 2),
        *(
            sample(n, "worker", worker="w1", pid=7, cpu_cores=n / 10, rss_bytes=n * GIB, interval_s=1.0)
            for n in (1, 2, 3)
        ),
        sample(1, "worker", pid=9, rss_bytes=5 * GIB),
        *(
            sample(n, "node", cpu_percent=10.0 * n, memory_used_bytes=n, memory_total_bytes=64)
            for n in (1, 2, 3)
        ),
        sample(2, "cgroup", memory_used_bytes=9, memory_total_bytes=10),
        sample(2, "gpu", gpu_index=0, gpu_percent=50.0, gpu_memory_used_bytes=3, gpu_memory_total_bytes=80),
        sample(2, "task", task_id="a", rss_bytes=1),
    ]
    found = drawn(make_run(tmp_path, events))
    charts = {
        name: getattr(found, name)
        for name in ("worker_cpu", "worker_memory", "host_cpu", "host_memory", "device_memory", "device_use")
    }
    alone = ["There is but one point of each, and no line."]
    assert {name: (chart.unit, chart.series, chart.notes) for name, chart in charts.items()} == {
        "worker_cpu": ("cores", [ChartSeries(label="w1", at_s=[1.0, 2.0, 3.0], value=[0.1, 0.2, 0.3])], []),
        "worker_memory": (
            "bytes",
            [
                ChartSeries(label="node-1, process 9 and its processes", at_s=[1.0], value=[5.0 * GIB]),
                ChartSeries(label="w1", at_s=[1.0, 2.0, 3.0], value=[1.0 * GIB, 2.0 * GIB, 3.0 * GIB]),
            ],
            [],
        ),
        "host_cpu": (
            "percent",
            [ChartSeries(label="node-1", at_s=[1.0, 2.0, 3.0], value=[10.0, 20.0, 30.0], limit=100.0)],
            [],
        ),
        "host_memory": (
            "bytes",
            [
                ChartSeries(label="node-1, container", at_s=[2.0], value=[9.0], limit=10.0),
                ChartSeries(label="node-1", at_s=[1.0, 2.0, 3.0], value=[1.0, 2.0, 3.0], limit=64.0),
            ],
            [],
        ),
        "device_memory": (
            "bytes",
            [ChartSeries(label="node-1, GPU 0", at_s=[2.0], value=[3.0], limit=80.0)],
            alone,
        ),
        "device_use": (
            "percent",
            [ChartSeries(label="node-1, GPU 0", at_s=[2.0], value=[50.0], limit=100.0)],
            alone,
        ),
    }


def test_of_samples_that_share_a_point_memory_is_the_largest_and_cpu_the_mean(tmp_path: Path) -> None:
    events = [
        sample(
            n / 1000,
            "worker",
            worker="w1",
            cpu_cores=float(n % 2),
            rss_bytes=n,
            interval_s=0.001 * (1 + n % 2),
        )
        for n in range(10_000)
    ]
    found = drawn(make_run(tmp_path, events))
    assert found.worker_cpu is not None
    assert found.worker_memory is not None
    [cpu], [memory] = found.worker_cpu.series, found.worker_memory.series
    assert len(cpu.value) == len(memory.value) == 300
    assert memory.value[-1] == 9999
    assert all(value == pytest.approx(2 / 3, abs=0.02) for value in cpu.value)
    assert found.worker_memory.notes == ["Each point is the largest of the samples within 33.3 ms."]
    assert found.worker_cpu.notes == ["Each point is the mean of the samples within 33.3 ms."]


def test_the_largest_sixteen_are_drawn_and_the_others_counted(tmp_path: Path) -> None:
    events = [sample(1, "worker", worker=f"w{n:02d}", rss_bytes=n) for n in range(40)]
    chart = drawn(make_run(tmp_path, events)).worker_memory
    assert chart is not None
    assert [one.value for one in chart.series] == [[float(n)] for n in range(39, 23, -1)]
    assert chart.notes == ["There is but one point of each, and no line.", "The 16 largest of 40 are drawn."]


def test_samples_of_a_clock_that_is_far_off_are_counted_and_not_drawn(tmp_path: Path) -> None:
    events = [sample(when, "node", memory_used_bytes=7) for when in (5, 11, 900)]
    chart = drawn(make_run(tmp_path, events)).host_memory
    assert chart is not None
    assert chart.series == [ChartSeries(label="node-1", at_s=[5.0, 10.0], value=[7.0, 7.0])]
    assert chart.notes == ["1 samples were taken outside of the run's time, by their clocks."]


def test_a_line_is_not_drawn_across_a_time_of_which_nothing_is_known() -> None:
    points = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (8.0, 2.0), (9.0, 2.0)]
    assert with_gaps(points) == [*points[:3], (5.0, None), *points[3:]]
    assert with_gaps([]) == []
    assert with_gaps([(1.0, 5.0)]) == [(1.0, 5.0)]


def device_event(when: float, rank: int, allocated: int | None, used: int | None) -> Event:
    start = 1_779_249_120_000_000_000
    return DeviceMemory(
        schema_version=3,
        session_id=f"s{rank}",
        timestamp_ns=start + round(when * 1e9),
        event_type="sample",
        collector="torch",
        sampling_interval_ms=100,
        pid=1,
        host="node-1",
        device_id=rank,
        allocator_allocated_bytes=allocated,
        allocator_reserved_bytes=allocated,
        allocator_active_bytes=None,
        allocator_inactive_bytes=None,
        allocator_change_bytes=0,
        device_used_bytes=used,
        device_free_bytes=None,
        device_total_bytes=80,
        rank=rank,
        local_rank=rank,
        world_size=2,
        context=None,
        metadata={},
        job_id=None,
    )


def test_device_memory_is_drawn_by_rank_where_ranks_tracked_it(tmp_path: Path) -> None:
    events = [
        device_event(1, 0, 10, 20),
        device_event(2, 0, 30, 40),
        device_event(1, 1, None, 15),
        sample(2, "gpu", gpu_index=0, gpu_memory_used_bytes=3),
    ]
    chart = drawn(make_run(tmp_path, events)).device_memory
    assert chart is not None
    assert chart.series == [
        ChartSeries(label="rank 0", at_s=[1.0, 2.0], value=[10.0, 30.0], limit=80.0),
        ChartSeries(label="rank 1", at_s=[1.0], value=[15.0], limit=80.0),
    ]


def test_lookups_are_counted_by_stretches(tmp_path: Path) -> None:
    events = [
        CacheLookup(timestamp=at(when), task="sim", result=result, key=None, reason=None)  # type: ignore[arg-type]
        for when, result in ((0.0, "miss"), (0.1, "miss"), (5.0, "hit"), (10.0, "hit"), (99.0, "hit"))
    ]
    chart = drawn(make_run(tmp_path, events)).cache
    assert chart is not None
    assert {one.label: sum(value or 0 for value in one.value) for one in chart.series} == {
        "hits": 2,
        "misses": 2,
    }
    misses = next(one for one in chart.series if one.label == "misses")
    assert (len(misses.value), misses.value[:2]) == (60, [2.0, 0.0])
    assert chart.notes == [
        "Lookups within 167 ms each.",
        "1 lookups were outside of the run's time, by their clocks.",
    ]


def test_durations_are_those_of_completed_tasks_by_name_longest_first(tmp_path: Path) -> None:
    events = [completed(f"a{n}", 5, n, task="long") for n in (1, 2, 3)]
    events += [
        completed("b", 5, 0.5, task="short"),
        completed("c", 5, 0, task="none"),
        failed("d", 5, 4, task="long"),
    ]
    found = drawn(make_run(tmp_path, events)).durations
    assert [(one.name, one.count, one.total_s, sum(one.counts)) for one in found] == [
        ("long", 3, 6.0, 3),
        ("short", 1, 0.5, 1),
        ("none", 1, 0.0, 1),
    ]
    long = found[0]
    assert (long.least_s, long.p25_s, long.median_s, long.p75_s, long.p95_s, long.most_s) == (
        1,
        1.5,
        2,
        2.5,
        2.9,
        3,
    )
    assert long.edges_s[0] <= 1
    assert long.edges_s[-1] > 3
    assert len(long.edges_s) == len(long.counts) + 1
    assert found[2] == DurationSpread(
        name="none",
        count=1,
        total_s=0.0,
        edges_s=[0.0, found[2].edges_s[1]],
        counts=[1],
        least_s=0.0,
        p25_s=0.0,
        median_s=0.0,
        p75_s=0.0,
        p95_s=0.0,
        most_s=0.0,
    )


def test_waits_are_points_where_they_are_few_and_a_grid_where_they_are_many(tmp_path: Path) -> None:
    events = [completed(f"t{n}", 9, 0.1 * (n + 1), queue_s=0.01 * n) for n in range(50)]
    events += [completed("unknown", 9, 1), failed("x", 9, 0.2, queue_s=0.3)]
    path = make_run(tmp_path, events)
    points, grid = drawn(path).waits, drawn(path, max_wait_points=10).waits
    assert points is not None
    assert grid is not None
    assert (points.attempts, len(points.queue_s), points.grid, points.notes) == (51, 51, [], [])
    assert sorted(zip(points.queue_s, points.run_s, points.name, strict=True)) == sorted(
        [(0.01 * n, 0.1 * (n + 1), 0) for n in range(50)] + [(0.3, 0.2, 0)]
    )
    want = [[0] * (len(grid.run_edges_s) - 1) for _ in grid.queue_edges_s[1:]]
    for queue_s, run_s in zip(points.queue_s, points.run_s, strict=True):
        want[bisect_right(grid.queue_edges_s, queue_s) - 1][bisect_right(grid.run_edges_s, run_s) - 1] += 1
    assert (grid.queue_s, grid.grid) == ([], want)
    assert grid.notes == ["This shows how many of 51 attempts waited and ran that long, and not single ones."]


values = st.floats(1e-12, 1e300)


@FEW
@given(values, values, st.integers(38, 60), st.booleans(), st.data())
def test_bins_hold_every_value_and_are_no_more_than_asked_for(
    one: float, other: float, bins: int, zero: bool, data: st.DataObject
) -> None:
    least, most = sorted((one, other))
    found = edges(least, most, bins, zero=zero)
    assert found == sorted(set(found))
    assert len(found) - 1 <= bins + 1
    inside = [least, most, *data.draw(st.lists(st.floats(least, most), max_size=5)), *found[1:-1]]
    with private_connection({}) as connection:
        rows = connection.execute(
            f"SELECT {bin_of('s', found)} FROM (SELECT unnest($1::DOUBLE[]) AS s)",
            [inside],
        ).fetchall()
    assert [number for (number,) in rows] == [
        min(max(bisect_right(found, value) - 1, 0), len(found) - 2) for value in inside
    ]
    assert all(math.isfinite(edge) for edge in found)
