"""Which of the processes that a driver knows are ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.samplers.procfs import PROC, read_once

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's number of the process namespace that a host starts with."""


class TreeMemory(Struct, frozen=True):
    """Device memory of a process tree."""

    used_bytes: int | None
    """None where the driver cannot tell: its process ids are not ours, or it keeps sizes to itself."""
    there: bool = False
    """Whether a process of the tree is on the device, as far as the driver can tell."""
    others: bool = True
    """Whether other processes are, or may be."""


UNKNOWN_TREE = TreeMemory(None)


def tree_memory(processes: Mapping[int, int | None] | None, root: int, proc: Path = PROC) -> TreeMemory:
    """What the process `root` and its descendants use, by the driver's list of processes with their memory.

    Drivers count processes as the host does. Inside a container the ids are other ones: a list without any
    process of the tree then says nothing, and the memory is None. On the host such a list says that the tree
    uses none: 0.
    """
    if processes is None:
        return UNKNOWN_TREE
    ours = [pid for pid in processes if descends(pid, root, proc)]
    if not ours:
        return TreeMemory(0 if _on_the_host(proc) else None, others=bool(processes))
    sizes = [processes[pid] for pid in ours]
    used = None if None in sizes else sum(size for size in sizes if size is not None)
    return TreeMemory(used, there=True, others=len(ours) < len(processes))


def descends(pid: int, root: int, proc: Path = PROC) -> bool:
    """Whether a process is `root` or descends from it, as far as parents are still there."""
    for _ in range(100):
        if pid == root:
            return True
        if pid <= 1:
            return False
        pid = _parent(pid, proc)
    return False


def _parent(pid: int, proc: Path) -> int:
    try:
        text = read_once(f"{proc}/{pid}/stat")
        return int(text.rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _on_the_host(proc: Path) -> bool:
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _FIRST_NAMESPACE  # noqa: PTH115 - it is no path
    except OSError:
        return False
