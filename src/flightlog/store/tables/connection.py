"""A DuckDB connection of our own: in memory, and silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

INTERRUPTED = "Query interrupted"
"""What DuckDB raises as a `RuntimeError` on Ctrl-C, in place of Python's own."""


@contextmanager
def private_connection(settings: Mapping[str, str] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new in-memory database with these settings; it is gone when the context ends.

    DuckDB draws progress bars by itself in notebooks and prompts: what prints here is the caller's alone.
    Ctrl-C while DuckDB works is a `KeyboardInterrupt`, as it is elsewhere.
    """
    import duckdb

    with duckdb.connect(config=dict(settings or {})) as connection:
        with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets has none to switch off
            connection.execute("SET enable_progress_bar = false")
        try:
            yield connection
        except RuntimeError as error:
            if str(error) == INTERRUPTED:
                raise KeyboardInterrupt from error
            raise
