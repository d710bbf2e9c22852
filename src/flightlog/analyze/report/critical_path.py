"""The critical path: the chain of tasks, waits and program stretches, or of spans, that set the wall time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.report.dependencies import (
    Chain,
    ChainStep,
    Kind,
    SequentialChain,
    Startups,
    none_depends,
)
from flightlog.core.time import seconds, timestamp_of
from flightlog.events.base import Json

if TYPE_CHECKING:
    import duckdb

LONGEST = 10
"""How many links are listed on their own."""
PARTS = 100
"""How many names the chain is summed up by; `links` is of all."""
REPLAYED = 50_000
"""Up to so many attempts it is computed what shortening would give: each answer goes through all of them."""
ANSWERS = 3
"""For how many names, and for how many single links, that is."""


class PathSegment(Struct, frozen=True, kw_only=True):
    """One stretch of the chain."""

    kind: Kind
    name: str
    since: str
    seconds: float
    task_id: str | None
    args: Json | None
    worker: str | None
    saves_s: float | None
    """By how much the run would be shorter at most, were this link alone instant; null where it was not
    computed."""


class PathPart(Struct, frozen=True, kw_only=True):
    """All links of one kind and name."""

    kind: Kind
    name: str
    links: int
    seconds: float
    share: float
    """Of the run's wall time."""
    saves_s: float | None
    """By how much the run would be shorter at most, were every task of this name instant, on the chain or
    not."""


class CriticalPath(Struct, frozen=True, kw_only=True):
    """From the run's start to its end without a gap: the links add up to `wall_s`, to the nanosecond.

    The chain is followed backwards from the task that ended last. Each attempt began when the last of these
    was over: the tasks it depends on, its own attempt before, the task before it on its worker (if it was
    queued by then), its worker's start-up, or the program's own way to submitting it. `task` links are
    execution, `wait` is from that moment to the start (retry delays included), `startup` is a worker's, and
    `program` is what the program did, or waited for, outside of tasks: before the first, after the last, and
    in between; and what came before a task, not the first, of which nobody recorded what it waited for. What
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


def critical_path(
    connection: duckdb.DuckDBPyConnection,
    window: tuple[int | None, int | None],
    startups: Startups,
    *,
    in_turn: bool = False,
    replayed: int = REPLAYED,
) -> CriticalPath | None:
    """The chain through one run's tasks, from its `attempt_intervals` table; None where no attempt ran or no
    time passed.

    `in_turn` says that there is a table `turns`, too. Fetches a few numbers of the attempts on the chain; of
    all where there are at most `replayed`.
    """
    start, until = window
    if start is None or until is None or until <= start:
        return None
    [(size,)] = connection.execute(
        "SELECT count(*) FROM attempt_intervals WHERE began IS NOT NULL"
    ).fetchall()
    if not size:
        return None
    few = size <= replayed
    one_by_one = in_turn and not few and none_depends(connection)
    chain = (SequentialChain if one_by_one else Chain)(connection, start, until, startups)
    steps = chain.steps()
    parts: dict[tuple[Kind, str], list[int]] = {}
    for step in steps:
        found = parts.setdefault((step.kind, step.name), [0, 0])
        found[0] += 1
        found[1] += step.until - step.since
    ordered = sorted(parts.items(), key=lambda item: (-item[1][1], item[0]))[:PARTS]
    longest = sorted(steps, key=lambda step: (step.since - step.until, step.since))[:LONGEST]
    saves: dict[tuple[Kind, str], int] = {}
    alone: dict[int, int] = {}
    if few and isinstance(chain, Chain):
        replay = chain.replayed()
        names = [key for key, _ in ordered if key[0] == "task"][:ANSWERS]
        saves = {key: replay.saved(name=key[1]) for key in names}
        singles = [step for step in longest if step.kind == "task"][:ANSWERS]
        alone = {step.since: replay.saved(node=step.node) for step in singles}
    about = chain.describe([step.node for step in longest if step.node is not None])
    return CriticalPath(
        of="tasks",
        wall_s=seconds(until - start),
        links=len(steps),
        parts=[
            PathPart(
                kind=kind,
                name=name,
                links=number,
                seconds=seconds(lasted),
                share=lasted / (until - start),
                saves_s=seconds(saves[kind, name]) if (kind, name) in saves else None,
            )
            for (kind, name), (number, lasted) in ordered
        ],
        longest=[_link(step, alone.get(step.since), about) for step in longest],
    )


def _link(
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


SPANS = 200_000
"""So many of the longest spans are followed; the time of shorter ones counts in what is around them."""
OUTSIDE = "outside of spans"


class _Stretch(NamedTuple):
    """Part of the chain: the own time of one span, or of none; `slack` is how much of it can be saved at
    most.
    """

    span: int | None
    since: int
    until: int
    slack: int


def critical_spans(
    connection: duckdb.DuckDBPyConnection, window: tuple[int | None, int | None]
) -> CriticalPath | None:
    """The chain through one run's spans, from its `span_intervals` table; None where there are none or no
    time passed.

    Followed backwards: of the spans directly inside another the one that ended last, then the one that had
    ended last when that began, and so on; what is left between them is the outer span's own. Spans still
    running when another began were not waited for. A link's `saves_s` is at most its own time, and at most
    the time by which a span beside it, or beside one around it, ended earlier than the chain. Sums by name
    have none.
    """
    start, until = window
    if start is None or until is None or until <= start:
        return None
    rows = connection.execute(
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
        {"start": start, "until": until, "limit": SPANS},
    ).fetchone()
    if rows is None or not rows[0]:
        return None
    began, stopped, names, ids, parents = rows
    place = {one: n for n, one in enumerate(ids)}
    inside: dict[int | None, list[int]] = {}
    for n, parent in enumerate(parents):
        inside.setdefault(None if parent is None else place[parent], []).append(n)
    stretches = _follow((start, until), began, stopped, inside)
    named = [(OUTSIDE if one.span is None else names[one.span], one) for one in stretches]
    parts: dict[str, list[int]] = {}
    for name, one in named:
        found = parts.setdefault(name, [0, 0])
        found[0] += 1
        found[1] += one.until - one.since
    ordered = sorted(parts.items(), key=lambda item: (-item[1][1], item[0]))[:PARTS]
    longest = sorted(named, key=lambda item: (item[1].since - item[1].until, item[1].since))[:LONGEST]
    wall = until - start
    return CriticalPath(
        of="spans",
        wall_s=seconds(wall),
        links=len(stretches),
        parts=[
            PathPart(
                kind="program" if name == OUTSIDE else "span",
                name=name,
                links=number,
                seconds=seconds(lasted),
                share=lasted / wall,
                saves_s=None,
            )
            for name, (number, lasted) in ordered
        ],
        longest=[
            PathSegment(
                kind="program" if one.span is None else "span",
                name=name,
                since=timestamp_of(one.since),
                seconds=seconds(one.until - one.since),
                task_id=None,
                args=None,
                worker=None,
                saves_s=seconds(min(one.slack, one.until - one.since)),
            )
            for name, one in longest
        ],
    )


def _follow(
    window: tuple[int, int],
    began: Sequence[int],
    stopped: Sequence[int],
    inside: dict[int | None, list[int]],
) -> list[_Stretch]:
    found: list[_Stretch] = []
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
                    found.append(_Stretch(span, ends, cursor, slack))
                chosen.append((begins, ends, child))
                cursor = begins
        if since < cursor:
            found.append(_Stretch(span, since, cursor, slack))
        chosen.reverse()
        for (begins, ends, child), room in zip(
            chosen, _room(chosen, children, began, stopped, until), strict=True
        ):
            waiting.append((child, begins, ends, slack if room is None else min(slack, room)))
    return sorted(found, key=lambda one: one.since)


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
