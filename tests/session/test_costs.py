"""What a manifest says of costs, and what a session records of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import work_for_sessions as work
from sessions import PROCESSES, THREADS, events_of, run_of, session_in

from flightlog.analyze.cost.cost import workers_on_one_machine
from flightlog.analyze.report.report import report_on
from flightlog.core.errors import ManifestError, UsageError
from flightlog.events import CostEstimate, CostRates
from flightlog.session.charges import charges_of
from flightlog.session.manifest import parse_manifest, read_rates, with_overlay
from flightlog.session.plan import explain, make_plan

HEAD = "version: 1\nproject: {name: a}\n"
PRICES = {
    "name": "our cloud",
    "currency": "EUR",
    "sources": {"own": {"date": "2026-01-31"}},
    "instances": {"own/small": {"per_hour": 0.5}},
}


def charged(text: str, target: str = "local", environ: dict | None = None, folder: Path = Path("/nowhere")):
    manifest = parse_manifest(HEAD + text, folder / "flightlog.yaml")
    contents = manifest.resolved(environ or {}, target)
    return charges_of(contents, target, folder, environ or {})


def problems(text: str, environ: dict | None = None) -> list[str]:
    with pytest.raises(ManifestError) as error:
        charged(text, environ=environ)
    return list(error.value.problems)


def test_every_rate_is_read() -> None:
    text = """
targets:
  local:
    provider: local
    cost: {currency: CHF, per_worker_hour: 1, per_cpu_hour: 2, per_gb_hour: 3, per_gpu_hour: 4,
      per_gb_month: 5, per_gb_egress: 6, per_kwh: 7}
components:
  sim: {cpus: 2, memory: 4GB}
"""
    assert charged(text) == CostRates(
        currency="CHF",
        source="the manifest",
        provider="local",
        per_worker_hour=1.0,
        per_cpu_hour=2.0,
        per_gb_hour=3.0,
        per_gpu_hour=4.0,
        per_gb_month=5.0,
        per_gb_egress=6.0,
        per_kwh=7.0,
        components={"sim": {"cpus": 2.0, "memory_bytes": 4_000_000_000, "gpus": None}},
    )


def test_a_cost_for_all_targets_gives_way_to_a_targets_own() -> None:
    text = """
cost: {per_cpu_hour: 1}
targets:
  local: {provider: local}
  cluster: {provider: slurm, cost: {currency: EUR, per_worker_hour: 2}}
  mine: {provider: local, cost: {}}
"""
    assert charged(text).per_cpu_hour == 1.0
    cluster = charged(text, "cluster")
    assert (cluster.currency, cluster.per_worker_hour, cluster.per_cpu_hour) == ("EUR", 2.0, None)
    assert charged(text, "mine") is None


def test_overlays_change_costs_key_by_key_and_explain_says_so() -> None:
    text = (
        "cost: {per_cpu_hour: 1, per_kwh: 0.3}\noverlays:\n  night: {cost: {per_kwh: 0.2, per_cpu_hour: "
        "null}}\n"
    )
    manifest = with_overlay(parse_manifest(HEAD + text, Path("/nowhere/flightlog.yaml")), ["night"])
    found = charges_of(manifest.resolved({}, "local"), "local", Path("/nowhere"), {})
    assert (found.per_kwh, found.per_cpu_hour) == (0.2, None)
    origins = {
        origin.path: (origin.text, origin.overlay) for origin in explain(manifest, "local", {}).origins
    }
    assert origins["cost.per_kwh"] == ("0.2", "night")


def test_what_is_no_rate_is_said_with_its_line() -> None:
    assert problems(
        "cost:\n  per_cpu_hour: -1\n  per_kwh: .nan\n  per_gpu_hours: 2\n  per_gb_hour: '1'\n"
    ) == [
        "flightlog.yaml:4: cost.per_cpu_hour: '-1' is less than 0",
        "flightlog.yaml:5: cost.per_kwh: '.nan' is no number",
        "flightlog.yaml:6: cost.per_gpu_hours: 'per_gpu_hours' is no key; did you mean 'per_gpu_hour'?",
        "flightlog.yaml:7: cost.per_gb_hour: '1' is text: write 1 without quotes",
    ]


def test_an_instance_type_has_the_price_of_the_table() -> None:
    found = charged("targets:\n  c: {provider: slurm, cost: {instance: AWS/m6i.xlarge, per_kwh: 0.3}}\n", "c")
    assert (found.instance, found.per_worker_hour, found.currency, found.per_kwh) == (
        "aws/m6i.xlarge",
        0.192,
        "USD",
        0.3,
    )
    assert found.prices_of is not None


def test_workers_of_the_local_provider_share_one_instance() -> None:
    local = (
        "targets:\n  local: {{provider: local, max_workers: 4, cost: {{instance: aws/m6i.xlarge{more}}}}}\n"
    )
    assert charged(local.format(more="")).per_worker_hour == 0.192 / 4
    assert charged(local.format(more=", workers_per_instance: 2")).per_worker_hour == 0.192 / 2


def test_a_table_of_ones_own_is_named_by_the_manifest_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_bytes(msgspec.json.encode(PRICES))
    text = "targets:\n  c: {provider: slurm, cost: {instance: own/small%s}}\n"
    found = charged(text % ", prices: prices.json", "c", folder=tmp_path)
    assert (found.per_worker_hour, found.currency, found.source, found.prices_of) == (
        0.5,
        "EUR",
        "our cloud",
        "2026-01-31",
    )
    environ = {"FLIGHTLOG_PRICES": str(tmp_path / "prices.json")}
    assert charged(text % "", "c", environ).per_worker_hour == 0.5


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        ("{instance: aws/m6.xlarge}", "cost.instance: there is no instance type 'aws/m6.xlarge' in"),
        (
            "{instance: aws/m6i.xlarge, per_cpu_hour: 1}",
            "cost.per_cpu_hour: the price of the instance 'aws/m6i.xlarge' is",
        ),
        (
            "{instance: aws/m6i.xlarge, currency: EUR}",
            "cost.currency: is EUR, and the price of aws/m6i.xlarge is in USD",
        ),
        (
            "{instance: a/b, prices: none.json}",
            "cost.instance: cannot read the price table /nowhere/none.json: No such file",
        ),
        (
            "{per_cpu_hour: 1, workers_per_instance: 2}",
            "cost.workers_per_instance: goes with `instance`, which is not said",
        ),
    ],
)
def test_a_cost_that_makes_no_sense_is_one_message_with_its_line(cost: str, told: str) -> None:
    [problem] = problems(f"cost: {cost}\n")
    assert problem.startswith(f"flightlog.yaml:3: {told}")


def test_an_instance_type_from_a_variable_is_looked_up_when_it_is_set() -> None:
    text = "cost: {instance: '${KIND}', workers_per_instance: 1}\n"
    assert charged(text, environ={"KIND": "gcp/n2-standard-4"}).instance == "gcp/n2-standard-4"
    [problem] = problems(text, environ={"KIND": "gcp/x"})
    assert "there is no instance type 'gcp/x'" in problem


def test_a_plan_prices_instances_and_costs_for_all_targets() -> None:
    text = HEAD + "cost: {instance: aws/m6i.xlarge}\ntargets:\n  c: {provider: slurm}\n"
    plan = make_plan(parse_manifest(text, Path("/nowhere/flightlog.yaml")), "c", {})
    assert (plan.cost.per_worker_hour, plan.cost.currency) == (0.192, "USD")


def test_a_session_records_its_rates_and_what_they_come_to(tmp_path: Path) -> None:
    cost = "    cost: {currency: EUR, per_worker_hour: 3600, per_cpu_hour: 360}\n"
    with session_in(tmp_path, "components: {sim: {cpus: 2}}\n", where=THREADS + cost) as session:
        session.client.submit(work.add, 1).result()
    [rates] = events_of(session, "cost", CostRates)
    assert (rates.per_worker_hour, rates.components["sim"]["cpus"]) == (3600.0, 2.0)
    estimates = events_of(session, "cost", CostEstimate)
    assert [(one.item, one.amount) for one in estimates[:2]] == [("workers", 0.0), ("cpus", 0.0)]
    by_item = {item: [one.amount for one in estimates if one.item == item] for item in ("workers", "cpus")}
    assert all(amounts == sorted(amounts) for amounts in by_item.values())
    report = report_on(run_of(session))
    assert report.time is not None
    assert report.cost_split is not None
    # 3600 an hour and worker, and 2 CPUs at 360, are 1.2 a second.
    assert report.cost.total == pytest.approx(1.2 * report.time.whole.total_s, abs=1e-8)
    assert report.cost.total == report.cost_split.total
    assert report.cost.by_item["cpus"].amount == pytest.approx(by_item["cpus"][-1], abs=0.5)


def test_a_local_session_without_rates_records_no_cost_and_costs_nothing(tmp_path: Path) -> None:
    with session_in(tmp_path, where=THREADS) as session:
        session.client.submit(work.add, 1).result()
    assert list(run_of(session).events("cost")) == []
    assert report_on(run_of(session)).cost.total == 0.0


def test_a_session_with_a_price_that_is_not_there_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="there is no instance type"):
        session_in(tmp_path, where=PROCESSES + "    cost: {instance: aws/none}\n")
    assert not (tmp_path / "runs").exists()


# --- rates in a file of their own


@pytest.mark.parametrize(
    "text", ["per_cpu_hour: 2\n", "cost: {per_cpu_hour: 2}\n", HEAD + "cost: {per_cpu_hour: 2}\n"]
)
def test_rates_stand_alone_under_cost_or_in_a_manifest(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rates.yaml"
    file.write_text(text)
    found = read_rates(file, {}, target="cluster", provider="slurm")
    assert (found.per_cpu_hour, found.provider) == (2.0, "slurm")


def test_the_workers_of_a_local_run_share_the_instance_that_it_is_priced_as_afterwards(
    tmp_path: Path,
) -> None:
    cost = "    cost: {instance: aws/m6i.xlarge}\n"
    with session_in(tmp_path, where=THREADS + cost) as session:
        session.client.gather(session.client.map(work.add, range(4)))
    run = run_of(session)
    file = tmp_path / "rates.yaml"
    file.write_text("instance: aws/m6i.xlarge\n")
    [recorded] = events_of(session, "cost", CostRates)
    workers = workers_on_one_machine(run)
    found = read_rates(file, {}, target="here", provider="local", workers=workers)
    assert (workers, found.per_worker_hour) == (2, recorded.per_worker_hour)


def test_a_manifests_target_of_the_runs_name_counts(tmp_path: Path) -> None:
    file = tmp_path / "flightlog.yaml"
    file.write_text(HEAD + "targets:\n  c: {provider: slurm, cost: {per_cpu_hour: 2}}\n")
    assert read_rates(file, {}, target="c", provider=None).per_cpu_hour == 2.0
    with pytest.raises(
        UsageError, match=r"the run was on the target 'x', and .* says only what its own cost"
    ):
        read_rates(file, {}, target="x", provider=None)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"per_cpu_hour: -1\n", "rates.yaml:1: per_cpu_hour: '-1' is less than 0"),
        (b"{}\n", "names no price"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"- 1\n", "rates.yaml"),
        (b"", "rates.yaml is empty: write `per_worker_hour: 0.05`"),
        (
            b"currency: EURO\nper_cpu_hour: 1\n",
            "rates.yaml:1: currency: 'EURO' is no ISO 4217 code: write three capital letters",
        ),
    ],
)
def test_a_file_without_rates_is_one_message(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "rates.yaml"
    file.write_bytes(content)
    with pytest.raises((ManifestError, UsageError), match=told):
        read_rates(file, {}, target=None, provider=None)
    with pytest.raises(UsageError, match="cannot read the rates"):
        read_rates(tmp_path / "none.yaml", {}, target=None, provider=None)
