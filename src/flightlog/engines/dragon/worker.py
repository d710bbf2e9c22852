"""A worker process of Dragon's: executes the attempts its engine sends, one at a time, until it is told to
stop.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.engines import program
from flightlog.engines.execute import Started, execute
from flightlog.engines.program import add_paths, with_main
from flightlog.engines.wire import Frame, Frames, frame
from flightlog.engines.worker import READY, STOP, decode_order, encode_outcome, encode_started
from flightlog.engines.worker_recording import SampledFrom, Stay
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

PARCEL, GONE = b"P", b"G"

dumps = partial(program.dumps, main_is_there=True)
"""Pickles calls for workers, and results for the program."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What every worker of one engine is given."""

    paths: list[str]
    """Where the program looks for modules."""
    main: dict[str, str]
    """Where functions of the main program are found."""
    home: SampledFrom


def one_frame(message: bytes) -> Frame:
    """The message that came as these bytes."""
    (found,) = Frames().feed(message)
    return found


def serve(orders: Any, answers: Any, around: Surroundings) -> None:
    """The whole life of a worker. `orders` and `answers` are Dragon's queues, which nobody else reads or
    fills.

    What was put into a queue is there when this process has died, so a start that was told stays told.
    """
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    add_paths(around.paths)
    host, pid = this_host(), os.getpid()
    name = lane_name(host, pid, main=True)
    stay = Stay(name, around.home, lambda parcel: answers.put(frame(PARCEL, 0, b"", parcel)))
    answers.put(frame(READY, pid, host.encode()))
    while (message := one_frame(orders.get())).kind != STOP:
        work = with_main(decode_order(message), around.main)
        if work.place:
            work = msgspec.structs.replace(work, place=stay.at(work.place))

        def begun(started: Started, serial: int = message.serial) -> None:
            answers.put(encode_started(serial, started, name))

        outcome = execute(work, worker=name, alone=True, started=begun, dumps=dumps)
        del work
        stay.settle()
        answers.put(encode_outcome(message.serial, outcome))
        del message, outcome
    stay.leave()
