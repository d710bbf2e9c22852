"""What a run cost: rates by the time its workers lived, and everything else anyone said."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from builders.runs import at, make_run
from builders.task_events import completed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.compare.compare import compare
from flightlog.analyze.cost.cost import CostItem, CostSummary, CostTally, Used, run_cost
from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.analyze.report.summary import summarize
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    CostEstimate,
    CostRates,
    Event,
    JobStarted,
    ResourceRequest,
    ResourceSample,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.events.rates import HOUR_NS, Sizes, apportion, billionths
from flightlog.show.report import report_text
from flightlog.store.run import Run


def rates(**more) -> CostRates:
    return CostRates(timestamp=at(0), **{"currency": "EUR", "source": "the manifest", **more})


def worker(name: str, launched: float, ready: float, gone: float | None, **more) -> list[Event]:
    who = {"worker": name, "host": "n1", "pid": 1, "component": more.pop("component", None)}
    found: list[Event] = [WorkerLaunched(timestamp=at(launched), **who, **more)]
    found.append(WorkerReady(timestamp=at(ready), **who))
    return found + ([] if gone is None else [WorkerRemoved(timestamp=at(gone), reason=None, **who)])


def cost(path: Path, instead: CostRates | None = None) -> CostSummary:
    """The cost of a run, which summary, report and comparison must agree on."""
    run = Run(path)
    found = report_on(run, rates=instead).cost
    if instead is None:
        assert summarize(run).cost == found
        assert run_cost(run).total == found.total
    return found


def amounts(found: CostSummary) -> dict[str, float | None]:
    return {name: item.amount for name, item in found.by_item.items()}


def test_workers_are_paid_from_launch_to_removal(tmp_path: Path) -> None:
    crew = [*worker("w1", 0, 1, 9), *worker("w2", 2, 4, 6)]
    found = cost(make_run(tmp_path, [rates(per_worker_hour=3600.0), *crew], provider="slurm"))
    assert (found.total, found.currency, found.workers_total, found.workers_s) == (13.0, "EUR", 13.0, 13.0)
    assert found.by_item == {
        "workers": CostItem(
            amount=13.0,
            currency="EUR",
            provider=None,
            rate=3600.0,
            quantity=13 / 3600,
            quantity_unit="worker-hour",
        )
    }
    assert (found.at_least, found.basis, found.source) == (False, "workers", "the manifest")


def test_cpus_memory_and_gpus_are_those_of_the_workers_component(tmp_path: Path) -> None:
    said = {
        "sim": {"cpus": 4.0, "memory_bytes": 8_000_000_000, "gpus": 1.0},
        "plot": {"cpus": 1.0, "memory_bytes": 10**9},
    }
    named = rates(per_cpu_hour=3600.0, per_gb_hour=36.0, per_gpu_hour=360.0, components=said)
    crew = [*worker("w1", 0, 1, 10, component="sim", cpus=99.0), *worker("w2", 0, 1, 10, component="plot")]
    found = cost(make_run(tmp_path, [named, *crew]))
    assert amounts(found) == {"cpus": 50.0, "memory": 0.9, "gpus": 1.0}
    assert found.total == 51.9


def test_a_worker_of_no_component_is_paid_as_one_of_the_dearest(tmp_path: Path) -> None:
    named = rates(per_cpu_hour=360.0, components={"a": {"cpus": 2.0}, "b": {"cpus": 3.0}})
    assert cost(make_run(tmp_path, [named, *worker("w1", 0, 1, 10)])).total == 3.0


def test_without_components_what_a_worker_was_given_counts_then_its_job_then_the_machine(
    tmp_path: Path,
) -> None:
    named = rates(per_cpu_hour=360.0)
    node = ResourceSample(timestamp=at(1), scope="node", host="n1", cpu_percent=1.0, cpus=16)
    job = JobStarted(timestamp=at(0), job_id="7", worker="w1", cpus=4.0)
    given_ = worker("w1", 0, 1, 10, cpus=2.0)
    assert cost(make_run(tmp_path / "a", [named, *given_, job, node])).total == 2.0
    assert cost(make_run(tmp_path / "b", [named, *worker("w1", 0, 1, 10), job, node])).total == 4.0
    assert cost(make_run(tmp_path / "c", [named, *worker("w1", 0, 1, 10), node])).total == 16.0


def test_what_nobody_knows_of_a_worker_has_no_amount_and_says_why(tmp_path: Path) -> None:
    named = rates(per_cpu_hour=360.0, per_worker_hour=360.0)
    crew = [*worker("w1", 0, 1, 10), *worker("w2", 0, 1, 10)]
    report = report_on(Run(make_run(tmp_path, [named, *crew])))
    assert amounts(report.cost) == {"cpus": None, "workers": 2.0}
    assert report.cost.by_item["cpus"].reason == "how many CPUs workers have is not known"
    assert (report.cost.total, report.cost.unknown_items, report.cost.workers_total) == (2.0, 1, None)
    assert report.cost_split is None


def test_a_killed_run_cost_at_least_what_it_had_until_its_last_sign_of_life(tmp_path: Path) -> None:
    early = CostEstimate(timestamp=at(0), item="workers", amount=0.0, currency="EUR")
    path = make_run(
        tmp_path,
        [rates(per_worker_hour=360.0), early, *worker("w1", 0, 1, None)],
        status="crashed",
        end_time=None,
        duration_s=None,
        heartbeat=at(7),
    )
    found = cost(path)
    assert (found.total, found.at_least) == (0.7, True)


def test_estimates_on_the_way_do_not_add_to_what_the_rates_come_to(tmp_path: Path) -> None:
    said = [CostEstimate(timestamp=at(n), item="workers", amount=5.0 * n, currency="EUR") for n in range(4)]
    licence = CostEstimate(timestamp=at(1), item="licence", amount=2.0, currency="EUR")
    found = cost(make_run(tmp_path, [rates(per_worker_hour=360.0), *said, licence, *worker("w1", 0, 1, 10)]))
    assert (amounts(found), found.total, found.workers_total) == ({"licence": 2.0, "workers": 1.0}, 3.0, 1.0)


def test_currencies_are_never_added(tmp_path: Path) -> None:
    licence = CostEstimate(timestamp=at(1), item="licence", amount=2.0, currency="USD")
    found = cost(make_run(tmp_path, [rates(per_worker_hour=360.0), licence, *worker("w1", 0, 1, 10)]))
    assert (found.total, found.currency, found.reason) == (None, None, "in several currencies: EUR, USD")


def test_a_local_run_without_rates_costs_nothing_and_others_are_unknown(tmp_path: Path) -> None:
    found = cost(make_run(tmp_path / "a", worker("w1", 0, 1, 9), provider="local"))
    assert (found.total, found.currency, found.reason) == (0.0, None, None)
    found = cost(make_run(tmp_path / "b", worker("w1", 0, 1, 9), provider="slurm"))
    assert (found.total, found.reason) == (None, "no rate was given")


def test_a_local_run_whose_file_of_costs_is_damaged_is_not_said_to_have_cost_nothing(tmp_path: Path) -> None:
    path = make_run(tmp_path, [rates(per_worker_hour=360.0), *worker("w1", 0, 1, 9)], provider="local")
    (path / "cost.jsonl").write_bytes(b"\x00\xff{\n")
    found = cost(path)
    assert (found.total, found.reason) == (None, "what was recorded of it cannot be read")


def test_a_run_that_cost_nothing_compares_with_one_in_any_currency(tmp_path: Path) -> None:
    crew = worker("w1", 0, 1, 10)
    before = make_run(tmp_path, crew, provider="local")
    after = make_run(tmp_path, [rates(per_worker_hour=360.0), *crew], provider="slurm", token="b1b2c3d4")
    found = compare(before, after)
    assert (found.cost.before, found.cost.after, found.currency) == (0.0, 1.0, "EUR")
    alike = compare(before, make_run(tmp_path, crew, provider="local", token="c1b2c3d4"))
    assert (alike.cost.before, alike.cost.after, alike.currency) == (None, None, None)


def test_storage_and_energy_are_paid_for_what_was_recorded_and_measured(tmp_path: Path) -> None:
    events: list[Event] = [
        rates(per_gb_month=0.5, per_kwh=10.0, per_worker_hour=0.0),
        *worker("w1", 0, 1, 10),
        ArtifactRecorded(
            timestamp=at(1), name="o", uri="/o", kind=None, size_bytes=4_000_000_000, sha256=None
        ),
        ResourceSample(timestamp=at(0), scope="node", host="n1", cpu_percent=None, energy_j=0.0),
        ResourceSample(timestamp=at(9), scope="node", host="n1", cpu_percent=None, energy_j=360_000.0),
    ]
    found = cost(make_run(tmp_path, events))
    assert amounts(found) == {"energy": 1.0, "storage": 2.0, "workers": 0.0}
    assert (found.by_item["energy"].quantity, found.by_item["energy"].quantity_unit) == (0.1, "kWh")
    assert found.total == 3.0


def test_energy_without_counters_is_unknown_and_not_zero(tmp_path: Path) -> None:
    found = cost(make_run(tmp_path, [rates(per_kwh=10.0), *worker("w1", 0, 1, 10)]))
    assert (found.total, found.by_item["energy"].amount) == (None, None)
    assert found.reason == found.by_item["energy"].reason == "no energy counter could be read"


def test_egress_is_bounded_by_all_that_hosts_sent_and_in_no_sum(tmp_path: Path) -> None:
    sent = ResourceSample(
        timestamp=at(5), scope="node", host="n1", cpu_percent=1.0, interval_s=2.0, net_sent_bytes_per_s=1e9
    )
    events = [rates(per_gb_egress=0.1, per_worker_hour=360.0), *worker("w1", 0, 1, 10), sent]
    found = cost(make_run(tmp_path, events))
    assert (found.total, found.by_item["egress"].quantity, found.by_item["egress"].amount) == (1.0, 2.0, None)
    assert found.by_item["egress"].reason == (
        "at most 0.2 EUR, for all that the hosts sent, to each other too"
    )


def test_what_the_cache_saved_stands_apart_from_the_sum(tmp_path: Path) -> None:
    hit = CacheLookup(timestamp=at(3), task="sim", result="hit", key="k", saved_s=30.0, duration_s=10.0)
    found = cost(make_run(tmp_path, [rates(per_worker_hour=360.0), *worker("w1", 0, 1, 10), hit]))
    assert (found.total, found.saved) == (1.0, 2.0)


def test_other_rates_take_the_place_of_the_runs_own_and_keep_its_components(tmp_path: Path) -> None:
    own = rates(per_worker_hour=1.0, components={"sim": {"cpus": 2.0}})
    path = make_run(tmp_path, [own, *worker("w1", 0, 1, 10, component="sim")])
    found = cost(path, rates(currency="CHF", source="rates.yaml", per_cpu_hour=360.0))
    assert (found.total, found.currency, found.source) == (2.0, "CHF", "rates.yaml")


def test_rates_given_afterwards_are_for_what_components_asked_for_in_a_run_without_rates(
    tmp_path: Path,
) -> None:
    asked = [
        ResourceRequest(timestamp=at(0), task=None, component="sim", cpus=2.0, memory_bytes=4 * 10**9),
        ResourceRequest(timestamp=at(0), task=None, component="plot", cpus=1.0, memory_bytes=10**9),
        ResourceRequest(timestamp=at(0), task="big", component="plot", cpus=64.0, memory_bytes=None),
    ]
    crew = [*worker("w1", 0, 1, 10, component="sim"), *worker("w2", 0, 1, 10, component="plot")]
    path = make_run(tmp_path, [*asked, *crew, *worker("w3", 0, 1, 10)])
    assert cost(path).total is None
    found = cost(path, rates(per_cpu_hour=360.0, per_gb_hour=36.0))
    assert amounts(found) == {"cpus": 5.0, "memory": 0.9}  # a worker of no component is one of the dearest


def test_a_run_without_workers_is_paid_as_its_machine_at_rates_given_afterwards(tmp_path: Path) -> None:
    node = ResourceSample(timestamp=at(1), scope="node", host="n1", cpu_percent=1.0, cpus=4)
    tasks = [submitted("t1"), started("t1", 1), completed("t1", 3, 2.0)]
    path = make_run(tmp_path, [node, *tasks])
    assert cost(path).total is None
    report = report_on(Run(path), rates=rates(per_cpu_hour=360.0))
    assert (report.cost.total, report.cost.basis, report.cost_split) == (4.0, "machine", None)


def test_the_latest_rates_count() -> None:
    tally = CostTally()
    later = CostRates(timestamp=at(5), currency="EUR", source="b", per_worker_hour=720.0)
    for event in (later, rates(per_worker_hour=360.0)):
        tally.add(event)
    assert tally.summary(Used(lifetimes={"w1": 10 * 10**9})).total == 2.0


def test_what_leaves_the_range_of_numbers_is_endless_and_no_error(tmp_path: Path) -> None:
    crew = worker("w1", 0, 1, 10, cpus=1e308)
    report = report_on(Run(make_run(tmp_path, [rates(per_cpu_hour=1e308), *crew])))
    assert report.cost.total == float("inf")
    assert "Estimated Cost: unknown" in report_text(report)
    assert b'"total": null' in report_bytes(report)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_rate_that_is_no_price_is_not_named(wrong: float) -> None:
    tally = CostTally()
    tally.add(rates(per_worker_hour=wrong))
    found = tally.summary(Used(lifetimes={"w1": HOUR_NS}))
    assert (found.total, found.reason) == (None, "the rates name no price")


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e3), max_size=4),
    st.lists(st.tuples(st.integers(0, 10**15), st.floats(0, 64)), min_size=1, max_size=6),
)
def test_items_add_up_to_the_total_to_a_billionth(found: dict[str, float], crew: list) -> None:
    fields = dict(
        zip("abcd", ("per_worker_hour", "per_cpu_hour", "per_gb_hour", "per_gpu_hour"), strict=True)
    )
    tally = CostTally()
    tally.add(rates(**{fields[name]: value for name, value in found.items()}))
    used = Used(
        lifetimes={f"w{n}": lived for n, (lived, _) in enumerate(crew)},
        given={
            f"w{n}": Sizes(cpus=cpus, memory_bytes=int(cpus * 1e9), gpus=cpus)
            for n, (_, cpus) in enumerate(crew)
        },
    )
    result = tally.summary(used)
    exact = sum(
        Fraction(lived, HOUR_NS)
        * (
            Fraction(found.get("a", 0))
            + Fraction(cpus) * (Fraction(found.get("b", 0)) + Fraction(found.get("d", 0)))
            + Fraction(int(cpus * 1e9), 10**9) * Fraction(found.get("c", 0))
        )
        for lived, cpus in crew
    )
    if not found:
        assert result.total is None
        return
    assert result.total == result.workers_total
    nano = [Fraction(item.amount).limit_denominator(10**9) * 10**9 for item in result.by_item.values()]
    assert result.workers_total is not None
    assert abs(Fraction(result.workers_total) * 10**9 - exact * 10**9) <= Fraction(1, 2) + exact / 10**6
    assert abs(sum(nano) - Fraction(result.workers_total) * 10**9) <= Fraction(1, 2) + exact / 10**6


@given(st.dictionaries(st.text("abcdef", min_size=1), st.fractions(0, 1000), max_size=6))
def test_apportioned_parts_add_up_and_lose_less_than_a_billionth_each(parts: dict[str, Fraction]) -> None:
    total = billionths(sum(parts.values(), Fraction(0)))
    found = apportion(total, parts)
    assert sum(found.values()) == total or not parts
    assert all(abs(found[name] - part * 10**9) <= 1 for name, part in parts.items())
