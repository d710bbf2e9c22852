"""Runs at a moment, built in code, for tests of the view in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.live.results import (
    DeviceNow,
    Doing,
    EndedTask,
    Failed,
    HostNow,
    LiveState,
    LiveTaskName,
    LogLine,
    OpenSpan,
    Progress,
    SpanNow,
    WorkerNow,
)
from flightlog.tui.app import TopApp

GIB = 1 << 30
LABELS = {"count": ("running", "waiting"), "cores": ("0", "1"), "bytes": ("0",)}
SINCE = "2026-05-20T03:52:00.000000Z"


def chart(unit: str, *lines: list[float | None]) -> Chart:
    """Lines over a minute, evenly sampled."""
    series = [
        ChartSeries(
            label=LABELS[unit][n], at_s=[60 * i / (len(values) - 1) for i in range(len(values))], value=values
        )
        for n, values in enumerate(lines)
    ]
    return Chart(since=SINCE, length_s=60.0, unit=unit, series=series, notes=[])  # type: ignore[arg-type]


def at(seconds: int) -> str:
    return f"2026-05-20T03:52:{seconds:02d}.000000Z"


STATE = LiveState(
    run_id="run-20260520T035200Z-demo-a1b2c3d4",
    project="demo",
    status="running",
    start_time=SINCE,
    end_time=None,
    elapsed_s=125.0,
    host="node-1",
    target="local",
    error=None,
    progress=Progress(
        submitted=200,
        completed=117,
        failed=3,
        cancelled=0,
        running=4,
        waiting=76,
        retried=2,
        done=0.6,
        per_s=1.25,
        left_s=64.0,
        left_low_s=50.0,
        left_high_s=90.0,
    ),
    names=[
        LiveTaskName(
            name="simulate", submitted=180, completed=110, failed=3, running=3, mean_s=1.9, max_s=7.25
        ),
        LiveTaskName(name="reduce", submitted=20, completed=7, failed=0, running=1, mean_s=0.012, max_s=0.05),
    ],
    workers=[
        WorkerNow(
            worker=f"node-1-{n}",
            host="node-1",
            state="busy" if n < 3 else "lost",
            task="simulate" if n < 3 else None,
            task_id=f"t{n}",
            since_s=2.5 * n if n < 3 else None,
            ended=30 + n,
            failed=n % 2,
            cpu_cores=0.9 if n < 3 else None,
            memory_bytes=(1 + n) * GIB // 4,
            seen_s=0.5 if n < 3 else 33.0,
        )
        for n in range(4)
    ],
    workers_all=4,
    hosts=[
        HostNow(
            host="node-1",
            cpu_percent=73.0,
            memory_used_bytes=12 * GIB,
            memory_total_bytes=64 * GIB,
            seen_s=1.0,
        )
    ],
    devices=[
        DeviceNow(
            label="GPU 0",
            host="node-1",
            memory_used_bytes=39 * GIB,
            memory_total_bytes=40 * GIB,
            percent=88.0,
            scope="device",
            seen_s=1.0,
        )
    ],
    doing=[
        Doing(
            task="simulate",
            task_id="t9",
            attempt=1,
            args="n=9",
            worker="node-1-2",
            since=at(1),
            elapsed_s=124.0,
            usual_s=3.5,
            stuck=True,
        ),
        Doing(
            task="simulate",
            task_id="t1",
            attempt=2,
            args="n=1, seed=7",
            worker="node-1-1",
            since=at(50),
            elapsed_s=2.5,
            usual_s=3.5,
            stuck=False,
        ),
    ],
    failures=[
        Failed(
            at=at(41),
            task="simulate",
            task_id="t7",
            attempt=1,
            args="n=7",
            worker="node-1-0",
            error_type="ValueError",
            message="negative population",
            traceback='Traceback (most recent call last):\n  File "model.py", line 7, in step\nValueError: '
            "negative population",
            retried=False,
            fingerprint="abc",
        ),
        Failed(
            at=at(12),
            task="simulate",
            task_id="t3",
            attempt=1,
            args="n=3",
            worker="node-1-1",
            error_type="OSError",
            message="disk full",
            traceback=None,
            retried=True,
            fingerprint=None,
        ),
    ],
    slowest=[
        EndedTask(
            task="simulate",
            task_id="t4",
            attempt=1,
            args="n=4",
            worker="node-1-0",
            state="completed",
            at=at(30),
            duration_s=7.25,
            queue_s=0.5,
        ),
        EndedTask(
            task="reduce",
            task_id="r1",
            attempt=1,
            args="",
            worker="node-1-1",
            state="completed",
            at=at(40),
            duration_s=0.05,
            queue_s=None,
        ),
    ],
    timeline=None,
    concurrency=chart(
        "count", [0.0, 1.0, 2.0, 4.0, 4.0, 3.0, 4.0], [0.0, 50.0, 90.0, 80.0, 80.0, 78.0, 76.0]
    ),
    cpu=chart("cores", [0.1, 0.9, 0.9, 0.8, 0.9], [0.1, 0.5, 0.9, None, 1.0]),
    memory=chart("bytes", [1.0 * GIB, 2.0 * GIB, 6.0 * GIB, 12.0 * GIB]),
    device_memory=chart("bytes", [0.0, 20.0 * GIB, 39.0 * GIB]),
    cache_hits=30,
    cache_lookups=40,
    cost=0.42,
    currency="USD",
    log=[
        LogLine(
            at=at(41), kind="task_failed", text="simulate(n=7) failed: negative population", level="error"
        ),
        LogLine(at=at(1), kind="worker_ready", text="node-1-0 is ready", level="info"),
    ],
    problems=[],
    changed=1,
    failures_all=2,
    spans=[SpanNow(name="prepare", ended=2, errors=0, open=1, mean_s=1.5, max_s=2.0, total_s=3.0)],
    spans_all=2,
    open_spans=[
        OpenSpan(
            name="load", span_id="s1", tags="file=a.nc", since=at(3), elapsed_s=4.5, usual_s=None, stuck=None
        )
    ],
)

NOTHING = LiveState(
    run_id="run-20260520T035200Z-demo-00000000",
    project="demo",
    status="running",
    start_time=SINCE,
    end_time=None,
    elapsed_s=None,
    host="",
    target=None,
    error=None,
    progress=Progress(
        submitted=0,
        completed=0,
        failed=0,
        cancelled=0,
        running=0,
        waiting=0,
        retried=0,
        done=None,
        per_s=None,
        left_s=None,
        left_low_s=None,
        left_high_s=None,
    ),
    names=[],
    workers=[],
    workers_all=0,
    hosts=[],
    devices=[],
    doing=[],
    failures=[],
    slowest=[],
    timeline=None,
    concurrency=None,
    cpu=None,
    memory=None,
    device_memory=None,
    cache_hits=None,
    cache_lookups=None,
    cost=None,
    currency=None,
    log=[],
    problems=[],
    changed=0,
)


class Still:
    """Gives states one after the other; the last for ever."""

    def __init__(self, *states: LiveState | Exception) -> None:
        self._states = list(states)

    def update(self, limit_s: float | None = None) -> LiveState:
        found = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(found, Exception):
            raise found
        return found


def changed(state: LiveState, **fields: Any) -> LiveState:
    return msgspec.structs.replace(state, **fields)


def top(
    *states: LiveState | Exception, ascii_only: bool = False, runs: Any = list, path: Path = Path("run-1")
) -> TopApp:
    """The view over fixed states; nothing is read after the first until it is asked for."""
    still = Still(*(states or (STATE,)))
    return TopApp(path, open_live=lambda _: still, runs=runs, interval_s=3600.0, ascii_only=ascii_only)
