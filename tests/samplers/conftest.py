"""What tests of samplers need of the process they run in."""

from __future__ import annotations

import gc
import time

import pytest

from flightlog.samplers.usage import UsageMeter


@pytest.fixture(autouse=True)
def no_task_of_another_test() -> None:
    """Tasks that earlier tests had written off have come to their end: a task that starts now is alone."""
    deadline = time.monotonic() + 20
    while True:
        meter = UsageMeter()
        meter.start()
        if meter.stop().cpu_scope != "thread":
            return
        assert time.monotonic() < deadline, "a task of an earlier test still runs in this process"
        gc.collect()  # a task that an exception cut off lasts as long as its traceback
        time.sleep(0.01)
