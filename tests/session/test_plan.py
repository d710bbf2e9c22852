"""Plans: what would run where, at which cost, and what history says of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import ManifestError
from flightlog.events import CostRates, Event, TaskCompleted, TaskFailed
from flightlog.session.limits import SessionLimits
from flightlog.session.manifest import parse_manifest
from flightlog.session.plan import (
    ExpectedCost,
    History,
    Plan,
    PlannedComponent,
    TaskHistory,
    ValueOrigin,
    expected_cost,
    explain,
    make_plan,
    read_history,
)
from flightlog.session.schema import Cache, Component, Task
from flightlog.show.plan import explanation_text, plan_text
from flightlog.store.documents import document_bytes

TEXT = """\
version: 1
project: {name: sir}
targets:
  local: {provider: local}
  cluster:
    provider: slurm
    overlay: big
    max_workers: ${WORKERS:-10}
    account: ${ACCOUNT}
    cost: {currency: EUR, per_cpu_hour: 0.05, per_gb_hour: 0.01}
components:
  model:
    cpus: 2
    memory: 16G
    walltime: 1h
    env: {API_TOKEN: "${TOKEN}", PASSWORD: hunter3, MODE: fast, URL: "https://u:${TOKEN}@host"}
tasks:
  simulate: {component: model, cache: {ttl: 7d, store: "${STORE}"}, retries: 2, timeout: 10m}
  plot: {cache: false}
overlays:
  big: {components: {model: {memory: 50GB, walltime: null, image: model:2}}}
"""
HISTORY = History(
    runs=["r2", "r1"],
    duration_s=1800.0,
    workers=4,
    tasks={
        "simulate": TaskHistory(
            runs=2,
            tasks=100,
            p50_s=4.2,
            p95_s=8.5,
            p95_cpus=1.8,
            cpu_scopes=["thread"],
            p95_peak_rss_bytes=6 * 2**30,
            rss_scopes=["process_at_least"],
        ),
        "plot": TaskHistory(
            runs=1,
            tasks=1,
            p50_s=0.5,
            p95_s=0.5,
            p95_cpus=None,
            cpu_scopes=[],
            p95_peak_rss_bytes=None,
            rss_scopes=[],
        ),
    },
)
MANIFEST = parse_manifest(TEXT, Path("/somewhere/flightlog.yaml"))


def test_the_plan_holds_everything_of_its_target_and_no_secret() -> None:
    secrets = {"TOKEN": "hunter2", "ACCOUNT": "acc-77", "STORE": "/private", "WORKERS": "20"}
    plan = make_plan(MANIFEST, "cluster", secrets, HISTORY)
    assert plan == Plan(
        project="sir",
        manifest="flightlog.yaml",
        manifest_sha256=MANIFEST.sha256,
        target="cluster",
        provider="slurm",
        overlays=("big",),
        options={"account": "${ACCOUNT}", "max_workers": 20},
        workers=20,
        workers_from="manifest",
        components={
            "model": PlannedComponent(
                workers=20,
                cpus=2.0,
                memory_bytes=50_000_000_000,
                gpus=None,
                walltime_s=None,
                image="model:2",
                runtime=None,
                env={
                    "API_TOKEN": "${TOKEN}",
                    "PASSWORD": "[redacted]",
                    "MODE": "fast",
                    "URL": "https://u:${TOKEN}@host",
                },
                mounts={},
                tags=(),
                preload_script=None,
                tasks=["simulate"],
            )
        },
        tasks={
            "simulate": Task(
                component="model",
                retries=2,
                timeout_s=600.0,
                outputs=(),
                cache=Cache(version=None, ttl_s=604800.0, ignore=(), store="${STORE}"),
            ),
            "plot": Task(component=None, retries=None, timeout_s=None, cache=False, outputs=()),
        },
        cost=ExpectedCost(
            amount=0.6 * 10, currency="EUR", reason=None, worker_hours=10.0, per_worker_hour=0.6
        ),
        history=HISTORY,
    )
    stored = document_bytes(plan).decode()
    assert [secret for secret in ("hunter2", "hunter3", "acc-77", "/private") if secret in stored] == []
    assert msgspec.json.decode(stored, type=Plan) == plan


@given(st.text(alphabet="abcdefXYZ0123", max_size=30).map("qQ7{}Zz".format))
def test_no_variables_value_reaches_the_plan_or_the_explanation(secret: str) -> None:
    environ = {"TOKEN": secret, "ACCOUNT": secret, "STORE": secret}
    plan = make_plan(MANIFEST, "cluster", environ)
    shown = explanation_text(plan, explain(MANIFEST, "cluster", environ), width=200)
    assert secret not in document_bytes(plan).decode().replace(MANIFEST.sha256, "")
    assert secret not in shown


def test_a_plan_needs_no_variable_that_only_texts_hold() -> None:
    assert make_plan(MANIFEST, "cluster", {}).workers == 10
    with pytest.raises(
        ManifestError, match="max_workers: '\\$\\{WORKERS:-10\\}' gives 'x', which is no whole"
    ):
        make_plan(MANIFEST, "cluster", {"WORKERS": "x"})


def test_history_gives_the_workers_where_the_manifest_does_not() -> None:
    plan = make_plan(MANIFEST, "local", {}, HISTORY)
    assert (plan.workers, plan.workers_from) == (4, "history")
    assert make_plan(MANIFEST, "local", {}).workers is None


def rates_of(**named) -> CostRates:
    return CostRates(**{"currency": "USD", "source": "the manifest", **named})


RATES = rates_of(per_cpu_hour=1.0, per_worker_hour=0.5)


@pytest.mark.parametrize(
    ("rates", "component", "workers", "history", "reason"),
    [
        (None, Component(), 1, HISTORY, "the target has no rates"),
        (rates_of(), Component(), 1, HISTORY, "the target has no rates"),
        (
            RATES,
            Component(),
            1,
            HISTORY,
            "a rate is by CPU or by memory, and not every component says how much of it a worker has",
        ),
        (RATES, Component(cpus=2), 1, None, "no earlier run tells how long it takes"),
        (RATES, Component(cpus=2), None, HISTORY, "the number of workers is not known"),
    ],
)
def test_an_unknown_cost_is_null_with_its_reason(rates, component, workers, history, reason) -> None:
    found = expected_cost(rates, {"c": component}, workers, history)
    assert (found.amount, found.reason) == (None, reason)


def test_without_a_rate_the_machine_at_hand_costs_nothing_and_any_other_something_unknown() -> None:
    nothing = ExpectedCost(amount=0.0, currency=None, reason=None, worker_hours=None, per_worker_hour=0.0)
    assert expected_cost(None, {}, None, None, provider="local") == nothing
    assert expected_cost(None, {}, 4, HISTORY, provider="slurm").reason == "the target has no rates"
    priced = expected_cost(rates_of(per_worker_hour=2.0), {}, 4, HISTORY, provider="local")
    assert priced.amount == 4.0


def test_a_worker_is_priced_as_one_of_the_dearest_component() -> None:
    kinds = {"a": Component(cpus=2, memory_bytes=10**10), "b": Component(cpus=1, gpus=1, memory_bytes=10**9)}
    rates = rates_of(currency="CHF", per_worker_hour=1, per_cpu_hour=2, per_gpu_hour=8, per_gb_hour=0.5)
    assert expected_cost(rates, kinds, 3, HISTORY) == ExpectedCost(
        amount=11.5 * 1.5, currency="CHF", reason=None, worker_hours=1.5, per_worker_hour=11.5
    )


# --- history ---------------------------------------------------------------------------------------------


def done(number: int, duration_s: float | None, **more: object) -> Event:
    fields = {"task": "sim", "args": {}, "worker": f"w{number % 2}", **more}
    return TaskCompleted(timestamp=at(number), task_id=f"t{number}", duration_s=duration_s, **fields)


def test_history_pools_the_last_runs_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [done(n, float(n), cpu_s=n / 2, cpu_scope="thread", peak_rss_bytes=n * 100) for n in range(1, 5)]
    make_run(tmp_path, events, token="aaaaaaaa", start_time=at(1), duration_s=10.0, tasks_completed=4)
    more = [
        done(5, 5.0, worker="w9"),
        done(6, None, task="other", worker=None),
        TaskFailed(
            timestamp=at(7),
            task="sim",
            task_id="f",
            args={},
            worker="w5",
            duration_s=99.0,
            error_type=None,
            error_message=None,
        ),
    ]
    make_run(tmp_path, more, token="bbbbbbbb", start_time=at(2), duration_s=30.0, tasks_completed=2)
    make_run(tmp_path, [done(1, 1e6)], token="cccccccc", start_time=at(3), project="else", tasks_completed=1)
    make_run(tmp_path, token="dddddddd", start_time=at(4))
    found = read_history(tmp_path, "demo")
    assert found == History(
        runs=["run-20260520T035200Z-demo-bbbbbbbb", "run-20260520T035200Z-demo-aaaaaaaa"],
        duration_s=20.0,
        workers=2,
        tasks={
            "other": TaskHistory(
                runs=1,
                tasks=1,
                p50_s=None,
                p95_s=None,
                p95_cpus=None,
                cpu_scopes=[],
                p95_peak_rss_bytes=None,
                rss_scopes=[],
            ),
            "sim": TaskHistory(
                runs=2,
                tasks=5,
                p50_s=3.0,
                p95_s=pytest.approx(4.8),
                p95_cpus=0.5,
                cpu_scopes=["thread"],
                p95_peak_rss_bytes=385,
                rss_scopes=["unknown"],
            ),
        },
    )
    monkeypatch.setattr(SessionLimits, "max_planned_tasks_per_run", 2)
    assert read_history(tmp_path, "demo").tasks["sim"].tasks == 3
    monkeypatch.setattr(SessionLimits, "max_planned_tasks", 2)
    assert read_history(tmp_path, "demo").runs == found.runs[:1]


def test_no_runs_are_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path / "none", "demo") is None


# --- as text ---------------------------------------------------------------------------------------------


def test_the_plan_as_text() -> None:
    assert (
        plan_text(make_plan(MANIFEST, "cluster", {}, HISTORY))
        == f"""\
Plan: sir
Manifest:       flightlog.yaml (sha256 {MANIFEST.sha256[:12]})
Target:         cluster (provider: slurm)
Overlay:        big
Options:        account=${{ACCOUNT}}, max_workers=10
Workers:        at most 10 workers
Expected cost:  €3.00 (5 worker-hours at €0.60)

Components
  Component  CPUs    Memory  Image
  model         2  46.6 GiB  model:2

Tasks
  Task      Component  Retries  Timeout  Cache
  simulate  model            2  10m 00s  yes, for 7d 00h
  plot                                   no

History (2 runs)
  Task      Tasks     p50     p95  p95 CPUs  p95 memory
  simulate    100    4.2s    8.5s       1.8   ≥ 6.0 GiB
  plot          1  500 ms  500 ms
"""
    )


def test_a_plan_without_history_says_so() -> None:
    text = plan_text(make_plan(MANIFEST, "local", {}))
    assert "Workers:        as many workers as the engine decides\n" in text
    assert "Expected cost:  $0.00 (local provider)\n" in text
    assert text.endswith("History: no earlier run of sir\n")


def test_the_explanation_says_what_runs_where_what_changed_and_where_values_come_from() -> None:
    environ = {"TOKEN": "hunter2"}
    text = explanation_text(
        make_plan(MANIFEST, "cluster", environ), explain(MANIFEST, "cluster", environ), width=120
    )
    assert (
        text
        == """\
flightlog.yaml on target cluster: project sir runs on the provider slurm (account=${ACCOUNT}, \
max_workers=10) with at \
most 10 workers.

Tasks
  simulate runs on component model (2 CPUs, 46.6 GiB memory, image model:2), is retried up to 2 \
times, may take 10m 00s \
per attempt and caches its results (for 7d 00h).
  plot runs on any worker and does not cache its results.
  Any other task runs without retries, timeout or component, unless its call says so.

What the overlay big changes
  components.model.memory: 16G (line 14) becomes 50GB (line 21)
  components.model.walltime: 1h (line 15) is removed (line 21)
  components.model.image: model:2 is added (line 21)

Where values come from
  Value                              Is                       From
  version                            1                        line 1
  project.name                       sir                      line 2
  targets.cluster.provider           slurm                    line 6
  targets.cluster.overlay            big                      line 7
  targets.cluster.max_workers        ${WORKERS:-10}           line 8, WORKERS is not set
  targets.cluster.account            ${ACCOUNT}               line 9, ACCOUNT is not set
  targets.cluster.cost.currency      EUR                      line 10
  targets.cluster.cost.per_cpu_hour  0.05                     line 10
  targets.cluster.cost.per_gb_hour   0.01                     line 10
  components.model.cpus              2                        line 13
  components.model.memory            50GB                     line 21, overlay big
  components.model.env.API_TOKEN     ${TOKEN}                 line 16, TOKEN is set
  components.model.env.PASSWORD      [redacted]               line 16
  components.model.env.MODE          fast                     line 16
  components.model.env.URL           https://u:${TOKEN}@host  line 16, TOKEN is set
  components.model.image             model:2                  line 21, overlay big
  tasks.simulate.component           model                    line 18
  tasks.simulate.cache.ttl           7d                       line 18
  tasks.simulate.cache.store         ${STORE}                 line 18, STORE is not set
  tasks.simulate.retries             2                        line 18
  tasks.simulate.timeout             10m                      line 18
  tasks.plot.cache                   false                    line 19
"""
    )


def test_what_nobody_wrote_is_called_assumed() -> None:
    found = explain(parse_manifest("version: 1\nproject: {name: a}\n", Path("f.yaml")), "local", {})
    assert found.origins[-1] == ValueOrigin(
        path="targets.local.provider", text="local", line=0, overlay=None, is_set={}
    )
