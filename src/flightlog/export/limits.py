"""Limits, waits and thresholds of `export/`: each stands in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class ExportLimits:
    """Sizes of what is written or sent at once, and how long to wait."""


class PrometheusLimits:
    """What is served to Prometheus, and to how many clients."""

    # Labels
    max_task_names: Final = 10
    """Task names with a histogram of their own, per run; all others share one."""
    max_failure_kinds: Final = 20
    """Pairs of scope and class of error that failures are counted by, per run; others count
    together."""
    max_machines: Final = 64
    """Nodes and GPUs per run; those sampled last are shown."""
    max_label_chars: Final = 100
    """Characters of a label; a longer one is cut."""

    # Runs
    ended_run_shown_s: Final = 3600.0
    """How long an ended run is still shown: by then Prometheus has its last values."""
    max_runs: Final = 20
    """Runs that are shown, running ones first, then the newest; a metric counts the others."""
    textfile_interval_s: Final = 15.0
    """Time between two updates of the text file while a run is followed."""

    # Clients
    max_connections: Final = 64
    """Connections at a time; one more takes the place of the oldest that has not sent its request yet."""
    request_timeout_s: Final = 10.0
    """How long a client may take to send its request."""
    answer_timeout_s: Final = 60.0
    """How long it may take from the request until the client has received the answer."""
