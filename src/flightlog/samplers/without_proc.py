"""The node and its processes where there is no `/proc`, as on macOS: psutil knows them, at a higher cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import psutil

from flightlog.samplers.host import NodeReading
from flightlog.samplers.process import ProcessReading

T = TypeVar("T")


class PsutilCounters:
    """The node's counters by psutil; what a platform does not have is None."""

    def read(self) -> NodeReading:
        """All of them, now."""
        cpu = _ask(psutil.cpu_times)
        memory = _ask(psutil.virtual_memory)
        swap = _ask(psutil.swap_memory)
        disks = _ask(lambda: psutil.disk_io_counters(perdisk=False, nowrap=False))
        interfaces = _ask(lambda: psutil.net_io_counters(pernic=True, nowrap=False))
        load = _ask(os.getloadavg)
        outer = {name: one for name, one in (interfaces or {}).items() if not name.startswith("lo")}
        total = None if cpu is None else sum(cpu) - getattr(cpu, "guest", 0) - getattr(cpu, "guest_nice", 0)
        return NodeReading(
            cpu_busy=None if cpu is None or total is None else total - cpu.idle - getattr(cpu, "iowait", 0),
            cpu_total=total,
            cpus=psutil.cpu_count(),
            load_1m=load[0] if load else None,
            memory_used_bytes=memory.total - memory.available if memory else None,
            memory_total_bytes=memory.total if memory else None,
            swap_used_bytes=swap.used if swap else None,
            disk_read={"all": disks.read_bytes} if disks else None,
            disk_written={"all": disks.write_bytes} if disks else None,
            net_received={name: one.bytes_recv for name, one in outer.items()} if outer else None,
            net_sent={name: one.bytes_sent for name, one in outer.items()} if outer else None,
        )

    def close(self) -> None:
        """Nothing is kept open."""


class PsutilTable:
    """Processes by psutil. CPU times are in microseconds.

    Where the platform does not tell what a process has waited for, only this process's own children are
    known; what others leave behind is then claimed from nobody and kept, which is right.
    """

    cpu_units_per_s = 1_000_000

    def __init__(self, root: int) -> None:
        self._root = root
        self._processes: dict[int, psutil.Process] = {}

    def read(self, pid: int) -> ProcessReading | None:
        """The process now; see `ProcTable.read`."""
        try:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = psutil.Process(pid)
            elif not process.is_running():
                self.forget(pid)
                return None
            with process.oneshot():
                return self._reading(process)
        except psutil.ZombieProcess as error:
            raise OSError(f"process {pid} has ended and tells nothing until it is waited for") from error
        except psutil.NoSuchProcess:
            self.forget(pid)
            return None
        except psutil.Error as error:
            raise OSError(f"process {pid} cannot be read") from error

    def _reading(self, process: psutil.Process) -> ProcessReading:
        cpu = process.cpu_times()
        waited = getattr(cpu, "children_user", 0.0) + getattr(cpu, "children_system", 0.0)
        if process.pid == os.getpid() and not waited:
            own = os.times()
            waited = own.children_user + own.children_system
        try:
            io = process.io_counters()
        except (AttributeError, psutil.AccessDenied):
            io = None
        own, children = round((cpu.user + cpu.system) * 1e6), round(waited * 1e6)
        threads = 0 if process.status() == psutil.STATUS_ZOMBIE else process.num_threads()
        started, rss = process.create_time(), process.memory_info().rss
        read, written = (io.read_bytes, io.write_bytes) if io else (None, None)
        return ProcessReading(process.ppid(), started, own, children, threads, rss, read, written)

    def newcomers(self, members: Mapping[int, ProcessReading]) -> Iterator[tuple[int, ProcessReading]]:
        """Descendants of the root that are no members yet, parents before children."""
        try:
            descendants = psutil.Process(self._root).children(recursive=True)
        except (psutil.Error, OSError):
            return
        for process in descendants:
            if process.pid in members:
                continue
            try:
                reading = self.read(process.pid)
            except OSError:
                continue
            if reading is not None:
                yield process.pid, reading

    def peak_rss_bytes(self, pid: int) -> int | None:
        """The kernel's mark of this very process; of another one it is unknown."""
        if pid != os.getpid():
            return None
        from flightlog.samplers.usage import max_rss_bytes

        return max_rss_bytes()

    def cpu_wait_s(self, pid: int) -> float | None:  # noqa: ARG002 - as `ProcTable` has it
        """Nobody tells."""
        return None

    def forget(self, pid: int) -> None:
        """The process left."""
        self._processes.pop(pid, None)

    def close(self) -> None:
        """Nothing is kept open."""


def _ask(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except Exception:  # noqa: BLE001 - psutil raises what its platform raises; unknown is None
        return None
