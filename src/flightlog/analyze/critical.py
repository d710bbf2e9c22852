"""The chain that set the wall time: which task, wait or stretch of the program everything after it had to
wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from flightlog.analyze.chain import Chain, Kind, Startups, Step
from flightlog.analyze.moments import seconds, timestamp_of
from flightlog.analyze.turns import ChainInTurn, none_depends
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


class Link(Struct, frozen=True, kw_only=True):
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


class Part(Struct, frozen=True, kw_only=True):
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
    parts: list[Part]
    longest: list[Link]


def critical_path(
    connection: duckdb.DuckDBPyConnection,
    window: tuple[int | None, int | None],
    startups: Startups,
    *,
    in_turn: bool = False,
    replayed: int = REPLAYED,
) -> CriticalPath | None:
    """The chain through one run's tasks, from its `held` table; None where no attempt ran or no time passed.

    `in_turn` says that there is a table `turns`, too. Fetches a few numbers of the attempts on the chain; of
    all where there are at most `replayed`.
    """
    start, until = window
    if start is None or until is None or until <= start:
        return None
    [(size,)] = connection.execute("SELECT count(*) FROM held WHERE began IS NOT NULL").fetchall()
    if not size:
        return None
    few = size <= replayed
    one_by_one = in_turn and not few and none_depends(connection)
    chain = (ChainInTurn if one_by_one else Chain)(connection, start, until, startups)
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
            Part(
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


def _link(step: Step, saved: int | None, about: Mapping[int, tuple[str, str | None, Json | None]]) -> Link:
    task_id, worker, args = about.get(step.node, (None, None, None)) if step.node is not None else (None,) * 3
    return Link(
        kind=step.kind,
        name=step.name,
        since=timestamp_of(step.since),
        seconds=seconds(step.until - step.since),
        task_id=task_id,
        args=args,
        worker=worker,
        saves_s=None if saved is None else seconds(saved),
    )
