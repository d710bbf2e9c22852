"""The Dask engine keeps the contract of engines: with threads, with processes, by address, with an
asynchronous client."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from distributed import Client

from flightlog.engines.dask.cluster import local_cluster
from flightlog.engines.dask.engine import DaskEngine
from flightlog.testing.engines import EngineContract, ProcessEngineContract


class Clusters:
    """Clusters that tests share, by kind and number of workers: starting one takes longer than most tests."""

    def __init__(self) -> None:
        self._made: dict[tuple[bool, int], Any] = {}

    def of(self, processes: bool, workers: int) -> Any:
        key = (processes, workers)
        if key not in self._made:
            options = {"n_workers": workers, "threads_per_worker": 1, "processes": processes}
            self._made[key] = local_cluster({**options, "protocol": "tcp://"})
        return self._made[key]

    def close(self) -> None:
        for cluster in self._made.values():
            cluster.close()


@pytest.fixture(scope="module")
def clusters():
    shared = Clusters()
    yield shared
    shared.close()


class TestThreads(EngineContract):
    def make_engine(self, workers):
        return DaskEngine(n_workers=workers, processes=False)


class TestProcesses(ProcessEngineContract):
    """On a cluster that is shared between these tests; the engine may end its workers as it may those of its
    own."""

    timeout_s = 0.5
    launches_workers = False

    @pytest.fixture(autouse=True)
    def _cluster(self, clusters):
        self.clusters = clusters

    def make_engine(self, workers):
        cluster = self.clusters.of(True, workers)
        with Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(workers)
        return DaskEngine(address=cluster.scheduler_address, end_workers=True)


class TestByAddress(EngineContract):
    launches_workers = False

    @pytest.fixture(autouse=True)
    def _cluster(self, clusters):
        self.clusters = clusters

    def make_engine(self, workers):
        return DaskEngine(address=self.clusters.of(False, workers).scheduler_address)


class TestAsynchronousClient(EngineContract):
    """The client lives on an event loop of another thread, as in a program that is asynchronous itself."""

    launches_workers = False

    @pytest.fixture(autouse=True)
    def _client(self, clusters):
        self.clusters, self.clients = clusters, []
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        thread.start()
        yield

        async def close():
            for client in self.clients:
                await client.close()

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        thread.join()
        self.loop.close()

    def make_engine(self, workers):
        async def connect():
            return await Client(
                self.clusters.of(False, workers).scheduler_address, asynchronous=True, set_as_default=False
            )

        client = asyncio.run_coroutine_threadsafe(connect(), self.loop).result(30)
        self.clients.append(client)
        return DaskEngine(client=client)
