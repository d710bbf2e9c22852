"""Ray's worker processes as an engine sees them: first seen with a task, gone by themselves or with one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.engines.attempts import Attempt
from flightlog.engines.contract import WorkerView
from flightlog.engines.exit_reason import Death, OomKills, Watched, describe_death
from flightlog.engines.ray.worker import Began
from flightlog.record.clock import Clock


class Told(Struct, frozen=True, kw_only=True):
    """What Ray's own books say of a worker; None is unknown."""

    alive: bool
    launched: float | None = None
    """Unix time at which its process was started, and at which it was there."""
    ready: float | None = None
    intended: bool = False
    """Whether it went as Ray or its program wanted."""
    detail: str | None = None


class RayWorker:
    """One process of Ray's that has executed an attempt of this engine."""

    def __init__(self, began: Began, told: Told | None, is_here: bool) -> None:
        self.name, self.host, self.pid = began.worker, began.host, began.pid
        self.ray_worker, self.node = began.ray_worker, began.node
        self.facts: dict[str, Any] = {"worker": self.name, "host": self.host, "pid": self.pid}
        self.running: dict[int, Attempt] = {}
        self.why_ended: str | None = None
        """Why its engine has it ended."""
        self.over = False
        """Whether its process has ended, and the kernel has said how if it ever will."""
        self.exit_code: int | None = None
        self.said: str | None = None
        """What Ray says of its end."""
        self.lost: list[Attempt] = []
        """What it executed when it ended."""
        self.seen_at = time.time()
        launched = told.launched if told is not None else None
        self.launched: float | None = launched if launched is not None else began.process_start
        self.ready = told.ready if told is not None else None
        self.watched: Watched | None = None
        if is_here:
            with suppress(OSError):
                self.watched = Watched(self.pid)

    @property
    def launch_s(self) -> float | None:
        """From its launch to when it could take tasks; to its first one where nobody noted that."""
        if self.launched is None:
            return None
        return max(0.0, (self.ready if self.ready is not None else self.seen_at) - self.launched)

    def uptime_s(self, since: float) -> float:
        """Seconds from when it was ready, or from a moment after that, to now."""
        return max(0.0, time.time() - max(since, self.ready if self.ready is not None else self.seen_at))

    def view(self) -> WorkerView:
        """The worker as it is now."""
        running = [attempt.work.task_id for attempt in list(self.running.values()) if not attempt.over]
        return WorkerView(**self.facts, running=tuple(running))

    def close(self) -> None:
        """Watch it no more."""
        if self.watched is not None:
            self.watched.close()
            self.watched = None


class RayWorkers:
    """The processes of Ray's that this engine has met, by Ray's own name for each. One thread changes it."""

    def __init__(self, ray: Any, oom: OomKills | None = None) -> None:
        self._ray = ray
        self._oom = oom or OomKills()
        self._all: dict[str, RayWorker] = {}
        self.clock = Clock()

    def __iter__(self) -> Iterator[RayWorker]:
        return iter(list(self._all.values()))

    def __contains__(self, worker: RayWorker) -> bool:
        return self._all.get(worker.ray_worker) is worker

    def get(self, ray_worker: str) -> RayWorker | None:
        """The worker that Ray calls so."""
        return self._all.get(ray_worker)

    def meet(self, began: Began, is_here: bool) -> RayWorker:
        """A worker seen for the first time; one that is here can be watched."""
        worker = RayWorker(began, self.told(began.ray_worker), is_here)
        self._all[began.ray_worker] = worker
        return worker

    def remove(self, worker: RayWorker) -> None:
        """A worker that is gone."""
        self._all.pop(worker.ray_worker, None)
        worker.close()

    def told(self, ray_worker: str) -> Told | None:
        """What Ray's books say of a worker; None where they cannot be read, or do not have it."""
        try:
            state: Any = import_module("ray._private.state").state
            common: Any = import_module("ray.core.generated.common_pb2")
            tables: Any = import_module("ray.core.generated.gcs_pb2")
            state._connect_and_get_accessor()
            raw = state._global_state_accessor.get_worker_info(self._ray.WorkerID.from_hex(ray_worker))
            if raw is None:
                return None
            row = tables.WorkerTableData.FromString(raw)
        except Exception:  # noqa: BLE001 - these books are Ray's own and may change: then less is known
            return None
        return Told(
            alive=row.is_alive,
            launched=_unix(row.worker_launch_time_ms),
            ready=_unix(row.worker_launched_time_ms),
            intended=row.exit_type in (common.INTENDED_USER_EXIT, common.INTENDED_SYSTEM_EXIT),
            detail=first_sentence(row.exit_detail),
        )

    def death_of(self, worker: RayWorker) -> Death:
        """What a worker died of: by the kernel where it can be asked, and in Ray's words where they say
        more.
        """
        if worker.exit_code is not None:
            death = describe_death(worker.exit_code, self._oom)
            return (
                death
                if worker.said is None
                else msgspec.structs.replace(death, reason=f"{death.reason}; Ray says: {worker.said}")
            )
        words = worker.said
        if words is None:
            told = self.told(worker.ray_worker)
            words = told.detail if told is not None else None
        return Death(f"its process is gone{f'; Ray says: {words}' if words else ''}")


def first_sentence(text: str) -> str | None:
    """The first sentence of what Ray says, on one line; None if it says nothing."""
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".") or None


def _unix(milliseconds: int) -> float | None:
    return milliseconds / 1000 if 0 < milliseconds < 1 << 62 else None
