"""PyTorch's own word that CUDA ran out of memory: also of what the program, or PyTorch itself, then catches.

An observer cannot be taken away again, so there is one for the process, and it tells whoever tracks at the
time.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import ref

from flightlog.core import threads
from flightlog.record.device import oom
from flightlog.record.recorder import Recorder
from flightlog.record.values import text_of

RESERVED = 1
"""Places for bundles that are left for exceptions: PyTorch may meet an out of memory and find another way
itself."""
SAME_S = 30.0
"""Seconds from the observer's call to the exception that comes of it, at most."""
_FIRST_VERSION = (2, 2)
"""Before it, the observer was called with the allocator locked: no statistics could be read there."""

SAME_SIZE = 0.006
"""Messages round sizes to hundredths of their unit: half a hundredth of the smallest, and a bit."""


class Observed(NamedTuple):
    """A bundle that waits for the exception it may be of."""

    at: float
    thread: int
    requested_bytes: int
    folder: Path


_attached_in: int | None = None
_told: Any = None
_unclaimed: deque[Observed] = deque(maxlen=oom.MAX_BUNDLES)
_here = threads.local()


def observe(torch: Any, recorder: Recorder) -> bool:
    """Hear of each out of memory on CUDA from now on; whether that can be had. CUDA is never started up for
    it.
    """
    global _attached_in, _told
    _told = ref(recorder)
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized() or _version(torch) < _FIRST_VERSION:
        return False
    if _attached_in != os.getpid():
        _attached_in = os.getpid()
        attach(_on_oom)
    return True


def stop_observing(recorder: Recorder) -> None:
    """Tell this run no more."""
    global _told
    if _told is not None and _told() is recorder:
        _told = None


def claim(error: BaseException) -> Path | None:
    """The bundle that the observer wrote for this exception of PyTorch's a moment ago, if it did; once.

    Several threads may run out at once, and what ran out in a thread of autograd's is raised in another one:
    it is the latest of the size that the exception names, one of the same thread before others.
    """
    if not _unclaimed or type(error).__module__.partition(".")[0] != "torch":
        return None
    asked, mine, now = oom.requested_in(text_of(error)), threads.get_ident(), time.monotonic()
    fitting = [
        one
        for one in tuple(_unclaimed)
        if now - one.at < SAME_S
        and (asked is None or abs(one.requested_bytes - asked) <= SAME_SIZE * max(asked, 1))
    ]
    if not fitting:
        return None
    found = max(fitting, key=lambda one: (one.thread == mine, one.at))
    with suppress(ValueError):  # another thread was quicker
        _unclaimed.remove(found)
        return found.folder
    return None


def _on_oom(device: int, requested: int, allowed: int, free: int) -> None:
    """Called by the allocator in the thread that ran out of memory. An exception here would reach the
    program.
    """
    recorder = _told() if _told is not None else None
    if recorder is None or getattr(_here, "busy", False):
        return
    _here.busy = True
    mine = threads.get_ident()
    try:
        for one in tuple(_unclaimed):
            if one.thread == mine:  # nothing came of it: the thread has gone on
                with suppress(ValueError):
                    _unclaimed.remove(one)
        written = oom.dump(
            recorder,
            "out of memory",
            reserve=RESERVED,
            oom=True,
            seen_by="allocator",
            raised=None,
            device_id=device,
            requested_bytes=requested,
            allowed_bytes=allowed,
            free_bytes=free,
            message=f"the allocator of device {device} could not get {requested:,} bytes: "
            f"{free:,} bytes are free",
        )
        if written is not None:
            _unclaimed.append(Observed(time.monotonic(), mine, requested, written))
    except Exception as error:  # noqa: BLE001 - see above
        recorder.trouble("oom observer", f"an out of memory could not be looked at: {error!r}")
    finally:
        _here.busy = False


def _version(torch: Any) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    return (int(found[1]), int(found[2])) if found else (0, 0)
