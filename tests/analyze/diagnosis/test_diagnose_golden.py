"""A recorded kill by the kernel, as a machine without cgroups of its own can read it; and records made of
noise."""

from __future__ import annotations

from pathlib import Path

from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.events import (
    Event,
    Failure,
    JobAccounted,
    Metric,
    ResourceSample,
    TaskCancelled,
    TaskFailed,
    WorkerLost,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "killed-for-memory"


def test_a_worker_that_the_kernel_killed_in_a_cgroup_of_400_mib_ran_out_of_memory():
    found = flightlog.diagnose(GOLDEN)
    [cause] = found.causes
    assert (cause.failure_class, cause.scope, cause.tasks) == ("out_of_memory", "worker", {"hungry": 1})
    assert cause.confidence >= 0.9
    assert cause.evidence[0].source == "kernel"
    assert cause.suggestions[0] == (
        "component `sim` asks for 256.0 MiB; the kernel killed it when its cgroup was at its limit of 400.0 "
        "MiB; the largest success needed 66.6 MiB: give the job or container that it runs in 768M, or let "
        "fewer workers run in it at once."
    )


TEXTS = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.sampled_from(
        [
            "x (t1), which y depends on, failed: z",
            "x (t2), which y depends on, failed: z",
            "No space left",
            "'",
            "\x00",
        ]
    ),
)
NAMES = st.sampled_from(["t1", "t2", "t3"])
WORKERS = st.sampled_from([None, "w1", "w2"])
TYPES = st.one_of(
    st.none(), st.sampled_from(["WorkerLost", "DependencyFailed", "TimeoutError", "TIMEOUT", "KeyError"])
)
MOMENTS = st.floats(0, 100).map(at)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        TaskFailed,
        timestamp=MOMENTS,
        task=st.sampled_from(["sim", "sim[3]", ""]),
        task_id=NAMES,
        attempt=st.integers(1, 3),
        args=st.just({}),
        worker=WORKERS,
        duration_s=st.sampled_from([None, 0.0, 3.0]),
        error_type=TYPES,
        error_message=TEXTS,
    ),
    st.builds(
        TaskCancelled,
        timestamp=MOMENTS,
        task=st.just("sim"),
        task_id=NAMES,
        args=st.just({}),
        worker=WORKERS,
        duration_s=st.none(),
        reason=TEXTS,
    ),
    st.builds(
        Failure,
        timestamp=MOMENTS,
        scope=st.sampled_from(["run", "task", "worker", "command"]),
        error_type=TYPES,
        message=TEXTS,
        traceback=TEXTS,
        fingerprint=TEXTS,
        task=st.sampled_from([None, "sim"]),
        task_id=st.one_of(st.none(), NAMES),
        attempt=st.sampled_from([None, 1, 2]),
        worker=WORKERS,
        exit_code=st.sampled_from([None, 0, 137]),
        signal=st.sampled_from([None, "SIGKILL"]),
        output_tail=TEXTS,
    ),
    st.builds(
        WorkerLost,
        timestamp=MOMENTS,
        worker=st.sampled_from(["w1", "w2"]),
        host=st.sampled_from([None, "n1"]),
        pid=st.sampled_from([None, 5]),
        reason=TEXTS,
    ),
    st.builds(
        JobAccounted,
        timestamp=MOMENTS,
        job_id=st.sampled_from(["1", "2"]),
        attempt=st.integers(1, 2),
        state=st.sampled_from(["TIMEOUT", "CANCELLED", "FAILED", "COMPLETED", "OUT_OF_MEMORY"]),
    ),
    st.builds(
        ResourceSample,
        timestamp=MOMENTS,
        scope=st.sampled_from(["node", "cgroup", "worker", "gpu"]),
        host=st.sampled_from([None, "n1", "node-1"]),
        worker=WORKERS,
        cpu_percent=st.none(),
        rss_bytes=st.sampled_from([None, 0, 1 << 40]),
        memory_used_bytes=st.sampled_from([None, 0, 1 << 40]),
        memory_total_bytes=st.sampled_from([None, 0, 1 << 40]),
        oom_kills=st.sampled_from([None, 0, 2]),
    ),
    st.builds(
        Metric,
        timestamp=MOMENTS,
        name=st.just("loss"),
        value=st.none(),
        nonfinite=st.sampled_from([None, "nan"]),
    ),
)


@FEW
@given(
    events=st.lists(EVENTS, max_size=12),
    status=st.sampled_from(["completed", "failed", "interrupted", "running", "odd"]),
)
def test_any_record_has_a_diagnosis(tmp_path_factory, events, status):
    from flightlog.show.diagnosis import diagnosis_text

    found = flightlog.diagnose(make_run(tmp_path_factory.mktemp("runs"), events, status=status))
    assert all(cause.evidence and 0 <= cause.confidence <= 1 for cause in found.causes)
    assert diagnosis_text(found).endswith("\n")
