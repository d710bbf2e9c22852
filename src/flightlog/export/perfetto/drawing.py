"""Draws a run as a trace: attempts, spans and waits on lanes, with arrows, counters and marks.

Processes and threads of the trace are its rows; on a lane, slices overlap only when nested. What is drawn is
put in order of time by SQL, in microseconds since 1970: rows are sorted on disk and read in batches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.core.intervals import Lanes
from flightlog.export.limits import ExportLimits
from flightlog.store.layout import WriterInfo
from flightlog.store.tables.attempts import keep_rows

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


ATTEMPT, SPAN, WAIT = 1, 2, 0

_MACROS = """
CREATE TEMP MACRO us(stamp) AS at_ns(stamp) // 1000;
CREATE TEMP MACRO in_us(s) AS
    CASE WHEN s IS NOT NULL THEN CAST(round_even(least(greatest(s, 0), 2e9) * 1e6, 0) AS BIGINT) END;
"""

_DRAWN = """
WITH moments AS (
    SELECT * EXCLUDE (submitted_at, queued_at, started_at, ended_at),
        coalesce(us(submitted_at), us(queued_at)) AS submitted,
        us(started_at) AS started, us(ended_at) AS ended, in_us(duration_s) AS lasted
    FROM attempts
)
SELECT * EXCLUDE (lasted),
    CASE WHEN ended IS NOT NULL AND lasted IS NOT NULL THEN
            CASE WHEN abs(ended - lasted - started) <= 1 THEN started ELSE ended - lasted END
         WHEN ended IS NOT NULL OR state = 'running' THEN started END AS began,
    CASE WHEN ended IS NOT NULL AND (lasted IS NOT NULL OR started IS NOT NULL) THEN greatest(began, ended)
        END AS stopped
FROM moments
"""
"""An attempt is drawn from `began` to `stopped`: the duration it measured, before its end (or from its start,
where that is the same but for rounding: spans inside began then or later); else from its start to its end.
One without `began` did not run, or nobody knows when; one without `stopped` has not ended."""

_SPANS = """
SELECT name, span_id, parent_id, writer, seq, thread, status, tags, metrics, error_type, error_message,
    us("timestamp") AS began, us("timestamp") + in_us(duration_s) AS stopped
FROM span_events WHERE event = 'span'
"""
_OPEN_SPANS = """
UNION ALL BY NAME
SELECT name, span_id, parent_id, writer, seq, 'open' AS status, tags, us(started_at) AS began,
    us(started_at) + in_us(duration_s) AS stopped
FROM spans JOIN (
    SELECT span_id, max(writer) AS writer, max(seq) AS seq FROM span_events WHERE event = 'span_open'
    GROUP BY span_id
) USING (span_id) WHERE "open"
"""
"""They lasted until the last sign of life of their process."""

_ARROWS = """
SELECT row_number() OVER (ORDER BY began, to_task, to_attempt, from_task) AS number, * FROM (
    SELECT 'depends on' AS kind, later.task_id AS to_task, later.attempt AS to_attempt, later.began,
        later.stopped, earlier.task_id AS from_task, earlier.attempt AS from_attempt,
        earlier.began AS from_began, earlier.stopped AS from_stopped, earlier.began < later.began AS forward
    FROM (
        SELECT task_id, attempt, began, stopped, unnest(depends_on) AS needed FROM drawn
        WHERE began IS NOT NULL
    ) AS later
    JOIN (
        SELECT task_id, max(attempt) AS attempt, arg_max(began, attempt) AS began,
            arg_max_null(stopped, attempt) AS stopped
        FROM drawn WHERE began IS NOT NULL GROUP BY task_id
    ) AS earlier ON earlier.task_id = later.needed
    UNION ALL
    SELECT 'retried' AS kind, later.task_id, later.attempt, later.began, later.stopped, earlier.task_id,
        earlier.attempt, earlier.began, earlier.stopped, earlier.began < later.began
    FROM drawn AS later JOIN drawn AS earlier ON earlier.task_id = later.task_id
        AND earlier.attempt = later.attempt - 1
    WHERE later.attempt > 1 AND later.began IS NOT NULL AND earlier.began IS NOT NULL
)
"""
_ROWS = """
SELECT {columns}, seq FROM (
    SELECT {attempt} AS kind, began, stopped, task AS name, task_id, attempt, component, state,
        worker AS "where", span_id, parent_id, args, queue_s, cpu_s, peak_rss_bytes, error_type AS error,
        coalesce(error_message, CASE WHEN state = 'cancelled' THEN reason END) AS message, NULL AS seq
    FROM drawn WHERE began IS NOT NULL
    UNION ALL BY NAME
    SELECT {span} AS kind, began, stopped, name, status AS state, writer AS "where", thread, span_id,
        parent_id, tags, metrics, error_type AS error, error_message AS message, seq
    FROM drawn_spans WHERE began IS NOT NULL
    UNION ALL BY NAME
    SELECT {waiting} AS kind, submitted AS began, coalesce(began, ended) AS stopped, task AS name, task_id,
        attempt, state, began IS NOT NULL AS begins
    FROM drawn WHERE submitted IS NOT NULL AND coalesce(began, ended, submitted + 1) > submitted
    UNION ALL BY NAME
    SELECT {attempt} AS kind, began, stopped, to_task AS task_id, to_attempt AS attempt, kind AS arrow,
        number, false AS outward
    FROM arrows WHERE forward
    UNION ALL BY NAME
    SELECT {attempt} AS kind, from_began AS began, from_stopped AS stopped, from_task AS task_id,
        from_attempt AS attempt, kind AS arrow, number, true AS outward
    FROM arrows WHERE forward
)
"""
"""Both ends of each arrow are rows that come right after the attempt they are tied to: lists would not fit in
memory."""
_IN_ORDER = """
SELECT * EXCLUDE (seq) FROM unordered
ORDER BY began, kind, stopped DESC NULLS FIRST, seq DESC, task_id, attempt, number NULLS FIRST
"""


_EXTENT = """
SELECT least(tasks.first, spans.first), greatest(tasks.last, spans.last), tasks.rows + spans.rows, unended,
    unplaced, open_spans, $backward
FROM (
    SELECT min(least(submitted, began)) AS first, max(greatest(submitted, began, stopped, ended)) AS last,
        count(*) + count(submitted) AS rows, count(began) FILTER (stopped IS NULL) AS unended,
        count(*) FILTER (began IS NULL AND state IN ('completed', 'failed', 'running')) AS unplaced
    FROM drawn
) AS tasks, (
    SELECT min(began) AS first, max(greatest(began, stopped)) AS last, count(*) AS rows,
        count(*) FILTER (status = 'open') AS open_spans
    FROM drawn_spans
) AS spans
"""


class Row(NamedTuple):
    """One slice to be drawn, or one end of an arrow; `kind` says of what. `stopped` is None for what had not
    ended.
    """

    kind: int
    began: int
    stopped: int | None
    name: str | None
    task_id: str | None
    attempt: int | None
    component: str | None
    state: str | None
    where: str | None
    """The worker of an attempt, the writer of a span."""
    thread: int | None
    span_id: str | None
    parent_id: str | None
    args: str | None
    tags: str | None
    metrics: str | None
    queue_s: float | None
    cpu_s: float | None
    peak_rss_bytes: int | None
    error: str | None
    message: str | None
    begins: bool | None
    """Of a wait: whether the attempt ran after it."""
    arrow: str | None
    """Of an end of an arrow, what kind it is; such rows follow the attempt they are tied to, with its times
    and ids."""
    number: int | None
    outward: bool | None
    """Whether the arrow begins here."""


class Extent(NamedTuple):
    """What there is to draw."""

    first: int | None
    """The earliest moment."""
    last: int | None
    rows: int
    unended: int
    """Attempts that began and have no end."""
    unplaced: int
    """Attempts that ran at an unknown time."""
    open_spans: int
    backward: int
    """Arrows that are not drawn, because by the clocks they would lead back in time."""


def prepare_rows(tables: RunTables) -> Extent:
    """Prepare the rows from `attempts` and `span_events`; returns their extent."""
    tables.execute(_MACROS)
    opened = tables.scalar("SELECT count(*) FROM span_events WHERE event = 'span_open'")
    _keep(tables, "drawn", _DRAWN)
    _keep(tables, "drawn_spans", _SPANS + (_OPEN_SPANS if opened else ""))
    backward = 0
    if tables.scalar("SELECT count(*) FROM drawn WHERE attempt > 1 OR len(depends_on) > 0"):
        _keep(tables, "arrows", _ARROWS)
        backward = tables.scalar("SELECT count(*) FROM arrows WHERE NOT forward")
    else:
        tables.execute(f"CREATE TEMP TABLE arrows AS FROM ({_ARROWS}) LIMIT 0")
    [extent] = tables.execute(_EXTENT, {"backward": backward}).fetchall()
    return Extent(*extent)


def _keep(tables: RunTables, view: str, rows: str) -> None:
    keep_rows(tables, view, rows, tables.scratch / f"{view}.parquet")


def rows(tables: RunTables) -> Iterator[Row]:
    """All slices in order of their start, parents before children, waits before attempts."""
    columns = ", ".join(f'"{name}"' for name in Row._fields)
    query = _ROWS.format(attempt=ATTEMPT, span=SPAN, waiting=WAIT, columns=columns)
    # Read from all sides and sorted at once, it would not fit: what waits on disk first is sorted in little
    # memory.
    _keep(tables, "unordered", query)
    return map(Row._make, tables.rows(_IN_ORDER))


RUN, WAITING, HOSTS, WORKERS, WRITERS = 0, 1, 10, 10_000, 1_000_000
"""The order of the processes."""
COLORS = {"failed": "terrible", "cancelled": "grey", "running": "yellow", "error": "bad"}
"""Colours of states that should stand out; others are coloured by name."""
_ATTEMPT_ARGS = (
    *("task_id", "attempt", "state", "args", "queue_s", "cpu_s", "peak_rss_bytes", "component"),
    *("error", "message", "span_id", "parent_id"),
)
_SPAN_ARGS = ("tags", "metrics", "error", "message", "span_id", "parent_id")
_JSON = {"args", "tags", "metrics"}


class Drawing:
    """Turns the rows of a run into trace events, in microseconds since `first`.

    What has not ended is drawn up to `until`. `counts` has the numbers of what was drawn.
    """

    def __init__(
        self,
        emit: Emit,
        *,
        first: int,
        until: int,
        workers: Mapping[str, tuple[int, str | None]],
        writers: Mapping[str, WriterInfo],
        homes: Mapping[str, str],
    ) -> None:
        """`workers` have their place in the order and their host, by name; `homes` is the worker of a
        writer.
        """
        self._emit, self._first, self._until = emit, first, until
        self._workers, self._writers, self._homes = workers, writers, homes
        self._tracks = Tracks(emit)
        self._hosts: dict[str | None, int] = {}
        self._threads: dict[tuple[str | None, int | None], str] = {}
        self._waits: dict[tuple[str | None, int | None], int] = {}
        self._flows = count(1)
        self._drawn: tuple[int, int, int] | None = None
        self.counts: Counter[str] = Counter()
        self.undrawn_waits = 0

    def run(self, name: str, since: int, args: dict[str, Any]) -> None:
        """Draw the run itself, as the first row."""
        pid = self._run()
        tid, times = self._tracks.thread(pid, "run"), (since, max(since, self._until))
        self._slice(pid, tid, name, "run", times, args=args)

    def row(self, row: Row) -> None:
        """Draw an attempt, a span, a wait, or an end of an arrow at the attempt that was drawn last."""
        if row.arrow is not None and row.number is not None:
            if self._drawn is not None:
                self._arrow("s" if row.outward else "f", row.arrow, row.number, *self._drawn)
            return
        until = max(row.began, self._until if row.stopped is None else row.stopped)
        draw = {ATTEMPT: self._attempt, SPAN: self._span, WAIT: self._wait}[row.kind]
        draw(row, until)

    def point(self, point: CounterValue) -> None:
        """Draw a point of a curve."""
        if point.worker is not None:
            pid = self._worker(point.worker)
        elif point.host is not None:
            pid = self._host(point.host)
        else:
            pid = self._run()
        self._event("C", point.name, pid, point.moment, args={point.unit: point.value})
        self.counts["counter values"] += 1

    def mark(self, mark: TraceMark) -> None:
        """Draw something that happened at one moment."""
        pid = self._run()
        tid = self._tracks.thread(pid, mark.track)
        self._event("i", mark.name, pid, mark.moment, s="t", cat=mark.track, tid=tid, args=mark.args)
        self.counts["marks"] += 1

    def _attempt(self, row: Row, until: int) -> None:
        lanes = self._tracks.lanes(self._worker(row.where), "tasks")
        placed = lanes.beside(row.began, until, row.span_id)
        assert placed is not None
        tid = self._tracks.lane(lanes, placed.lane)
        args = _args(row, *_ATTEMPT_ARGS)
        self._slice(lanes.process, tid, row.name, "task", placed[1:], args=args, **_color(row))
        self.counts["tasks"] += 1
        self._drawn = (lanes.process, tid, placed.since)
        waited = self._waits.pop((row.task_id, row.attempt), None)
        if waited is not None:
            self._arrow("f", "waited", waited, lanes.process, tid, placed.since)

    def _wait(self, row: Row, until: int) -> None:
        pid = self._tracks.process("waiting", "waiting for a worker", WAITING)
        lanes = self._tracks.lanes(pid, "waiting", ExportLimits.max_waiting_lanes)
        placed = lanes.beside(row.began, until)
        if placed is None:
            self.undrawn_waits += 1
            return
        tid = self._tracks.lane(lanes, placed.lane)
        args = _args(row, "task_id", "attempt", "state")
        self._slice(pid, tid, row.name, "waiting", placed[1:], args=args)
        self.counts["waits"] += 1
        if row.begins:
            flow = self._waits[row.task_id, row.attempt] = next(self._flows)
            self._arrow("s", "waited", flow, pid, tid, placed.since)

    def _span(self, row: Row, until: int) -> None:
        lanes, placed = self._place(row, until)
        args = _known(status=row.state) | _args(row, *_SPAN_ARGS)
        tid = self._tracks.lane(lanes, placed.lane)
        self._slice(lanes.process, tid, row.name, "span", placed[1:], args=args, **_color(row))
        self.counts["spans"] += 1

    def _place(self, row: Row, until: int) -> tuple[TraceLanes, Placed]:
        """Inside its parent if that is open and has room, else on a lane of its own, near it."""
        parent = self._tracks.open_spans.get(row.parent_id or "")
        if parent is not None and row.parent_id:
            lanes, lane = parent
            placed = lanes.inside(lane, row.parent_id, row.began, until, row.span_id, row.thread)
            if placed is not None:
                return lanes, placed
            lanes = self._tracks.lanes(lanes.process, self._thread(row, lanes))
        else:
            lanes = self._tracks.lanes(self._writer(row.where), self._thread(row, None))
        placed = lanes.beside(row.began, until, row.span_id, row.thread)
        assert placed is not None
        return lanes, placed

    def _thread(self, row: Row, near: TraceLanes | None) -> str:
        """How the lanes of a thread are called; threads are numbered as they come."""
        if near is not None and near.name == "tasks":
            return "spans"
        key = (row.where, row.thread)
        if key not in self._threads:
            number = 1 + sum(where == row.where for where, _ in self._threads)
            self._threads[key] = f"thread {number}"
        return self._threads[key]

    def _slice(
        self, pid: int, tid: int, name: str | None, category: str, times: tuple[int, ...], **about: Any
    ) -> None:
        """Draw a slice; `about` has its arguments, and the colour of one that should stand out."""
        since, until = times
        self._event("X", name or "?", pid, since, cat=category, tid=tid, dur=until - since, **about)
        self.counts["slices"] += 1

    def _arrow(self, end: str, kind: str, number: int, pid: int, tid: int, moment: int) -> None:
        """One end of an arrow, attached to the last slice drawn on the track.

        Both ends are at the start of their slice, before any slice inside it.
        """
        enclosing = {"bp": "e"} if end == "f" else {}
        self._event(end, kind, pid, moment, id=number, cat=kind, tid=tid, **enclosing)
        self.counts["arrows"] += end == "f"

    def _event(self, phase: str, name: str, pid: int, moment: int, **about: Any) -> None:
        self._emit({"ph": phase, "name": name, "pid": pid, "ts": moment - self._first, **about})

    def _run(self) -> int:
        return self._tracks.process("run", "run", RUN)

    def _host(self, host: str) -> int:
        order = self._hosts.setdefault(host, HOSTS + len(self._hosts))
        return self._tracks.process(("host", host), f"host {host}", order)

    def _worker(self, worker: str | None) -> int:
        if worker is None:
            return self._tracks.process("no worker", "no worker known", WRITERS - 1)
        place, host = self._workers.get(worker, (len(self._workers), None))
        name = worker if host is None or host in worker else f"{worker} on {host}"
        return self._tracks.process(("worker", worker), name, WORKERS + place)

    def _writer(self, writer: str | None) -> int:
        """The process of a writer's spans: that of its worker, where it is one worker's."""
        home = self._homes.get(writer or "")
        if home is not None:
            return self._worker(home)
        known = self._writers.get(writer or "")
        name = writer or "?" if known is None else f"{known.pid} on {known.host}"
        return self._tracks.process(("writer", writer), f"process {name}", WRITERS)


def _color(row: Row) -> dict[str, str]:
    return {"cname": COLORS[row.state]} if row.state in COLORS else {}


def _known(**args: Any) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _args(row: Row, *names: str) -> dict[str, Any]:
    """The known fields of a row as arguments of its slice; recorded JSON as it is, but no empty object."""
    values = {name: getattr(row, name) for name in names}
    for name in _JSON & values.keys():
        json = values[name]
        values[name] = None if json in {None, "{}", "null"} else msgspec.Raw(json.encode())
    return _known(**values)


SAMPLED = {
    ("node", "cpu_percent"): ("CPU", "%"),
    ("node", "memory_used_bytes"): ("memory used", "bytes"),
    ("cgroup", "memory_used_bytes"): ("cgroup memory used", "bytes"),
    ("worker", "cpu_percent"): ("CPU", "%"),
    ("worker", "rss_bytes"): ("memory", "bytes"),
    ("gpu", "gpu_percent"): ("GPU", "%"),
    ("gpu", "gpu_memory_used_bytes"): ("GPU memory used", "bytes"),
    ("gpu", "gpu_power_w"): ("GPU power", "W"),
}
"""Sample fields that are drawn, by scope, with the names and units of their curves."""
ALLOCATED = {"allocator_allocated_bytes": "allocated", "allocator_reserved_bytes": "reserved"}
"""The same for device memory; usage by other processes is not known everywhere, and is left out."""
_SAMPLED = """
SELECT replace('{name}', 'GPU', 'GPU ' || coalesce(gpu_mig, gpu_index::VARCHAR, '?')), '{unit}',
    us("timestamp") AS moment, {field} AS value, host, CASE WHEN scope = 'worker' THEN worker END
FROM resources
WHERE event = 'resource_sample' AND scope = '{scope}' AND moment IS NOT NULL AND value IS NOT NULL
"""
_ALLOCATED = """
SELECT 'rank ' || rank || ' device ' || device_id || ' memory {name}', 'bytes',
    timestamp_ns // 1000, {field} AS value, host, NULL
FROM devices WHERE timestamp_ns > 0 AND value IS NOT NULL
"""
_MEASURED = """
SELECT 'metric', coalesce(name, '?'), us("timestamp") AS moment, value, NULL, NULL
FROM metrics WHERE value IS NOT NULL AND moment IS NOT NULL
"""
"""The points of curves, as the fields of `CounterValue`; unknown values have none."""

_STEPS = {
    "running": "SELECT unnest([began, coalesce(stopped, $until)]) AS moment, unnest([1, -1]) AS step"
    " FROM drawn WHERE began IS NOT NULL",
    "waiting": "SELECT unnest([submitted, coalesce(began, ended, $until)]) AS moment, unnest([1, -1]) AS step"
    " FROM drawn WHERE submitted IS NOT NULL AND coalesce(began, ended, $until) >= submitted",
}
_CURVE = """
SELECT moment, CAST(sum(sum(step)) OVER (ORDER BY moment) AS BIGINT) AS value FROM ({steps}) GROUP BY moment
"""
_THINNED = """
SELECT min(moment), max(value) FROM ({curve}) GROUP BY (moment - $first) // $width ORDER BY 1
"""


_MARKS = {
    "failures": """
        SELECT us("timestamp") AS moment, coalesce(error_type, scope || ' failed') AS name, scope, message,
            task, task_id, attempt, worker, exit_code, signal
        FROM failures WHERE us("timestamp") IS NOT NULL ORDER BY ALL
        """,
    "workers": """
        SELECT us("timestamp") AS moment,
            replace(event, 'worker_', '') || ' ' || coalesce(worker, '?') AS name,
            worker, host, pid, reason, exit_code, signal
        FROM workers WHERE event IN ('worker_ready', 'worker_lost', 'worker_removed')
            AND us("timestamp") IS NOT NULL
        ORDER BY ALL
        """,
}


class CounterValue(NamedTuple):
    """A counter value of a worker, host or run, the first that is given; `unit` is the suffix of the curve's
    name.
    """

    name: str
    unit: str
    moment: int
    value: float
    host: str | None = None
    worker: str | None = None


class TraceMark(NamedTuple):
    """Something that happened at a moment, on the track of this name."""

    track: str
    name: str
    moment: int
    args: dict[str, Any]


def curves(tables: RunTables, first: int, until: int) -> Iterator[CounterValue]:
    """All points of curves: of tasks, machines, device memory and the users' own metrics."""
    yield from task_curves(tables, first, until)
    samples = [
        _SAMPLED.format(scope=scope, field=field, name=name, unit=unit)
        for (scope, field), (name, unit) in SAMPLED.items()
    ]
    samples += [_ALLOCATED.format(field=field, name=name) for field, name in ALLOCATED.items()]
    for query in (*samples, _MEASURED):
        yield from map(CounterValue._make, tables.rows(query))


def task_curves(tables: RunTables, first: int, until: int) -> Iterator[CounterValue]:
    """How many attempts ran and waited from each moment on."""
    width = max(1, -(-(until - first) // ExportLimits.max_curve_points))
    for name, steps in _STEPS.items():
        curve = _CURVE.format(steps=steps)
        distinct = f"SELECT count(DISTINCT moment) FROM ({steps})"  # noqa: S608 - constants
        [(count,)] = tables.execute(distinct, {"until": until}).fetchall()
        query, given = f"{curve} ORDER BY moment", {"until": until}
        if count > ExportLimits.max_curve_points:
            query, given = _THINNED.format(curve=curve), {**given, "first": first, "width": width}
        for moment, value in tables.rows(query, given):
            yield CounterValue(name, "tasks", moment, value)


def marks(tables: RunTables) -> Iterator[TraceMark]:
    """Failures, and workers that came and went."""
    for track, query in _MARKS.items():
        for row in tables.records(query):
            moment, name = row.pop("moment"), row.pop("name")
            yield TraceMark(track, name, moment, _known(**row))


Emit = Callable[[dict[str, Any]], None]


class Tracks:
    """Numbers processes and threads on first use, and emits their names.

    Every number is used once: viewers mix up threads of different processes that share one.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._numbers = count(1)
        self._processes: dict[Hashable, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[int, str], TraceLanes] = {}
        self.open_spans: dict[str, tuple[TraceLanes, int]] = {}
        """Where each span that is open was put."""

    def process(self, key: Hashable, name: str, order: int) -> int:
        """The process of this key; processes are shown in this order."""
        if key not in self._processes:
            pid = self._processes[key] = next(self._numbers)
            self._describe("process", pid, pid, name, order)
        return self._processes[key]

    def thread(self, pid: int, name: str) -> int:
        """The thread of this name, in the order of their first use."""
        if (pid, name) not in self._threads:
            tid = self._threads[pid, name] = next(self._numbers)
            self._describe("thread", pid, tid, name, tid)
        return self._threads[pid, name]

    def lanes(self, pid: int, name: str, most: int | None = None) -> TraceLanes:
        """The group of lanes of this name in a process."""
        found = self._lanes.get((pid, name))
        if found is None:
            found = self._lanes[pid, name] = TraceLanes(self.open_spans, process=pid, name=name, most=most)
        return found

    def lane(self, lanes: TraceLanes, lane: int) -> int:
        """The thread of a lane: `tasks`, `tasks (2)`, `tasks (3)`."""
        return self.thread(lanes.process, lanes.name if lane == 0 else f"{lanes.name} ({lane + 1})")

    def _describe(self, what: str, pid: int, tid: int, name: str, order: int) -> None:
        for fact, value in (("name", name), ("sort_index", order)):
            self._emit({"ph": "M", "name": f"{what}_{fact}", "pid": pid, "tid": tid, "args": {fact: value}})


ROUNDING_US = 1
"""Slices that overlap by so little followed each other: moments are whole microseconds."""


class Placed(NamedTuple):
    """Where a slice goes, and its times, which rounding may have moved by a microsecond."""

    lane: int
    since: int
    until: int


class _Open:
    """A slice that may have others inside."""

    __slots__ = ("reached", "span_id", "thread", "until")

    def __init__(self, placed: Placed, span_id: str | None, thread: int | None) -> None:
        self.until, self.reached = placed.until, placed.since
        self.span_id, self.thread = span_id, thread


class TraceLanes:
    """The lanes of one group. Slices arrive in order of their start, parents before children.

    Times are whole microseconds. Holds open slices only. `open_spans` has the lane and group of every open
    span; several groups share it. `most` limits the number of lanes.
    """

    def __init__(
        self,
        open_spans: dict[str, tuple[TraceLanes, int]],
        *,
        process: int = 0,
        name: str = "",
        most: int | None = None,
    ) -> None:
        self.process, self.name = process, name
        self._open_spans, self._most = open_spans, most
        self._lanes = Lanes()
        self._stacks: defaultdict[int, list[_Open]] = defaultdict(list)
        self._ends: dict[int, int] = {}

    def beside(
        self, since: int, until: int, span_id: str | None = None, thread: int | None = None
    ) -> Placed | None:
        """Put a slice on the first lane that is free; None where there are as many lanes as there may be."""
        lane = self._lanes.first_free(since + ROUNDING_US, self._most)
        if lane is None:
            return None
        begun = max(since, self._ends.get(lane, since))
        placed = Placed(lane, begun, max(begun, until))
        while self._stacks[lane]:
            self._forget(lane)
        self._ends[lane] = placed.until
        self._lanes.occupy(lane, placed.until)
        self._remember(placed, span_id, thread)
        return placed

    def inside(
        self,
        lane: int,
        parent_id: str,
        since: int,
        until: int,
        span_id: str | None = None,
        thread: int | None = None,
    ) -> Placed | None:
        """Put a slice into its parent's, on the same lane; None where the parent does not enclose it there.

        That is so where another slice is open between them, where it ends after its parent, or where it is
        known that the two were on different threads.
        """
        stack = self._stacks[lane]
        while stack and stack[-1].span_id != parent_id and stack[-1].until <= since + ROUNDING_US:
            self._forget(lane)
        if not stack or stack[-1].span_id != parent_id:
            return None
        parent = stack[-1]
        apart = None not in {thread, parent.thread} and thread != parent.thread
        begun = max(since, parent.reached)
        if apart or until > parent.until + ROUNDING_US or begun > parent.until:
            return None
        placed = Placed(lane, begun, max(begun, min(until, parent.until)))
        parent.reached = placed.until
        self._remember(placed, span_id, thread)
        return placed

    def _remember(self, placed: Placed, span_id: str | None, thread: int | None) -> None:
        self._stacks[placed.lane].append(_Open(placed, span_id, thread))
        if span_id:
            self._open_spans[span_id] = (self, placed.lane)

    def _forget(self, lane: int) -> None:
        gone = self._stacks[lane].pop()
        if gone.span_id and self._open_spans.get(gone.span_id) == (self, lane):
            del self._open_spans[gone.span_id]
