"""A run drawn: each function gives a Plotly figure, to be shown in a notebook, changed, or written to a file.

    from flightlog import figures
    figures.timeline("latest")

A run is given as `Run`, id, path or address, or `latest`; a session or a run that is being recorded will do,
too. What is drawn of a run is worked out once for all its figures, and again when its files have changed.
Where nothing was recorded to draw, a `UsageError` says so. Figures are light, or dark where
`plotly.io.templates.default` is a dark one. In a notebook a still picture is kept beside each, for where no
script runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from flightlog.core.displayed import notebook_part
from flightlog.core.errors import UsageError
from flightlog.show.figures import lines, rows
from flightlog.show.figures.style import with_theme
from flightlog.show.figures.timeline import timeline_figure
from flightlog.store.read.files import Stamp, stamp_at

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.report_with_charts import ReportWithCharts
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.history.trends import Trend
    from flightlog.record.run import LiveRun
    from flightlog.session.session import Session
    from flightlog.store.run import Run

    AnyRun = Run | LiveRun | Session | str | os.PathLike[str]

__all__ = [
    "cache",
    "compare",
    "concurrency",
    "cost",
    "cpu",
    "critical_path",
    "device_memory",
    "durations",
    "host_cpu",
    "host_memory",
    "memory",
    "metric",
    "ratios",
    "shares",
    "spans",
    "timeline",
    "trends",
    "waits",
]

MAX_CACHED_RUNS = 4
"""Runs whose charts are cached, the latest used."""

MAX_LISTED_NAMES = 10
"""Maximum names listed where one is not found."""

_State = list[tuple[str, Stamp]]
_looks: dict[Path, tuple[_State, ReportWithCharts]] = {}
_lock = Lock()


def timeline(run: AnyRun = "latest") -> Figure:
    """Which tasks ran where and when: one row per worker, coloured by name, failures and retries marked."""
    return _figure(run, "drawn.timeline", timeline_figure, "no task that started")


def concurrency(run: AnyRun = "latest") -> Figure:
    """How many tasks ran and waited, and how many workers were up."""
    return _chart(run, "concurrency", "Concurrency", "no task that started")


def cpu(run: AnyRun = "latest") -> Figure:
    """Cores in use, by worker."""
    return _chart(run, "worker_cpu", "CPU by worker", "no sample of a worker's CPU", "host_cpu")


def memory(run: AnyRun = "latest") -> Figure:
    """Memory in use, by worker."""
    return _chart(run, "worker_memory", "Memory by worker", "no sample of a worker's memory", "host_memory")


def host_cpu(run: AnyRun = "latest") -> Figure:
    """CPU in use, by machine."""
    return _chart(run, "host_cpu", "CPU by machine", "no sample of a machine's CPU")


def host_memory(run: AnyRun = "latest") -> Figure:
    """Memory in use, by machine."""
    return _chart(run, "host_memory", "Memory by machine", "no sample of a machine's memory")


def device_memory(run: AnyRun = "latest") -> Figure:
    """GPU memory, by rank where ranks tracked it, else by device."""
    return _chart(run, "device_memory", "GPU memory", "no sample of a GPU's memory")


def cache(run: AnyRun = "latest") -> Figure:
    """Cache lookups that hit and that missed, over the time of the run."""
    return _chart(run, "cache", "Cache lookups", "no cache lookup")


def metric(run: AnyRun = "latest", name: str | None = None) -> Figure:
    """The values of a metric that `run.metric` recorded, by step or over time; without a name that with the
    most values.
    """
    from flightlog.show.terminal import clean

    seen = _look(run)
    found = seen.drawn.metrics
    curves = {curve.name: curve for curve in found.curves} if found is not None else {}
    if curves and name is not None and name not in curves:
        known = ", ".join(clean(one) for one in list(curves)[:MAX_LISTED_NAMES])
        raise UsageError(
            f"there is no curve of a metric {name[:200]!r} in {seen.report.run.run_id}; there is one of "
            f"{known}"
        )
    curve = curves.get(name or "") or next(iter(curves.values()), None)
    figure = (
        None
        if curve is None or found is None
        else lines.curve_figure(curve, length_s=found.length_s, since=found.since, title=curve.name)
    )
    return _drawn(figure, seen, "no metric of two values or more")


def durations(run: AnyRun = "latest") -> Figure:
    """How long tasks took, by name."""
    return _figure(run, "drawn.durations", rows.durations_figure, "no task that completed")


def waits(run: AnyRun = "latest") -> Figure:
    """How long tasks waited, against how long they ran."""
    return _figure(run, "drawn.waits", lines.waits_figure, "no task whose waiting is known")


def critical_path(run: AnyRun = "latest") -> Figure:
    """The chain of work and waiting that the wall time consists of."""
    return _figure(run, "report.critical_path", rows.critical_figure, "no task or span that ended")


def spans(run: AnyRun = "latest") -> Figure:
    """What code did inside what, by time: the tree of spans."""
    return _figure(run, "report.details.span_tree", rows.spans_figure, "no span")


def shares(run: AnyRun = "latest") -> Figure:
    """Where the time of the workers went."""
    return _figure(run, "report.time", rows.shares_figure, "nothing whose time could be split")


def cost(run: AnyRun = "latest") -> Figure:
    """What the time of the workers was paid for."""
    return _figure(run, "report.cost_split", rows.cost_figure, "no rate to charge its workers by")


def compare(before: AnyRun | Comparison | None = None, after: AnyRun | None = None) -> Figure:
    """What changed between two runs or groups of runs, given as for `flightlog.compare`,
    or as a comparison.
    """
    figure = rows.comparison_figure(_compared(before, after))
    return _grounded(figure, "how long one of the two took is unknown")


def ratios(before: AnyRun | Comparison | None = None, after: AnyRun | None = None) -> Figure:
    """How much slower or faster each task and span became, with the range in which that is sure."""
    figure = rows.ratios_figure(_compared(before, after))
    return _grounded(figure, "the two have no task or span in common")


def _compared(before: AnyRun | Comparison | None, after: AnyRun | None) -> Comparison:
    from flightlog.analyze.compare.results import Comparison

    if isinstance(before, Comparison):
        return before
    from flightlog.analyze.compare.compare import compare as compared

    return compared(
        *(side if side is None or isinstance(side, str) else _opened(side) for side in (before, after))
    )


def trends(of: Trend | str | None = None, metric: str = "wall", **options: Any) -> Figure:
    """The history of a metric of a project's runs; `of` is a trend, or a project as for `flightlog.trends`,
    with its options.
    """
    from flightlog.analyze.history.trends import Trend
    from flightlog.analyze.history.trends import trends as history

    found = of if isinstance(of, Trend) else history(of, metric, **options)
    missing = f"no run of {found.project} has the figure {found.metric}"
    return _grounded(lines.trends_figure(found), missing)


def _chart(run: AnyRun, name: str, title: str, missing: str, instead: str | None = None) -> Figure:
    seen = _look(run)
    found = getattr(seen.drawn, name)
    if found is None and instead is not None and getattr(seen.drawn, instead) is not None:
        missing += f"; figures.{instead} draws that of the machine"
    return _drawn(None if found is None else lines.chart_figure(found, title=title), seen, missing)


def _figure(run: AnyRun, path: str, draw: Callable[[Any], Figure | None], missing: str) -> Figure:
    """The figure of what is known of the run under a path of names, any of which may be None."""
    seen: Any = _look(run)
    found = seen
    for name in path.split("."):
        found = found and getattr(found, name)
    return _drawn(draw(found) if found else None, seen, missing)


def _drawn(figure: Figure | None, seen: ReportWithCharts, missing: str) -> Figure:
    return _grounded(figure, f"{seen.report.run.run_id} recorded {missing}")


def _grounded(figure: Figure | None, why_none: str) -> Figure:
    """The figure with a background of its own, because its page is unknown: dark where Plotly's default is
    dark. A `UsageError` without a figure.
    """
    if figure is None:
        raise UsageError(f"there is nothing to draw: {why_none}")
    from plotly.io import templates

    dark = "dark" in str(templates.default or "")
    with_theme(figure, "dark" if dark else "light")
    figure.layout.paper_bgcolor = figure.layout.plot_bgcolor = "#111111" if dark else "#ffffff"
    shown: Figure = notebook_part("plotly_figure").DisplayedFigure(figure)
    return shown


def _opened(run: AnyRun) -> Run:
    """The run as it is now."""
    from flightlog.store.completing import open_run
    from flightlog.store.run import path_of

    return open_run(path_of(run), observer=getattr(run, "observer", None))


def _look(given: AnyRun) -> ReportWithCharts:
    from flightlog.analyze.charts.report_with_charts import report_with_charts

    run = _opened(given)
    state = _state(run.path)
    with _lock:
        known = _looks.pop(run.path, None)
    seen = known[1] if known is not None and known[0] == state else report_with_charts(run)
    with _lock:
        _looks[run.path] = state, seen
        while len(_looks) > MAX_CACHED_RUNS:
            del _looks[next(iter(_looks))]
    return seen


def _state(path: Path) -> _State:
    """Name and stamp of every file: the same means that nothing was written since."""
    # Names are joined as texts: there may be thousands of writers' files.
    names = (f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
    return sorted((name, stamp) for name in names if (stamp := stamp_at(name)) is not None)
