"""Messages from the plugins in a Dask cluster to the observer in the client's process, and the gate that
limits how many chunks of files travel through Dask's scheduler at once.

Each is a list whose first item is its kind and whose second is a Unix time on the scheduler's clock. Keys are
texts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from flightlog.engines.limits import DaskLimits

# From the scheduler, in the order in which things happened there.
SUBMITTED: Final = "S"
"""time, span that submitted, [[key, keys it depends on, arguments, bytes of arrays in these], …]"""
ANEW: Final = "N"
"""time, key, stimulus: a task that had ended is executed once more"""
QUEUED: Final = "Q"
"""time, key, attempt"""
ASSIGNED: Final = "A"
"""time, key, attempt, worker, run id"""
DONE: Final = "D"
"""time, key, attempt, run id, worker, bytes of the result, clients who want it, [[action, start, stop], …],
delay: what the worker had added to its own clock for the times in the list, null where unknown"""
ERRED: Final = "E"
"""time, key, attempt, run id, worker, key to blame, text, [[action, start, stop], …]"""
RELEASED: Final = "L"
"""time, key, attempt, run id, stimulus: taken from its worker before it ended"""
FORGOTTEN: Final = "G"
"""time, key, stimulus: nobody wants it any more, and it had not ended"""
WORKER: Final = "W"
"""time, address, host as Dask has it, threads, bytes of memory, GPUs"""
WORKER_GONE: Final = "X"
"""time, address, stimulus, whether that was expected"""
MEMORY_RESTART: Final = "M"
"""time, address, resident bytes: its nanny ends it for memory"""
METRICS: Final = "H"
"""time, address, {what its last heartbeat said}"""
DROPPED: Final = "O"
"""time, number of messages that did not fit and are lost; of a worker's own, its address"""
SCHEDULER: Final = "C"
"""time, host of the scheduler"""
UP: Final = "U"
"""time, bytes: messages of a worker or a nanny"""
LOST: Final = "l"
"""time, key, worker, whether that has a nanny: an attempt of an engine went with its worker"""
GONE: Final = "g"
"""time, key: the result of an attempt of an engine went with the worker that had it"""
REFUSED: Final = "e"
"""time, key: Dask could not run an attempt of an engine"""
RESTART: Final = "R"
"""time: the cluster was restarted"""

# From workers and nannies.
HELLO: Final = "h"
"""time, address, host, pid, CPUs, the batch job it lives in as `JobStarted`, null without one"""
RUNNING: Final = "r"
"""time, key, run id, worker, start, [starts of its transfers], delay"""
FAILED: Final = "f"
"""time, key, run id, worker, error type, message, traceback, fingerprint, start, stop, delay"""
TRANSFER: Final = "t"
"""time, worker, source, start, stop, bytes, keys, delay"""
NODE: Final = "n"
"""time, host, worker, a resource sample as JSON"""
INTERPRETER: Final = "i"
"""time, worker, seconds that a thread waits there for the interpreter"""
DEATH: Final = "d"
"""time, address, reason, exit code, signal, [[number of an attempt that it had begun, start], …]"""

Message = list[Any]

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Message]).decode


def topics(name: str) -> tuple[str, str, str]:
    """Of what is watched by this name: up from workers, down to the client, and chunks of files."""
    return f"{name}-up", f"{name}-down", f"{name}-files"


def watch_name(engine: str) -> str:
    """The name by which the cluster of an engine is watched."""
    return f"flightlog-watch-{engine}"


def text_of_key(key: object) -> str:
    """A Dask key, which may be a tuple, as text."""
    return key if type(key) is str else str(key)


_OP = "flightlog_chunk"

_gates: WeakKeyDictionary[Any, WeakValueDictionary[str, ChunkGate]] = WeakKeyDictionary()
"""By scheduler and topic; a gate is there for as long as the plugin that holds it."""


class ChunkGate:
    """On the scheduler: the way of chunks of one `topic`, which `send` passes on to the client. On its event
    loop alone.
    """

    def __init__(self, scheduler: Any, topic: str, send: Callable[[bytes], None]) -> None:
        self.sent = 0
        """Chunks that were passed on."""
        self._heard = 0
        self._send = send
        _gates.setdefault(scheduler, WeakValueDictionary())[topic] = self

        async def flightlog_chunk(topic: str, chunk: bytes) -> bool:
            gate = _gates[scheduler].get(topic)
            return gate is None or await gate.take(chunk)  # without a gate nobody is left to take it

        scheduler.handlers.setdefault(_OP, flightlog_chunk)

    def hear(self, number: int) -> None:
        """The client has received this many in total."""
        self._heard = max(self._heard, number)

    async def take(self, chunk: bytes, wait_s: float = DaskLimits.chunk_wait_s) -> bool:
        """Pass a chunk on as soon as there is room; False where there was none within `wait_s`."""
        until = time.monotonic() + wait_s
        while self.sent - self._heard >= DaskLimits.max_unacknowledged_chunks:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(DaskLimits.window_check_interval_s)
        self.sent += 1
        self._send(chunk)
        return True


class Arrivals:
    """In the client: hands what comes on a topic to `take`, and says from time to time that it is here. On
    its event loop.
    """

    def __init__(self, client: Any, topic: str, take: Callable[[bytes], None]) -> None:
        self._client, self.topic, self._take = client, topic, take
        self.number = 0

    def on_event(self, event: tuple[float, bytes]) -> None:
        """Something came."""
        self._take(event[1])
        self.number += 1
        if self.number % DaskLimits.messages_per_acknowledgement == 0:
            said = self._client.scheduler.log_event(topic=heard_topic(self.topic), msg=self.number)
            task = asyncio.ensure_future(said)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())


def heard_topic(topic: str) -> str:
    """What the client says on how much of a topic has come."""
    return f"{topic}-heard"


def hand_over(worker: Any, topic: str, chunk: bytes) -> None:
    """Give a chunk to the scheduler for good, on a thread that is not the worker's event loop; raises where
    that fails.
    """
    asking = worker.scheduler.flightlog_chunk(topic=topic, chunk=chunk)
    asked = asyncio.run_coroutine_threadsafe(asking, worker.loop.asyncio_loop)
    if not asked.result(DaskLimits.handover_timeout_s):
        raise TimeoutError("the client of the Dask cluster does not take what workers have recorded")
