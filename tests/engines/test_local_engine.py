"""The local engine keeps the contract of engines: with processes of every kind, and with threads."""

from __future__ import annotations

from flightlog.engines.local import LocalEngine
from flightlog.testing.engines import EngineContract, ProcessEngineContract


class TestSpawnedProcesses(ProcessEngineContract):
    def make_engine(self, workers):
        return LocalEngine(max_workers=workers)


class TestProcessesOfAForkServer(ProcessEngineContract):
    def make_engine(self, workers):
        return LocalEngine(max_workers=workers, start_method="forkserver")


class TestForkedProcesses(ProcessEngineContract):
    def make_engine(self, workers):
        return LocalEngine(max_workers=workers, start_method="fork")


class TestThreads(EngineContract):
    def make_engine(self, workers):
        return LocalEngine(max_workers=workers, processes=False)
