"""The contract of engines as tests: subclass one of these in a test module, and pytest runs them all.

    from flightlog.testing.engines import ProcessEngineContract

    class TestMyEngine(ProcessEngineContract):
        def make_engine(self, workers):
            return MyEngine(max_workers=workers)

`EngineContract` is for every engine; `ProcessEngineContract` is for those whose workers are processes of
their own, and holds all of it and more. Nothing in them sleeps: tests wait for reports, and tasks wait at
named pipes. `timeout_s` is the timeout that a waiting task runs over: raise it where starting a task takes
long.

For further tests of an engine there are `Reported`, which keeps what an engine reports, `make_work`, which
makes an attempt to hand to one, `gate` and `recorded`, and the tasks in `flightlog.testing.tasks`.
"""

from __future__ import annotations

from flightlog.engines.contract import Work
from flightlog.testing.engine_ends import AttemptsAreCancelled, AttemptsEnd
from flightlog.testing.engine_processes import ProcessesDie
from flightlog.testing.engine_records import TasksAreRecorded, WorkersAreTold
from flightlog.testing.reports import Reported, make_work
from flightlog.testing.running import gate, recorded

__all__ = ["EngineContract", "ProcessEngineContract", "Reported", "Work", "gate", "make_work", "recorded"]


class EngineContract(AttemptsEnd, AttemptsAreCancelled, WorkersAreTold, TasksAreRecorded):
    """What every engine does."""


class ProcessEngineContract(EngineContract, ProcessesDie):
    """What engines do besides whose workers are processes of their own."""
