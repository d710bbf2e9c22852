"""A worker process as its engine sees it: launched, ready, holding attempts, stopped or ended by force."""

from __future__ import annotations

import multiprocessing.process
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.context import BaseContext
from typing import Any, Literal, cast

from flightlog.core.descriptors import Descriptor
from flightlog.engines.attempts import Attempt
from flightlog.engines.contract import WorkerView
from flightlog.engines.launching import launch
from flightlog.engines.process_tree import descendants, end_all, is_running, process_of
from flightlog.engines.wire import EngineEnd, frame
from flightlog.engines.worker import STOP, lane_names, serve

DOOR = 2
"""Attempts that may wait at the door of a worker: on a busy machine the engine's thread is not always there
in time."""
WRITE_OFF_S = 5.0
"""A process that has not ended so long after SIGKILL hangs in the kernel, and is written off."""


class WorkerProcess:
    """One process. `Exception` of any kind where it cannot be launched. One thread at a time."""

    def __init__(
        self,
        context: BaseContext,
        threads: int,
        run_path: str | None,
        host: str,
        inherited: Sequence[Descriptor],
    ) -> None:
        self.threads, self.host = threads, host
        self.end = EngineEnd(threads)
        self.held: dict[int, Attempt] = {}
        """Attempts it was given and has not ended, oldest first."""
        self.launched_at = time.monotonic()
        self.ready_at: float | None = None
        self.retiring = False
        """It gets no more attempts; it ends when those that have not been given up are over."""
        self.why_ended: str | None = None
        """Why its engine ends it."""
        self.force: Literal["no", "SIGTERM", "SIGKILL", "hangs"] = "no"
        self.force_at: float | None = None
        """When more force is due."""
        self._kin: list[Any] = []
        method = context.get_start_method()
        process = cast("Any", context).Process(
            target=serve,
            args=(
                self.end.worker_end(),
                threads,
                run_path,
                (*inherited, self.end.descriptors()[0]) if method == "fork" else (),
            ),
            name="flightlog-worker",
        )
        try:
            sentinel, *self._pipes = launch(process, method)
        except BaseException:
            self.end.close()
            raise
        self.end.worker_has_it()
        # The engine ends its workers itself. Whatever else goes through all children (a program's own code,
        # or the exit of a child that it forked, which would complain of them) has no business with these.
        getattr(multiprocessing.process, "_children", set()).discard(process)
        self.process = process
        self.pid: int = process.pid
        self.lanes = lane_names(host, self.pid, threads)
        self.facts: list[dict[str, Any]] = [
            {"worker": lane, "host": host, "pid": self.pid} for lane in self.lanes
        ]
        pidfd = _pidfd(self.pid) if method != "forkserver" else None
        self._death = pidfd or sentinel
        self.death_number = -1 if self._death is None else self._death.number
        """The descriptor that is readable when the process has ended; -1 where there is none."""
        self.death_is_sure_to_show = pidfd is not None or method == "forkserver"
        """Whether that is so also while a process that it forked lives on."""
        self._sentinel = sentinel
        self._is_served = method == "forkserver"
        """Whether it is a child of the fork server: its exit code comes by the sentinel, and not from the
        kernel."""
        self._seen = process_of(self.pid) if self._is_served else None

    @property
    def idle_slots(self) -> int:
        """How many attempts it could execute at once beside those it has."""
        if self.ready_at is None or self.retiring or self.why_ended is not None:
            return 0
        return self.threads - len(self.held)

    @property
    def has_room_for_next(self) -> bool:
        """Whether it executes its one attempt and could have a further one wait at its door."""
        if (
            self.threads != 1
            or not 1 <= len(self.held) <= DOOR
            or self.retiring
            or self.why_ended is not None
        ):
            return False
        return self.end.packets and next(iter(self.held.values())).begun is not None

    @property
    def has_next(self) -> bool:
        """Whether an attempt may wait at its door, unread."""
        return self.threads == 1 and len(self.held) > 1

    def views(self) -> Iterator[WorkerView]:
        """The workers it is: itself, or each of its threads."""
        for facts in self.facts:
            held = [a for a in list(self.held.values()) if a.worker == facts["worker"] and not a.over]
            yield WorkerView(**facts, running=tuple(attempt.work.task_id for attempt in held))

    def hand(self, attempt: Attempt, message: bytes) -> bool:
        """Give it an attempt, as `encode_order` has it; whether nothing is left to be flushed."""
        attempt.holder, attempt.recallable = self, self.end.can_take_back(message)
        self.held[attempt.serial] = attempt
        return self.end.send(message)

    def recall(self) -> list[Attempt]:
        """Take back what it has not read, oldest first; from now on it does not hold that."""
        unread = [attempt for attempt in self.held.values() if attempt.begun is None]
        if not all(attempt.recallable for attempt in unread):
            return []  # the parts of a long message must not be torn apart
        taken = []
        while unread and (serial := self.end.take_back()) is not None:
            attempt = self.held.pop(serial, None)
            if attempt is not None:
                attempt.holder = None
                taken.append(attempt)
        return taken

    def stop(self, why: str, patience_s: float) -> None:
        """Ask it to end in good order; if it does not, force is due after so many seconds."""
        if self.why_ended is None:
            self.why_ended = why
            self.force_at = time.monotonic() + patience_s
            self.end.send(frame(STOP))

    def use_force(self, why: str, grace_s: float) -> None:
        """End it and the processes below it: SIGTERM now, the next time SIGKILL."""
        self.why_ended = self.why_ended or why
        if self.force == "no":
            self.force, self.force_at = "SIGTERM", time.monotonic() + grace_s
            self._signal("terminate")
        elif self.force == "SIGTERM":
            self.force, self.force_at = "SIGKILL", time.monotonic() + WRITE_OFF_S
            self._signal("kill")
        else:
            self.force, self.force_at = "hangs", None

    def death_will_show(self) -> bool:
        """Whether `death_number` still means what it did."""
        return self._death is not None and self._death.still_ours()

    def has_ended(self) -> bool:
        """Whether the process is over; needs no descriptor."""
        if not self._tells_exit_code():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:  # another process has its number
                return True
            return self.force != "no" and (self._seen is None or not is_running(self._seen))
        return self.process.exitcode is not None

    def bury(self) -> tuple[int | None, list[Any]]:
        """The process is over: its exit code, None if it is not to be had, and the processes below it when
        force was used.
        """
        exit_code = self.process.exitcode if self._tells_exit_code() else None
        self.end.close()
        for one in (self._death, self._sentinel, *self._pipes):
            if one is not None:
                one.close()
        if exit_code is not None:
            self.process.close()
        return exit_code, self._kin

    def _tells_exit_code(self) -> bool:
        """Whether `multiprocessing` can be asked: the fork server's answers come by a descriptor that it
        knows by number.
        """
        return not self._is_served or (self._sentinel is not None and self._sentinel.still_ours())

    def _signal(self, deed: Literal["terminate", "kill"]) -> None:
        self._kin += [kin for kin in descendants(self.pid) if kin not in self._kin]
        end_all(self._kin, deed)
        if not self._tells_exit_code():
            end_all([] if self._seen is None else [self._seen], deed)
            return
        with suppress(OSError, ValueError):
            getattr(self.process, deed)()


def _pidfd(pid: int) -> Descriptor | None:
    try:
        return Descriptor(os.pidfd_open(pid))
    except (AttributeError, OSError):
        return None
