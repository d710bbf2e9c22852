"""The control group of this process: limits and usage of its container or batch job, and OOM kills."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from flightlog.events.declarations import ResourceSample
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.procfs import PROC, growth, keyed_value, parse_pressure_s, percent, rate, read_once

T = TypeVar("T")

CGROUPS = Path("/sys/fs/cgroup")

_CPU_COUNTERS = (b"usage_usec", b"nr_periods", b"nr_throttled", b"throttled_usec")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 says "no limit" with a number near 2⁶³."""


class CgroupLimits(Struct, frozen=True):
    """What this process may use at most: the smallest limit of its cgroup and all ancestors. None is no
    limit.
    """

    cpus: float | None = None
    """CPU quota, in cores."""
    memory_bytes: int | None = None


def cgroup_limits(root: Path = CGROUPS, proc: Path = PROC) -> CgroupLimits:
    """The limits of the calling process, of version 2, version 1 and both at once; never raises."""
    memberships = _memberships(proc)
    cpus: list[float] = []
    memory: list[int] = []
    for folder in _unified_folders(root, memberships.get("")):
        cpus += _quota(_text(folder / "cpu.max"))
        memory += _bounded(_text(folder / "memory.max"))
    for folder in _v1_folders(root, memberships, "cpu"):
        period = _text(folder / "cpu.cfs_period_us")
        cpus += _quota(f"{_text(folder / 'cpu.cfs_quota_us')} {period}")
    for folder in _v1_folders(root, memberships, "memory"):
        memory += _bounded(_text(folder / "memory.limit_in_bytes"))
    return CgroupLimits(min(cpus, default=None), min(memory, default=None))


def oom_kills(root: Path = CGROUPS, proc: Path = PROC) -> int | None:
    """Processes that the kernel has killed for memory in the cgroup of the calling process, so far; never
    raises.

    Of version 2, or else of version 1; None where neither counts them.
    """
    memberships = _memberships(proc)
    for folder in _unified_folders(root, memberships.get("")):
        found = _keyed(folder / "memory.events", b"oom_kill").get(b"oom_kill")
        if found is not None:
            return found
        break  # its own cgroup alone
    for folder in _v1_folders(root, memberships, "memory"):
        return _keyed(folder / "memory.oom_control", b"oom_kill").get(b"oom_kill")
    return None


class CgroupSampler:
    """Samples the cgroup (version 2) of the calling process, in scope `cgroup`.

    One sample a call; none where the process is in no version 2 cgroup of its own: version 1, or the root,
    which is the whole node. `memory_used_bytes` is without file cache that the kernel would drop first. Peak,
    throttling and OOM counts are the kernel's own since the cgroup was made, descendants included, so nothing
    between two samples is missed. `cpus` and `memory_total_bytes` are limits, None where there is none. What
    this kernel or the enabled controllers do not offer is None. One thread at a time; after a fork the child
    starts afresh.
    """

    def __init__(
        self,
        root: Path = CGROUPS,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
        host: str | None = None,
    ) -> None:
        self._root, self._proc, self._clock = root, proc, clock
        self._host = host if host is not None else os.uname().nodename
        self._start_afresh(None)

    def _start_afresh(self, folder: Path | None) -> None:
        self._pid = os.getpid()
        self._folder = folder
        self._before: dict[bytes, int | None] = {}
        self._at: float | None = None
        self._limits = CgroupLimits()
        self._limits_at: float | None = None

    def sample(self) -> Sequence[ResourceSample]:
        """The cgroup since the previous call."""
        folder = next(_unified_folders(self._root, _memberships(self._proc).get("")), None)
        # The root cgroup has neither file: it is the node, and the host sampler's.
        if folder is None or not any(
            (folder / name).exists() for name in ("memory.current", "cgroup.events")
        ):
            return []
        if folder != self._folder or self._pid != os.getpid():
            self._start_afresh(folder)
        cpu = _keyed(folder / "cpu.stat", *_CPU_COUNTERS)
        memory = _keyed(folder / "memory.stat", b"inactive_file")
        events = _keyed(folder / "memory.events", b"oom", b"oom_kill")
        current = _number(folder / "memory.current")
        cached = memory.get(b"inactive_file")
        at = self._clock()
        if self._limits_at is None or at - self._limits_at >= SamplerLimits.cgroup_limits_interval_s:
            self._limits, self._limits_at = cgroup_limits(self._root, self._proc), at
        before, interval = self._before, None if self._at is None else at - self._at
        self._before, self._at = cpu, at
        used = rate(cpu.get(b"usage_usec"), before.get(b"usage_usec"), interval)
        cores = None if used is None else used / 1e6
        cpus = self._limits.cpus or os.cpu_count()
        return [
            ResourceSample(
                scope="cgroup",
                host=self._host,
                interval_s=interval,
                cpu_percent=percent(cores, cpus),
                cpu_cores=cores,
                cpu_s=_seconds(cpu.get(b"usage_usec")),
                cpus=cpus,
                memory_used_bytes=None if current is None or cached is None else max(0, current - cached),
                memory_total_bytes=self._limits.memory_bytes,
                memory_peak_bytes=_number(folder / "memory.peak"),
                swap_used_bytes=_number(folder / "memory.swap.current"),
                throttled_s=_seconds(cpu.get(b"throttled_usec")),
                throttled_percent=percent(
                    growth(cpu.get(b"nr_throttled"), before.get(b"nr_throttled")),
                    growth(cpu.get(b"nr_periods"), before.get(b"nr_periods")),
                ),
                cpu_pressure_s=_parsed(folder / "cpu.pressure", parse_pressure_s),
                memory_pressure_s=_parsed(folder / "memory.pressure", parse_pressure_s),
                io_pressure_s=_parsed(folder / "io.pressure", parse_pressure_s),
                oom_events=events.get(b"oom"),
                oom_kills=events.get(b"oom_kill"),
            )
        ]


def _memberships(proc: Path) -> dict[str, str]:
    """The process's path in each hierarchy, by controller list (`cpu,cpuacct`); version 2 is the empty
    one.
    """
    paths: dict[str, str] = {}
    for line in (_text(proc / "self" / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/") and (controllers or number == "0"):
            paths[controllers] = path
    return paths


def _unified_folders(root: Path, path: str | None) -> Iterator[Path]:
    """The version 2 cgroup at `path` and its ancestors, innermost first; in a hybrid set-up under
    `unified`.
    """
    for mount in (root, root / "unified"):
        if (mount / "cgroup.controllers").exists():
            yield from _up_from(mount, path)
            return


def _v1_folders(root: Path, memberships: dict[str, str], controller: str) -> Iterator[Path]:
    for controllers, path in memberships.items():
        if controller in controllers.split(","):
            for mount in (root / controller, root / controllers):
                if mount.is_dir():
                    yield from _up_from(mount, path)
                    return


def _up_from(mount: Path, path: str | None) -> Iterator[Path]:
    """The folder of a cgroup, and its ancestors up to the mount.

    A container may see its own cgroup as the mount although its path is still told as the host has it: then
    as many leading parts of the path are left out as it takes to find a folder. A path that leads out of the
    namespace (`/../…`) cannot be seen from here.
    """
    parts = (path or "").strip("/").split("/") if path is not None else [".."]
    if ".." in parts:
        return
    for first in range(len(parts)):
        folder = mount.joinpath(*parts[first:])
        if folder.is_dir():
            break
    else:
        folder = mount
    while folder != mount:
        yield folder
        folder = folder.parent
    yield mount


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(read_once(str(path), 8192))
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str | None:
    return _parsed(path, lambda data: data.decode("utf-8", "replace"))


def _keyed(path: Path, *names: bytes) -> dict[bytes, int | None]:
    return _parsed(path, lambda data: {name: keyed_value(data, name) for name in names}) or {}


def _numbers(text: str | None) -> list[int]:
    """The whole numbers of a text; none where it holds anything else."""
    words = (text or "").split()
    return [int(word) for word in words] if all(w.isdecimal() and w.isascii() for w in words) else []


def _number(path: Path) -> int | None:
    return next(iter(_numbers(_text(path))), None)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _quota(text: str | None) -> list[float]:
    """`quota period` in cores: one number, or none where there is no quota (`max`, or -1)."""
    found = _numbers(text)
    return [found[0] / found[1]] if len(found) == 2 and min(found) > 0 else []


def _bounded(text: str | None) -> list[int]:
    found = _numbers(text)
    return found if len(found) == 1 and found[0] < _NO_LIMIT_BYTES else []


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
        on_host = _keyed(self._proc / "vmstat", b"oom_kill").get(b"oom_kill")
        return oom_kills(self._cgroups, self._proc), on_host
