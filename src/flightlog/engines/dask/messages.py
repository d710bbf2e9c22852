"""What the plugins in a Dask cluster tell the observer in the client's process: small lists, many to a
parcel.

Each is a list whose first item is its kind and whose second is a Unix time on the scheduler's clock. Keys are
texts.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

# From the scheduler, in the order in which things happened there.
SUBMITTED: Final = "S"
"""time, span that submitted, [[key, keys it depends on, arguments], …]"""
AGAIN: Final = "R"
"""time, [keys that were asked for once more]"""
ANEW: Final = "N"
"""time, key, stimulus: a task that had ended is executed once more"""
QUEUED: Final = "Q"
"""time, key, attempt"""
ASSIGNED: Final = "A"
"""time, key, attempt, worker, run id"""
DONE: Final = "D"
"""time, key, attempt, run id, worker, bytes of the result, thread, [[action, start, stop, source], …],
clients who want it, delay: what the worker had added to its own clock for the times in the list, null where
unknown"""
ERRED: Final = "E"
"""time, key, attempt, run id, worker, key to blame, text, [[action, start, stop, source], …], thread"""
RELEASED: Final = "L"
"""time, key, attempt, run id, stimulus: taken from its worker before it ended"""
FORGOTTEN: Final = "G"
"""time, key, stimulus: nobody wants it any more, and it had not ended"""
WORKER: Final = "W"
"""time, address, host as Dask has it, threads, bytes of memory, GPUs, whether it was there before"""
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

# From workers and nannies.
HELLO: Final = "h"
"""time, address, host, pid, CPUs"""
RUNNING: Final = "r"
"""time, key, run id, worker, start, thread, [starts of its transfers], delay"""
FAILED: Final = "f"
"""time, key, run id, worker, error type, message, traceback, fingerprint, start, stop, thread, delay"""
TRANSFER: Final = "t"
"""time, worker, source, start, stop, bytes, keys, delay"""
NODE: Final = "n"
"""time, host, worker, a resource sample as JSON"""
DEATH: Final = "d"
"""time, address, reason, exit code, signal"""

Message = list[Any]

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Message]).decode


def text_of_key(key: object) -> str:
    """A Dask key, which may be a tuple, as text."""
    return key if type(key) is str else str(key)
