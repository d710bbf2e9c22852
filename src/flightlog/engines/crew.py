"""The worker processes of a pool, and the books on which of them could take an attempt."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.engines.worker_process import WorkerProcess


class Crew:
    """Worker processes in the order they were launched. One thread changes it; any thread may iterate.

    Whatever changes a worker calls `review` with it, so that nobody has to look at all of them for each
    attempt.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._all: dict[WorkerProcess, None] = {}
        self._idle: dict[WorkerProcess, None] = {}
        self._roomy: dict[WorkerProcess, None] = {}
        self._doors: dict[WorkerProcess, None] = {}
        self._leaving: dict[WorkerProcess, None] = {}
        self._coming: dict[WorkerProcess, None] = {}

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, worker: WorkerProcess) -> bool:
        return worker in self._all

    def add(self, worker: WorkerProcess) -> None:
        """A worker that was launched."""
        self._all[worker] = None
        self.review(worker)

    def remove(self, worker: WorkerProcess) -> None:
        """A worker that is gone."""
        for books in (self._all, self._idle, self._roomy, self._doors, self._leaving, self._coming):
            books.pop(worker, None)

    def review(self, worker: WorkerProcess) -> None:
        """Bring the books up to date on one worker."""
        leaving = worker.retiring or worker.why_ended is not None
        _keep(self._idle, worker, worker.idle_slots > 0)
        _keep(self._roomy, worker, worker.has_room_for_next)
        _keep(self._doors, worker, worker.has_next)
        _keep(self._leaving, worker, leaving)
        _keep(self._coming, worker, not leaving and worker.ready_at is None)

    def idle(self) -> WorkerProcess | None:
        """A worker that has nothing to do."""
        return next(iter(self._idle), None)

    def roomy(self) -> WorkerProcess | None:
        """A worker that is busy, and could have the next attempt wait at its door.

        None while others are coming: what waited there behind a long attempt would be overtaken by later
        ones.
        """
        return None if self._coming else next(iter(self._roomy), None)

    def with_next(self) -> list[WorkerProcess]:
        """Workers that may have an attempt waiting at their door."""
        return list(self._doors)

    def leaving(self) -> list[WorkerProcess]:
        """Workers that get no more attempts and are still there."""
        return list(self._leaving)

    def has_ready(self) -> bool:
        """Whether there is a worker that can take attempts now or later."""
        return len(self._all) > len(self._leaving) + len(self._coming)

    def wants(self, waiting: int) -> bool:
        """Whether another worker should be launched while so many attempts wait, and others at the doors of
        busy ones.
        """
        if len(self._all) - len(self._leaving) >= self._size:
            return False
        waiting += sum(len(worker.held) - 1 for worker in self._doors)
        return waiting > sum(worker.threads for worker in self._coming)


def _keep(books: dict[WorkerProcess, None], worker: WorkerProcess, belongs: bool) -> None:
    if belongs:
        books[worker] = None
    else:
        books.pop(worker, None)
