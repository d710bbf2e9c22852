"""Limits, waits and thresholds of `session/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class SessionLimits:
    """What a session, its cache and its manifest hold, and how long they wait."""

    # asynchronous.py
    loop_slice_s: Final = 0.002
    """What takes long is done on an event loop for so long at a time."""

    # cache/
    abandoned_file_age_s: Final = 3600.0
    """A file of the cache that was begun longer ago is not being written any more."""
    min_key_prefix_characters: Final = 6
    """So many characters of a key are needed at least to name an entry of the cache."""
    max_entry_header_bytes: Final = 1 << 20
    """The header of an entry of the cache; a longer one is damaged."""
    last_use_resolution_s: Final = 3600.0
    """A file's time of change says when it was last used, to within this: noting each use would cost a
    write each."""

    # client.py
    max_tasks_submitted_together: Final = 64
    """Tasks of a `map` that are handed over at a time."""
    max_tasks_submitted_on_loop: Final = 16
    """The same on an event loop, which should not wait for more than a few milliseconds."""
    max_plain_text: Final = 16
    """An alphanumeric text of up to so many characters holds no secret, and needs no redaction."""

    # digest/
    max_known_functions: Final = 10_000
    """Functions whose constant part of the digest is remembered; then all are forgotten."""
    digest_buffer_bytes: Final = 1 << 16
    """Bytes that are gathered before they go into a digest together."""
    min_packed_items: Final = 16
    """Lists of this length and longer are packed where all items are of one plain type."""
    digest_array_items: Final = 1 << 17
    """Items of an array that is not contiguous, digested at a time."""
    digest_file_chunk_bytes: Final = 1 << 20
    """Bytes of a file read at a time for its digest."""

    # session.py
    close_timeout_s: Final = 10.0
    """How long running tasks may take to end when a session closes normally."""
    hasty_close_timeout_s: Final = 1.0
    """The same after an error or Ctrl-C."""
    max_planned_tasks_per_run: Final = 2000
    """How many tasks of each earlier run the plan of a new one reads: a session has other things to do."""
    max_planned_tasks: Final = 10_000
    """How many tasks of all earlier runs together it reads, those of the newest runs first."""

    # tracking.py
    max_named_failures: Final = 10
    """How many failed tasks are named when a session closes; all are counted."""
    max_ends_written_together: Final = 256
    """Ends that are written together while a session closes with tasks left."""
    first_retry_pause_s: Final = 0.05
    """Pause before the first retry of a task; each later one is twice as long."""
    max_retry_pause_s: Final = 5.0
    """Longest pause before a retry of a task."""

    # validation.py, yaml_tree.py
    max_shown_value_characters: Final = 80
    """Characters of a wrong value that a message shows."""
    max_manifest_characters: Final = 1_000_000
    """A longer manifest is refused."""
    max_manifest_values: Final = 50_000
    """A manifest with more values is refused. What an alias stands for counts each time it is used, so
    that a few lines cannot become gigabytes."""
    max_manifest_depth: Final = 50
    """A manifest that is nested more deeply is refused."""
