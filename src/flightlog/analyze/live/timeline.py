"""The latest attempts of a run and what is running, as a timeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

from flightlog.analyze.charts.results import Bars, Lane, Mark, Timeline
from flightlog.analyze.live.results import NAME, cut, first_line
from flightlog.analyze.live.tasks import Done, LiveAttempt
from flightlog.analyze.report.attempts import attempt_key
from flightlog.core.time import SECOND, timestamp_of
from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed

LANES = 60
ONGOING = 200
COLOURS = 10
NOWHERE = "no worker"


_STATES = {TaskCompleted: "completed", TaskFailed: "failed", TaskCancelled: "cancelled"}


class _Bar(NamedTuple):
    begin: int
    end: int
    worker: str
    name: str
    state: str
    task_id: str
    attempt: int
    text: str


def live_timeline(
    last: Sequence[Done],
    running: Iterable[LiveAttempt],
    retried: Collection[str],
    *,
    names: Sequence[str],
    until: int,
    attempts: int,
    workers: int,
    failures: int,
) -> Timeline | None:
    """Lanes of workers, by name; null where nothing ran whose time is known.

    `names` are those that have a colour of their own; all others have none.
    """
    bars = [bar for done in last if (bar := _ended(done, retried)) is not None]
    going = sorted(
        (one for one in running if one.at is not None), key=lambda one: (one.at or 0, one.event.task_id)
    )
    bars += [_ongoing(one, until) for one in going[:ONGOING]]
    if not bars:
        return None
    lanes, placed, left_out = _in_lanes(bars)
    began = [bar.begin for bar, _ in placed if bar.state != "running"] or [bar.begin for bar, _ in placed]
    since = min(began)
    length = max(0, max(until, *(bar.end for bar, _ in placed)) - since)
    index = {name: place for place, name in enumerate(names)}
    notes = []
    if left_out:
        notes.append(f"{left_out:,} attempts on workers beyond {LANES} rows are not drawn")
    if attempts > len(last):
        notes.append(f"the last {len(last):,} of {attempts:,} attempts that ended")
    return Timeline(
        since=timestamp_of(since),
        length_s=length / SECOND,
        names=[cut(name, NAME) for name in names],
        lanes=lanes,
        bars=Bars(
            lane=[lane for _, lane in placed],
            start_s=[_s(max(bar.begin, since) - since) for bar, _ in placed],
            length_s=[_s(bar.end - max(bar.begin, since)) for bar, _ in placed],
            name=[index.get(bar.name, -1) for bar, _ in placed],
            state=[bar.state for bar, _ in placed],
            task_id=[cut(bar.task_id, NAME) for bar, _ in placed],
            attempt=[bar.attempt for bar, _ in placed],
        ),
        cells=None,
        marks=[_mark(bar, lane, since) for bar, lane in placed if bar.state not in {"completed", "running"}],
        attempts=attempts + len(going),
        workers=workers,
        failures=failures,
        notes=notes,
    )


def _s(duration: int) -> float:
    return round(max(0, duration) / SECOND, 6)


def _ended(done: Done, retried: Collection[str]) -> _Bar | None:
    event = done.event
    if done.began is None or done.at is None:
        return None
    state, text = _STATES.get(type(event), "retried"), ""
    if isinstance(event, TaskFailed):
        state = "retried" if attempt_key(event) in retried else state
        text = ": ".join(part for part in (event.error_type, first_line(event.error_message)) if part)
    elif isinstance(event, TaskCancelled):
        text = first_line(event.reason)
    elif done.retry is not None:
        text = first_line(done.retry.reason)
    return _Bar(
        done.began,
        max(done.began, done.at),
        event.worker or NOWHERE,
        event.task,
        state,
        event.task_id,
        event.attempt,
        text,
    )


def _ongoing(one: LiveAttempt, until: int) -> _Bar:
    begin = one.at or 0
    event = one.event
    return _Bar(
        begin,
        max(begin, until),
        event.worker or NOWHERE,
        event.task,
        "running",
        event.task_id,
        event.attempt,
        "",
    )


def _mark(bar: _Bar, lane: int, since: int) -> Mark:
    kind: Literal["failed", "retried", "cancelled"] = bar.state  # type: ignore[assignment]
    return Mark(
        lane=lane,
        at_s=_s(bar.end - since),
        kind=kind,
        task=cut(bar.name, NAME),
        task_id=cut(bar.task_id, NAME),
        text=bar.text,
    )


def _in_lanes(bars: list[_Bar]) -> tuple[list[Lane], list[tuple[_Bar, int]], int]:
    """Rows of the workers, several for one that executes side by side, the bars with their rows, and how many
    have none.
    """
    by_worker: dict[str, list[_Bar]] = {}
    for bar in bars:
        by_worker.setdefault(bar.worker, []).append(bar)
    lanes: list[Lane] = []
    placed: list[tuple[_Bar, int]] = []
    left_out = 0
    for worker in sorted(by_worker):
        free: list[tuple[int, int]] = []
        """The rows of this worker: when each is free, and which it is."""
        for bar in sorted(by_worker[worker], key=lambda one: (one.begin, one.end, one.task_id, one.attempt)):
            row = next((n for n, (at, _) in enumerate(free) if at <= bar.begin), None)
            if row is None:
                if len(lanes) >= LANES:
                    left_out += 1
                    continue
                label = cut(worker, NAME) if not free else f"{cut(worker, NAME)} ({len(free) + 1})"
                lanes.append(Lane(label=label, worker=None if worker == NOWHERE else cut(worker, NAME)))
                free.append((bar.end, len(lanes) - 1))
                row = len(free) - 1
            else:
                free[row] = (bar.end, free[row][1])
            placed.append((bar, free[row][1]))
    return lanes, placed, left_out
