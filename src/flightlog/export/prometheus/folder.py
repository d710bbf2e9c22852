"""A place of runs as a Prometheus collector: those that run, and those that ended a short while ago."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flightlog.export.prometheus.choosing import Choice, Chooser
from flightlog.export.prometheus.families import STATUSES, families
from flightlog.export.prometheus.figures import RunFigures
from flightlog.export.prometheus.watch import RunWatch
from flightlog.store.liveness import Observer, here
from flightlog.store.runs_folder import RunsPlace

RECENT_S = 3600.0
"""How long a run that ended is still shown: Prometheus has its last figures by then."""
MAX_RUNS = 20
"""Runs that are shown at once, those that run first, then the newest; how many are left out is said."""


class RunsCollector(Collector):
    """Gives the metrics of a folder or place; each scrape reads what was written since the one before.

    Thread-safe: scrapes wait for each other. Never raises for what stands in the folder: a run that cannot be
    read is counted in `flightlog_runs_unreadable`. A remote that does not answer is counted in
    `flightlog_remote_problems`, and its copies are shown.
    """

    def __init__(
        self,
        runs: Path | RunsPlace,
        *,
        recent_s: float = RECENT_S,
        max_runs: int = MAX_RUNS,
        observe: Callable[[], Observer] = here,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runs = RunsPlace(runs) if isinstance(runs, Path) else runs
        self._chooser = Chooser(recent_s, max_runs)
        self._observe, self._clock = observe, clock
        self._watches: dict[Path, RunWatch] = {}
        self._lock = threading.Lock()
        self._scrapes = 0
        self._unreadable: set[Path] = set()

    def describe(self) -> list[Metric]:
        """Nothing beforehand: registering must not read the folder."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now."""
        with self._lock:
            began = self._clock()
            observer = self._observe()
            choice = self._chooser.choose(self._runs.folder(), observer)
            figures = self._look(choice.shown, observer)
            found = [
                *families(figures),
                *self._about_the_folder(choice),
                *self._about_the_scrape(self._clock() - began),
            ]
        yield from found

    def _look(self, paths: Sequence[Path], observer: Observer) -> list[RunFigures]:
        self._watches = {path: self._watches.get(path) or RunWatch(path) for path in paths}
        self._unreadable = set()
        found: dict[tuple[str, str], RunFigures] = {}
        for path, watch in self._watches.items():
            try:
                figures = watch.look(observer)
            except Exception:  # noqa: BLE001 - whatever stands in one run, the others are shown
                self._unreadable.add(path)
                continue
            found.setdefault((figures.project, figures.run_id), figures)  # a copy of a run is not shown twice
        for path in self._unreadable:
            del self._watches[path]  # half a look is no beginning for the next
        return list(found.values())

    def _about_the_folder(self, choice: Choice) -> Iterator[Metric]:
        runs = GaugeMetricFamily("flightlog_runs", "Runs in the folder, by status.", labels=["status"])
        for status in STATUSES:
            runs.add_metric([status], choice.statuses.get(status, 0))
        yield runs
        for name, help_, number in (
            (
                "flightlog_runs_unreadable",
                "Runs in the folder that cannot be read, and are not shown.",
                len(self._unreadable),
            ),
            (
                "flightlog_runs_hidden",
                "Runs that run or ended lately, and are not shown because there are too many.",
                choice.hidden,
            ),
        ):
            yield GaugeMetricFamily(name, help_, value=number)
        if self._runs.is_remote:
            yield GaugeMetricFamily(
                "flightlog_remote_problems",
                "What is wrong with the address of the runs: with any, figures are of copies from before.",
                value=len(self._runs.notes),
            )

    def _about_the_scrape(self, took_s: float) -> Iterator[Metric]:
        self._scrapes += 1
        yield CounterMetricFamily(
            "flightlog_scrapes", "Times these metrics were asked for.", value=self._scrapes
        )
        yield GaugeMetricFamily(
            "flightlog_scrape_duration_seconds", "Time that reading the runs took.", value=took_s
        )
