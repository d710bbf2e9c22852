"""A folder of runs as a Prometheus collector and its page `/metrics`: running and recently ended runs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from flightlog.export.prometheus.families import STATUSES, families
from flightlog.export.prometheus.run_metrics import RunFigures
from flightlog.export.prometheus.watch import RunWatch
from flightlog.store import layout
from flightlog.store.catalogue import run_paths, start_of
from flightlog.store.documents import read_document
from flightlog.store.liveness import Observer, here, unix_time
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


class Choice(Struct, frozen=True, kw_only=True):
    """What there is, and what is shown of it."""

    shown: tuple[Path, ...]
    """Runs that run first, then the newest."""
    hidden: int
    """Runs that would be shown, too, if there were fewer."""
    statuses: dict[str, int]
    """All runs of the folder."""


class Chooser:
    """Looks at a folder again and again. A run that ended long ago is read once, and again if its `run.json`
    changes.
    """

    def __init__(self, recent_s: float, max_runs: int) -> None:
        self._recent_s, self._max_runs = recent_s, max_runs
        self._past: dict[Path, tuple[int, str]] = {}

    def choose(self, folder: Path, observer: Observer) -> Choice:
        """The choice as of now; a folder that is missing has no runs."""
        statuses: Counter[str] = Counter()
        wanted: list[tuple[bool, float, Path]] = []
        past: dict[Path, tuple[int, str]] = {}
        for path in run_paths(folder):
            changed = _changed(path)
            known = self._past.get(path)
            if known is not None and known[0] == changed:
                past[path] = known
                statuses[known[1]] += 1
                continue
            status, started, ended = _read(path, observer)
            statuses[status] += 1
            if status == "running" or observer.now - ended <= self._recent_s:
                wanted.append((status != "running", -started, path))
            elif changed is not None:
                past[path] = (changed, status)
        self._past = past
        shown = [path for _, _, path in sorted(wanted)]
        return Choice(
            shown=tuple(shown[: self._max_runs]),
            hidden=len(shown[self._max_runs :]),
            statuses=dict(statuses),
        )


def _changed(path: Path) -> int | None:
    try:
        return (path / layout.RUN).stat().st_mtime_ns
    except OSError:
        return None


def _read(path: Path, observer: Observer) -> tuple[str, float, float]:
    """Status, start, and end or last sign of life, in Unix seconds; what is not known is long ago."""
    info = read_document(path / layout.RUN, layout.RunInfo).value
    if info is None:
        named = unix_time(start_of(path.name)) or 0.0
        return "unknown", named, named
    started = unix_time(info.start_time) or unix_time(start_of(info.run_id)) or 0.0
    heard = unix_time(info.end_time) or unix_time(info.heartbeat)
    return observer.status(info), started, started + (info.duration_s or 0.0) if heard is None else heard


class MetricsPage:
    """The page of one collector; thread-safe if that is. `flightlog serve-metrics` and other servers show
    it.
    """

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)

    def answer(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format that the header `Accept` asks for: text or
        OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
