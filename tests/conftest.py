"""Stands here so that every test can import `building`.

Generated examples judge values, not speed: a busy machine fails no test. They are few and the same each time,
so that a change that passes once passes always; `make explore` tries others, and more. No test sends its runs
where the environment of whoever runs it says.
"""

import gc
import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("steady", settings.get_profile("exploring"), derandomize=True, max_examples=25)
settings.load_profile("steady")

for name in [*os.environ]:
    if name.startswith("OTEL_") or name == "FLIGHTLOG_RUNS_DIR_REMOTE":
        del os.environ[name]

# Tests look at complete runs right after their blocks, and run beside any number of pytest's own threads.
# What happens otherwise has tests of its own, in `faults/test_short_end.py`.
os.environ["FLIGHTLOG_COMPLETE"] = "now"


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter clean up at its end as it always does."""
    gc.unfreeze()
