"""What Ray's errors mean, by the names they have in Ray."""

from __future__ import annotations

import pytest

from flightlog.engines.contract import Outcome
from flightlog.engines.ray.engine import first_sentence, refusal, words_of

RayError = type("RayError", (Exception,), {})


def error(name: str, text: str) -> BaseException:
    return type(name, (RayError,), {})(text)


def test_what_ray_could_not_run_at_all_has_failed_and_says_why():
    found = refusal(error("RuntimeEnvSetupError", "no such package\n"))
    assert found == Outcome(end="failed", error_type="RuntimeEnvSetupError", error_message="no such package")


def test_an_error_in_the_workers_own_frame_is_a_failure_by_its_cause():
    raised = error("RayTaskError", "Traceback of the worker")
    raised.cause = ImportError("No module named 'flightlog'")
    assert refusal(raised) == Outcome(
        end="failed",
        error_type="ImportError",
        error_message="the worker could not execute it: No module named 'flightlog'",
        traceback="Traceback of the worker",
    )


@pytest.mark.parametrize(
    "name", ["WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError"]
)
def test_what_went_away_under_a_task_is_no_failure_of_its_own(name):
    assert refusal(error(name, "gone")) is None


def test_an_error_says_what_the_kernel_does_not():
    assert words_of(error("WorkerCrashedError", "The worker died unexpectedly.")) is None
    assert words_of(
        error("OutOfMemoryError", "Task was killed\n  due to the node running low on memory.")
    ) == ("Task was killed due to the node running low on memory.")


def test_the_first_sentence_stands_for_a_page_of_advice():
    assert first_sentence("Worker exits. Some common causes are\n(1) …") == "Worker exits"
    assert first_sentence("") is None
