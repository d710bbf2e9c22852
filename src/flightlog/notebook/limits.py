"""Limits, waits and thresholds of `notebook/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class NotebookLimits:
    """How large displays are, what is recorded of cells, and how often a followed run is shown."""

    # Displays
    max_html_chars: Final = 200_000
    """Characters of HTML in a display."""
    max_text_chars: Final = 20_000
    """Characters of plain text in a display; what is longer is cut."""
    max_picture_bytes: Final = 400_000
    """Size of a picture beside an interactive figure; a larger one is not kept."""

    # Recorded cells
    max_cell_source_chars: Final = 120
    """Characters of a cell's first line that are recorded, secrets redacted."""
    max_cell_searched_chars: Final = 10_000
    """Characters of a cell that are searched for its first line."""
    sample_interval_s: Final = 1.0
    """Time between two samples of the machine while cells are recorded."""

    # Following
    print_interval_s: Final = 5.0
    """Time between two printed lines, where a display cannot be updated."""
    display_interval_s: Final = 0.5
    """Time between two updates of a display."""
    end_check_s: Final = 0.1
    """How soon the end of a run that the notebook records is shown."""
    read_limit_s: Final = 0.5
    """How long a large run is read before it is shown how far that is."""
    max_live_rows: Final = 6
    """Rows of each table of a run that is followed."""
    max_live_failures: Final = 3
    """Failures of a run that is followed, the newest."""

    # Runs, sessions and tables
    max_listed_names: Final = 8
    """Names of tasks in the display of a run."""
    max_listed_causes: Final = 3
    """Causes of failures in the display of a run."""
    max_name_chars: Final = 200
    """Characters of a name in a line of text."""
    max_table_rows: Final = 10
    """Rows of a table that are shown."""
    max_table_columns: Final = 24
    """Columns of a table that are shown."""
    max_cell_chars: Final = 60
    """Characters of a cell as HTML, about."""
    max_text_cell_chars: Final = 28
    """Characters of a cell as plain text."""
    max_read_table_bytes: Final = 64 << 20
    """Files of a larger table are not read for a display."""
    max_value_chars: Final = 200
    """Characters of a value."""
