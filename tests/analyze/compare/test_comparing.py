"""Two runs compared as a whole; every figure against the summary, which counts in plain Python."""

from __future__ import annotations

import math

import msgspec
import pytest
from builders.compared_durations import closed_run, task_events
from builders.examples import FEW
from builders.runs import at, make_run, note_death
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.analyze.compare.compare import compare, comparison_bytes
from flightlog.analyze.compare.results import Comparison, EnvironmentChange, NameCount
from flightlog.analyze.report.summary import summarize
from flightlog.events import (
    CacheLookup,
    CostEstimate,
    Failure,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store import layout
from flightlog.store.completing import open_run


def worker(name, start, end):
    where = {"worker": name, "host": "node-1", "pid": 1}
    return [
        WorkerLaunched(timestamp=at(start), **where),
        WorkerReady(timestamp=at(start + 0.25), **where),
        WorkerRemoved(timestamp=at(end), reason="done", **where),
    ]


def serial(name, times, *, start=0.5, gap=0.125, **ended):
    """Tasks one after the other on one worker."""
    events, now = [], start
    for number, took in enumerate(times):
        events += task_events(name, number, now, took, queue_s=now - 0.25, **ended)
        now += took + gap
    return events


def two(tmp_path, before, after, *, walls=(10.0, 10.0), options=({}, {})):
    for token, events, wall, more in zip(
        ("aaaaaaaa", "bbbbbbbb"), (before, after), walls, options, strict=True
    ):
        closed_run(tmp_path, events, token=token, duration_s=wall, end_time=at(wall), **more)
    return compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)


def test_the_shares_of_the_wall_time_add_up_and_name_what_grew(tmp_path):
    found = two(
        tmp_path,
        serial("fit", [1.0] * 4) + worker("w1", 0.0, 9.5),
        serial("fit", [2.0] * 4) + worker("w1", 0.0, 13.5),
        walls=(10.0, 14.0),
    )
    assert (found.wall_s.before, found.wall_s.after, found.wall_s.difference) == (10.0, 14.0, 4.0)
    assert found.explained.basis == "workers"
    assert math.fsum(
        share.seconds for share in found.explained.shares
    ) + found.explained.not_explained_s == pytest.approx(4.0)
    largest = found.explained.shares[0]
    assert largest.what == "duration of tasks"
    assert largest.detail == "fit: 1.0s → 2.0s each"
    assert largest.seconds == pytest.approx(4.0 * (10 / 9.5 + 14 / 13.5) / 2)


def test_more_tasks_fewer_workers_retries_and_caches_are_told_apart(tmp_path):
    hit = CacheLookup(
        timestamp=at(3), task="fit", result="hit", key="k", duration_s=0.25, saved_s=4.25, task_id="fit-0"
    )
    lost = [
        TaskStarted(timestamp=at(6), task="fit", task_id="fit-9", worker="w1", queue_s=0.0),
        TaskFailed(
            timestamp=at(8),
            task="fit",
            task_id="fit-9",
            args={},
            worker="w1",
            duration_s=2.0,
            error_type="OSError",
            error_message="gone",
            fingerprint="f1",
        ),
    ]
    found = two(
        tmp_path,
        serial("fit", [1.0] * 2) + worker("w1", 0.0, 10.0) + worker("w2", 0.0, 10.0),
        [*serial("fit", [1.0] * 4), hit, *lost, *worker("w1", 0.0, 10.0)],
    )
    shares = {share.what: share.seconds for share in found.explained.shares}
    each = (10 / 20 + 10 / 10) / 2
    assert shares["workers"] == pytest.approx((20 + 10) / 2 * (1 - 0.5))
    assert shares["retries"] == pytest.approx(2.0 * each)
    assert shares["cache"] == pytest.approx(-4.0 * each)
    assert shares["number of tasks"] == pytest.approx(2 * (1.0 + 2.0) / 2 * each)
    assert shares["duration of tasks"] == pytest.approx((2 + 4) / 2 * (2.0 - 1.0) * each)
    assert math.fsum(shares.values()) + found.explained.not_explained_s == pytest.approx(0.0, abs=1e-9)


def test_a_run_of_spans_alone_is_explained_by_their_own_time(tmp_path):
    def spans(solve):
        return [
            SpanEvent(timestamp=at(1), name="solve", span_id="s2", parent_id="s1", duration_s=solve),
            SpanEvent(timestamp=at(1), name="main", span_id="s1", duration_s=solve + 1),
        ]

    found = two(tmp_path, spans(2.0), spans(5.0), walls=(4.0, 7.0))
    assert found.explained.basis == "wall"
    [share] = found.explained.shares
    assert (share.what, share.seconds, share.detail) == (
        "duration of spans",
        pytest.approx(3.0),
        "solve: 2.0s → 5.0s each",
    )
    assert found.explained.not_explained_s == 0.0
    assert {change.name for change in found.durations} == {"main", "solve"}


def test_a_span_that_is_open_lasts_to_the_last_sign_of_life_of_its_process(tmp_path):
    """It is noted once, when it is a second old."""
    before = [SpanEvent(timestamp=at(1), name="solve", span_id="s1", duration_s=2.0)]
    opened = SpanOpened(
        timestamp=at(1), name="solve", span_id="s1", tags={}, trace_id="", parent_id=None, elapsed_s=1.0
    )
    alone = {"end_time": None, "duration_s": None}
    make_run(tmp_path, before, token="aaaaaaaa", duration_s=4.0, end_time=at(4))
    crashed = make_run(tmp_path, [opened], token="bbbbbbbb", status="crashed", heartbeat=at(31), **alone)
    note_death(crashed, 31)
    found = compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)
    parts = {share.what: (share.seconds, share.detail) for share in found.explained.shares}
    assert parts["in flight"] == (pytest.approx(30.0), "work whose end was not recorded: 0.0s → 30.0s")
    assert found.explained.not_explained_s == pytest.approx(0.0)
    assert (found.appeared, found.vanished) == ([], [])


def test_a_task_that_got_slower_is_called_so_and_others_are_not(tmp_path):
    wobble = [1 + (i * 37 % 11) / 50 for i in range(60)]
    before = serial("fit", [0.02 * w for w in wobble]) + serial("plot", [0.01 * w for w in wobble], start=5)
    after = serial("fit", [0.03 * w for w in reversed(wobble)]) + serial(
        "plot", [0.01 * w for w in wobble], start=5
    )
    found = two(tmp_path, before, after)
    assert [(change.name, change.verdict, change.pairs) for change in found.durations] == [
        ("fit", "slower", 60),
        ("plot", "no change", 60),
    ]
    assert found.durations[0].typical.low < 1.5 < found.durations[0].typical.high
    assert found.durations[0].p95_stands_out


def test_names_and_arguments_that_only_one_side_has_are_listed(tmp_path):
    before = task_events("old", 0, 1, 1) + task_events("fit", 1, 2, 1) + task_events("fit", 2, 3, 1)
    after = task_events("new", 0, 1, 1) + task_events("fit", 1, 2, 1)
    after += task_events("fit", 2, 3, 1, args={"number": 7}, args_digest="7")  # ids say nothing across runs
    found = two(tmp_path, before, after)
    assert found.appeared == [NameCount(kind="task", name="new", count=1)]
    assert found.vanished == [NameCount(kind="task", name="old", count=1)]
    [sets] = found.arguments
    assert (sets.name, sets.both, sets.appeared, sets.vanished) == ("fit", 1, 1, 1)
    assert (sets.appeared_examples, sets.vanished_examples) == ([{"number": 7}], [{"number": 2}])


def test_arguments_match_where_nobody_wrote_a_digest_of_them_too(tmp_path):
    """As of tasks that a program records by itself, with `run.task(name, seed=1)`."""
    times = [0.1 * 2**n for n in range(6)]
    before = serial("fit", times, args_digest=None)
    shuffled = [
        event
        for n in (5, 3, 0, 1, 4, 2)
        for event in task_events("fit", n, 5 - n, times[n] * 1.5, args_digest=None)
    ]
    [change] = two(tmp_path, before, shuffled).durations
    assert (change.pairs, change.shared_arguments, change.verdict) == (6, 1.0, "slower")
    assert change.typical is not None
    assert change.typical.ratio == pytest.approx(1.5)


def test_what_a_cache_answered_is_no_partner_of_what_was_computed_with_other_arguments(tmp_path):
    """The second run of a growing sweep: all that it computes is new, all that is not new comes from the
    cache."""
    first = serial("fit", [0.1 + n / 100 for n in range(10)])
    second = serial("fit", [0.001] * 10 + [0.3 + n / 100 for n in range(10)])
    hits = [
        CacheLookup(timestamp=at(1), task="fit", task_id=f"fit-{n}", result="hit", key=f"k{n}", saved_s=0.1)
        for n in range(10)
    ]
    found = two(tmp_path, first, [*second, *hits])
    [change] = [one for one in found.durations if not one.cached]
    assert (change.verdict, change.pairs, change.shared_arguments) == ("slower", None, 0.0)
    assert change.other_arguments
    assert found.explained is not None
    details = {share.what: share.detail for share in found.explained.shares}
    assert details["duration of tasks"].endswith(" each, if nothing were cached")


def test_failures_are_new_gone_or_still_there_and_count_once(tmp_path):
    def failed(number, fingerprint, kind):
        common = {"timestamp": at(number), "task": "fit", "task_id": f"fit-{number}", "worker": "w1"}
        return [
            TaskFailed(
                args={}, duration_s=1.0, error_type=kind, error_message="x", fingerprint=fingerprint, **common
            ),
            Failure(
                scope="task", error_type=kind, message="x", traceback=None, fingerprint=fingerprint, **common
            ),
        ]

    found = two(
        tmp_path,
        [*failed(1, "f1", "OSError"), *failed(2, "f2", "KeyError")],
        [*failed(1, "f2", "KeyError"), *failed(2, "f2", "KeyError"), *failed(3, "f3", "ValueError")],
    )
    assert [(one.state, one.error_type, one.before, one.after, one.tasks) for one in found.failures] == [
        ("appeared", "ValueError", 0, 1, ["fit"]),
        ("vanished", "OSError", 1, 0, ["fit"]),
        ("both", "KeyError", 1, 2, ["fit"]),
    ]


def test_failures_that_differ_in_numbers_and_ids_alone_have_one_cause(tmp_path):
    def failed(number, text):
        common = {"timestamp": at(number), "task": "fit", "task_id": f"fit-{number}", "worker": "w1"}
        return TaskFailed(args={}, duration_s=1.0, error_type="ValueError", error_message=text, **common)

    found = two(
        tmp_path, [failed(1, "bad 7 at 0x7f01")], [failed(1, "bad 8 at 0x7f02"), failed(2, "bad 9 at 0x1")]
    )
    assert [(one.state, one.before, one.after) for one in found.failures] == [("both", 1, 2)]


def test_resources_cache_and_cost_stand_side_by_side(tmp_path):
    def events(factor):
        return [
            *task_events(
                "fit", 0, 1, 1, cpu_s=0.5 * factor, peak_rss_bytes=100 * factor, read_bytes=7 * factor
            ),
            ResourceSample(
                timestamp=at(1),
                scope="worker",
                host="n",
                cpu_percent=None,
                worker="w1",
                pid=1,
                cpu_s=1.0,
                rss_bytes=10,
                peak_rss_bytes=1000 * factor,
            ),
            ResourceSample(
                timestamp=at(2),
                scope="worker",
                host="n",
                cpu_percent=None,
                worker="w1",
                pid=1,
                cpu_s=1.0 + factor,
                rss_bytes=10,
                peak_rss_bytes=1000 * factor,
            ),
            *(
                CacheLookup(task="fit", result="hit", key="k", saved_s=2.0, duration_s=0.5)
                for _ in range(factor)
            ),
            CacheLookup(task="fit", result="miss", key="k"),
            CostEstimate(timestamp=at(3), item="workers", amount=1.5 * factor, currency="USD"),
        ]

    found = two(tmp_path, events(1), events(2))
    run, fit = found.resources
    assert (run.name, run.peak_rss_bytes.before, run.peak_rss_bytes.after) == (None, 1000, 2000)
    assert (run.cpu_s.before, run.cpu_s.after) == (1.0, 2.0)
    assert (fit.name, fit.peak_rss_bytes.ratio, fit.cpu_s.ratio, fit.read_bytes.ratio) == (
        "fit",
        2.0,
        2.0,
        2.0,
    )
    assert fit.write_bytes.before is None
    assert (found.cache.hits.before, found.cache.hits.after, found.cache.lookups.after) == (1, 2, 3)
    assert (found.cache.hit_rate.before, found.cache.saved_s.after) == (0.5, 3.0)
    assert (found.cost.before, found.cost.after, found.currency) == (1.5, 3.0, "USD")


def test_costs_in_two_currencies_are_unknown_and_said_so(tmp_path):
    def cost(currency):
        return [CostEstimate(item="workers", amount=1.0, currency=currency)]

    found = two(tmp_path, cost("USD"), cost("EUR"))
    assert (found.cost.before, found.cost.after, found.currency) == (None, None, None)
    assert "costs are in different currencies and are not compared" in found.notes


def test_the_environment_differs_in_what_both_sides_know(tmp_path):
    options = (
        {
            "git_commit": "a" * 40,
            "python": "3.11.7",
            "manifest_hash": "1" * 64,
            "tags": {"seed": 1},
            "git_dirty": False,
        },
        {"git_commit": "b" * 40, "python": "3.12.1", "tags": {"seed": 2}, "git_dirty": True},
    )
    for token, more, packages in zip(
        ("aaaaaaaa", "bbbbbbbb"),
        options,
        ({"numpy": "1.0", "gone": "1"}, {"numpy": "2.0", "new": None}),
        strict=True,
    ):
        path = closed_run(tmp_path, [], token=token, **more)
        (path / layout.ENVIRONMENT).write_bytes(
            msgspec.json.encode({"packages": packages, "cpus_logical": 4})
        )
    found = compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)

    def change(what, name, before, after):
        return EnvironmentChange(what=what, name=name, before=before, after=after)

    assert found.environment == [
        change("git", "commit", "a" * 12, "b" * 12),
        change("git", "uncommitted changes", "no", "yes"),
        change("package", "gone", "1", None),
        change("package", "new", None, "installed"),
        change("package", "numpy", "1.0", "2.0"),
        change("python", "", "3.11.7", "3.12.1"),
        change("tag", "seed", "1", "2"),
    ]


def test_groups_are_means_over_their_runs(tmp_path):
    for number, wall in enumerate([10.0, 12.0, 20.0, 24.0]):
        closed_run(
            tmp_path,
            task_events("fit", 0, 1, wall / 4),
            token=f"0000000{number}",
            duration_s=wall,
            end_time=at(wall),
            start_time=at(number),
        )
    found = compare("00000000,00000001", "00000002,00000003", runs_dir=tmp_path)
    assert (found.wall_s.before, found.wall_s.after, found.wall_s.ratio) == (11.0, 22.0, 2.0)
    assert found.wall_s.interval.low < 2 < found.wall_s.interval.high
    assert (found.durations[0].before.count, found.durations[0].after.count) == (2, 2)
    assert [run.run_id[-8:] for run in found.after.runs] == ["00000003", "00000002"]


def test_runs_without_anything_in_them_are_compared_all_the_same(tmp_path):
    found = two(tmp_path, [], [], walls=(1.0, 2.0))
    assert (found.durations, found.failures, found.explained, found.wall_s.ratio) == ([], [], None, 2.0)
    assert found.resources[0].cpu_s.before is None


def test_a_run_that_was_killed_is_compared_with_a_word_of_warning(tmp_path):
    closed_run(tmp_path, task_events("fit", 0, 1, 1), token="aaaaaaaa")
    closed_run(
        tmp_path,
        task_events("fit", 0, 1, 1),
        token="bbbbbbbb",
        status="crashed",
        end_time=None,
        duration_s=None,
    )
    found = compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path)
    assert found.notes == ["run-20260520T035200Z-demo-bbbbbbbb is crashed: it tells of less than a whole run"]
    next(tmp_path.glob("*-aaaaaaaa/run.json")).unlink()
    assert compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path).notes[0] == (
        "run-20260520T035200Z-demo-aaaaaaaa may have ended early: it tells of less than a whole run"
    )


def test_the_json_reads_back_as_the_same_comparison(tmp_path):
    found = two(tmp_path, serial("fit", [1.0] * 4), serial("fit", [2.0] * 4))
    assert msgspec.json.decode(comparison_bytes(found), type=Comparison) == found
    assert comparison_bytes(found) == comparison_bytes(compare("aaaaaaaa", "bbbbbbbb", runs_dir=tmp_path))


task = st.tuples(
    st.sampled_from(["fit", "plot"]),
    st.sampled_from(["completed", "failed", "retried", "running", "pending"]),
    st.floats(0.001, 2.0),
    st.sampled_from(["w1", "w2"]),
)


def lives(tasks):
    events, now = [], {"w1": 0.5, "w2": 0.5}
    for number, (name, state, took, where) in enumerate(tasks):
        common = {"task": name, "task_id": f"t{number}"}
        start = now[where]
        done = task_events(name, number, start, took, worker=where)
        for event in done:
            event.task_id = f"t{number}"
        if state == "completed":
            events += done
        elif state == "pending":
            events.append(TaskSubmitted(timestamp=at(start), args={}, **common))
        else:
            events += done[:2]
            if state != "running":
                events.append(
                    TaskFailed(
                        timestamp=at(start + took),
                        args={},
                        worker=where,
                        duration_s=took,
                        error_type="OSError",
                        error_message="x",
                        fingerprint="f",
                        **common,
                    )
                )
            if state == "retried":
                events.append(TaskRetried(timestamp=at(start + took), reason="OSError", **common))
        if state != "pending":
            now[where] = start + took + 0.01
    return [*events, *worker("w1", 0.0, 200.0), *worker("w2", 0.0, 200.0)]


@settings(FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.lists(task, max_size=12), after=st.lists(task, max_size=12))
def test_every_count_is_that_of_the_summary_and_the_shares_add_up(tmp_path_factory, before, after):
    folder = tmp_path_factory.mktemp("pair")
    found = two(folder, lives(before), lives(after), walls=(200.0, 220.0))
    summaries = [summarize(open_run(token, runs_dir=folder)) for token in ("aaaaaaaa", "bbbbbbbb")]
    for kind, change in found.tasks.items():
        assert (change.before, change.after) == tuple(getattr(summary.tasks, kind) for summary in summaries)
    for change in found.durations:
        for spread, summary in zip((change.before, change.after), summaries, strict=True):
            told = summary.tasks.by_name[change.name].duration_s
            assert (spread.count, spread.max_s) == (told.count, told.max)
            assert (spread.p50_s, spread.p95_s) == (pytest.approx(told.p50), pytest.approx(told.p95))
            assert spread.total_s == pytest.approx(told.total, rel=1e-9, abs=1e-9)
    causes = [sum(one.before for one in found.failures), sum(one.after for one in found.failures)]
    assert causes == [summary.failures.count for summary in summaries]
    uptimes = [
        summary.workers.uptime_s + 0.5 for summary in summaries
    ]  # and a quarter of a second to start each
    assert (found.worker_s.before, found.worker_s.after) == tuple(map(pytest.approx, uptimes))
    told = found.explained
    assert math.fsum(share.seconds for share in told.shares) + told.not_explained_s == pytest.approx(20.0)
    assert told.not_explained_s == pytest.approx(0.0, abs=1e-6)
