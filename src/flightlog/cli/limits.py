"""Limits, waits and thresholds of `cli/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class CliLimits:
    """What commands print, and how long they wait."""

    # Lists
    max_listed_runs: Final = 20
    """Runs in a list as text; `--limit` says otherwise."""
    max_listed_problems: Final = 5
    """Runs whose problem is named; the rest is counted."""
    max_completed_runs: Final = 100
    """Runs that one list completes: it should not take long."""
    max_sql_rows: Final = 1000
    """Rows of a query's result that are printed as a table."""

    # Progress
    progress_after_s: Final = 1.0
    """Seconds before progress is shown, and after something was printed until it is shown again."""
    progress_interval_s: Final = 0.2
    """Seconds between two updates of the progress line."""

    # Output
    max_page_name_length: Final = 120
    """Characters of the name of a page's file."""
    reference_width: Final = 90
    """Columns of the help in the reference pages."""
    browser_wait_s: Final = 600.0
    """Seconds that a trace waits for its browser."""

    # Input
    max_diagnosed_text_bytes: Final = 64 << 20
    """Bytes of a text that is diagnosed; of a longer one the end is read, where the failure is."""
