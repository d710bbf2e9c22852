"""What is being read at the moment, and how far: noted by those who read, asked for by whoever tells people.

Notes are of this process and cost next to nothing; where several threads read, the last one is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def _nobody() -> bool:
    return False


_asked: Callable[[], bool] = _nobody
_place: tuple[str, int, int] | None = None
_queries: list[tuple[duckdb.DuckDBPyConnection, str]] = []


@contextmanager
def asked_about(still: Callable[[], bool]) -> Iterator[None]:
    """Within it somebody wants to know, for as long as `still` is true, so that queries are watched, too."""
    global _asked
    before, _asked = _asked, still
    try:
        yield
    finally:
        _asked = before


def note_place(stream: str, done: int, of: int) -> None:
    """So many bytes of a stream's are read."""
    global _place
    _place = stream, done, of


def forget_place() -> None:
    """It is read."""
    global _place
    _place = None


@contextmanager
def watched(connection: duckdb.DuckDBPyConnection, find: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Within it the queries of a connection are told of, where somebody asks, as looks through the first of
    some streams.

    `find` gives the streams; it is called where somebody asks, and nowhere else.
    """
    import duckdb

    if not _asked():
        yield
        return
    forget_place()  # of what was not read to its end
    streams = find()
    with suppress(duckdb.Error):  # a notebook without ipywidgets has no bar to switch on
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute("SET enable_progress_bar = true")
    more = " and others" if len(streams) > 1 else ""
    query = connection, f"a look through {streams[0]}{more}" if streams else "a query"
    _queries.append(query)
    try:
        yield
    finally:
        _queries.remove(query)


def at_work() -> str | None:
    """`43% of the events in tasks`, from any thread; None where nothing is known."""
    place = _place
    if place is not None and place[2] > 0:
        stream, done, of = place
        return f"{min(done / of, 1):.0%} of the events in {stream}"
    for connection, what in reversed(_queries):
        with suppress(Exception):  # closed meanwhile, or busy: there is nothing to tell
            percent = connection.query_progress()
            if percent >= 0:
                return f"{min(percent, 100):.0f}% of {what}"
    return None
