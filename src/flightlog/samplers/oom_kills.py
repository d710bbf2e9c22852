"""Kills by the kernel for lack of memory: the counters of this process's cgroup, and of the whole host."""

from __future__ import annotations

from pathlib import Path

from flightlog.samplers.cgroup import CGROUPS, oom_kills
from flightlog.samplers.procfs import PROC, keyed_value, read_once


class OomKills:
    """Kills by the kernel for lack of memory, each to be laid to one death. One thread at a time."""

    def __init__(self, cgroups: Path = CGROUPS, proc: Path = PROC) -> None:
        self._cgroups, self._proc = cgroups, proc
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
        try:
            on_host = keyed_value(read_once(f"{self._proc}/vmstat", 1 << 16), b"oom_kill")
        except (OSError, ValueError):
            on_host = None
        return oom_kills(self._cgroups, self._proc), on_host
