"""What would run where, with what, at which cost: worked out without running anything. Includes what the last
runs of the project say about its tasks.

A plan can be stored and shown: free texts that come from variables keep the variable, and secrets that were
written out are redacted. To run, take the values from `Manifest.resolved`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.core.errors import FlightlogError
from flightlog.core.redaction import REDACTED, is_secret, redact_text
from flightlog.core.stats import quantile
from flightlog.core.text import base_name
from flightlog.events import CostRates, TaskCompleted
from flightlog.events.rates import Sizes, hourly, names_time, number
from flightlog.session.charges import charges_of
from flightlog.session.expansion import has_variables, variables
from flightlog.session.limits import SessionLimits
from flightlog.session.manifest import LOCAL, Manifest
from flightlog.session.schema import Component, Task
from flightlog.session.secrets import secret_kind
from flightlog.session.yaml_tree import OverlayChange
from flightlog.store.catalogue import RunEntry
from flightlog.store.run import Run

CONFIDENCE = 0.95
"""The share of later attempts that a suggestion is meant to be enough for."""


class PlannedComponent(Component, frozen=True, kw_only=True):
    """A component as the manifest has it, with its workers."""

    workers: int | None
    """Most workers at once; the workers of a target are shared by all components. None is "not said"."""
    tasks: list[str]
    """The manifest's tasks that run on it."""


class ExpectedCost(Struct, frozen=True, kw_only=True):
    """What a run will likely cost: an amount, or the reason why there is none."""

    amount: float | None = None
    currency: str | None = None
    reason: str | None = None
    worker_hours: float | None = None
    """Workers by the median wall time of earlier runs."""
    per_worker_hour: float | None = None
    """All rates together, for a worker of the component that costs most."""


class Plan(Struct, frozen=True, kw_only=True):
    """What would run where."""

    project: str
    manifest: str
    manifest_sha256: str
    target: str
    provider: str
    overlays: tuple[str, ...]
    options: dict[str, Any]
    """The engine's options; free texts with their variables unexpanded."""
    workers: int | None
    workers_from: str | None
    """`manifest`, or `history` where the manifest does not say."""
    components: dict[str, PlannedComponent]
    tasks: dict[str, Task]
    cost: ExpectedCost
    history: History | None
    """What earlier runs of the project say; None where there are none."""
    suggestions: dict[str, Suggestion] = {}
    """What history suggests for components; what the manifest says counts. A session's own plan has none."""


def make_plan(
    manifest: Manifest,
    target: str,
    environ: Mapping[str, str],
    history: History | None = None,
    suggestions: Mapping[str, Suggestion] | None = None,
) -> Plan:
    """The plan of one target, its overlay included; whatever is wrong is a `ManifestError`."""
    manifest = manifest.for_target(target, environ)
    contents = manifest.resolved(environ, raw=True)
    chosen = contents.targets[target]
    said = _workers(chosen.options)
    workers = said if said is not None else history.workers if history else None
    return Plan(
        project=storable(contents.project.name),
        manifest=manifest.path.name,
        manifest_sha256=manifest.sha256,
        target=target,
        provider=chosen.provider,
        overlays=manifest.overlays,
        options=storable(chosen.options),
        workers=workers,
        workers_from=None if workers is None else "history" if said is None else "manifest",
        components={
            name: PlannedComponent(
                workers=workers,
                tasks=[task for task, each in contents.tasks.items() if each.component == name],
                **storable(asdict(component)),
            )
            for name, component in contents.components.items()
        },
        tasks={name: storable(task) for name, task in contents.tasks.items()},
        cost=expected_cost(
            charges_of(contents, target, manifest.path.parent, environ),
            contents.components,
            workers,
            history,
            provider=chosen.provider,
        ),
        history=history,
        suggestions={name: each for name, each in (suggestions or {}).items() if name in contents.components},
    )


def storable(value: Any, key: str = "") -> Any:
    """The value without secrets that were written out; what a variable stands for is none, and its name
    stays.
    """
    if isinstance(value, str):
        if has_variables(value):
            return REDACTED if secret_kind(value, key) is not None else value
        return REDACTED if is_secret(key, value) else redact_text(value)
    if isinstance(value, dict):
        return {name: storable(inner, name) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(storable(item, key) for item in value)
    if isinstance(value, Struct):
        return replace(value, **storable(asdict(value)))
    return value


def expected_cost(
    rates: CostRates | None,
    components: Mapping[str, Component],
    workers: int | None,
    history: History | None,
    *,
    provider: str | None = None,
) -> ExpectedCost:
    """Rate by workers by hours, the hours from history; a worker is priced as one of the dearest component.

    Without a rate the machine of the provider `local` costs nothing, as in a report.
    """
    if rates is None and provider == LOCAL:
        return ExpectedCost(amount=0.0, per_worker_hour=0.0)
    if rates is None or not names_time(rates):
        return ExpectedCost(reason="the target has no rates")
    kinds = [
        Sizes(cpus=one.cpus, memory_bytes=one.memory_bytes, gpus=one.gpus) for one in components.values()
    ]
    prices = [hourly(rates, sizes) for sizes in kinds or [Sizes()]]
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        reason = "a rate is by CPU or by memory, and not every component says how much of it a worker has"
        return ExpectedCost(reason=reason, currency=rates.currency)
    expected = ExpectedCost(currency=rates.currency, per_worker_hour=number(max(known)))
    if history is None or history.duration_s is None:
        return replace(expected, reason="no earlier run tells how long it takes")
    if workers is None:
        return replace(expected, reason="the number of workers is not known")
    hours = workers * history.duration_s / 3600
    return replace(expected, amount=number(max(known)) * hours, worker_hours=hours)


def _workers(options: Mapping[str, Any]) -> int | None:
    said = (options.get(name) for name in ("n_workers", "max_workers"))
    return next((number for number in said if isinstance(number, int)), None)


class Suggestion(Struct, frozen=True, kw_only=True):
    """What the tasks on a component needed; None where too little is known of it."""

    cpus: float | None
    memory_bytes: int | None
    tasks: list[str]
    """Those that decide: on CPUs, on memory."""
    attempts: int
    runs: int
    confidence: float
    """The share of later attempts that it is meant to be enough for."""
    whole: bool
    """Whether every task on the component is known well enough; otherwise another one may need more."""
    elsewhere: bool = False
    """Whether it comes from runs on other targets, for want of any on the plan's."""


def read_suggestions(runs_dir: Path, project: str, target: str | None = None) -> dict[str, Suggestion]:
    """By component, from runs on a target, or from all where there are none on it or none is named.

    Nothing where there is no history, or none that can be read.
    """
    from flightlog.analyze.advice.advise import advise_on
    from flightlog.analyze.advice.resources import component_needs
    from flightlog.analyze.history.attempts import read_past

    try:
        past = read_past(runs_dir, project=project, target=target)
        elsewhere = target is not None and not past.attempts
        if elsewhere:
            past = read_past(runs_dir, project=project)
        advised = advise_on(past, confidence=CONFIDENCE, shape=False)
    except (FlightlogError, OSError):
        return {}
    found = {}
    for component, needs in component_needs(advised.recommendations).items():
        wanted = [each for each in (needs.cpus, needs.memory) if each is not None]
        if wanted:
            found[component] = Suggestion(
                cpus=needs.cpus.amount if needs.cpus is not None else None,
                memory_bytes=int(needs.memory.amount) if needs.memory is not None else None,
                tasks=list(dict.fromkeys(each.task for each in wanted)),
                attempts=needs.attempts,
                runs=needs.runs,
                confidence=CONFIDENCE,
                whole=all(each.whole for each in wanted),
                elsewhere=elsewhere,
            )
    return found


class ValueOrigin(Struct, frozen=True, kw_only=True):
    """One value, as written: variables unexpanded, written-out secrets redacted."""

    path: str
    text: str
    line: int
    """0 where nobody wrote it."""
    overlay: str | None
    is_set: dict[str, bool]
    """Of each of its variables, whether it is set to anything."""


class Explanation(Struct, frozen=True, kw_only=True):
    """What overlays changed, and where every value of a target comes from."""

    name: str
    changes: tuple[OverlayChange, ...]
    origins: tuple[ValueOrigin, ...]


def explain(manifest: Manifest, target: str, environ: Mapping[str, str]) -> Explanation:
    """The origins of all that counts for one target, in the manifest's order; `overlays` itself is left
    out.
    """
    chosen = manifest.for_target(target, environ)
    origins = [
        ValueOrigin(
            path=".".join(path),
            text=storable(str(node), path[-1]),
            line=node.line,
            overlay=node.overlay,
            is_set={name: bool(environ.get(name)) for name in variables(str(node))},
        )
        for path, node in chosen.tree.leaves()
        if path and path[0] != "overlays" and node.value is not None
    ]
    changes = []
    for change in chosen.changes:
        key = change.path.rpartition(".")[2]
        before, after = storable(change.before, key), storable(change.after, key)
        changes.append(replace(change, before=before, after=after))
    return Explanation(name=manifest.name, changes=tuple(changes), origins=tuple(origins))


class TaskHistory(Struct, frozen=True, kw_only=True):
    """Completed tasks of one name, without indexes, in earlier runs; None where nobody measured."""

    runs: int
    tasks: int
    p50_s: float | None
    p95_s: float | None
    p95_cpus: float | None
    """CPU seconds over seconds: cores kept busy."""
    cpu_scopes: list[str]
    p95_peak_rss_bytes: int | None
    rss_scopes: list[str]
    """Whose memory; with `process_at_least` the figure is a lower bound."""


class History(Struct, frozen=True, kw_only=True):
    """The last runs of a project that completed any task, the newest first."""

    runs: list[str]
    duration_s: float | None
    """Wall time of a run, the median."""
    workers: int | None
    """Workers that completed tasks in a run, the median."""
    tasks: dict[str, TaskHistory]


def read_history(runs_dir: Path, project: str) -> History | None:
    """What the earlier runs of a project that have ended say; None where there are none.

    Reads at most `max_planned_tasks_per_run` completed tasks of each run, and runs until they have
    `max_planned_tasks` together. A run that cannot be read counts as none.
    """
    from flightlog.store.earlier_runs import select_runs

    tallies: dict[str, _Tally] = {}
    seen: list[RunEntry] = []
    workers: list[int] = []
    read = 0
    for entry in (run.entry for run in select_runs(runs_dir, project=project).ended):
        if read >= SessionLimits.max_planned_tasks:
            break
        if entry.tasks_completed == 0:
            continue
        names: set[str | None] = set()
        completed = (event for event in Run(entry.path).events("tasks") if isinstance(event, TaskCompleted))
        for event in islice(completed, SessionLimits.max_planned_tasks_per_run):
            tallies.setdefault(base_name(event.task), _Tally()).add(event, len(seen))
            names.add(event.worker)
            read += 1
        if names:
            seen.append(entry)
            workers += [len(names - {None})] if names - {None} else []
    if not seen:
        return None
    durations = [entry.duration_s for entry in seen if entry.duration_s is not None]
    return History(
        runs=[entry.run_id for entry in seen],
        duration_s=_quantile(durations, 0.5),
        workers=None if not workers else math.ceil(quantile(sorted(workers), 0.5)),
        tasks={name: tallies[name].result() for name in sorted(tallies)},
    )


class _Tally:
    """The completed tasks of one name; a few numbers stay of each."""

    def __init__(self) -> None:
        self._runs: set[int] = set()
        self._count = 0
        self._durations, self._cpus, self._peaks = array("d"), array("d"), array("d")
        self._cpu_scopes: set[str] = set()
        self._rss_scopes: set[str] = set()

    def add(self, event: TaskCompleted, run: int) -> None:
        """Take one completed task of the run of this number."""
        self._runs.add(run)
        self._count += 1
        if event.duration_s is not None:
            self._durations.append(event.duration_s)
            if event.cpu_s is not None and event.duration_s > 0:
                self._cpus.append(event.cpu_s / event.duration_s)
                self._cpu_scopes.add(event.cpu_scope or "unknown")
        if event.peak_rss_bytes is not None:
            self._peaks.append(event.peak_rss_bytes)
            self._rss_scopes.add(event.rss_scope or "unknown")

    def result(self) -> TaskHistory:
        """The figures."""
        peak = _quantile(self._peaks, 0.95)
        return TaskHistory(
            runs=len(self._runs),
            tasks=self._count,
            p50_s=_quantile(self._durations, 0.5),
            p95_s=_quantile(self._durations, 0.95),
            p95_cpus=_quantile(self._cpus, 0.95),
            cpu_scopes=sorted(self._cpu_scopes),
            p95_peak_rss_bytes=None if peak is None else math.ceil(peak),
            rss_scopes=sorted(self._rss_scopes),
        )


def _quantile(values: array[float] | list[float], q: float) -> float | None:
    return quantile(sorted(values), q) if values else None
