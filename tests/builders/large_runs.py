"""Closed runs, with what tasks use and with spans."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from builders.runs import at, make_run

from flightlog.events import Event, SpanEvent, TaskEnded
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run

EVERY = 0


METRICS: tuple[dict[str, Any], ...] = (
    {},
    {"loss": 0.25},
    {"loss": [3, 0.1, None, 2.5e-7], "steps": 12},
    {"flag": True, "name": "x", "loss": None},
    {"big": 2**70, "loss": -1e300},
    {'größe, "quoted"': 1.5, "": 7},
)


def sealed(folder: Path, events: list[Event], **facts: Any) -> Run:
    path = make_run(folder, events, **facts)
    write_checksums(path)
    return Run(path)


def with_usage(events: list[Event], seed: int) -> list[Event]:
    """The same events, with what tasks use and measure."""
    dice = random.Random(seed)
    for event in events:
        if isinstance(event, TaskEnded):
            event.cpu_s = dice.choice([None, dice.random(), dice.random() / 3])
            event.cpu_scope = dice.choice([None, "thread", "process"])
            event.peak_rss_bytes = dice.choice([None, dice.randrange(1 << 40)])
            event.rss_scope = dice.choice([None, "process", "tree"])
            event.read_bytes, event.write_bytes = dice.choice([None, dice.randrange(1 << 62)]), None
            event.gpu_peak_bytes = dice.choice([None, dice.randrange(1 << 37)])
            event.gpu_memory_scope = dice.choice([None, "allocator", "device"])
            event.gpu_s, event.gpu_scope = dice.choice([(None, None), (dice.random(), "process")])
            event.queue_s = dice.choice([None, dice.random()])
            event.metrics = dice.choice(METRICS)
            if dice.random() < 0.2:
                event.worker = None
            if dice.random() < 0.2:
                event.span_id = None
            if dice.random() < 0.1:
                event.component = "other"
    return events


def spans_of(drawn: list[tuple[Any, ...]]) -> list[Event]:
    return [
        SpanEvent(
            timestamp=at(began / 10),
            name=name,
            span_id=f"x{n}",
            duration_s=None if lasted is None else lasted / 7,
            parent_id=f"x{parent}" if 0 <= parent != n else f"s{n}",
            metrics=metrics,
            status=status,
        )
        for n, (began, lasted, parent, name, metrics, status) in enumerate(drawn)
    ]
