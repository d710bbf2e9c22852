"""What attempts say of a need, and what it comes to: killed, failed and repeated ones included."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from builders.project_history import GB, attempt

from flightlog.analyze.advice.needs import Need, ObservedUse, find_need, memory_had, uses
from flightlog.analyze.history.attempts import Requested

RUNS = [f"r{n}" for n in range(20)]


def memory(*found: ObservedUse, share: float = 0.95, runs: list[str] = RUNS) -> Need:
    return find_need("memory", found, share, runs)


def use(value: float, run: int = 0, **fields: Any) -> ObservedUse:
    given: dict[str, Any] = {"run_id": f"r{run}", "args": {}, "value": value, "exact": True}
    given |= fields
    if given.pop("killed", False):
        given["killed_at"] = given["value"]
    return ObservedUse(**given)


def test_a_completed_attempt_counts_alone_and_a_killed_one_says_more_than_its_request() -> None:
    dead: dict[str, Any] = {"state": "failed", "memory_killed": True, "peak_rss_bytes": None}
    found = uses(
        [
            attempt(1),
            attempt(1, attempt=2, **dead),
            attempt(2, requested=Requested(memory_bytes=8 * GB), **dead),
            attempt(2, attempt=2, requested=Requested(memory_bytes=12 * GB), **dead),
            attempt(3, state="failed", peak_rss_bytes=GB),
            attempt(4, state="cancelled", peak_rss_bytes=GB // 2),
            attempt(5, state="running"),
            attempt(6, peak_rss_bytes=None),
        ],
        "memory",
    )
    assert [(one.value / GB, one.exact, one.killed) for one in found] == [
        (2.0, True, False),
        (12.0, False, True),
        (1.0, False, False),
        (0.5, False, False),
    ]


@pytest.mark.parametrize(
    ("asked", "peak", "room", "had"),
    [
        (8, None, None, 8),
        (8, 7, None, 8),
        (8, 9, 12, 9),
        (16, 5, None, 16),
        (16, 5, 64, 16),
        (16, 5, 8, 8),
        (16, 5, 4, 5),
        (None, 5, 64, 5),
        (None, None, 64, None),
    ],
)
def test_what_a_killed_attempt_had_is_its_request_as_far_as_its_host_had_so_much(
    asked: int | None, peak: int | None, room: int | None, had: int | None
) -> None:
    one = attempt(requested=Requested(memory_bytes=asked), peak_rss_bytes=peak, node_memory_bytes=room)
    assert memory_had(one) == had


def test_no_bound_is_below_what_any_attempt_had_when_it_was_killed_though_it_completed_later() -> None:
    first = attempt(
        0, state="failed", memory_killed=True, peak_rss_bytes=GB, requested=Requested(memory_bytes=6 * GB)
    )
    again = [attempt(n, attempt=2, requested=Requested(memory_bytes=8 * GB)) for n in range(100)]
    for order in ([first, *again], [*again, first]):
        need = find_need("memory", uses(order, "memory"), 0.95, ["r0"])
        assert (need.bound, need.killed, need.killed_at, need.at_least) == (6 * GB, 1, 6 * GB, 0)


def test_processes_that_a_task_started_had_no_more_than_the_largest_before() -> None:
    found = uses(
        [
            attempt(4, peak_rss_bytes=9, rss_scope="process", cpu_scope="process"),
            attempt(3, peak_rss_bytes=5, rss_scope="process", cpu_scope="tree"),
            attempt(2, peak_rss_bytes=8, rss_scope="tree", cpu_scope="tree"),
            attempt(1, peak_rss_bytes=5, rss_scope="process", cpu_scope="tree"),
        ],
        "memory",
    )
    assert [(one.value, one.exact, one.most) for one in found] == [
        (9, True, None),
        (5, False, 8),
        (8, True, None),
        (5, True, None),
    ]


def test_a_peak_that_is_a_lower_bound_lies_below_what_its_worker_had_before() -> None:
    found = uses(
        [
            attempt(9, peak_rss_bytes=7, rss_scope="process_at_least", worker="w2"),
            attempt(3, peak_rss_bytes=5, rss_scope="process_at_least"),
            attempt(2, peak_rss_bytes=8, rss_scope="process"),
            attempt(1, peak_rss_bytes=6, rss_scope="process"),
        ],
        "memory",
    )
    assert [(one.value, one.exact, one.most) for one in found] == [
        (7, False, None),
        (5, False, 8),
        (8, True, None),
        (6, True, None),
    ]


def test_cpus_are_seconds_over_seconds_and_short_attempts_do_not_count() -> None:
    found = uses(
        [
            attempt(1, cpu_s=18.0),
            attempt(2, state="failed", cpu_s=5.0),
            attempt(3, duration_s=0.05, cpu_s=0.05),
        ],
        "cpus",
    )
    assert [(one.value, one.exact) for one in found] == [(1.8, True), (0.5, True)]


def test_an_attempt_at_its_time_limit_would_have_taken_longer() -> None:
    found = uses(
        [attempt(1, state="failed", timed_out=True, duration_s=29.5, timeout_s=30.0), attempt(2)], "walltime"
    )
    assert [(one.value, one.exact, one.killed) for one in found] == [(30.0, False, True), (10.0, True, False)]


def test_device_memory_is_told_apart_from_the_hosts() -> None:
    dead = attempt(1, state="failed", gpu_memory_killed=True, gpu_peak_bytes=7, gpu_memory_scope="allocator")
    found = uses([dead, attempt(2, gpu_peak_bytes=3, gpu_memory_scope="allocator"), attempt(3)], "gpu_memory")
    assert [(one.value, one.exact, one.killed) for one in found] == [(7, False, True), (3, True, False)]


def test_too_little_history_says_how_much_is_missing() -> None:
    need = memory(*(use(GB) for _ in range(3)), use(GB, exact=False))
    assert (need.bound, need.tasks, need.at_least) == (None, 4, 1)
    assert need.problem == (
        "only 3 attempts, of 4 that say at least something, were measured to the end: 2 more are needed to "
        "say anything, 29 more for a bound without assumptions"
    )


def test_the_bound_is_never_below_what_killed_an_attempt() -> None:
    need = memory(
        *(use(GB * (1 + n / 1000), run=n % 20) for n in range(200)), use(8 * GB, exact=False, killed=True)
    )
    assert (need.bound, need.killed, need.killed_at) == (8 * GB, 1, 8 * GB)


def test_killed_attempts_count_as_what_their_arguments_would_take() -> None:
    draw, found = Random(3), []
    true = []
    for n in range(400):
        size = draw.uniform(100, 5000)
        need = (0.2 + 0.0012 * size) * GB * draw.lognormvariate(0, 0.1)
        limit = 4 * GB
        dead = need > limit
        true.append(need)
        found.append(use(min(need, limit), run=n % 20, args={"n": size}, exact=not dead, killed=dead))
    need = memory(*found)
    assert need.bound is not None
    assert need.growth is not None
    assert (need.growth.argument, need.killed > 60) == ("n", True)
    assert 0.93 <= sum(one <= need.bound for one in true) / len(true) <= 0.99
    assert need.table[-1].value == max(one.args["n"] for one in found)
    assert need.table[-1].bound > need.bound > need.table[0].bound


def test_a_history_in_which_a_third_was_killed_is_not_judged_by_its_survivors() -> None:
    draw, found, true = Random(11), [], []
    for n in range(600):
        size = draw.uniform(1, 1000)
        need = (0.5 + 0.004 * size) * GB * draw.lognormvariate(0, 0.06)
        dead = need > 3 * GB
        true.append(need)
        found.append(use(min(need, 3 * GB), run=n % 20, args={"n": size}, exact=not dead, killed=dead))
    need = memory(*found)
    assert need.killed > 200
    assert need.bound is not None
    assert 0.93 <= sum(one <= need.bound for one in true) / len(true) <= 0.99
    assert need.growth is not None
    assert (
        need.growth.high < need.table[-1].value
    )  # the largest size that completed is not the largest there was


def test_attempts_that_raised_early_do_not_pull_the_bound_down() -> None:
    draw = Random(5)
    whole = [use(GB * draw.lognormvariate(0, 0.1), run=n % 20) for n in range(300)]
    early = [use(GB * 0.01, run=n % 20, exact=False) for n in range(300)]
    assert memory(*whole, *early).bound == memory(*whole).bound


def test_only_runs_since_a_lasting_change_count_and_it_is_said() -> None:
    draw = Random(6)
    found = [
        use(GB * (1 if run < 12 else 3) * draw.lognormvariate(0, 0.05), run)
        for run in range(20)
        for _ in range(20)
    ]
    need = memory(*found)
    assert (need.since, need.runs, need.tasks) == ("r12", 8, 160)
    assert need.change == pytest.approx(2.0, abs=0.1)
    assert need.bound is not None
    assert 3.1 * GB < need.bound < 3.5 * GB


def test_a_need_that_drifts_is_looked_ahead_for_and_use_is_told_as_it_was() -> None:
    draw = Random(7)
    found = [use(GB * 1.03**run * draw.lognormvariate(0, 0.02), run) for run in range(20) for _ in range(20)]
    need = memory(*found)
    assert need.drift == pytest.approx(0.03, abs=0.003)
    assert need.bound is not None
    assert need.bound / GB == pytest.approx(1.03**24, rel=0.06)
    assert need.largest == max(one.value for one in found)


def test_runs_that_each_are_of_one_kind_are_worth_as_many_attempts_as_there_are_runs() -> None:
    draw = Random(8)
    found = [
        use(GB * level * draw.lognormvariate(0, 0.01), run)
        for run, level in enumerate((1, 2, 1.5, 3))
        for _ in range(50)
    ]
    need = memory(*found, runs=RUNS[:4])
    assert need.worth == pytest.approx(4, abs=0.5)
    assert need.method == "lognormal"
    assert need.bound is not None
    assert need.bound > 3.5 * GB


def test_the_order_of_attempts_does_not_matter() -> None:
    draw = Random(9)
    found = [use(GB * draw.lognormvariate(0, 0.3), n % 20, args={"n": n}) for n in range(150)]
    shuffled = draw.sample(found, len(found))
    one, other = memory(*found), memory(*shuffled)
    assert (one.bound, one.usual_most, one.typical) == (other.bound, other.usual_most, other.typical)


@pytest.mark.parametrize("share", [0.8, 0.9, 0.95, 0.99])
def test_later_attempts_of_the_same_kind_are_covered_as_asked(share: float) -> None:
    """Over many workloads, the advice covers the share that was asked for, and little more."""
    draw, shares = Random(10), []
    for _ in range(25):
        noise, base, slope = draw.uniform(0.02, 0.4), draw.uniform(0.1, 2), draw.choice([0.0, 0.001])

        def drawn(run: int, noise: float = noise, base: float = base, slope: float = slope) -> ObservedUse:
            size = math.exp(draw.uniform(4, 8))
            return use((base + slope * size) * GB * draw.lognormvariate(0, noise), run, args={"n": size})

        need = memory(*(drawn(run) for run in range(20) for _ in range(15)), share=share)
        assert need.bound is not None
        later = [drawn(0).value for _ in range(300)]
        shares.append(sum(value <= need.bound for value in later) / len(later))
    assert share - 0.01 < sum(shares) / len(shares) < min(share + 0.035, 0.998)
