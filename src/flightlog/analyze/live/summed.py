"""What the summary of a run that is over says: the right numbers at once, while its events are still being
read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.analyze.live.results import LiveState, Progress
from flightlog.store import layout
from flightlog.store.documents import read_document


class _Tasks(Struct):
    submitted: int
    completed: int
    failed: int
    cancelled: int
    running: int
    pending: int
    retried: int


class _Count(Struct):
    count: int


class _Cache(Struct):
    lookups: int
    hits: int
    bypassed: int


class _Summary(Struct):
    tasks: _Tasks
    failures: _Count
    workers: _Count
    spans: _Count
    cache: _Cache


def with_summed(state: LiveState, run: Path) -> LiveState:
    """The state with the counts of `summary.json`; as it is where there is none that can be read."""
    found = read_document(run / layout.SUMMARY, _Summary).value
    if found is None:
        return state
    tasks, cache = found.tasks, found.cache
    ended = tasks.completed + tasks.failed + tasks.cancelled
    all_known = max(tasks.submitted, ended + tasks.running)
    looked = cache.lookups + cache.bypassed > 0
    return msgspec.structs.replace(
        state,
        progress=Progress(
            submitted=tasks.submitted,
            completed=tasks.completed,
            failed=tasks.failed,
            cancelled=tasks.cancelled,
            running=tasks.running,
            waiting=tasks.pending,
            retried=tasks.retried,
            done=ended / all_known if all_known else None,
            per_s=None,
            left_s=None,
            left_low_s=None,
            left_high_s=None,
        ),
        failures_all=found.failures.count,
        workers_all=found.workers.count,
        spans_all=found.spans.count,
        cache_hits=cache.hits if looked else None,
        cache_lookups=cache.lookups if looked else None,
    )
