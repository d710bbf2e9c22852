"""A run's report and what is drawn of it, of one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.drawn.bars import ONE_BY_ONE
from flightlog.analyze.drawn.curves import curves
from flightlog.analyze.drawn.devices import device_memory
from flightlog.analyze.drawn.durations import durations
from flightlog.analyze.drawn.frame import Frame, frame_of
from flightlog.analyze.drawn.lanes import LANES, in_order
from flightlog.analyze.drawn.load import load
from flightlog.analyze.drawn.lookups import lookups
from flightlog.analyze.drawn.pieces import Pieces, lay_out_pieces
from flightlog.analyze.drawn.resources import resource_use
from flightlog.analyze.drawn.results import Drawn, Timeline
from flightlog.analyze.drawn.timeline import timeline
from flightlog.analyze.drawn.waits import POINTS, waits
from flightlog.analyze.ground import Ground, ground_of
from flightlog.analyze.held import MACROS
from flightlog.analyze.large import LARGE_BYTES
from flightlog.analyze.report import Report, report_and
from flightlog.analyze.shares import Shares, shares, worked
from flightlog.analyze.summary import Summary

if TYPE_CHECKING:
    from flightlog.analyze.distribution import Distribution
    from flightlog.events import CostRates
    from flightlog.store.run import Run

VIEWS = {"resources", "devices", "metrics"}
"""What is read beside what a report reads."""


TIMELINE_VIEWS = {"failures"}
"""What a timeline alone reads beside attempts and spans."""


class Look(Struct, frozen=True, kw_only=True):
    """What a page shows of a run."""

    report: Report
    drawn: Drawn


class TimelineLook(Struct, frozen=True, kw_only=True):
    """The timeline of a run, and what there is to say of it in a line."""

    summary: Summary
    time: Shares | None
    """Where the time went, as in the report; null where nothing was recorded to split."""
    timeline: Timeline | None
    """Null where nothing ran that was recorded."""


def timeline_of(
    run: Run, *, large_bytes: int = LARGE_BYTES, one_by_one: int = ONE_BY_ONE, lanes: int = LANES
) -> TimelineLook:
    """The summary, the split of time and the timeline that `look_at` gives, without working out anything
    else.

    `one_by_one` and `lanes` are as `drawn_of` takes them.
    """
    with ground_of(run, views=TIMELINE_VIEWS, large_bytes=large_bytes) as ground:
        time = shares(ground.connection, ground.workers, ground.window)
        found = _laid_out(ground)
        return TimelineLook(
            summary=ground.summary,
            time=time,
            timeline=None if found is None else _timeline(ground, found, one_by_one, lanes),
        )


def look_at(
    run: Run,
    *,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
    large_bytes: int = LARGE_BYTES,
) -> Look:
    """The report with its details, and what is drawn; the tasks and spans of the run are read once for both.

    For a run in any state and of any size: what is drawn is bounded, and the report is that of `report_on`.
    """
    report, drawn = report_and(
        run, drawn_of, views=VIEWS, history=history, rates=rates, large_bytes=large_bytes
    )
    return Look(report=report, drawn=drawn)


def drawn_of(
    ground: Ground, *, one_by_one: int = ONE_BY_ONE, lanes: int = LANES, points: int = POINTS
) -> Drawn:
    """What is drawn of a run whose report is being made; its connection has the views in `VIEWS`.

    At most `one_by_one` attempts, and no more than fit on so many `lanes`, are drawn one by one; at most
    `points` of queueing against execution time.
    """
    found = _laid_out(ground)
    if found is None:
        return Drawn(
            timeline=None,
            concurrency=None,
            worker_cpu=None,
            worker_memory=None,
            host_cpu=None,
            host_memory=None,
            device_memory=None,
            device_use=None,
            durations=[],
            waits=None,
            cache=None,
        )
    connection, frame, pieces = ground.connection, found.frame, found.pieces
    of_tasks = pieces is not None and pieces.what == "attempts"
    use = resource_use(connection, frame)
    return Drawn(
        timeline=_timeline(ground, found, one_by_one, lanes),
        concurrency=load(connection, frame, found.ups) if of_tasks else None,
        worker_cpu=use.worker_cpu,
        worker_memory=use.worker_memory,
        host_cpu=use.host_cpu,
        host_memory=use.host_memory,
        device_memory=device_memory(connection, frame) or use.gpu_memory,
        device_use=use.gpu_use,
        durations=durations(connection),
        waits=None if pieces is None else waits(connection, pieces.names, points=points),
        cache=lookups(connection, frame),
        metrics=curves(connection, frame),
    )


class _LaidOut(NamedTuple):
    """What all drawings share; the table `drawn` is made. `pieces` is None where nothing ran."""

    frame: Frame
    hosts: Mapping[str, str | None]
    ups: Mapping[str, Sequence[tuple[int, int]]]
    pieces: Pieces | None


def _laid_out(ground: Ground) -> _LaidOut | None:
    """None where it is not known when the run was."""
    connection = ground.connection
    connection.execute(MACROS)
    frame = frame_of(ground)
    if frame is None:
        return None
    hosts = ground.workers.hosts()
    ups = ground.workers.uptimes(worked(connection), frame.until)
    processes = {one.writer: f"{one.host}:{one.pid}" for one in ground.run.writers()}
    return _LaidOut(frame, hosts, ups, lay_out_pieces(connection, frame, in_order(ups, hosts), processes))


def _timeline(ground: Ground, found: _LaidOut, one_by_one: int, lanes: int) -> Timeline | None:
    if found.pieces is None:
        return None
    return timeline(
        ground,
        found.frame,
        found.pieces,
        found.hosts,
        root=ground.run.info.span_id,
        one_by_one=one_by_one,
        most_lanes=lanes,
    )
