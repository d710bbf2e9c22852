"""What a worker process died of: its exit code or signal, and whether the kernel was out of memory."""

from __future__ import annotations

import signal
from pathlib import Path

from msgspec import Struct

from flightlog.samplers.cgroup import CGROUPS, CgroupSampler
from flightlog.samplers.procfs import PROC, keyed_value, read_once


class Death(Struct, frozen=True):
    """How a process ended."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None


class OomKills:
    """Kills by the kernel for lack of memory, each to be laid to one death. One thread at a time."""

    def __init__(self, cgroups: Path = CGROUPS, proc: Path = PROC) -> None:
        self._cgroup = CgroupSampler(root=cgroups, proc=proc)
        self._proc = proc
        self._in_cgroup, self._on_host = self._read()

    def claim(self) -> str | None:
        """What the kernel says of a kill that just happened; None if it says nothing.

        The counter of this process's cgroup is proof; that of the whole host may mean another process.
        """
        in_cgroup, on_host = self._read()
        if in_cgroup is not None and self._in_cgroup is not None and in_cgroup > self._in_cgroup:
            self._in_cgroup += 1
            self._on_host = None if self._on_host is None else self._on_host + 1
            return "by the kernel's OOM killer: oom_kill of its cgroup rose"
        if on_host is not None and self._on_host is not None and on_host > self._on_host:
            self._on_host += 1
            return "while the kernel's OOM killer was at work on this host"
        return None

    def _read(self) -> tuple[int | None, int | None]:
        samples = self._cgroup.sample()
        try:
            on_host = keyed_value(read_once(f"{self._proc}/vmstat", 1 << 16), b"oom_kill")
        except (OSError, ValueError):
            on_host = None
        return (samples[0].oom_kills if samples else None), on_host


def describe_death(exit_code: int | None, oom: OomKills) -> Death:
    """The end of a process from its exit code as `multiprocessing` has it: negative is a signal, None unknown."""
    if exit_code is None:
        return Death("its process is gone; nobody saw how it ended")
    if exit_code >= 0:
        return Death(f"its process ended with exit code {exit_code}", exit_code=exit_code)
    name = signal_name(-exit_code)
    kernel = oom.claim() if name == "SIGKILL" else None
    return Death(f"its process was killed by {name}{f' {kernel}' if kernel else ''}", signal=name)


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
