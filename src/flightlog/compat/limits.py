"""Limits, waits and thresholds of `compat/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class CompatLimits:
    """What the names of other systems keep, and how long they wait."""

    # Rhapsody's telemetry
    max_batch_events: Final = 500
    """Events that are dispatched in one go."""
    batch_wait_s: Final = 0.005
    """Seconds to wait for more events: each wake-up of the dispatching thread delays the others."""
    events_between_yields: Final = 4
    """Events after which the user's threads may run: else each waits for Python's switch interval, 5 ms."""
    subscriber_timeout_s: Final = 30.0
    """Seconds that the end of telemetry waits for a subscriber."""
    max_executable_labels: Final = 100
    """Executables with a metric label of their own; all others share one."""
    max_remembered_tasks: Final = 10_000
    """Ended tasks that are remembered for late events."""
    max_unrecorded_durations: Final = 10_000
    """Durations of tasks that wait for somebody to read the histogram of them."""
    max_readable_spans: Final = 100_000
    """Ended spans that `read_traces` gives; older ones are in the checkpoint file and in the run."""

    calls_ahead: Final = 32
    """Functions that an executor has beyond those for its workers: each handover wakes its threads."""
    dragon_timeout_s: Final = 1e9
    """Seconds that a task on Dragon may take unless it says so: as good as for ever."""
    dragon_poll_s: Final = 0.05
    """Seconds that a question to Dragon waits for an answer."""
    dragon_close_s: Final = 15.0
    """Seconds that each step of giving Dragon's processes back may take."""
    first_sample_s: Final = 0.05
    """Seconds of which a first sample of a machine says how busy it was."""
    host_names_timeout_s: Final = 5.0
    """Seconds that Dask workers have to tell the names of their hosts."""
    cancel_poll_s: Final = 0.2
    """Seconds between looks at whether the command that a Dask worker runs is still wanted."""

    # Others
    upload_exit_wait_s: Final = 60.0
    """Seconds that the end of a program waits for uploads of ModelOps' files."""
    max_error_message: Final = 200
    """Characters of an error's message in a span's tags."""
    max_path_length: Final = 4096
    """Characters of a text that may be the path of a file."""

    # Lines
    max_line_text: Final = 1 << 20
    """Characters of a text in a line whose values have no JSON form."""
