"""What is inside of the critical path: its tasks and the program's own stretches, taken apart by the spans,
and the nested tasks, that they waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.core.time import seconds

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class PathPlace(Struct, frozen=True, kw_only=True):
    """A task or span on the critical path, by its name and those around it; all of that name there."""

    names: list[str]
    """From the outermost task or span to this one."""
    times: int
    seconds: float
    """What is inside of it included."""
    own_s: float
    """Without what is inside of it."""
    share: float
    """Of the run's wall time."""


class Stretch(NamedTuple):
    """A stretch of the critical path in nanoseconds: an attempt, or the program outside of tasks."""

    name: str | None
    """Of the task; None for the program."""
    span_id: str | None
    """That spans inside of the attempt have as their parent."""
    since: int
    until: int


class _Span(NamedTuple):
    span_id: str
    name: str
    began: int
    stopped: int


class _Siblings:
    """The spans directly inside of another, or of nothing: which of them was waited for last."""

    def __init__(self, spans: Iterable[_Span]) -> None:
        self._by_end = sorted(spans, key=_end)
        self._ends = [one.stopped for one in self._by_end]
        by_start = sorted(self._by_end, key=lambda one: one.began)
        self._starts = [one.began for one in by_start]
        self._last_of_begun = list(accumulate(by_start, _later))

    def last_begun_before(self, moment: int) -> _Span | None:
        """Of those that began before a moment the last to end, which may be after it."""
        number = bisect_left(self._starts, moment)
        return self._last_of_begun[number - 1] if number else None

    def last_ended_by(self, moment: int) -> _Span | None:
        """Of those that ended by a moment the last."""
        number = bisect_right(self._ends, moment)
        return self._by_end[number - 1] if number else None


def _end(one: _Span) -> tuple[int, int, str]:
    return one.stopped, one.began, one.span_id


def _later(one: _Span, other: _Span) -> _Span:
    return one if _end(one) > _end(other) else other


class Places:
    """Sums up the time at each place."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], list[int]] = {}

    def add(self, names: tuple[str, ...], *, times: int, lasted: int, own: int) -> None:
        """Count time at a place; of `lasted` nothing is added to the places around it."""
        place = self._found.setdefault(names, [0, 0, 0])
        for n, more in enumerate((times, lasted, own)):
            place[n] += more

    def listed(self, wall: int) -> list[PathPlace]:
        """The longest first, of those around which all are listed, too."""
        ordered = sorted(self._found.items(), key=lambda item: (-item[1][1], len(item[0]), item[0]))
        return [
            PathPlace(
                names=list(names),
                times=times,
                seconds=seconds(lasted),
                own_s=seconds(own),
                share=lasted / wall,
            )
            for names, (times, lasted, own) in ordered[: ReportLimits.max_listed_places]
            if names and lasted >= ReportLimits.min_place_share * wall
        ]


def descend(tables: RunTables, stretches: Iterable[Stretch], wall: int) -> list[PathPlace]:
    """The places inside of the critical path, the longest first.

    Followed backwards in each stretch: of the spans directly inside another the one that ended last, then
    the one that had ended last when that began, and so on. Of very many stretches the longest are taken
    apart, and of very many spans the longest; the time of the others counts for what is around them.
    """
    ordered = sorted(stretches, key=lambda one: (one.since - one.until, one.since))
    apart, whole = ordered[: ReportLimits.max_descended], ordered[ReportLimits.max_descended :]
    children = _inside(tables, [one.span_id for one in apart if one.span_id is not None])
    alone = sum(one.until - one.since for one in ordered if one.name is None)
    if alone >= ReportLimits.min_descended_program_share * wall:
        children |= _outside_of_tasks(tables)
    places = Places()
    for one in whole + [one for one in apart if one.name is not None and one.span_id is None]:
        if one.name is not None:
            lasted = one.until - one.since
            places.add((one.name,), times=1, lasted=lasted, own=lasted)
    for one in apart:
        if one.name is None or one.span_id is not None:
            _follow(one, children, places)
    return places.listed(wall)


def _follow(stretch: Stretch, children: Mapping[str | None, _Siblings], places: Places) -> None:
    names: tuple[str, ...] = () if stretch.name is None else (stretch.name,)
    waiting: list[tuple[tuple[str, ...], str | None, int, int]] = [
        (names, stretch.span_id, stretch.since, stretch.until)
    ]
    while waiting:
        names, span, since, until = waiting.pop()
        inside = 0
        siblings = children.get(span) if len(names) < ReportLimits.max_descended_levels else None
        child = siblings.last_begun_before(until) if siblings is not None else None
        while siblings is not None and child is not None and child.stopped > since:
            begins, ends = max(child.began, since), min(child.stopped, until)
            waiting.append(((*names, child.name), child.span_id, begins, ends))
            inside += ends - begins
            child = siblings.last_ended_by(begins)
        places.add(names, times=1, lasted=until - since, own=until - since - inside)


_CHILDREN = """
SELECT parent_id, span_id, name, began, stopped FROM (
    SELECT parent_id, span_id, name, began, stopped FROM span_intervals
    UNION ALL
    SELECT parent_id, span_id, task, began, stopped FROM attempt_intervals WHERE task IS NOT NULL
)
WHERE span_id IS NOT NULL AND began < stopped AND parent_id IN (SELECT unnest($1::VARCHAR[]))
ORDER BY stopped - began DESC, began, span_id LIMIT $2
"""
_FIRST_OUTSIDE = """
SELECT NULL, child.span_id, child.name, child.began, child.stopped FROM span_intervals AS child
    ANTI JOIN attempt_intervals ON attempt_intervals.span_id = child.span_id
    ANTI JOIN span_intervals AS parent ON parent.span_id = child.parent_id
    ANTI JOIN attempt_intervals AS task ON task.span_id = child.parent_id
WHERE child.span_id IS NOT NULL AND child.began < child.stopped
ORDER BY child.stopped - child.began DESC, child.began, child.span_id LIMIT $1
"""
_NEXT_OUTSIDE = """
SELECT child.parent_id, child.span_id, child.name, child.began, child.stopped FROM span_intervals AS child
    ANTI JOIN attempt_intervals ON attempt_intervals.span_id = child.span_id
WHERE child.span_id IS NOT NULL AND child.began < child.stopped
    AND child.parent_id IN (SELECT unnest($1::VARCHAR[]))
ORDER BY child.stopped - child.began DESC, child.began, child.span_id LIMIT $2
"""
Children = dict[str | None, _Siblings]
_Row = tuple[str | None, str, str, int, int]


def _inside(tables: RunTables, roots: Sequence[str]) -> Children:
    """The spans and tasks inside of attempts, by the span that they are directly inside of."""
    return _levels(tables, _CHILDREN, tables.execute(_CHILDREN, _next(roots, 0)).fetchall() if roots else [])


def _outside_of_tasks(tables: RunTables) -> Children:
    """The program's own spans; those inside of none stand under None."""
    rows = tables.execute(_FIRST_OUTSIDE, [ReportLimits.max_descended_spans]).fetchall()
    return _levels(tables, _NEXT_OUTSIDE, rows)


def _levels(tables: RunTables, statement: str, rows: Sequence[_Row]) -> Children:
    found: dict[str | None, list[_Span]] = {}
    known: set[str] = set()
    for _ in range(ReportLimits.max_descended_levels):
        level = []
        for parent, span_id, name, began, stopped in rows:
            if span_id not in known:
                known.add(span_id)
                level.append(span_id)
                found.setdefault(parent, []).append(_Span(span_id, name, began, stopped))
        if not level or len(known) >= ReportLimits.max_descended_spans:
            break
        rows = tables.execute(statement, _next(level, len(known))).fetchall()
    return {parent: _Siblings(spans) for parent, spans in found.items()}


def _next(spans: Sequence[str], known: int) -> list[object]:
    return [list(spans), max(0, ReportLimits.max_descended_spans - known)]


def deepest(places: Sequence[PathPlace], min_share: float) -> PathPlace | None:
    """From the longest place inwards, the last that holds most of what is around it; None where no place has
    this share of the wall time.
    """
    found: PathPlace | None = None
    around: list[str] = []
    while True:
        inner = [one for one in places if one.names[:-1] == around]
        largest = max(inner, key=lambda one: one.seconds, default=None)
        if largest is None or largest.share < min_share:
            return found
        if found is not None and largest.seconds < 0.5 * found.seconds:
            return found
        found, around = largest, largest.names
