"""Events of many kinds, of one run."""

from __future__ import annotations

from flightlog.events import (
    CacheLookup,
    CostEstimate,
    Event,
    Failure,
    ResourceSample,
    TaskCompleted,
    TaskStarted,
    TaskSubmitted,
    WorkerReady,
)


def a_bit_of_everything(name: str = "simulate") -> list[Event]:
    return [
        TaskSubmitted(task=name, task_id="1", args={}),
        TaskStarted(task=name, task_id="1", worker="w", queue_s=0.1),
        TaskCompleted(task=name, task_id="1", args={}, worker="w", duration_s=2.0),
        WorkerReady(worker="w", host=name, pid=1),
        Failure(scope="run", error_type=name, message=None, traceback=None, fingerprint=None),
        CacheLookup(task=name, result="hit", key="k"),
        CostEstimate(item="workers", amount=1.5, currency="EUR"),
        ResourceSample(scope="node", host=name, cpu_percent=50.0),
        ResourceSample(
            scope="gpu", host=name, cpu_percent=None, gpu_index=0, gpu_name=name, gpu_percent=50.0
        ),
    ]
