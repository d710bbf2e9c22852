"""The rows of a timeline: workers in the order a person would list them, and where on them each piece is
drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from flightlog.analyze.drawn.frame import cut
from flightlog.analyze.drawn.results import Lane

LANES = 64
"""At most so many rows are drawn."""


def in_order(workers: Iterable[str], hosts: Mapping[str, str | None]) -> list[str]:
    """Workers by host, then by name; numbers in names by their value, so that 10 comes after 9."""
    return sorted(workers, key=lambda name: (_natural(hosts.get(name) or ""), _natural(name), name))


def _natural(text: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,18})", cut(text))
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)]


class Packed(NamedTuple):
    """Rows of pieces that were packed, and the row of each piece; `of_worker` has the first row of each
    worker.
    """

    lanes: list[Lane]
    lane: list[int]
    of_worker: dict[str, int]


def pack(
    pieces: Sequence[tuple[int, int, int]],
    workers: Sequence[str],
    hosts: Mapping[str, str | None],
    nowhere: str,
    *,
    idle: bool = True,
) -> Packed:
    """Rows on which no two pieces overlap: one for each worker, or as many as pieces ran side by side on it.

    A piece is its worker's place among `workers` (-1 for none that is known: those are in rows called
    `nowhere`), and its first and last nanosecond; pieces of a place are in order of their starts. Each goes
    to the first row that is free. Without `idle`, workers that have no piece have no row.
    """
    rows = [0] * len(pieces)
    used: dict[int, int] = {}
    taken: dict[int, list[tuple[int, int]]] = {}
    free: dict[int, list[int]] = {}
    for number, (place, since, until) in enumerate(pieces):
        ends, spare = taken.setdefault(place, []), free.setdefault(place, [])
        while ends and ends[0][0] <= since:
            heappush(spare, heappop(ends)[1])
        if spare:
            row = heappop(spare)
        else:
            row = used.get(place, 0)
            used[place] = row + 1
        rows[number] = row
        heappush(ends, (max(until, since + 1), row))
    first: dict[int, int] = {}
    lanes: list[Lane] = []
    for place in (*range(len(workers)), -1):
        count = used.get(place, 1 if place >= 0 and idle else 0)
        first[place] = len(lanes)
        worker = workers[place] if place >= 0 else None
        label = nowhere if worker is None else cut(worker)
        lanes += [
            Lane(
                label=label if count == 1 else f"{label} · {row + 1}",
                worker=None if worker is None else cut(worker),
                host=None if worker is None else _host(hosts.get(worker)),
            )
            for row in range(count)
        ]
    lane = [first[place] + row for (place, _, _), row in zip(pieces, rows, strict=True)]
    drawn = {name: first[place] for place, name in enumerate(workers) if idle or place in used}
    return Packed(lanes, lane, drawn)


class Merged(NamedTuple):
    """Rows of workers, and the row of each place; that of pieces on no known worker is the last in
    `of_place`.
    """

    lanes: list[Lane]
    of_place: list[int]


def merge_lanes(
    workers: Sequence[str], hosts: Mapping[str, str | None], nowhere: str | None, most: int = LANES
) -> Merged:
    """A row for each worker; where there are more than rows, neighbours share one, and each row has about as
    many.

    `nowhere` is the label of the row for what ran on no worker that is known; None where there is nothing of
    that kind.
    """
    rows = min(len(workers), most - (nowhere is not None))
    lanes: list[Lane] = []
    of_place: list[int] = []
    for row in range(rows):
        group = workers[len(workers) * row // rows : len(workers) * (row + 1) // rows]
        of_place += [row] * len(group)
        known = {hosts.get(name) for name in group}
        one = len(group) == 1
        lanes.append(
            Lane(
                label=cut(group[0]) if one else f"{cut(group[0], 60)} to {cut(group[-1], 60)}",
                worker=cut(group[0]) if one else None,
                host=_host(known.pop()) if len(known) == 1 else None,
                merged=len(group),
            )
        )
    of_place.append(len(lanes))
    if nowhere is not None:
        lanes.append(Lane(label=nowhere, worker=None))
    return Merged(lanes, of_place)


def _host(name: str | None) -> str | None:
    return None if name is None else cut(name)
