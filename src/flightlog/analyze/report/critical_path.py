"""The critical path: the chain of tasks, waits and program stretches, or of spans, that set the wall time.

All times are whole nanoseconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct, structs

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.descent import PathPlace, Places, Stretch, descend
from flightlog.analyze.report.replay import Replay
from flightlog.analyze.tallies import grouped, json_object
from flightlog.core.intervals import union
from flightlog.core.time import seconds, timestamp_of
from flightlog.events.base import Json
from flightlog.store.tables.waits import may_be_replayed

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class PathSegment(Struct, frozen=True, kw_only=True):
    """One segment of the chain."""

    kind: Kind
    name: str
    since: str
    seconds: float
    task_id: str | None
    args: Json | None
    worker: str | None
    saves_s: float | None
    """Maximum saving if this segment alone were instant; null where it was not
    computed."""


class PathPart(Struct, frozen=True, kw_only=True):
    """All segments of one kind and name."""

    kind: Kind
    name: str
    links: int
    seconds: float
    share: float
    """Of the run's wall time."""
    saves_s: float | None
    """Maximum saving if every task of this name were instant, on the chain or
    not."""


class CriticalPath(Struct, frozen=True, kw_only=True):
    """From the run's start to its end without a gap: the links add up to `wall_s`, to the nanosecond.

    The chain is followed backwards from the task that ended last. Each attempt began when the last of these
    was over: the tasks it depends on, its own attempt before, the task before it on its worker (if it was
    queued by then), its worker's start-up, or the program's own way to submitting it, which comes also before
    the start-up of a worker that was launched for it. `task` links are
    execution, `wait` is from that moment to the start (retry delays included), `startup` is a worker's, from
    its launch or from when it was waited for (in the queue of a cluster, say), and
    `program` is what the program did, or waited for, outside of tasks: before the first, after the last, and
    in between; and the time before a task, not the first, with an unknown dependency. What
    was submitted later is taken to have waited for the task that had ended last, as a loop does that gathers
    results; where it did not, less can be saved than `saves_s` says, never more.

    `saves_s` replays the run with the same waits on the same workers. Shortening a link by s seconds saves
    min(s, saves_s) at most: beyond that another chain sets the wall time.
    """

    of: Literal["tasks", "spans"]
    wall_s: float
    links: int
    parts: list[PathPart]
    longest: list[PathSegment]
    inside: list[PathPlace] = []
    """The tasks, spans and nested tasks that it is made of, by their names and those around them, the longest
    first; the outermost contain the others."""
    chained: ChainedTasks | None = None
    """Those of its tasks that began as soon as one they depend on had ended; null where there are none."""
    gathered: ChainedTasks | None = None
    """Those that were submitted after another had ended; null where there are none."""


class ChainedTasks(Struct, frozen=True, kw_only=True):
    """Tasks on the critical path that could not begin before another had ended."""

    tasks: int
    seconds: float
    running: float
    """How many tasks ran at once meanwhile, on average."""
    waiting: float
    """How many tasks were ready to run and waited for a worker meanwhile, on average."""


class TracedPath(NamedTuple):
    """The critical path, and the run to be replayed."""

    path: CriticalPath
    replay: Replay | None
    """None where there are too many attempts."""


def critical_path(tables: RunTables) -> TracedPath | None:
    """The chain through one run's tasks; None where no attempt ran or no time passed."""
    start, until = tables.window
    if start is None or until is None or until <= start:
        return None
    if not tables.scalar("SELECT count(*) FROM nodes"):
        return None
    chain = Chain(tables, start, until)
    steps = chain.steps()
    parts, longest = _parts(steps, until - start), _longest(steps)
    alone: dict[int, int] = {}
    replay = Replay(tables, start) if may_be_replayed(tables) else None
    if replay is not None:
        named = [n for n, part in enumerate(parts) if part.kind == "task"][: ReportLimits.max_savings]
        for n in named:
            parts[n] = structs.replace(parts[n], saves_s=seconds(replay.saved(name=parts[n].name)))
        singles = [step for step in longest if step.kind == "task"][: ReportLimits.max_savings]
        alone = {step.since: replay.saved(node=step.node) for step in singles}
    about = chain.describe([step.node for step in longest if step.node is not None])
    inside = descend(tables, _stretches(chain, steps), until - start)
    path = CriticalPath(
        of="tasks",
        wall_s=seconds(until - start),
        links=len(steps),
        parts=parts,
        longest=[_segment(step, alone.get(step.since), about) for step in longest],
        inside=inside,
        chained=_chained(tables, chain.chained),
        gathered=_chained(tables, chain.gathered),
    )
    return TracedPath(path, replay)


def _stretches(chain: Chain, steps: Sequence[ChainStep]) -> Iterator[Stretch]:
    """What can be taken apart of the chain: execution of tasks, and the program outside of them."""
    longest = sorted(
        (step for step in steps if step.node is not None), key=lambda step: step.since - step.until
    )[: ReportLimits.max_descended]
    spans = chain.span_ids([step.node for step in longest if step.node is not None])
    for step in steps:
        if step.node is not None:
            yield Stretch(step.name, spans.get(step.node), step.since, step.until)
        elif step.kind == "program":
            yield Stretch(None, None, step.since, step.until)


_BESIDE = """
WITH windows AS (SELECT unnest($1::BIGINT[]) AS since, unnest($2::BIGINT[]) AS until)
SELECT sum(greatest(0, least(stopped, until) - greatest(began, since))),
    sum(greatest(0, least(began, until) - greatest(coalesce(waits, began), since)))
FROM attempt_intervals JOIN windows ON coalesce(waits, began) < until AND stopped > since
"""


def _chained(tables: RunTables, links: Sequence[tuple[int, int]]) -> ChainedTasks | None:
    """What tasks on the path did that waited for others, from when each began and stopped, the last first."""
    lasted = sum(stopped - began for began, stopped in links)
    if not lasted:
        return None
    windows = union(links)
    row = tables.execute(_BESIDE, [list(bounds) for bounds in zip(*windows, strict=True)]).fetchone()
    ran, waited = (int(row[0]), int(row[1] or 0)) if row is not None and row[0] is not None else (lasted, 0)
    within = sum(until - since for since, until in windows)
    return ChainedTasks(
        tasks=len(links), seconds=seconds(lasted), running=ran / within, waiting=waited / within
    )


def _parts(steps: Sequence[ChainStep], wall: int) -> list[PathPart]:
    """The steps by kind and name, the longest together first."""
    found: dict[tuple[Kind, str], list[int]] = {}
    for step in steps:
        part = found.setdefault((step.kind, step.name), [0, 0])
        part[0] += 1
        part[1] += step.until - step.since
    ordered = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))[: ReportLimits.max_path_names]
    return [
        PathPart(
            kind=kind, name=name, links=number, seconds=seconds(lasted), share=lasted / wall, saves_s=None
        )
        for (kind, name), (number, lasted) in ordered
    ]


def _longest(steps: Sequence[ChainStep]) -> list[ChainStep]:
    return sorted(steps, key=lambda step: (step.since - step.until, step.since))[
        : ReportLimits.max_listed_segments
    ]


def _segment(
    step: ChainStep, saved: int | None, about: Mapping[int, tuple[str, str | None, Json | None]]
) -> PathSegment:
    task_id, worker, args = about.get(step.node, (None, None, None)) if step.node is not None else (None,) * 3
    return PathSegment(
        kind=step.kind,
        name=step.name,
        since=timestamp_of(step.since),
        seconds=seconds(step.until - step.since),
        task_id=task_id,
        args=args,
        worker=worker,
        saves_s=None if saved is None else seconds(saved),
    )


OUTSIDE = "outside of spans"


def critical_spans(tables: RunTables) -> CriticalPath | None:
    """The chain through one run's spans, from its `span_intervals` table; None where there are none or no
    time passed.

    Followed backwards: of the spans directly inside another the one that ended last, then the one that had
    ended last when that began, and so on; what is left between them is the outer span's own. Spans still
    running when another began were not waited for. A link's `saves_s` is at most its own time, and at most
    the time by which a span beside it, or beside one around it, ended earlier than the chain. Sums by name
    have none.
    """
    start, until = tables.window
    if start is None or until is None or until <= start:
        return None
    rows = tables.execute(
        """
        WITH longest AS (
            SELECT rowid AS id, * FROM span_intervals WHERE began < least(stopped, $until)
                AND stopped > $start
            ORDER BY lasted DESC, began LIMIT $limit
        )
        SELECT list(child.began ORDER BY child.id), list(child.stopped ORDER BY child.id),
            list(child.name ORDER BY child.id), list(child.id ORDER BY child.id),
                list(parent.id ORDER BY child.id)
        FROM longest AS child LEFT JOIN longest AS parent ON parent.span_id = child.parent_id
        """,
        {"start": start, "until": until, "limit": ReportLimits.max_followed_spans},
    ).fetchone()
    if rows is None or not rows[0]:
        return None
    began, stopped, names, ids, parents = rows
    place = {one: n for n, one in enumerate(ids)}
    inside = grouped((None if parent is None else place[parent], n) for n, parent in enumerate(parents))
    followed = _follow((start, until), began, stopped, names, inside)
    steps = [step for step, _ in followed]
    saved = {step.since: min(slack, step.until - step.since) for step, slack in followed}
    around = [None if parent is None else place[parent] for parent in parents]
    return CriticalPath(
        of="spans",
        wall_s=seconds(until - start),
        links=len(steps),
        parts=_parts(steps, until - start),
        longest=[_segment(step, saved[step.since], {}) for step in _longest(steps)],
        inside=_places(steps, names, around).listed(until - start),
    )


def _places(steps: Sequence[ChainStep], names: Sequence[str], around: Sequence[int | None]) -> Places:
    """The time of steps by the names of their spans and of those around them."""
    places = Places()
    known: set[int] = set()
    for step in steps:
        spans: list[int] = []
        span = step.node
        while span is not None and len(spans) < ReportLimits.max_descended_levels:
            spans.append(span)
            span = around[span]
        path = tuple(names[one] for one in reversed(spans))
        lasted = step.until - step.since
        for n, one in enumerate(reversed(spans), start=1):
            own = lasted if n == len(spans) else 0
            places.add(path[:n], times=one not in known, lasted=lasted, own=own)
            known.add(one)
    return places


def _follow(
    window: tuple[int, int],
    began: Sequence[int],
    stopped: Sequence[int],
    names: Sequence[str],
    inside: dict[int | None, list[int]],
) -> list[tuple[ChainStep, int]]:
    """The steps of the chain, each the own time of one span, or of none, with how much of it can be saved at
    most.
    """
    found: list[tuple[ChainStep, int]] = []

    def own(span: int | None, since: int, until: int, slack: int) -> None:
        kind: Kind = "program" if span is None else "span"
        name = OUTSIDE if span is None else names[span]
        found.append((ChainStep(kind, name, since, until, span), slack))

    waiting: list[tuple[int | None, int, int, int]] = [(None, *window, window[1] - window[0])]
    while waiting:
        span, since, until, slack = waiting.pop()
        children = sorted(inside.get(span, ()), key=lambda n: (-stopped[n], -began[n], n))
        chosen: list[tuple[int, int, int]] = []
        cursor = until
        for child in children:
            ends = min(stopped[child], until) if span is None else stopped[child]
            begins = max(began[child], since)
            if begins < ends <= cursor:
                if ends < cursor:
                    own(span, ends, cursor, slack)
                chosen.append((begins, ends, child))
                cursor = begins
        if since < cursor:
            own(span, since, cursor, slack)
        chosen.reverse()
        for (begins, ends, child), room in zip(
            chosen, _room(chosen, children, began, stopped, until), strict=True
        ):
            waiting.append((child, begins, ends, slack if room is None else min(slack, room)))
    return sorted(found, key=lambda one: one[0].since)


def _room(
    chosen: Sequence[tuple[int, int, int]],
    children: Sequence[int],
    began: Sequence[int],
    stopped: Sequence[int],
    until: int,
) -> list[int | None]:
    """By how much each chosen span can shrink until one beside it sets the time; None where none does.

    A span beside the chain ended while one of the chain ran: the rest of that one is its slack, and limits
    all of the chain that it ran beside. The tightest are taken first, so that each place is settled once.
    """
    room: list[int | None] = [None] * len(chosen)
    on_chain = {child for _, _, child in chosen}
    starts, ends = [one[0] for one in chosen], [one[1] for one in chosen]
    beside: list[tuple[int, int, int]] = []
    for child in children:
        if child in on_chain:
            continue
        at = bisect_left(ends, min(stopped[child], until))
        if at < len(chosen) and starts[at] < stopped[child]:
            first = bisect_right(ends, began[child])
            beside.append((ends[at] - min(stopped[child], until), first, at))
    free = list(range(len(chosen) + 1))

    def settle(n: int) -> int:
        while free[n] != n:
            free[n] = free[free[n]]
            n = free[n]
        return n

    for slack, first, last in sorted(beside):
        n = settle(first)
        while n <= last:
            room[n] = slack
            free[n] = n + 1
            n = settle(n)
    return room


Kind = Literal["task", "wait", "startup", "program", "span"]

BEFORE, BETWEEN, AFTER = "before the first task", "between tasks", "after the last task"
UNKNOWN = "before a task with an unknown dependency"
START_UP = "worker start-up"


class ChainStep(NamedTuple):
    """A stretch of the chain, in nanoseconds since 1970; `node` is the attempt, for
    execution, or the span.
    """

    kind: Kind
    name: str
    since: int
    until: int
    node: int | None


OnChain = tuple[int, str, int, int, int | None, str | None, int, int | None]
"""Number and name of an attempt on the chain, when it began and stopped, what it waited for until when, since
when it waited for its worker where that was it, and when what the program had waited for stopped."""


class Chain:
    """The chain through the attempts of one run, followed back from the one that ended last
    (`store.tables.waits`).
    """

    def __init__(self, tables: RunTables, start: int, until: int) -> None:
        self._tables = tables
        self._start, self._until = start, until
        self.chained: list[tuple[int, int]] = []
        """When the tasks of the chain that waited for others began and stopped, the last first; made by
        `steps`."""
        self.gathered: list[tuple[int, int]] = []
        """The same of those that the program submitted after another had ended."""

    def steps(self) -> list[ChainStep]:
        """The chain from the run's start to its end, in order and without a gap; instant steps are left
        out.
        """
        found: list[ChainStep] = []
        cursor = self._until

        def step(kind: Kind, name: str, since: int, of: int | None = None) -> None:
            nonlocal cursor
            since = max(self._start, min(since, cursor))
            if since < cursor:
                found.append(ChainStep(kind, name, since, cursor, of))
            cursor = since

        for node, name, began, stopped, moment, how, since, base_stopped in self.links():
            step("program", AFTER if not found and cursor == self._until else BETWEEN, stopped)
            step("task", name, began, node)
            if how == "need":
                self.chained.append((began, stopped))
            if moment is None:
                break
            step("wait", name, moment)
            if how == "startup":
                step("startup", START_UP, since)
            if how == "program" and base_stopped is not None:
                self.gathered.append((began, stopped))
            if base_stopped is not None:
                step("program", BETWEEN, base_stopped)
        first = self._tables.scalar("SELECT min(began) FROM attempt_intervals")
        step("program", UNKNOWN if first is not None and first < cursor else BEFORE, self._start)
        return found[::-1]

    def describe(self, nodes: Sequence[int]) -> dict[int, tuple[str, str | None, dict[str, object] | None]]:
        """Task id, worker and arguments of a few attempts."""
        rows = self._tables.rows(self._ABOUT, [list(nodes)])
        return {n: (task_id, worker, json_object(args)) for n, task_id, worker, args, _ in rows}

    def span_ids(self, nodes: Sequence[int]) -> dict[int, str | None]:
        """The spans of some attempts."""
        return {n: span_id for n, *_, span_id in self._tables.rows(self._ABOUT, [list(nodes)])}

    _ABOUT = """
        SELECT n, task_id, worker, args, span_id
        FROM (FROM on_chain WHERE n IN (SELECT unnest($1::BIGINT[]))) JOIN attempt_intervals
            USING (task_id, attempt)
    """

    def links(self) -> Iterator[OnChain]:
        """The attempts on the chain, the last first. Fetches one number of every attempt."""
        previous = array("q", [-1]) * self._tables.scalar("SELECT count(*) FROM bound")
        for n, one in self._tables.rows(_PREVIOUS):
            previous[n] = one
        numbers = []
        node = self._tables.scalar("SELECT n FROM bound ORDER BY stopped DESC, n LIMIT 1")
        while node >= 0:
            numbers.append(node)
            node = previous[node]
        self._tables.execute(_ON_CHAIN, [numbers])
        yield from self._tables.rows(
            """
            WITH waits_for_launch AS ( -- since it was submitted, unless another attempt ended in between
                SELECT late.n, late.submitted AS since
                FROM (FROM bound WHERE on_demand) AS late
                    ASOF LEFT JOIN (SELECT DISTINCT stopped FROM nodes) AS ended
                        ON late.launched >= ended.stopped
                WHERE coalesce(ended.stopped <= late.submitted, true)
            )
            SELECT n, task, bound.began, bound.stopped, moment, how,
                CASE WHEN relaunched THEN need_stopped ELSE coalesce(since, launched) END,
                CASE WHEN how = 'program' OR on_demand THEN base_stopped END
            FROM on_chain JOIN bound USING (n) JOIN attempt_intervals USING (task_id, attempt)
                LEFT JOIN bases USING (n) LEFT JOIN waits_for_launch USING (n)
            ORDER BY n DESC
            """
        )


_PREVIOUS = """
SELECT n, CASE WHEN how = 'program' OR on_demand THEN base ELSE previous END AS one
FROM bound LEFT JOIN bases USING (n) WHERE one IS NOT NULL
"""
_ON_CHAIN = """
CREATE OR REPLACE TEMP TABLE on_chain AS
SELECT n, task_id, attempt FROM nodes WHERE n IN (SELECT unnest($1::BIGINT[]))
"""
