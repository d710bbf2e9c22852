"""Cache, cost, artifacts, resources and overhead."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.runs import at, make_run

from flightlog.analyze.cost.cost import CostSummary
from flightlog.analyze.report.cache import (
    Artifact,
    ArtifactSummary,
    CacheName,
    CacheSummary,
)
from flightlog.analyze.report.resources import CgroupUse, Load, NodeUse, ProcessUse, ResourceSummary
from flightlog.analyze.report.summary import OverheadSummary, Summary, overhead, summarize
from flightlog.events import ArtifactRecorded, CacheLookup, CostEstimate, Event, ResourceSample
from flightlog.store.layout import WriterInfo
from flightlog.store.run import Run


def summary_of(*events: Event) -> Summary:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        return summarize(Run(make_run(Path(folder), events)))


def cost_of(*events: CostEstimate) -> CostSummary:
    return summary_of(*events).cost


def cache_of(*events: CacheLookup) -> CacheSummary:
    return summary_of(*events).cache


def lookup(result: str, **more) -> CacheLookup:
    return CacheLookup(timestamp=at(1), task="sim", result=result, key="k", **more)


def test_a_cache_that_is_off_is_neither_a_lookup_nor_a_miss() -> None:
    summary = cache_of(
        lookup("hit", saved_s=4.0, duration_s=0.5),
        lookup("hit"),
        lookup("miss", reason="not seen before"),
        lookup("bypass", reason="disabled"),
    )
    assert summary == CacheSummary(
        lookups=3,
        hits=2,
        misses=1,
        bypassed=1,
        hit_rate=2 / 3,
        saved_s=3.5,
        miss_reasons={"not seen before": 1},
        by_name={"sim": CacheName(hits=2, misses=1, bypassed=1)},
    )


def test_without_lookups_there_is_no_hit_rate() -> None:
    assert cache_of(lookup("bypass")).hit_rate is None


def estimate(item: str, amount: float | None, when: float, **more) -> CostEstimate:
    return CostEstimate(timestamp=at(when), item=item, amount=amount, **{"currency": "USD", **more})


def test_a_later_estimate_of_an_item_replaces_the_earlier_one() -> None:
    late, early = estimate("w1", 3.0, 9), estimate("w1", 1.0, 2)
    for events in ((late, early), (early, late)):
        summary = cost_of(*events, estimate("disk", 0.5, 5))
        assert (summary.total, summary.currency) == (3.5, "USD")


def test_an_unknown_amount_is_no_zero() -> None:
    assert cost_of().total is None
    assert cost_of(estimate("w1", None, 1)).total is None
    summary = cost_of(estimate("w1", None, 1), estimate("w2", 2.0, 1))
    assert (summary.total, summary.unknown_items) == (2.0, 1)


def test_amounts_in_several_currencies_are_not_added_up() -> None:
    summary = cost_of(estimate("w1", 1.0, 1), estimate("w2", 2.0, 1, currency="EUR"))
    assert (summary.total, summary.currency) == (None, None)


def artifact(name: str, size: int | None, when: float) -> ArtifactRecorded:
    return ArtifactRecorded(
        timestamp=at(when), name=name, uri=f"/out/{name}", kind="result", size_bytes=size, sha256=None
    )


def test_an_artifact_recorded_again_counts_once_as_it_was_then() -> None:
    summary = summary_of(
        artifact("b", 20, 3),
        artifact("a", 1, 2),
        artifact("a", 5, 4),
        artifact("c", None, 1),
    )
    listed = [("c", None, 1), ("b", 20, 3), ("a", 5, 4)]
    assert summary.artifacts == ArtifactSummary(
        count=3,
        size_bytes=25,
        unknown_sizes=1,
        listed=[
            Artifact(
                name=name,
                uri=f"/out/{name}",
                kind="result",
                size_bytes=size,
                sha256=None,
                timestamp=at(when),
                error=None,
            )
            for name, size, when in listed
        ],
    )


def sample(when: float, scope: str, **more) -> ResourceSample:
    return ResourceSample(timestamp=at(when), scope=scope, **{"host": "n1", "cpu_percent": None, **more})


def resources_of(*events: ResourceSample) -> ResourceSummary:
    return summary_of(*events).resources


def test_percentages_of_several_hosts_are_not_added_up() -> None:
    summary = resources_of(
        sample(
            1, "node", cpu_percent=90.0, interval_s=1.0, cpus=8.0, memory_used_bytes=6, memory_total_bytes=8
        ),
        sample(
            1, "node", host="n2", cpu_percent=30.0, interval_s=3.0, memory_used_bytes=4, memory_total_bytes=99
        ),
    )
    assert summary.node == NodeUse(
        hosts=["n1", "n2"],
        cpus=8.0,
        cpu_percent=Load(mean=45.0, max=90.0),
        load_1m_max=None,
        memory_peak_bytes=6,
        memory_total_bytes=8,
        swap_peak_bytes=None,
    )
    assert (summary.samples, summary.process, summary.cgroup, summary.gpu) == (2, None, None, None)


def test_a_process_tree_used_what_its_counters_grew_by() -> None:
    summary = resources_of(
        sample(9, "worker", pid=1, cpu_cores=1.5, interval_s=9.0, cpu_s=15.0, rss_bytes=5, write_bytes=70),
        sample(0, "worker", pid=1, cpu_s=1.5, rss_bytes=9, peak_rss_bytes=11, write_bytes=20),
        sample(0, "worker", pid=2, cpu_s=4.0, threads=3, processes=2),
    )
    assert summary.process == ProcessUse(
        trees=2,
        cpu_cores=Load(mean=1.5, max=1.5),
        cpu_s=13.5,
        peak_rss_bytes=11,
        read_bytes=None,
        write_bytes=50,
        threads_max=3,
        processes_max=2,
    )


def on_workers(own: dict[str, Any]) -> ProcessUse:
    """A program, sampled with all processes that it started, and two workers that Dask tells of."""
    told = [sample(n, "worker", pid=pid, cpu_cores=0.44, interval_s=1.0) for n in (1, 2) for pid in (11, 12)]
    found = resources_of(*told, *(sample(n, "worker", pid=1, interval_s=1.0, **own) for n in (1, 2)))
    assert found.process is not None
    return found.process


def test_workers_that_the_program_started_are_a_part_of_what_it_used() -> None:
    own = on_workers({"cpu_cores": 0.9, "processes": 4})
    assert (own.trees, own.cpu_cores) == (1, Load(mean=0.9, max=0.9))


def test_workers_that_others_started_are_trees_of_their_own() -> None:
    beside = on_workers({"cpu_cores": 0.02, "processes": 1})
    assert (beside.trees, beside.cpu_cores) == (3, Load(mean=pytest.approx(0.3), max=0.44))


def test_a_counter_seen_once_tells_nothing_of_the_run() -> None:
    summary = resources_of(sample(0, "cgroup", oom_kills=4, throttled_s=9.0, memory_peak_bytes=7))
    assert summary.cgroup == CgroupUse(
        memory_peak_bytes=7,
        memory_limit_bytes=None,
        cpu_quota=None,
        throttled_s=None,
        throttled_percent_max=None,
        oom_events=None,
        oom_kills=None,
    )


def test_oom_kills_before_the_run_are_not_the_runs() -> None:
    summary = resources_of(sample(0, "cgroup", oom_kills=4), sample(5, "cgroup", oom_kills=5))
    assert summary.cgroup is not None
    assert summary.cgroup.oom_kills == 1


def test_overhead_is_the_background_cpu_of_all_writers_over_wall_time() -> None:
    writers = [
        WriterInfo(
            writer=str(n),
            pid=n,
            host="n1",
            lines={"tasks": 5, "spans": 5},
            bytes=100,
            drain_s=0.1,
            background_cpu_s=0.05,
        )
        for n in range(2)
    ]
    summary = overhead(writers, 10.0)
    assert (summary.lines, summary.bytes, summary.drain_s) == (20, 200, 0.2)
    assert summary.percent == pytest.approx(1.0)


def test_overhead_is_unknown_where_a_writer_was_killed_before_it_noted_what_it_cost() -> None:
    closed = WriterInfo(
        writer="a", pid=1, host="n1", closed=True, bytes=100, drain_s=0.1, background_cpu_s=0.05
    )
    for killed in (
        WriterInfo(writer="b", pid=2, host="n1", lines={"spans": 5}),
        WriterInfo(
            writer="b", pid=2, host="n1", closed=True, bytes=None, drain_s=None, background_cpu_s=None
        ),
    ):
        summary = overhead([closed, killed], 10.0)
        found = (summary.bytes, summary.drain_s, summary.background_cpu_s, summary.percent)
        assert found == (None, None, None, None)


def test_without_notes_overhead_is_unknown() -> None:
    assert overhead([], 10.0) == OverheadSummary(
        writers=0,
        lines=None,
        bytes=None,
        drain_s=None,
        background_cpu_s=None,
        foreground_s=None,
        percent=None,
    )
