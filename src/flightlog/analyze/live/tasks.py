"""The tasks of a run as they are now, from the table `attempt_intervals`: counts by name, what runs, what
ended last, how much is left, and the last minutes as a timeline and as lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flightlog.analyze.charts.layout import TimeWindow, pack
from flightlog.analyze.charts.results import Bars, Timeline, TimelineMark, TimelineRow
from flightlog.analyze.limits import LiveLimits, PredictLimits, ReportLimits
from flightlog.analyze.live.results import Doing, EndedTask, LiveTaskName, Progress, args_text
from flightlog.analyze.predict.eta import (
    Eta,
    KnownDurations,
    from_durations,
    from_earlier,
    of_mean,
    remaining,
)
from flightlog.analyze.report.tasks import COUNTS_SQL, PENDING, tasks_in_flight, work_until
from flightlog.analyze.tallies import grouped, json_object
from flightlog.core.intervals import peak
from flightlog.core.stats import QUANTILES, Distribution, distribution_of
from flightlog.core.text import cut, first_line
from flightlog.core.time import SECOND, timestamp_of

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

Row = dict[str, Any]
TASK_COUNTS = ("submitted", "completed", "failed", "cancelled", "running", "retried")
_STOPPED = "CASE WHEN state = 'running' THEN $until ELSE stopped END"
"""When an attempt ended; one that runs lasts until now."""

_BY_NAME = f"""
SELECT task, {COUNTS_SQL}, count(*) FILTER (state NOT IN ('pending', 'running')) AS over,
    min(started) AS first, count(took) AS known, sum(in_ns(took)) AS total, min(took) AS low,
    max(took) AS high
FROM (SELECT *, CASE WHEN state = 'completed' THEN duration_s END AS took FROM attempt_intervals)
GROUP BY task
"""  # noqa: S608 - constants
_QUANTILES = f"""
SELECT task, quantile_cont(duration_s, {list(QUANTILES)}) FROM attempt_intervals
WHERE state = 'completed' AND task IN (SELECT unnest($names)) GROUP BY task
"""  # noqa: S608 - numbers
_SHOWN = "task, task_id, attempt, worker, state, retried, began, stopped, ended, queue_s, duration_s, args"
_LAST = f"""
SELECT {_SHOWN} FROM attempt_intervals WHERE state NOT IN ('pending', 'running') AND {{since}}
ORDER BY ended DESC NULLS LAST, task_id DESC, attempt DESC LIMIT {{few}}
"""  # noqa: S608 - constants
_SLOWEST = f"""
SELECT {_SHOWN} FROM attempt_intervals WHERE state = 'completed' AND duration_s IS NOT NULL AND {{since}}
ORDER BY duration_s DESC, task, task_id, attempt LIMIT {{few}}
"""  # noqa: S608 - constants
_RUNNING = """
SELECT task, task_id, attempt, worker, state, retried, started FROM attempt_intervals WHERE state = 'running'
ORDER BY started NULLS FIRST, task, task_id, attempt
"""
_LATELY = f"""
SELECT count(*) FILTER (ended > $rate_since AND ended <= $until),
    coalesce(sum(least(stop, $until) - greatest(began, $since)) FILTER (began < $until AND stop > $since), 0)
FROM (SELECT began, ended, {_STOPPED} AS stop FROM attempt_intervals WHERE began IS NOT NULL)
"""  # noqa: S608 - constants
_SPREAD = f"""
SELECT task, approx_quantile(duration_s, {[round((2 * rank + 1) / 40, 3) for rank in range(20)]})
FROM attempt_intervals
WHERE state = 'completed' AND duration_s IS NOT NULL AND task IN (SELECT unnest($names)) GROUP BY task
"""  # noqa: S608 - numbers
_SAID = """
SELECT task_id, attempt, arg_max(error_type, kind), arg_max(error_message, kind), arg_max(reason, kind)
FROM task_lines WHERE kind IN (4, 6, 7) AND task_id IN (SELECT unnest($ids)) GROUP BY ALL
"""


class LiveName:
    """All attempts of one name, a row of `_BY_NAME`: counts as the report has them, when the `first`
    started, and of completed tasks the durations.
    """

    def __init__(self, row: Row) -> None:
        self.name: str = row["task"]
        self.row = row
        self.durations = Distribution()

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return sum(int(self.row[state]) for state in ("completed", "failed", "cancelled"))

    @property
    def size(self) -> int:
        """Number of tasks, as the summary counts them."""
        return max(int(self.row["submitted"]), self.ended + int(self.row["running"]))


class KnownTasks:
    """What is remembered from one state to the next, so that less is asked."""

    def __init__(self) -> None:
        self.quantiles: dict[str, tuple[int, list[float]]] = {}
        """Quantiles of durations by name, and of how many."""
        self.bounds: dict[str, float] = {}
        """Of lists of the newest or slowest, what is not below those that were listed."""


class LiveTasks:
    """The tasks as of `until`, when the run ended or now, in nanoseconds since 1970. Each question is asked
    once.

    `history` has durations of earlier runs by name of task, for what this run does not know yet; `known` is
    what an earlier state has found. While the run goes on, quantiles may be of a few tasks less.
    """

    def __init__(
        self,
        tables: RunTables,
        until: int | None,
        history: Mapping[str, Distribution] | None = None,
        known: KnownTasks | None = None,
        *,
        over: bool = True,
    ) -> None:
        self._tables, self._until, self._history = tables, until, history or {}
        self._known, self._over = known or KnownTasks(), over

    @cached_property
    def names(self) -> list[LiveName]:
        """The largest first."""
        found = {row["task"]: LiveName(row) for row in self._tables.records(_BY_NAME)}
        self._set_durations(found)
        return sorted(found.values(), key=lambda one: (-one.size, one.name))

    def _set_durations(self, found: Mapping[str, LiveName]) -> None:
        quantiles = self._known.quantiles
        share = 0.0 if self._over else LiveLimits.max_stale_share
        known = {name: one.row["known"] for name, one in found.items()}
        stale = [
            name
            for name, count in known.items()
            if abs(count - quantiles.get(name, (0, []))[0]) > share * count
        ]
        for name, values in self._tables.rows(_QUANTILES, {"names": stale}) if stale else ():
            quantiles[name] = known[name], values
        for name, count in known.items():
            if count:
                low, high, total = (found[name].row[part] for part in ("low", "high", "total"))
                values = [min(max(value, low), high) for value in quantiles[name][1]]
                found[name].durations = distribution_of(count, int(total) / SECOND, low, high, values)

    def _listed(self, statement: str, column: str, few: int, all_known: int) -> list[Row]:
        """The rows with the largest values of a column; those below what was listed before are passed over
        at first.
        """
        bound = self._known.bounds.get(column)
        since = "true" if bound is None else f"{column} >= {bound!r}"
        rows = self._tables.records(statement.format(since=since, few=few))
        if bound is not None and len(rows) < min(few, all_known):
            rows = self._tables.records(statement.format(since="true", few=few))
        if len(rows) == few and rows[-1][column] is not None:
            self._known.bounds[column] = rows[-1][column]
        return rows

    @cached_property
    def last(self) -> list[Row]:
        """The attempts that ended last, the newest first."""
        return self._listed(_LAST, "ended", LiveLimits.max_timeline_bars, self.count("over"))

    @cached_property
    def running(self) -> list[Row]:
        """The attempts that run, the longest first."""
        return self._begun[0]

    @cached_property
    def replaced(self) -> list[Row]:
        """Attempts without an end whose workers execute one after the other, and have begun another since:
        the end of the one may be read later than the start of the next.
        """
        return self._begun[1]

    @cached_property
    def _begun(self) -> tuple[list[Row], list[Row]]:
        rows = self._tables.records(_RUNNING) if self.count("running") else []
        replaced: list[Row] = []
        for name, several in grouped((row["worker"], row) for row in rows).items():
            if name is not None and len(several) > 1 and not self._over:
                ended = [(row["began"], row["stopped"]) for row in self.last if row["worker"] == name]
                replaced += several[:-1] if _one_at_a_time(ended) else []
        gone = set(map(id, replaced))
        return [row for row in rows if id(row) not in gone], replaced

    def count(self, what: str) -> int:
        """One of the counts, of all names together."""
        return sum(one.row[what] for one in self.names)

    @cached_property
    def waiting(self) -> int:
        """Tasks that were submitted and never seen to start."""
        return int(self._tables.scalar(PENDING)) if self.count("not_begun") else 0

    def results(self) -> list[LiveTaskName]:
        """The names, the largest first."""
        replaced = Counter(row["task"] for row in self.replaced)
        return [
            LiveTaskName(
                name=cut(one.name, LiveLimits.max_name_chars),
                **{
                    **{name: one.row[name] for name in TASK_COUNTS},
                    "running": one.row["running"] - replaced[one.name],
                },
                mean_s=one.durations.mean,
                max_s=one.durations.max,
                p95_s=one.durations.p95,
                total_s=one.durations.total if one.durations.count else None,
            )
            for one in self.names[: LiveLimits.max_listed_names]
        ]

    def progress(self, started: int | None, *, over: bool) -> Progress:
        """Task counts; while the run goes on, also the rate and the estimated time left."""
        ended = sum(one.ended for one in self.names)
        all_known = max(self.count("submitted"), ended + self.count("running"))
        per_s, at_once = (None, 0.0) if over else self._lately(started)
        eta = None if over else self._eta(at_once)
        counts = {name: self.count(name) for name in TASK_COUNTS}
        return Progress(
            **{**counts, "running": counts["running"] - len(self.replaced)},
            waiting=self.waiting,
            done=ended / all_known if all_known else None,
            per_s=per_s,
            left_s=None if eta is None else eta.expected,
            left_low_s=None if eta is None else eta.low,
            left_high_s=None if eta is None else eta.high,
            left_at_least=eta is not None and eta.at_least,
        )

    def _lately(self, started: int | None) -> tuple[float | None, float]:
        """Tasks that ended in each of the last seconds, and how many ran at once, on average."""
        until = self._until
        begun = (one.row["first"] for one in self.names)
        first = min((moment for moment in begun if moment is not None), default=None)
        if until is None or not self.names:
            return None, 0.0
        rate_since = until - LiveLimits.rate_window_s * SECOND
        rate_since = rate_since if started is None else max(rate_since, started)
        since = max(first or 0, until - LiveLimits.concurrency_window_s * SECOND)
        [(ended, work)] = self._tables.execute(
            _LATELY, {"until": until, "rate_since": rate_since, "since": since}
        ).fetchall()
        known = self.count("over") and until - rate_since >= SECOND
        per_s = ended * SECOND / (until - rate_since) if known else None
        return per_s, int(work) / (until - since) if first is not None and since < until else 0.0

    def _eta(self, at_once: float) -> Eta | None:
        until = self._until
        going = [one for one in self.names if one.size > one.ended]
        if until is None or not going:
            return None
        going.sort(key=lambda one: ((one.ended - one.size) * (one.durations.mean or 0.0), one.name))
        ends = grouped(
            (row["task"], ((until - row["ended"]) / SECOND, row["duration_s"]))
            for row in self.last
            if row["state"] == "completed" and None not in (row["ended"], row["duration_s"])
        )
        close = [one.name for one in going[: PredictLimits.max_eta_names]]
        more = [one.name for one in going if one.durations.count > len(ends.get(one.name, ())) > 0]
        spread = dict(self._tables.execute(_SPREAD, {"names": more}).fetchall() if more else [])

        def durations(one: LiveName) -> KnownDurations | None:
            found, earlier = None, self._history.get(one.name)
            if one.name in close and one.name in ends:
                wide = spread.get(one.name, ())
                found = from_durations(ends[one.name], whole=not wide, spread=wide)
            if found is None and one.durations.count >= PredictLimits.min_ended_tasks:
                found = of_mean(one.durations.mean or 0.0)
            return from_earlier(earlier) if found is None and earlier is not None else found

        known = {one.name: found for one in going if (found := durations(one)) is not None}
        left = {one.name: one.size - one.ended for one in going}
        since = grouped(
            (row["task"], max(0, until - row["started"]) / SECOND)
            for row in (*self.running, *self.replaced)
            if row["started"] is not None
        )
        return remaining(left, known, since, at_once or len(self.running), at_least=len(known) < len(left))

    def doing(self) -> list[Doing]:
        """Running tasks, those that may be stuck first, then the longest."""
        if not self.count("running"):
            return []
        by_name = {one.name: one.durations for one in self.names}
        replaced = {(row["task_id"], row["attempt"]) for row in self.replaced}
        found = []
        for one in tasks_in_flight(self._tables, self._until):
            if (one.task_id, one.attempt) in replaced:
                continue
            usual, stuck = usual_of(by_name.get(one.task), one.elapsed_s)
            if usual is None:
                usual, stuck = usual_of(self._history.get(one.task), one.elapsed_s)
            about = _about(one.task, one.task_id, one.attempt, one.worker, one.args)
            found.append(Doing(**about, since=one.since, elapsed_s=one.elapsed_s, usual_s=usual, stuck=stuck))
        return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.task))

    def slowest(self) -> list[EndedTask]:
        """Completed tasks, the slowest first."""
        if not self.count("completed"):
            return []
        listed = self._listed(_SLOWEST, "duration_s", LiveLimits.max_slowest_tasks, self.count("known"))
        return [_ended(row) for row in listed]

    def recent(self) -> list[EndedTask]:
        """Attempts that ended, the last first."""
        return [_ended(row) for row in self.last[: LiveLimits.max_recent_tasks]]

    def done_until(self, window: TimeWindow, bounds: Sequence[int], number: str) -> dict[str, list[int]]:
        """For how long tasks have run, and for how long they have waited, up to each bound of the window, as
        `work_until` has it.
        """
        if not self.names:
            return {}
        stopped = _STOPPED.replace("$until", str(window.until))
        waited = f"coalesce(began, CASE WHEN state = 'pending' THEN {window.until} ELSE ended END)"
        found = {}
        for label, since, until, where in (
            ("running", "began", stopped, "began IS NOT NULL"),
            ("waiting", "submitted", waited, "was_submitted AND submitted IS NOT NULL"),
        ):
            intervals = f"""
                SELECT least(greatest(since - {window.start}, 0), {window.length}) AS since,
                    least(greatest(until - {window.start}, 0), {window.length}) AS until
                FROM (SELECT {since} AS since, greatest({since}, {until}) AS until FROM attempt_intervals
                    WHERE {where})
                WHERE until > {window.start} AND since < {window.until}
            """  # noqa: S608 - numbers, and expressions of ours
            found[label] = work_until(self._tables, intervals, bounds, number)
        return found

    def timeline(self, until: int, running: Sequence[Row], workers: int) -> Timeline | None:
        """The last attempts in rows of their workers, by name; null where nothing ran whose time is known."""
        bars = [_Bar(row["began"], row["stopped"], row) for row in self.last if row["began"] is not None]
        known = [row for row in running if row["started"] is not None]
        going = [_Bar(row["started"], max(row["started"], until), row) for row in known]
        bars += going[: LiveLimits.max_timeline_running]
        if not bars:
            return None
        lanes, placed, left_out = _in_lanes(bars)
        began = [bar.begin for bar, _ in placed if not bar.runs] or [bar.begin for bar, _ in placed]
        since = min(began)
        length = max(0, max(until, *(bar.end for bar, _ in placed)) - since)
        most = sorted(self.names, key=lambda one: (-(one.durations.total or 0.0), -one.size, one.name))
        names = sorted(one.name for one in most[: LiveLimits.max_timeline_names])
        index = {name: place for place, name in enumerate(names)}
        notes = []
        if left_out:
            rows = LiveLimits.max_timeline_rows
            notes.append(f"{left_out:,} attempts on workers beyond {rows} rows are not drawn")
        if self.count("over") > len(self.last):
            all_ended = self.count("over")
            notes.append(f"the last {len(self.last):,} of {all_ended:,} attempts that ended")
        return Timeline(
            since=timestamp_of(since),
            length_s=length / SECOND,
            names=[cut(name, LiveLimits.max_name_chars) for name in names],
            lanes=lanes,
            bars=Bars(
                lane=[lane for _, lane in placed],
                start_s=[_s(max(bar.begin, since) - since) for bar, _ in placed],
                length_s=[_s(bar.end - max(bar.begin, since)) for bar, _ in placed],
                name=[index.get(bar.row["task"], -1) for bar, _ in placed],
                state=[outcome(bar.row) for bar, _ in placed],
                task_id=[cut(bar.row["task_id"], LiveLimits.max_name_chars) for bar, _ in placed],
                attempt=[bar.row["attempt"] for bar, _ in placed],
            ),
            cells=None,
            marks=self._marks(placed, since),
            attempts=self.count("over") + len(going),
            workers=workers,
            failures=self.count("failed") + self.count("retried"),
            notes=notes,
        )

    def _marks(self, placed: Sequence[tuple[_Bar, int]], since: int) -> list[TimelineMark]:
        """Attempts that did not go well, with why."""
        marked = [(bar, lane) for bar, lane in placed if bar.row["state"] not in {"completed", "running"}]
        ids = [bar.row["task_id"] for bar, _ in marked]
        rows = self._tables.rows(_SAID, {"ids": ids}) if ids else ()
        said = {(task_id, attempt): words for task_id, attempt, *words in rows}
        found = []
        for bar, lane in marked:
            kind: Literal["failed", "retried", "cancelled"] = outcome(bar.row)  # type: ignore[assignment]
            error, message, reason = said.get((bar.row["task_id"], bar.row["attempt"]), (None, None, None))
            parts = (error, first_line(message, LiveLimits.max_line_chars)) if error or message else (reason,)
            found.append(
                TimelineMark(
                    lane=lane,
                    at_s=_s(bar.end - since),
                    kind=kind,
                    task=cut(bar.row["task"], LiveLimits.max_name_chars),
                    task_id=cut(bar.row["task_id"], LiveLimits.max_name_chars),
                    text=first_line(": ".join(part for part in parts if part), LiveLimits.max_line_chars),
                )
            )
        return found


def _one_at_a_time(ended: Sequence[tuple[int | None, int | None]]) -> bool:
    """Whether a worker has always executed one attempt after the other, by when the last ones of it began and
    stopped.
    """
    known = [(began, stopped) for began, stopped in ended if began is not None and stopped is not None]
    return len(known) >= LiveLimits.min_attempts_of_worker and peak(known) <= 1


def outcome(row: Row) -> str:
    """The state of an attempt; `retried` where it failed and was retried."""
    return "retried" if row["retried"] and row["state"] == "failed" else str(row["state"])


def usual_of(ended: Distribution | None, elapsed_s: float | None) -> tuple[float | None, bool | None]:
    """p95 of those that ended, and whether this duration is far beyond it; null where too few have ended."""
    if ended is None or elapsed_s is None or ended.count < ReportLimits.min_ended_for_usual:
        return None, None
    if ended.p95 is None or ended.max is None:
        return None, None
    return ended.p95, elapsed_s > max(ReportLimits.stuck_ratio * ended.p95, ended.max)


def _about(
    task: str, task_id: str, attempt: int, worker: str | None, args: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What is shown of any attempt."""
    return {
        "task": cut(task, LiveLimits.max_name_chars),
        "task_id": cut(task_id, LiveLimits.max_name_chars),
        "attempt": attempt,
        "args": args_text(args),
        "worker": None if worker is None else cut(worker, LiveLimits.max_name_chars),
    }


def _ended(row: Row) -> EndedTask:
    took = row["duration_s"]
    if took is None and outcome(row) == "retried" and None not in (row["began"], row["stopped"]):
        took = (row["stopped"] - row["began"]) / SECOND
    about = _about(row["task"], row["task_id"], row["attempt"], row["worker"], json_object(row["args"]))
    at = "" if row["ended"] is None else timestamp_of(row["ended"])
    return EndedTask(**about, state=outcome(row), at=at, duration_s=took, queue_s=row["queue_s"])


class _Bar(NamedTuple):
    begin: int
    end: int
    row: Row

    @property
    def runs(self) -> bool:
        return bool(self.row["state"] == "running")


def _s(duration: int) -> float:
    return round(max(0, duration) / SECOND, 6)


def _in_lanes(bars: list[_Bar]) -> tuple[list[TimelineRow], list[tuple[_Bar, int]], int]:
    """Rows of the workers, several for one that executes side by side, the bars with their rows, and how many
    have none.
    """
    workers = sorted({bar.row["worker"] for bar in bars if bar.row["worker"] is not None})
    place: dict[str | None, int] = {worker: number for number, worker in enumerate(workers)}
    bars = sorted(
        bars,
        key=lambda bar: (bar.row["worker"] or "", bar.begin, bar.end, bar.row["task_id"], bar.row["attempt"]),
    )
    pieces = [(place.get(bar.row["worker"], -1), bar.begin, bar.end) for bar in bars]
    packed = pack(pieces, workers, {}, "no worker", idle=False)
    most = LiveLimits.max_timeline_rows
    placed = [(bar, lane) for bar, lane in zip(bars, packed.lane, strict=True) if lane < most]
    return packed.lanes[:most], placed, len(bars) - len(placed)
