"""Chunks of files pass the scheduler so many at a time; those behind them wait in their workers' spools."""

from __future__ import annotations

import asyncio

from flightlog.engines.dask.messages import Arrivals, ChunkGate
from flightlog.engines.limits import DaskLimits


class Server:
    """As much of a scheduler as the gate asks for."""

    def __init__(self):
        self.handlers = {}


class Client:
    """A client that notes what it says to the scheduler."""

    def __init__(self):
        self.scheduler, self.said = self, []

    async def log_event(self, topic, msg):
        self.said.append((topic, msg))


def test_a_client_that_takes_nothing_leaves_no_more_than_a_window_of_chunks_on_the_scheduler():
    async def run():
        sent = []
        gate = ChunkGate(Server(), "files", sent.append)
        taken = [
            await gate.take(b"%d" % number, wait_s=0.0)
            for number in range(DaskLimits.max_unacknowledged_chunks + 5)
        ]
        return taken, sent

    taken, sent = asyncio.run(run())
    assert taken == [True] * DaskLimits.max_unacknowledged_chunks + [False] * 5
    assert sent == [b"%d" % number for number in range(DaskLimits.max_unacknowledged_chunks)]


def test_a_chunk_that_waits_is_passed_on_when_the_client_has_taken_others():
    async def run():
        sent = []
        gate = ChunkGate(Server(), "files", sent.append)
        for _ in range(DaskLimits.max_unacknowledged_chunks):
            await gate.take(b"first")
        waiting = asyncio.create_task(gate.take(b"last"))
        await asyncio.sleep(0)
        before = len(sent)
        gate.hear(1)
        return before, await waiting, sent[-1], gate.sent

    assert asyncio.run(run()) == (
        DaskLimits.max_unacknowledged_chunks,
        True,
        b"last",
        DaskLimits.max_unacknowledged_chunks + 1,
    )


def test_what_is_handed_over_when_nobody_watches_any_more_is_taken_and_kept_by_nobody():
    async def run():
        server, sent = Server(), []
        gate = ChunkGate(server, "files", sent.append)
        [take] = server.handlers.values()
        there = await take(topic="files", chunk=b"1")
        del gate
        return there, await take(topic="files", chunk=b"2"), sent

    assert asyncio.run(run()) == (True, True, [b"1"])


def test_the_client_says_from_time_to_time_how_many_chunks_it_has():
    async def run():
        client, taken = Client(), []
        arrivals = Arrivals(client, "files", taken.append)
        for number in range(2 * DaskLimits.messages_per_acknowledgement + 1):
            arrivals.on_event((1.0, b"%d" % number))
        await asyncio.sleep(0)
        return client.said, len(taken), arrivals.number

    count = 2 * DaskLimits.messages_per_acknowledgement + 1
    said = [
        ("files-heard", DaskLimits.messages_per_acknowledgement),
        ("files-heard", 2 * DaskLimits.messages_per_acknowledgement),
    ]
    assert asyncio.run(run()) == (said, count, count)
