"""What is kept on the scheduler is bounded: what does not fit is dropped, oldest first, and counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from distributed.scheduler import TaskState

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.scheduler_plugin import (
    EngineWatch,
    SchedulerWatch,
    arguments_of,
    size_of_arguments,
)
from flightlog.engines.limits import DaskLimits


class Scheduler:
    """As much of a scheduler as the plugin asks for; keeps what it is given to send."""

    def __init__(self):
        self.tasks = {}
        self.workers = {}
        self.client_comms = {"me": None}
        self.allowed_failures = 3
        self.sent = []
        self.truncated = []
        self.loop = SimpleNamespace(add_callback=lambda *_call: None)
        self._broker = SimpleNamespace(truncate=self.truncated.append)

    def client_send(self, client, message):
        self.sent.append((client, message["topic"], message["event"][1]))

    def add(self, *keys):
        for key in keys:
            self.tasks[key] = SimpleNamespace(
                key=key,
                state="released",
                annotations=None,
                dependencies=(),
                run_spec=None,
                run_id=7,
                metadata=None,
                who_wants={"me"},
                processing_on=SimpleNamespace(address="tcp://a", nanny="tcp://n"),
                exception_blame=None,
            )


def watching(capacity=10):
    return with_scheduler(SchedulerWatch("watch", "me", capacity=capacity))


def with_scheduler(plugin):
    scheduler = plugin._scheduler = Scheduler()
    return plugin, scheduler


def submit(plugin, scheduler, *keys, client="me"):
    scheduler.add(*keys)
    plugin.update_graph(
        scheduler, client=client, keys=set(keys), tasks=list(keys), stimulus_id="update-graph-1-by-abc"
    )


def told(plugin):
    _, _, rest = plugin.drain()
    return [message for parcel in rest for message in m.decode(parcel)]


def test_what_does_not_fit_is_dropped_and_the_record_says_how_much():
    plugin, _ = watching(capacity=10)
    for number in range(25):
        plugin.log_event(
            "all", {"action": "remove-worker", "worker": f"w{number}", "stimulus_id": "s", "expected": True}
        )
    dropped, *kept = told(plugin)
    assert (dropped[0], dropped[2]) == (m.DROPPED, 15)
    assert [message[2] for message in kept] == [f"w{number}" for number in range(15, 25)]


def test_a_large_graph_that_comes_at_once_is_kept_whole():
    plugin, scheduler = watching(capacity=10)
    keys = [f"k-{number}" for number in range(1000)]
    submit(plugin, scheduler, *keys)
    for key in keys:
        plugin.transition(key, "waiting", "queued", stimulus_id="s")
        plugin.transition(key, "queued", "processing", stimulus_id="s")
    messages = told(plugin)
    assert [message[0] for message in messages].count(m.ASSIGNED) == 1000
    assert m.DROPPED not in [message[0] for message in messages]
    assert len(messages) <= DaskLimits.waiting_messages_per_task * 1000


def test_a_client_that_does_not_listen_gets_so_many_parcels_and_no_more():
    plugin, scheduler = watching(capacity=10**6)
    scheduler.add(
        *(
            f"k-{number}"
            for number in range(
                DaskLimits.max_unacknowledged_parcels * DaskLimits.max_messages_per_parcel // 2
            )
        )
    )
    for number in range((DaskLimits.max_unacknowledged_parcels + 5) * DaskLimits.max_messages_per_parcel):
        plugin._put((m.QUEUED, 1.0, f"k-{number}", 1))
    plugin._flush()
    assert len(scheduler.sent) == DaskLimits.max_unacknowledged_parcels
    plugin.log_event(f"{plugin.down}-heard", 5)
    plugin._flush()
    assert len(scheduler.sent) == DaskLimits.max_unacknowledged_parcels + 5


def test_the_schedulers_own_log_of_events_keeps_nothing_of_ours():
    plugin, scheduler = watching()
    for topic, message in ((plugin.up, b"\x90"), (f"{plugin.parcels}-heard", 4), (f"{plugin.down}-heard", 1)):
        plugin.log_event(topic, message)
    assert scheduler.truncated == [plugin.up, f"{plugin.parcels}-heard", f"{plugin.down}-heard"]
    assert scheduler.sent == []


def test_only_this_clients_tasks_are_told_of_and_marked_but_for_an_engines_own():
    plugin, scheduler = with_scheduler(EngineWatch("0a0b0c0d", "me"))
    scheduler.client_comms["other"] = None
    attempt = "flightlog-add-0a0b0c0d-7-0"
    submit(plugin, scheduler, "theirs-1", client="other")
    submit(plugin, scheduler, "nested-1", client="Client-worker-1")
    submit(plugin, scheduler, attempt, "mine-1")
    for key in scheduler.tasks:
        plugin.transition(key, "waiting", "processing", stimulus_id="s")
    submitted, assigned = told(plugin)
    assert submitted[2:] == ["abc", [["mine-1", None, None, None]]]
    assert assigned[2:] == ["mine-1", 1, "tcp://a", 7]
    assert {key for key, task in scheduler.tasks.items() if task.annotations} == {"mine-1"}
    assert scheduler.tasks[attempt].suspicious == scheduler.allowed_failures


def test_what_dask_does_with_an_engines_attempts_is_told_at_once_and_never_dropped():
    plugin, scheduler = with_scheduler(EngineWatch("0a0b0c0d", "me"))
    keys = [f"flightlog-add-0a0b0c0d-{number}-0" for number in range(4)]
    submit(plugin, scheduler, *keys)
    for key in keys:
        plugin.transition(key, "waiting", "processing", stimulus_id="s")
    plugin.transition(keys[0], "processing", "erred", worker="tcp://a")
    plugin.transition(keys[1], "processing", "erred", worker="tcp://a", startstops=[])
    plugin.transition(keys[2], "processing", "released")
    plugin.transition(keys[3], "memory", "released")
    plugin.restart(scheduler)
    parcels = [m.decode(parcel) for _, _, parcel in scheduler.sent]
    assert [[kind, *facts] for [[kind, _, *facts]] in parcels] == [
        [m.LOST, keys[0], "tcp://a", True],
        [m.REFUSED, keys[1]],
        [m.LOST, keys[2], "tcp://a", True],
        [m.GONE, keys[3]],
        [m.RESTART],
    ]
    plugin.log_event(plugin.name, b"notes")
    assert scheduler.truncated == [plugin.name]


def test_nothing_is_kept_of_a_task_that_dask_has_forgotten():
    plugin, scheduler = watching()
    submit(plugin, scheduler, "k-1")
    plugin.transition("k-1", "waiting", "processing", stimulus_id="s")
    plugin.transition("k-1", "processing", "memory", stimulus_id="s", worker="tcp://a", startstops=[])
    plugin.transition("k-1", "memory", "released", stimulus_id="s")
    plugin.transition("k-1", "released", "forgotten", stimulus_id="s")
    assert plugin._mine == {}
    assert [message[0] for message in told(plugin)] == [m.SUBMITTED, m.ASSIGNED, m.DONE]


def test_the_state_that_the_plugin_reads_is_there_in_this_dask():
    for name in (
        "run_id",
        "annotations",
        "metadata",
        "exception_blame",
        "exception_text",
        "who_wants",
        "run_spec",
    ):
        assert name in TaskState.__slots__


def test_arguments_are_named_and_bounded_and_what_is_large_is_named_by_type():
    def function(x, name, *rest, flag=False):
        pass

    spec = SimpleNamespace(func=function, args=(1, "n" * 300, 2**70, [1]), kwargs={"flag": True})
    assert arguments_of(spec, {}) == {
        "x": 1,
        "name": "n" * DaskLimits.max_argument_characters + "…",
        "2": str(2**70),
        "3": "<list>",
        "flag": True,
    }
    assert arguments_of(SimpleNamespace(), {}) is None


def test_arrays_among_the_arguments_have_a_size_and_nobody_else_is_asked_for_it():
    class Lazy:
        @property
        def nbytes(self):
            raise RuntimeError("it would be loaded")

    spec = SimpleNamespace(args=(np.zeros(10), 1, Lazy()), kwargs={"more": np.zeros(5)})
    assert size_of_arguments(spec) == 120
    assert size_of_arguments(SimpleNamespace(args=(1, Lazy()), kwargs={})) is None
    assert size_of_arguments(SimpleNamespace()) is None


def test_an_array_that_has_no_size_to_tell_is_one_without():
    class Sparse:
        @property
        def nbytes(self):
            raise NotImplementedError("nbytes is not implemented for sparse tensors")

    Sparse.__module__ = "torch"
    spec = SimpleNamespace(args=(Sparse(), np.zeros(10)), kwargs={})
    assert size_of_arguments(spec) == 80
