"""A small closed run with every document and an event of nearly every kind, for tests that change something
in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builders.runs import at, make_run

from flightlog.analyze.devices.oom import BUNDLE
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    CostEstimate,
    CostRates,
    DeviceMemory,
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    Metric,
    ResourceRequest,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
)
from flightlog.store import layout
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run


def small_run(runs_dir: Path, token: str = "a1b2c3d4") -> Path:
    """Write the run and give its path."""
    run = make_run(
        runs_dir,
        _events(),
        token=token,
        status="failed",
        error="ValueError: no",
        tasks_submitted=2,
        tasks_completed=1,
        tasks_failed=1,
        command=["python", "x.py"],
        tags={"who": "me"},
        python="3.11.7",
        git_commit="abc",
    )
    documents: dict[str, Any] = {
        layout.ENVIRONMENT: {
            "host": "h",
            "memory_bytes": 8 << 30,
            "cgroup_memory_bytes": 4 << 30,
            "cpus_logical": 8,
            "cpu_model": "c",
            "packages": {"numpy": "2.0"},
            "variables": {"A": "b"},
            "git_commit": "abc",
            "git_dirty": False,
        },
        layout.PLAN: {
            "target": "local",
            "workers": 2,
            "components": {"c": {"cpus": 1, "memory_bytes": 1 << 30}},
            "tasks": {"fit": {"component": "c", "memory_bytes": 1 << 30}},
        },
        layout.LOCK: {
            "manifest_sha256": "0" * 64,
            "packages": {"numpy": "2.0"},
            "functions": {"f": {"sha256": "1"}},
        },
        f"{layout.OOM}/1-x/{BUNDLE}": {
            "time_ns": 1779249121000000000,
            "session_id": "s",
            "rank": 0,
            "host": "h",
            "pid": 1,
            "device_id": 0,
            "phase": "fit",
            "span_path": ["fit"],
            "error_type": "OutOfMemoryError",
            "message": "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 8.00 GiB",
            "identity": {"rank": 0},
        },
    }
    for name, document in documents.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(json.dumps(document))
    (run / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(run))))
    write_checksums(run)
    return run


def _events() -> Iterator[Event]:
    place: dict[str, Any] = {"worker": "w", "host": "h", "pid": 7, "component": "c"}
    yield WorkerLaunched(**place, timestamp=at(0), cpus=1.0, memory_bytes=1 << 30, gpus=1)
    yield WorkerReady(**place, timestamp=at(0.5), launch_s=0.5)
    for number in range(2):
        of: dict[str, Any] = {
            "task": "fit",
            "task_id": f"{number}",
            "component": "c",
            "span_id": f"s{number}",
        }
        ended: dict[str, Any] = {
            "args": {"n": number},
            "worker": "w",
            "duration_s": 2.0,
            "queue_s": 0.5,
            "cpu_s": 1.0,
            "cpu_scope": "thread",
            "peak_rss_bytes": 1 << 20,
            "rss_scope": "process",
            "tags": {"a": "b"},
            "metrics": {"loss": 0.5},
        }
        yield TaskSubmitted(**of, timestamp=at(1), args={"n": number}, depends_on=["0"] if number else [])
        yield TaskQueued(**of, timestamp=at(1.1))
        yield TaskStarted(**of, timestamp=at(2 + number), worker="w", queue_s=0.5)
        if number:
            yield TaskRetried(**of, timestamp=at(5), reason="no", delay_s=0.1)
            again = {**of, "attempt": 2}
            yield TaskStarted(**again, timestamp=at(6), worker="w", queue_s=0.5)
            yield TaskFailed(**again, **ended, timestamp=at(8), error_type="ValueError", error_message="no")
        else:
            yield TaskCompleted(**of, **ended, timestamp=at(4), result_bytes=3)
    yield Failure(
        scope="task",
        error_type="ValueError",
        message="no",
        traceback="Traceback …\nValueError: no",
        fingerprint="f",
        task="fit",
        task_id="1",
        attempt=2,
        worker="w",
        timestamp=at(8),
    )
    yield WorkerLost(**place, timestamp=at(9), reason="killed", exit_code=-9, signal="SIGKILL")
    for second in (1.0, 9.0):
        sample: dict[str, Any] = {
            "host": "h",
            "timestamp": at(second),
            "cpu_percent": 50.0,
            "interval_s": 1.0,
        }
        yield ResourceSample(
            **sample, scope="worker", worker="w", pid=7, cpu_cores=0.5, cpu_s=second, rss_bytes=9
        )
        yield ResourceSample(**sample, scope="node", cpus=8.0, memory_used_bytes=9, memory_total_bytes=99)
        yield ResourceSample(
            **sample, scope="gpu", gpu_index=0, gpu_uuid="u", gpu_percent=5.0, gpu_memory_used_bytes=9
        )
        yield Metric(name="loss", value=second, step=int(second), timestamp=at(second))
        yield DeviceMemory(
            schema_version=3,
            session_id="s",
            timestamp_ns=1779249121000000000 + int(second) * 10**9,
            event_type="sample",
            collector="c",
            sampling_interval_ms=100,
            pid=7,
            host="h",
            device_id=0,
            allocator_allocated_bytes=9,
            allocator_reserved_bytes=9,
            allocator_active_bytes=9,
            allocator_inactive_bytes=0,
            allocator_change_bytes=0,
            device_used_bytes=9,
            device_free_bytes=None,
            device_total_bytes=99,
            context="fit",
            metadata={"a": 1},
            job_id="j",
            rank=0,
            local_rank=0,
            world_size=1,
            timestamp=at(second),
        )
    span: dict[str, Any] = {"name": "io", "tags": {"a": "b"}, "trace_id": "t", "timestamp": at(2)}
    yield SpanEvent(
        **span, span_id="a", parent_id="s0", metrics={"m": 1.0}, status="ok", duration_s=1.0, thread=1
    )
    yield SpanOpened(**span, span_id="b", parent_id=None, elapsed_s=1.0)
    yield CacheLookup(
        task="fit", result="hit", key="k", task_id="0", duration_s=0.1, size_bytes=3, timestamp=at(2)
    )
    yield ArtifactRecorded(
        name="a", uri="file:///a", kind="k", size_bytes=3, sha256=None, metadata={"a": 1}, timestamp=at(3)
    )
    yield CostEstimate(item="w", amount=1.0, currency="USD", rate=1.0, quantity=1.0, timestamp=at(9))
    yield CostRates(
        currency="USD", source="s", per_worker_hour=1.0, components={"c": {"cpus": 1.0}}, timestamp=at(0)
    )
    yield ResourceRequest(task="fit", cpus=1.0, memory_bytes=1 << 30, timestamp=at(0))
    yield JobStarted(job_id="1", name="j", cpus=4, memory_bytes=1 << 30, walltime_s=60.0, timestamp=at(0))
    yield JobAccounted(job_id="1", state="FAILED", attempt=1, elapsed_s=9.0, max_rss_bytes=9, timestamp=at(9))
