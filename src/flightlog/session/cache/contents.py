"""What a cache holds: counted, explained and pruned. For people, after the run; what is wrong is an error
here.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.grouping import grouped
from flightlog.session.cache.store import (
    ARGUMENTS_CHANGED,
    FUNCTIONS,
    LAST_MISS,
    About,
    CacheFolder,
    Damaged,
    Header,
    LastMiss,
    is_entry,
    read_header,
)
from flightlog.session.limits import SessionLimits
from flightlog.store.documents import is_leftover, read_document

NOBODY = "(damaged)"


class Stored(Struct, frozen=True, kw_only=True):
    """One file of a cache."""

    path: Path
    bytes: int
    used: float
    """Unix time of its last use, to within an hour."""
    header: Header | None = None
    """None where it is no whole entry."""

    @property
    def about(self) -> About | None:
        """Whose result it is, where somebody said."""
        return None if self.header is None else self.header.about

    @property
    def function(self) -> str:
        """The function's name; `(damaged)` where that cannot be told, empty where nobody said."""
        return NOBODY if self.header is None else self.about.function if self.about is not None else ""


class FunctionStats(Struct, frozen=True, kw_only=True):
    """The results of one function."""

    function: str
    entries: int
    bytes: int
    codes: int
    """How many versions of its code they were made with."""
    cost_s: float | None
    """What they took to make, and so would save if each were used once; null where none knows."""
    hits: int | None
    """Uses that the runs looked at recorded; null where no run was."""


class CacheStats(Struct, frozen=True, kw_only=True):
    """All of a cache."""

    folder: str
    entries: int
    bytes: int
    damaged: int
    leftovers: int
    """Files whose writing was cut short."""
    cost_s: float | None
    hits: int | None
    functions: tuple[FunctionStats, ...]
    """By bytes, the largest first."""


class CacheExplanation(Struct, frozen=True, kw_only=True):
    """What is kept of one function, and why the last result was not there."""

    function: str
    entries: tuple[Header, ...]
    """The newest first."""
    last_miss: LastMiss | None
    changed: tuple[str, ...] = ()
    """Arguments that differed, at the last miss, from those of the result that came closest."""


def check(cache: CacheFolder) -> None:
    """A `UsageError` where there is no such cache, or others can write to it."""
    if not cache.folder.is_dir():
        raise UsageError(f"there is no cache in {cache.folder}")
    why_not = cache.refusal()
    if why_not is not None:
        raise UsageError(why_not)


def stored(cache: CacheFolder) -> Iterator[Stored]:
    """Every result, with its header alone; in no order. Files that vanish meanwhile are left out."""
    for path in _files(cache.folder):
        if is_entry(path.name):
            with suppress(FileNotFoundError):
                found = path.stat()
                try:
                    header = read_header(path)
                except Damaged:
                    header = None
                yield Stored(path=path, bytes=found.st_size, used=found.st_mtime, header=header)


def leftovers(cache: CacheFolder, now: float) -> list[Path]:
    """Files whose writing was cut short."""
    found = []
    for path in _files(cache.folder):
        with suppress(OSError):
            if is_leftover(path.name) and now - path.stat().st_mtime > SessionLimits.abandoned_file_age_s:
                found.append(path)
    return found


def stats(cache: CacheFolder, hits: Mapping[str, int] | None = None) -> CacheStats:
    """Count a cache; `hits` is how often each key was used, where that is known."""
    by_function = grouped((entry.function, entry) for entry in stored(cache))
    damaged = by_function.pop(NOBODY, [])
    functions = [_count(function, entries, hits) for function, entries in by_function.items()]
    functions.sort(key=lambda one: (-one.bytes, one.function))
    return CacheStats(
        folder=str(cache.folder),
        entries=sum(one.entries for one in functions),
        bytes=sum(one.bytes for one in functions) + sum(one.bytes for one in damaged),
        damaged=len(damaged),
        leftovers=len(leftovers(cache, time.time())),
        cost_s=_sum(one.cost_s for one in functions),
        hits=None if hits is None else sum(one.hits or 0 for one in functions),
        functions=tuple(functions),
    )


def recorded_hits(runs_dir: Path) -> dict[str, int] | None:
    """How often each key was used in the runs of a folder; None where it holds none."""
    from flightlog.events import CacheLookup
    from flightlog.store.catalogue import run_paths
    from flightlog.store.run import Run

    runs = run_paths(runs_dir)
    events = (event for path in runs for event in Run(path).events(CacheLookup.stream))
    hits = (event for event in events if isinstance(event, CacheLookup) and event.result == "hit")
    return dict(Counter(event.key for event in hits if event.key)) if runs else None


def plan_prune(
    entries: Iterable[Stored],
    *,
    older_than_s: float | None,
    max_bytes: int | None,
    function: str | None,
    now: float,
) -> list[Stored]:
    """Which results to remove, the longest unused first; `now` is Unix seconds.

    All that were not used for `older_than_s`, then the longest unused until the rest takes `max_bytes` at
    most. With `function`, only that function's count. What is damaged goes first.
    """
    ordered = sorted(
        (one for one in entries if function is None or is_called(one.function, function)),
        key=lambda one: (one.header is not None, one.used, one.path.name),
    )
    left = sum(one.bytes for one in ordered)
    chosen = []
    for one in ordered:
        too_old = older_than_s is not None and now - one.used > older_than_s
        too_many = max_bytes is not None and left > max_bytes
        if one.header is None or too_old or too_many:
            chosen.append(one)
            left -= one.bytes
    return chosen


def remove(cache: CacheFolder, entry: Stored) -> None:
    """Remove a result; one that is gone already is no error."""
    entry.path.unlink(missing_ok=True)
    if entry.about is not None:
        cache.index.forget(entry.about)


def forget_codes(cache: CacheFolder, removed: Iterable[Stored], left: Iterable[Stored]) -> None:
    """Forget the versions of code that no result is left of."""
    for function, code in _codes(removed) - _codes(left):
        cache.index.forget_code(function, code)


def explain(cache: CacheFolder, what: str) -> list[CacheExplanation]:
    """What is kept of a function, named in full or by its last parts, or of a key, by six digits or more of
    it.

    Several functions may go by one short name. A `UsageError` where nothing does.
    """
    entries = [one for one in stored(cache) if one.header is not None]
    if len(what) >= SessionLimits.min_key_prefix_characters and set(what) <= set("0123456789abcdef"):
        by_key = [one for one in entries if one.path.name.startswith(what)]
        if by_key:
            return [_explained(cache, name, by_key) for name in sorted({one.function for one in by_key})]
    functions = {one.function for one in entries} | _missed(cache)
    names = sorted(name for name in functions if is_called(name, what))
    if not names:
        raise UsageError(_unknown(what, cache, functions))
    return [_explained(cache, name, [one for one in entries if one.function == name]) for name in names]


def is_called(function: str, name: str) -> bool:
    """Whether a function goes by a name: `model.Fit.run` by itself, `Fit.run` and `run`."""
    return function == name or function.endswith(f".{name}")


def _explained(cache: CacheFolder, function: str, entries: list[Stored]) -> CacheExplanation:
    headers = sorted(
        (one.header for one in entries if one.header is not None), key=lambda h: h.created, reverse=True
    )
    miss = cache.index.last_miss(function)
    return CacheExplanation(
        function=function, entries=tuple(headers), last_miss=miss, changed=_changed(miss, headers)
    )


def _changed(miss: LastMiss | None, headers: list[Header]) -> tuple[str, ...]:
    if miss is None or miss.reason != ARGUMENTS_CHANGED:
        return ()
    now = miss.about.arguments
    differences = [
        tuple(name for name in now if header.about.arguments.get(name) != now[name])
        for header in headers
        if header.about is not None and header.about.code == miss.about.code and header.key != miss.key
    ]
    return min(differences, key=lambda names: (len(names), names), default=())


def _missed(cache: CacheFolder) -> set[str]:
    """Functions that are known by a miss at least."""
    found = (
        read_document(path, LastMiss).value for path in (cache.folder / FUNCTIONS).glob(f"*/{LAST_MISS}")
    )
    return {miss.about.function for miss in found if miss is not None}


def _unknown(what: str, cache: CacheFolder, functions: set[str]) -> str:
    from difflib import get_close_matches

    short = {name.rpartition(".")[2]: name for name in functions}
    near = get_close_matches(what, [*functions, *short], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"the cache in {cache.folder} knows no function and no key {what!r}{hint}"


def _files(folder: Path) -> Iterator[Path]:
    """Every file but those of the index."""
    for parent, folders, names in os.walk(folder):
        if Path(parent) == folder and FUNCTIONS in folders:
            folders.remove(FUNCTIONS)
        for name in names:
            yield Path(parent, name)


def _count(function: str, entries: list[Stored], hits: Mapping[str, int] | None) -> FunctionStats:
    headers = [one.header for one in entries if one.header is not None]
    return FunctionStats(
        function=function,
        entries=len(entries),
        bytes=sum(one.bytes for one in entries),
        codes=len(_codes(entries)),
        cost_s=_sum(header.cost_s for header in headers),
        hits=None if hits is None else sum(hits.get(header.key, 0) for header in headers),
    )


def _codes(entries: Iterable[Stored]) -> set[tuple[str, str]]:
    return {(one.about.function, one.about.code) for one in entries if one.about is not None}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
