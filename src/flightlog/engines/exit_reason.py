"""Why a worker process ended: exit code or signal, whether the kernel was out of memory, and how to learn
the exit status of a process that is not our child.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress

from msgspec import Struct

from flightlog.core.descriptors import Descriptor
from flightlog.core.text import signal_name
from flightlog.samplers.cgroup import OomKills
from flightlog.samplers.procfs import PROC

__all__ = ["ExitReason", "OomKills", "describe_exit"]


CONNECTION_CLOSED = 187
"""The exit code of a worker process that found its connection to the engine closed by something in it."""
CLOSED_BY_TASK = "a task closed the connection of this worker to its engine"


class ExitReason(Struct, frozen=True):
    """How a process ended."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None


def describe_exit(exit_code: int | None, oom: OomKills) -> ExitReason:
    """The end of a process from its exit code as `multiprocessing` has it: negative is a signal, None
    unknown.
    """
    if exit_code is None:
        return ExitReason("its process is gone; nobody saw how it ended")
    if exit_code == CONNECTION_CLOSED:
        return ExitReason(CLOSED_BY_TASK, exit_code=exit_code)
    if exit_code >= 0:
        return ExitReason(f"its process ended with exit code {exit_code}", exit_code=exit_code)
    name = signal_name(-exit_code)
    kernel = oom.claim() if name == "SIGKILL" else None
    return ExitReason(f"its process was killed by {name}{f' {kernel}' if kernel else ''}", signal=name)


_INFO_BYTES = 64
_GET_INFO = (3 << 30) | (_INFO_BYTES << 16) | (0xFF << 8) | 11
_WANTS_EXIT = 1 << 3
_EXIT_AT = 60


class WatchedProcess:
    """One process of this host, watched for its end. One thread at a time; `close` it.

    `fd` becomes readable when the process has ended. `OSError` where there is no such process, or no such
    descriptor to be had (another system than Linux, another user's process).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if not hasattr(os, "pidfd_open"):
            raise OSError("this system has no descriptors of processes")
        self._descriptor = Descriptor(os.pidfd_open(pid))
        self.fd = self._descriptor.number

    def exit_code(self) -> int | None:
        """The exit code as `multiprocessing` has it, negative for a signal; None while nobody can tell.

        Linux 6.15 and later keep it for whoever holds a descriptor, from the moment the parent has asked for
        it. Before that, and on older kernels, it can be read as long as the parent has not.
        """
        status = self._kept()
        if status is None:
            status = self._of_zombie()
        return None if status is None else os.waitstatus_to_exitcode(status)

    def is_watched(self) -> bool:
        """Whether `fd` still means the process, and not something that the program opened since."""
        return self._descriptor.still_ours()

    def close(self) -> None:
        """Watch no more; again, it does nothing."""
        self._descriptor.close()

    def _kept(self) -> int | None:
        info = bytearray(_INFO_BYTES)
        struct.pack_into("=Q", info, 0, _WANTS_EXIT)
        try:
            fcntl.ioctl(self._descriptor.fd, _GET_INFO, info)
        except OSError:
            return None
        (told,) = struct.unpack_from("=Q", info, 0)
        return struct.unpack_from("=i", info, _EXIT_AT)[0] if told & _WANTS_EXIT else None

    def _of_zombie(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            stat = (PROC / str(self.pid) / "stat").read_bytes()
            state, *fields = stat[stat.rindex(b")") + 1 :].split()
            return int(fields[48]) if state == b"Z" else None
        return None
