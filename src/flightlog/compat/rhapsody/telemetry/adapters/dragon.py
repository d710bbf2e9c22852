"""Samples of the nodes of a Dragon runtime, by a process on each."""

from __future__ import annotations

import logging
import os
import sys
import threading
from queue import Empty
from typing import Any

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.telemetry.adapters.base import EmittingAdapter, MachineSamples
from flightlog.core.errors import FlightlogError
from flightlog.engines.dragon.engine import check_runtime

log = logging.getLogger(__name__)


class DragonTelemetryAdapter(EmittingAdapter):
    """CPU, memory, disk, network and GPUs of every node that Dragon runs on.

    One sample almost at once, then one every `interval` seconds, taken by a process that Dragon starts on
    each node. Nothing in a program that Dragon did not start.
    """

    def __init__(self, session_id: str, backend_name: str, interval: float = 10.0) -> None:
        super().__init__(session_id, backend_name, interval)
        self._over = threading.Event()

    def start(self) -> None:
        """Start sampling."""
        try:
            check_runtime(sys.platform, os.environ)
        except FlightlogError as error:
            log.debug("nodes are not sampled: %s", error)
            return
        self._over.clear()
        # No daemon: its processes end before the program does, and with it the runtime.
        threading.Thread(target=self._collect, name="telemetry-dragon-adapter").start()

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()

    def _collect(self) -> None:
        try:
            from dragon.native.event import Event
            from dragon.native.machine import System
            from dragon.native.process import ProcessTemplate
            from dragon.native.process_group import ProcessGroup
            from dragon.native.queue import Queue

            samples, over, group = Queue(), Event(), ProcessGroup(restart=False, pmi=None)
            for policy in System().hostname_policies():
                order = ProcessTemplate(sample_node, args=(samples, over, self._interval), policy=policy)
                group.add_process(nproc=1, template=order)
            group.init()
            group.start()
        except Exception:
            log.warning("the nodes of Dragon are not sampled", exc_info=True)
            return
        while not self._over.is_set():
            try:
                for sample in samples.get(timeout=CompatLimits.dragon_poll_s):
                    self._emit(**sample)
            except (Empty, TimeoutError):
                continue
            except Exception:
                log.debug("a sample of a node is missing", exc_info=True)
        try:
            over.set()
            group.join(timeout=CompatLimits.dragon_close_s)
            group.close()
        except Exception:
            log.debug("the processes that sampled nodes did not end in good order", exc_info=True)


def sample_node(samples: Any, over: Any, interval: float) -> None:
    """The whole life of a process that samples a node."""
    machine = MachineSamples()
    over.wait(timeout=min(interval, CompatLimits.first_sample_s))
    while True:
        samples.put(list(machine.take()))
        if over.wait(timeout=interval):
            break
    machine.close()
