"""How long the workers of a cluster that was started here took to be ready: Dask does not tell."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from flightlog.events import WorkerEvent, WorkerLaunched, WorkerReady
from flightlog.store.liveness import this_host


def with_launch(event: WorkerEvent, opened: float) -> WorkerEvent:
    """A launch at the moment it happened, and a ready that says how long that was; others, and what is not
    known, as it is.

    The launch is the start of the worker's process; of one that is a thread here it is `opened`, Unix time,
    when the cluster was begun.
    """
    if event.host != this_host() or event.pid is None or not isinstance(event, WorkerLaunched | WorkerReady):
        return event
    since = opened if event.pid == os.getpid() else _start_of(event.pid)
    if since is None or not event.timestamp:
        return event
    launch_s = datetime.fromisoformat(event.timestamp).timestamp() - since
    if launch_s < 0:
        return event
    if isinstance(event, WorkerReady):
        return event if event.launch_s is not None else msgspec.structs.replace(event, launch_s=launch_s)
    stamp = datetime.fromtimestamp(since, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return msgspec.structs.replace(event, timestamp=stamp)


def _start_of(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
