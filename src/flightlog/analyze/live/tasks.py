"""The tasks of a run as they are now, from the table `attempt_intervals`: counts by name, what runs, what
ended last, how much is left, and the last minutes as a timeline and as lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from flightlog.analyze.charts.layout import TimeWindow, pack
from flightlog.analyze.charts.results import Bars, Timeline, TimelineMark
from flightlog.analyze.limits import LiveLimits, PredictLimits, ReportLimits
from flightlog.analyze.live.results import (
    TASK_COUNTS,
    Doing,
    EndedTask,
    LiveCounts,
    LiveTaskName,
    Progress,
    args_text,
    progress_of,
)
from flightlog.analyze.predict.eta import (
    Eta,
    KnownDurations,
    from_durations,
    from_earlier,
    of_mean,
    remaining,
)
from flightlog.analyze.report.tasks import COUNTED, PENDING, tasks_in_flight
from flightlog.analyze.tallies import copied, grouped, json_object
from flightlog.core.intervals import peak
from flightlog.core.stats import QUANTILES, Distribution, distribution_of
from flightlog.core.text import cut, first_line
from flightlog.core.time import SECOND, timestamp_of

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

Row = dict[str, Any]
_OUTCOME = "CASE WHEN retried AND state = 'failed' THEN 'retried' ELSE state END AS state"

_COUNTS = ", ".join(
    f"coalesce(sum(n) FILTER ({which}), 0) AS {name}"
    for name, which in {**COUNTED, "over": "state NOT IN ('pending', 'running')"}.items()
)
_BY_NAME = f"""
SELECT task AS name, {_COUNTS},
    min(first) AS first, coalesce(sum(timed) FILTER (state = 'completed'), 0) AS timed,
    sum(total) FILTER (state = 'completed') AS total, min(low) FILTER (state = 'completed') AS low,
    max(high) FILTER (state = 'completed') AS high
FROM attempt_tallies GROUP BY task
"""  # noqa: S608 - constants
_LATELY = """
SELECT count(*) FILTER (ended > $lately AND ended <= $until), coalesce(
    sum(least(stopped, $until) - greatest(began, $since)) FILTER (began < $until AND stopped > $since), 0)
FROM attempt_intervals WHERE began IS NOT NULL AND ended > least($lately, $since)
"""
_QUANTILES = f"""
SELECT task, quantile_cont(duration_s, {[*QUANTILES, *((2 * rank + 1) / 40 for rank in range(20))]})
FROM attempt_intervals WHERE state = 'completed' AND task IN (SELECT unnest($names)) GROUP BY task
"""  # noqa: S608 - numbers
"""Those of a distribution, and as many as stand for all where time left is estimated."""
_LAST = f"""
SELECT task, task_id, attempt, worker, {_OUTCOME}, began, stopped, ended, duration_s FROM attempt_intervals
WHERE state NOT IN ('pending', 'running') AND {{since}}
ORDER BY ended DESC NULLS LAST, task_id DESC, attempt DESC LIMIT {{few}}
"""  # noqa: S608 - constants
_SLOWEST = """
SELECT task, task_id, attempt, worker, state, ended, queue_s, duration_s, args FROM attempt_intervals
WHERE state = 'completed' AND duration_s IS NOT NULL AND {since}
ORDER BY duration_s DESC, task, task_id, attempt LIMIT {few}
"""
_RUNNING = """
SELECT task, task_id, attempt, worker, state, started AS began FROM attempt_intervals WHERE state = 'running'
ORDER BY started NULLS FIRST, task, task_id, attempt
"""
_SAID = """
SELECT task_id, attempt, arg_max(error_type, kind), arg_max(error_message, kind), arg_max(reason, kind)
FROM task_lines WHERE kind IN (4, 6, 7) AND task_id IN (SELECT unnest($ids)) GROUP BY ALL
"""


class RunTime(NamedTuple):
    """When a run started, and until when it is shown: its end, or now; nanoseconds since 1970."""

    started: int | None
    until: int | None
    over: bool

    def window(self, now: int) -> TimeWindow:
        """The last minutes, or the whole run where it is shorter."""
        until = now if self.until is None else self.until
        since = until - LiveLimits.chart_window_s * SECOND
        start = since if self.started is None else min(max(self.started, since), until)
        return TimeWindow(start, max(1, until - start))


class LiveName(LiveCounts, frozen=True, kw_only=True):
    """All attempts of one name, a row of `_BY_NAME`: counts as the report has them."""

    name: str
    not_begun: int
    over: int
    """Attempts that are over."""
    first: int | None
    """When the first one started."""
    timed: int
    """Completed tasks whose duration is known; `total` is in nanoseconds, `low` and `high` in seconds."""
    total: int | None
    low: float | None
    high: float | None
    durations: Distribution = Distribution()
    """Of completed tasks."""


class KnownTasks:
    """What is remembered from one state to the next, so that less is asked."""

    def __init__(self) -> None:
        self.quantiles: dict[str, tuple[int, list[float]]] = {}
        """Quantiles of durations by name, and of how many."""
        self.bounds: dict[str, float] = {}
        """Of lists of the newest or slowest, what is not below those that were listed."""


class LiveTasks:
    """The tasks as of the end of the run, or now. Each question is asked once.

    `history` has durations of earlier runs by name of task, for what this run does not know yet; `known` is
    what an earlier state has found. While the run goes on, quantiles may be of a few tasks less.
    """

    def __init__(
        self, tables: RunTables, time: RunTime, history: Mapping[str, Distribution], known: KnownTasks
    ) -> None:
        self._tables, self._time, self._history, self._known = tables, time, history, known
        self._until = time.until

    @cached_property
    def names(self) -> list[LiveName]:
        """The largest first."""
        found = self._with_durations([LiveName(**row) for row in self._tables.records(_BY_NAME)])
        return sorted(found, key=lambda one: (-one.known, one.name))

    def _with_durations(self, found: list[LiveName]) -> list[LiveName]:
        quantiles = self._known.quantiles
        share = 0.0 if self._time.over else LiveLimits.max_stale_share
        timed = {one.name: one.timed for one in found}
        stale = [
            name
            for name, count in timed.items()
            if abs(count - quantiles.get(name, (0, []))[0]) > share * count
        ]
        for name, values in self._tables.rows(_QUANTILES, {"names": stale}) if stale else ():
            quantiles[name] = timed[name], values
        return [self._with_distribution(one) for one in found]

    def _with_distribution(self, one: LiveName) -> LiveName:
        if one.low is None or one.high is None:
            return one
        known = self._known.quantiles[one.name][1][: len(QUANTILES)]
        values = [min(max(value, one.low), one.high) for value in known]
        total_s = int(one.total or 0) / SECOND
        return replace(one, durations=distribution_of(one.timed, total_s, one.low, one.high, values))

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
            if name is not None and len(several) > 1 and not self._time.over:
                ended = [(row["began"], row["stopped"]) for row in self.last if row["worker"] == name]
                replaced += several[:-1] if _one_at_a_time(ended) else []
        gone = set(map(id, replaced))
        return [row for row in rows if id(row) not in gone], replaced

    def count(self, what: str) -> int:
        """One of the counts, of all names together."""
        return sum(getattr(one, what) for one in self.names)

    def results(self) -> list[LiveTaskName]:
        """The names, the largest first."""
        replaced = Counter(row["task"] for row in self.replaced)
        return [
            copied(
                LiveTaskName,
                one,
                name=cut(one.name, LiveLimits.max_name_chars),
                running=one.running - replaced[one.name],
                mean_s=one.durations.mean,
                max_s=one.durations.max,
                p95_s=one.durations.p95,
                total_s=one.durations.total if one.durations.count else None,
            )
            for one in self.names[: LiveLimits.max_listed_names]
        ]

    def progress(self) -> Progress:
        """Task counts; while the run goes on, also the rate and the estimated time left."""
        per_s, at_once = (None, 0.0) if self._time.over else self._lately()
        eta = None if self._time.over else self._eta(at_once)
        counts = {name: self.count(name) for name in TASK_COUNTS}
        return progress_of(
            **{**counts, "running": counts["running"] - len(self.replaced)},
            waiting=int(self._tables.scalar(PENDING)) if self.count("not_begun") else 0,
            per_s=per_s,
            left_s=None if eta is None else eta.expected,
            left_low_s=None if eta is None else eta.low,
            left_high_s=None if eta is None else eta.high,
            left_at_least=eta is not None and eta.at_least,
        )

    def _lately(self) -> tuple[float | None, float]:
        """Tasks that ended in each of the last seconds, and how many ran at once, on average."""
        until = self._until
        if until is None or not self.names:
            return None, 0.0
        lately = max(until - LiveLimits.rate_window_s * SECOND, self._time.started or 0)
        first = min((one.first for one in self.names if one.first is not None), default=until)
        since = max(first, until - LiveLimits.concurrency_window_s * SECOND)
        [(ended, work)] = self._tables.execute(
            _LATELY, {"until": until, "lately": lately, "since": since}
        ).fetchall()
        begun = [row["began"] for row in (*self.running, *self.replaced) if row["began"] is not None]
        work += sum(max(0, until - max(began, since)) for began in begun)
        per_s = ended * SECOND / (until - lately) if self.count("over") and until - lately >= SECOND else None
        return per_s, int(work) / (until - since) if since < until else 0.0

    def _eta(self, at_once: float) -> Eta | None:
        until = self._until
        going = [one for one in self.names if one.known > one.ended]
        if until is None or not going:
            return None
        going.sort(key=lambda one: ((one.ended - one.known) * (one.durations.mean or 0.0), one.name))
        ends = grouped(
            (row["task"], ((until - row["ended"]) / SECOND, row["duration_s"]))
            for row in self.last
            if row["state"] == "completed" and None not in (row["ended"], row["duration_s"])
        )
        close = [one.name for one in going[: PredictLimits.max_eta_names]]

        def durations(one: LiveName) -> KnownDurations | None:
            found, earlier = None, self._history.get(one.name)
            if one.name in close and one.name in ends:
                whole = one.durations.count <= len(ends[one.name])
                wide = () if whole else self._known.quantiles[one.name][1][len(QUANTILES) :]
                found = from_durations(ends[one.name], whole=whole, spread=wide)
            if found is None and one.durations.count >= PredictLimits.min_ended_tasks:
                found = of_mean(one.durations.mean or 0.0)
            return from_earlier(earlier) if found is None and earlier is not None else found

        known = {one.name: found for one in going if (found := durations(one)) is not None}
        left = {one.name: one.known - one.ended for one in going}
        since = grouped(
            (row["task"], max(0, until - row["began"]) / SECOND)
            for row in (*self.running, *self.replaced)
            if row["began"] is not None
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
        rows = self._listed(_SLOWEST, "duration_s", LiveLimits.max_slowest_tasks, self.count("timed"))
        return [
            EndedTask(
                **_about(
                    row["task"], row["task_id"], row["attempt"], row["worker"], json_object(row["args"])
                ),
                state=row["state"],
                at="" if row["ended"] is None else timestamp_of(row["ended"]),
                duration_s=row["duration_s"],
                queue_s=row["queue_s"],
            )
            for row in rows
        ]

    def lines(self, until: int) -> dict[str, str]:
        """Of tasks that run and that wait, statements of the intervals, as `concurrency_chart` takes them."""
        if not self.names:
            return {}
        stopped = f"CASE WHEN state = 'running' THEN {until} ELSE stopped END"
        waited = f"coalesce(began, CASE WHEN state = 'pending' THEN {until} ELSE ended END)"
        found = {"running": ("began", stopped, "true"), "waiting": ("submitted", waited, "was_submitted")}
        return {
            label: f"""
                SELECT {since} AS since, greatest({since}, {to}) AS until FROM attempt_intervals
                WHERE {since} IS NOT NULL AND {where}
            """  # noqa: S608 - numbers, and expressions of ours
            for label, (since, to, where) in found.items()
        }

    def timeline(self, until: int, workers: int) -> Timeline | None:
        """The last attempts in rows of their workers, by name; null where nothing ran whose time is known."""
        going = [row for row in self.running if row["began"] is not None]
        bars = [row for row in self.last if row["began"] is not None]
        bars += [
            {**row, "stopped": max(row["began"], until)} for row in going[: LiveLimits.max_timeline_running]
        ]
        if not bars:
            return None
        order = ("began", "stopped", "task_id", "attempt")
        bars.sort(key=lambda bar: (bar["worker"] or "", *(bar[column] for column in order)))
        on = sorted({bar["worker"] for bar in bars if bar["worker"] is not None})
        place: dict[str | None, int] = {worker: number for number, worker in enumerate(on)}
        pieces = [(place.get(bar["worker"], -1), bar["began"], bar["stopped"]) for bar in bars]
        packed, most = pack(pieces, on, {}, "no worker", idle=False), LiveLimits.max_timeline_rows
        placed = [(bar, lane) for bar, lane in zip(bars, packed.lane, strict=True) if lane < most]
        shown, lanes = [bar for bar, _ in placed], [lane for _, lane in placed]
        ended = [bar["began"] for bar in shown if bar["state"] != "running"]
        since = min(ended or [bar["began"] for bar in shown])
        length = max(0, max(until, *(bar["stopped"] for bar in shown)) - since)
        longest = sorted(self.names, key=lambda one: (-(one.durations.total or 0.0), -one.known, one.name))
        names = sorted(one.name for one in longest[: LiveLimits.max_timeline_names])
        index = {name: number for number, name in enumerate(names)}
        notes = []
        if left_out := len(bars) - len(shown):
            notes.append(f"{left_out:,} attempts on workers beyond {most} rows are not drawn")
        if (all_ended := self.count("over")) > len(self.last):
            notes.append(f"the last {len(self.last):,} of {all_ended:,} attempts that ended")
        return Timeline(
            since=timestamp_of(since),
            length_s=length / SECOND,
            names=[cut(name, LiveLimits.max_name_chars) for name in names],
            lanes=packed.lanes[:most],
            bars=Bars(
                lane=lanes,
                start_s=[_s(max(bar["began"], since) - since) for bar in shown],
                length_s=[_s(bar["stopped"] - max(bar["began"], since)) for bar in shown],
                name=[index.get(bar["task"], -1) for bar in shown],
                state=[bar["state"] for bar in shown],
                task_id=[cut(bar["task_id"], LiveLimits.max_name_chars) for bar in shown],
                attempt=[bar["attempt"] for bar in shown],
            ),
            cells=None,
            marks=self._marks([one for one in placed if one[0]["state"] in _MARKED], since),
            attempts=all_ended + len(going),
            workers=workers,
            failures=self.count("failed") + self.count("retried"),
            notes=notes,
        )

    def _marks(self, placed: list[tuple[Row, int]], since: int) -> list[TimelineMark]:
        """Attempts that did not go well, with why."""
        ids = [bar["task_id"] for bar, _ in placed]
        rows = self._tables.rows(_SAID, {"ids": ids}) if ids else ()
        said = {(task_id, attempt): words for task_id, attempt, *words in rows}
        found = []
        for bar, lane in placed:
            error, message, reason = said.get((bar["task_id"], bar["attempt"]), (None, None, None))
            parts = (error, first_line(message, LiveLimits.max_line_chars)) if error or message else (reason,)
            found.append(
                TimelineMark(
                    lane=lane,
                    at_s=_s(bar["stopped"] - since),
                    kind=bar["state"],
                    task=cut(bar["task"], LiveLimits.max_name_chars),
                    task_id=cut(bar["task_id"], LiveLimits.max_name_chars),
                    text=first_line(": ".join(part for part in parts if part), LiveLimits.max_line_chars),
                )
            )
        return found


_MARKED = ("failed", "retried", "cancelled")


def _one_at_a_time(ended: Sequence[tuple[int | None, int | None]]) -> bool:
    """Whether a worker has always executed one attempt after the other, by when the last ones of it began and
    stopped.
    """
    known = [(began, stopped) for began, stopped in ended if began is not None and stopped is not None]
    return len(known) >= LiveLimits.min_attempts_of_worker and peak(known) <= 1


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


def _s(duration: int) -> float:
    return round(max(0, duration) / SECOND, 6)
