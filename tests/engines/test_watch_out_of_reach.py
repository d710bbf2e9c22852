"""What a worker cannot tell a scheduler that is out of reach is kept as far as it fits; the rest is
counted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.worker_plugin import WorkerWatch
from flightlog.engines.limits import DaskLimits
from flightlog.events import UserEvent

A = "tcp://10.0.0.1:4000"


class Worker:
    """As much of a worker as the plugin asks for, with a connection that may be closed."""

    def __init__(self):
        self.address, self.scheduler_delay = A, 0.0
        self.reachable = False
        self.batched_stream = SimpleNamespace(comm=SimpleNamespace(closed=lambda: not self.reachable))
        self.state = SimpleNamespace(executing=(), long_running=())
        self.active_threads, self.transfer_incoming_log = {}, []
        self.execute = None
        self.told = []

    def log_event(self, topic, msg):
        self.told.extend(m.decode(msg))


def watching():
    plugin = WorkerWatch("0a0b0c0d", {}, None)
    plugin._worker = worker = Worker()
    return plugin, worker


def test_a_worker_out_of_reach_for_long_says_afterwards_how_many_reports_it_dropped():
    plugin, worker = watching()
    for number in range(DaskLimits.max_waiting_reports + 3):
        plugin._say([m.HELLO, float(number)])
    plugin._flush()
    assert worker.told == []
    worker.reachable = True
    plugin._flush()
    (kind, _, *dropped), *kept = worker.told
    assert (kind, dropped) == (m.DROPPED, [3, A])
    assert [message[1] for message in kept] == [
        float(number) for number in range(3, DaskLimits.max_waiting_reports + 3)
    ]
    plugin._say([m.HELLO, 0.0])
    plugin._flush()
    assert worker.told[-1] == [m.HELLO, 0.0]
    assert [message[0] for message in worker.told].count(m.DROPPED) == 1


def test_a_worker_that_ends_out_of_reach_counts_what_it_could_not_tell_in_the_run_itself():
    plugin, worker = watching()
    emitted = []
    plugin._run = SimpleNamespace(emit=emitted.append, owned=True, recorder=SimpleNamespace(closed=False))
    for number in range(DaskLimits.max_waiting_reports + 3):
        plugin._say([m.HELLO, float(number)])
    asyncio.run(plugin.teardown(worker))
    [event] = emitted
    fields = {"messages": DaskLimits.max_waiting_reports + 3, "worker": A}
    assert event == UserEvent(timestamp=event.timestamp, name="dask.dropped", fields=fields)
    assert worker.told == []


def test_a_worker_that_is_heard_to_the_last_counts_nothing():
    plugin, worker = watching()
    emitted = []
    plugin._run = SimpleNamespace(emit=emitted.append, owned=True, recorder=SimpleNamespace(closed=False))
    plugin._say([m.HELLO, 1.0])
    worker.reachable = True
    asyncio.run(plugin.teardown(worker))
    assert (emitted, worker.told) == ([], [[m.HELLO, 1.0]])
