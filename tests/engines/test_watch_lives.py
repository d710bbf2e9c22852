"""What a Dask cluster tells becomes task events: one end for each task, with what is known of it."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.watched_tasks import Lives
from flightlog.engines.processes import ExitReason
from flightlog.events import (
    Failure,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    UserEvent,
)

KEY = "inc-0123456789abcdef0123456789abcdef"
WORKER = "tcp://10.0.0.1:4000"
IDS = {"task": "inc", "trace_id": "t" * 32, "parent_id": "p" * 16}
SPAN = "0a0b0c0d00000007"


def lives(told=None, beside=True):
    """Lives whose deferred events come at once, with this reason."""
    taken = []

    def defer(worker, make):
        taken.extend(make(ExitReason(told or f"{worker} is gone")))

    workers = SimpleNamespace(
        trace_id="t" * 32,
        parent_id="p" * 16,
        iso=lambda at: f"{at:.3f}",
        defer=defer,
        is_beside_scheduler=lambda _worker: beside,
    )
    made = Lives("0a0b0c0d", workers, lambda _key: 1)
    made.deferred = taken
    return made


def events(made, *messages):
    return [event for message in messages for event in made.take(list(message))]


def submitted(key=KEY, at=1.0, by=None, depends_on=None, args=None, size=None):
    return [m.SUBMITTED, at, by, [[key, depends_on, args, size]]]


def done(at=4.0, key=KEY, attempt=1, run_id=7, steps=(("compute", 2.5, 3.5),), wanted=1, delay=0.5):
    return [m.DONE, at, key, attempt, run_id, WORKER, 28, wanted, [list(step) for step in steps], delay]


def failed(run_id=7, start=2.5, stop=3.0):
    return [m.FAILED, 3.1, KEY, run_id, WORKER, "ValueError", "no", "Traceback…", "f1", start, stop, 0.5]


def test_a_scheduler_with_an_older_version_tells_no_size():
    [event] = events(lives(), [m.SUBMITTED, 1.0, None, [[KEY, None, {"x": 3}]]])
    assert event.args == {"x": 3}


def test_a_task_is_submitted_queued_started_and_completed_on_its_workers_own_clock():
    made = lives()
    assert events(
        made,
        submitted(args={"x": 3, "password": "hunter2"}, size=800),
        [m.QUEUED, 1.1, KEY, 1],
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        done(
            steps=[
                ("transfer", 1.7, 1.9),
                ("disk-read", 2.0, 2.25),
                ("compute", 2.5, 3.5),
            ]
        ),
    ) == [
        TaskSubmitted(
            timestamp="1.000", task_id=KEY, args={"x": 3, "password": "[redacted]"}, args_digest=KEY, **IDS
        ),
        TaskQueued(timestamp="1.100", task_id=KEY, **IDS),
        TaskStarted(timestamp="2.000", task_id=KEY, worker=WORKER, queue_s=1.0, span_id=SPAN, **IDS),
        TaskCompleted(
            timestamp="3.000",
            task_id=KEY,
            args={"x": 3, "password": "[redacted]"},
            args_digest=KEY,
            worker=WORKER,
            duration_s=1.0,
            queue_s=1.0,
            scheduler_s=0.5,
            transfer_s=1.9 - 1.7,
            spill_s=0.25,
            requests=1,
            call_bytes=800,
            result_bytes=28,
            span_id=SPAN,
            **IDS,
        ),
    ]


def test_a_worker_on_another_host_waits_by_the_schedulers_clock_and_starts_by_its_own():
    made = lives(beside=False)
    *_, started, _end = events(made, submitted(), [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7], done())
    assert (started.timestamp, started.queue_s) == ("2.000", 1.5)


def test_a_long_task_is_started_when_its_worker_says_so_and_not_again_at_its_end():
    made = lives()
    said = events(
        made,
        submitted(),
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        [m.RUNNING, 2.9, KEY, 7, WORKER, 2.5, [1.7], 0.5],
        done(),
    )
    assert [type(event) for event in said] == [TaskSubmitted, TaskQueued, TaskStarted, TaskCompleted]
    assert made.parent_of_transfer(WORKER, 1.7) == SPAN


def test_a_task_that_was_stolen_belongs_to_the_worker_that_executed_it():
    made = lives()
    *_, started, end = events(made, submitted(), [m.ASSIGNED, 1.6, KEY, 1, "tcp://other", 5], done())
    assert (started.worker, started.span_id, end.worker, end.span_id) == (WORKER, SPAN, WORKER, SPAN)


def test_a_failure_that_is_tried_again_is_told_with_its_reason():
    made = lives()
    said = events(
        made,
        submitted(),
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        failed(),
        [m.RELEASED, 3.2, KEY, 1, 7, "task-erred-1763230402.5"],
        [m.ASSIGNED, 3.3, KEY, 2, WORKER, 8],
        done(attempt=2, run_id=8, steps=[("compute", 4.5, 5.5)], at=5.6),
    )
    where = {"task": "inc", "task_id": KEY, "attempt": 1, "worker": WORKER, "span_id": SPAN}
    assert said[3:5] == [
        Failure(
            timestamp="2.500",
            scope="task",
            error_type="ValueError",
            message="no",
            traceback="Traceback…",
            fingerprint="f1",
            **where,
        ),
        TaskRetried(timestamp="2.500", task_id=KEY, reason="ValueError: no", span_id=SPAN, **IDS),
    ]
    assert [(type(event), event.attempt) for event in said[5:]] == [
        (TaskQueued, 2),
        (TaskStarted, 2),
        (TaskCompleted, 2),
    ]


def test_a_task_that_fails_for_good_has_its_error_and_its_traceback():
    made = lives()
    *_, end, failure = events(
        made,
        submitted(),
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        failed(),
        [m.ERRED, 3.2, KEY, 1, 7, WORKER, KEY, "ValueError('no')", [["compute", 2.5, 3.0]]],
    )
    assert (end.error_type, end.error_message, end.fingerprint, end.duration_s) == (
        "ValueError",
        "no",
        "f1",
        0.5,
    )
    assert (failure.traceback, failure.span_id) == ("Traceback…", SPAN)


def test_what_depends_on_a_failed_task_names_it():
    made = lives()
    other = "total-ffffffffffffffffffffffffffffffff"
    _, _, end, _ = events(
        made,
        submitted(),
        submitted(other, depends_on=[KEY]),
        [m.ERRED, 3.2, other, 0, None, None, KEY, "ValueError('no')", None],
    )
    assert (end.task_id, end.error_type) == (other, "DependencyFailed")
    assert end.error_message == f"inc ({KEY}), which it depends on, failed: ValueError('no')"


def test_an_attempt_lost_with_its_worker_is_tried_again_with_the_reason_of_its_death():
    made = lives("killed by SIGKILL")
    events(
        made,
        submitted(),
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        [m.WORKER_GONE, 2.0, WORKER, "handle-worker-cleanup-1.5", False],
        [m.RELEASED, 2.0, KEY, 1, 7, "handle-worker-cleanup-1.5"],
    )
    where = {"task": "inc", "task_id": KEY, "attempt": 1, "worker": WORKER, "span_id": SPAN}
    assert made.deferred == [
        Failure(
            timestamp="2.000",
            scope="task",
            error_type="WorkerLost",
            message="killed by SIGKILL",
            traceback=None,
            fingerprint=None,
            **where,
        ),
        TaskRetried(
            timestamp="2.000",
            task_id=KEY,
            span_id=SPAN,
            reason=f"its worker {WORKER} was lost: killed by SIGKILL",
            **IDS,
        ),
    ]


def test_a_task_that_killed_its_workers_ends_with_their_history():
    made = lives("killed by SIGKILL")
    stimulus = "handle-worker-cleanup-1.5"
    events(
        made,
        submitted(),
        [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
        [m.WORKER_GONE, 2.0, WORKER, stimulus, False],
        [m.RELEASED, 2.0, KEY, 1, 7, stimulus],
        [m.ASSIGNED, 2.6, KEY, 2, "tcp://b", 8],
        [m.ERRED, 3.0, KEY, 2, 8, "tcp://b", KEY, None, None],
    )
    end = next(event for event in made.deferred if isinstance(event, TaskFailed))
    assert (end.error_type, end.attempt, end.worker) == ("KilledWorker", 2, "tcp://b")
    assert end.error_message == (
        "its worker died 2 times while it had this task, the last time: killed by SIGKILL; "
        f"workers: {WORKER}, tcp://b"
    )


def test_a_cancelled_task_says_who_gave_it_up():
    made = lives()
    reasons = []
    for stimulus in ("cancel-key-1.5", "client-releases-keys-1.5", "remove-client-1.5", "something-else-1.5"):
        *_, end = events(
            made,
            submitted(),
            [m.ASSIGNED, 1.6, KEY, 1, WORKER, 7],
            [m.RELEASED, 2.0, KEY, 1, 7, stimulus],
            [m.FORGOTTEN, 2.0, KEY, stimulus],
        )
        assert isinstance(end, TaskCancelled)
        reasons.append(end.reason)
    assert reasons == [
        "cancelled by the client",
        "released: nobody wanted its result any more",
        "its client went away",
        "Dask: something-else",
    ]


def test_a_key_that_comes_again_after_its_end_is_a_further_task():
    made = lives()
    said = events(made, submitted(), done(), submitted(at=5.0), done(run_id=9))
    assert [event.task_id for event in said if isinstance(event, TaskEnded)] == [KEY, f"{KEY}#2"]


def test_a_result_that_was_lost_is_executed_again_as_a_further_task():
    made = lives()
    said = events(
        made,
        submitted(),
        done(),
        [m.WORKER_GONE, 5.0, WORKER, "handle-worker-cleanup-5.0", False],
        [m.ANEW, 5.0, KEY, "handle-worker-cleanup-5.0"],
        [m.ASSIGNED, 5.0, KEY, 1, "tcp://b", 9],
        done(run_id=9),
    )
    why = {"task_id": f"{KEY}#2", "reason": "its result was lost with a worker"}
    assert UserEvent(timestamp="5.000", name="dask.executed_again", fields=why) in said
    assert [event.task_id for event in said if isinstance(event, TaskEnded)] == [KEY, f"{KEY}#2"]


def test_a_result_that_is_executed_again_belongs_to_the_span_that_asked_for_it_first():
    said = events(lives(), submitted(by="s" * 16), done(), [m.ANEW, 5.0, KEY, "stim"], done(run_id=9))
    assert {event.parent_id for event in said if not isinstance(event, UserEvent)} == {"s" * 16}


def test_an_end_whose_submission_was_not_heard_of_is_recorded_without_what_is_unknown():
    [started, end] = events(lives(), done())
    assert (started.parent_id, end.parent_id) == ("p" * 16, "p" * 16)
    assert (started.queue_s, end.queue_s, end.scheduler_s, end.duration_s) == (None, None, None, 1.0)


KINDS = st.sampled_from(["Q", "A", "r", "D", "E", "L", "G", "N", "f", "X", "S"])


@given(st.lists(st.tuples(KINDS, st.integers(1, 3), st.sampled_from(["a-1", "b-2"])), max_size=40))
def test_whatever_comes_in_whatever_order_no_task_id_ends_twice(steps):
    made = lives()
    said = []
    for kind, number, key in steps:
        message = {
            "S": submitted(key),
            "Q": [m.QUEUED, 1.0, key, number],
            "A": [m.ASSIGNED, 1.0, key, number, WORKER, number],
            "r": [m.RUNNING, 1.0, key, number, WORKER, 1.0, [], 0.0],
            "D": done(key=key, run_id=number),
            "E": [m.ERRED, 1.0, key, number, number, WORKER, key, None, None],
            "L": [m.RELEASED, 1.0, key, number, number, f"stim-{number}"],
            "G": [m.FORGOTTEN, 1.0, key, "cancel-key-1"],
            "N": [m.ANEW, 1.0, key, "stim-1"],
            "X": [m.WORKER_GONE, 1.0, WORKER, f"stim-{number}", False],
            "f": [m.FAILED, 1.0, key, number, WORKER, "E", "m", None, "", 1.0, 1.1, 0.0],
        }[kind]
        said += events(made, message)
    ends = [event.task_id for event in (*said, *made.deferred) if isinstance(event, TaskEnded)]
    assert len(ends) == len(set(ends))
