"""Limits, waits and thresholds of `export/`: each stands in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class ExportLimits:
    """Sizes of what is written or sent at once, and how long to wait."""

    # Crates
    max_copied_artifact_bytes: Final = 100_000_000
    """Largest artifact that is copied into a crate; a larger one is described."""
    max_artifacts: Final = 1000
    """Artifacts of a crate; a note says that there are more."""
    max_artifact_name_bytes: Final = 200
    """Longest name that a copied artifact keeps: what goes before it must fit beside it."""
    max_executions: Final = 5000
    """Executions in the graph of a crate; the files of the run hold all of them."""
    max_argument_characters: Final = 2000
    """Arguments longer than this, as text, are left out of the graph."""

    # ModelOps
    max_job_name_bytes: Final = 200
    """Bytes of the name of a job's folder; file systems take 255."""

    # OTLP: what is sent
    max_batch_items: Final = 500
    """Items that are sent at once."""
    max_batch_lines: Final = 50_000
    """Lines of a batch, where few of them give an item."""
    late_line_s: Final = 2.0
    """While a run is running, counts are sent up to this long before its latest event: lines of other
    processes arrive later."""
    histogram_interval_s: Final = 10.0
    """Time between two histograms of durations while a run is running."""
    max_series: Final = 1000
    """Workers, and names of users' series, beyond which there are no new ones; their points are counted."""
    max_count_moments: Final = 3600
    """Moments at which counts changed that wait to be sent; beyond that, the earliest are merged."""
    max_task_names: Final = 100
    """Task names with metrics of their own; later ones share a name."""
    max_text_characters: Final = 32 << 10
    """Characters of a text; it is cut beyond that."""
    max_items: Final = 128
    """Items of a list or a mapping."""
    max_linked_tasks: Final = 500_000
    """Tasks whose span ids are remembered for links, the latest ones; half as many at least."""
    max_error_bytes: Final = 32 << 20
    """Memory of errors that wait for the end of their attempts; beyond that, tracebacks are dropped."""
    error_overhead_bytes: Final = 1000
    """Approximate memory of an error besides its traceback."""

    # OTLP: requests and waits
    max_request_bytes: Final = 4 << 20
    """Larger requests are sent in halves: many servers accept no more."""
    max_response_bytes: Final = 16 << 10
    """Bytes that are read of a response."""
    request_timeout_s: Final = 10.0
    """How long a request may take, unless the environment says otherwise."""
    first_retry_wait_s: Final = 0.5
    """Pause before the first retry of a request; it doubles with each …"""
    max_retry_wait_s: Final = 30.0
    """… up to this."""
    retry_s: Final = 30.0
    """How long one request is retried after the run."""
    retry_unheard_s: Final = 5.0
    """The same for a server that has not answered even once: likely the address is wrong."""
    retry_following_s: Final = 300.0
    """How long a follower retries after the run has ended; while the run is running, it never gives up."""
    last_lines_wait_s: Final = 30.0
    """How long a follower waits, once the run has ended, until every process of it has written its last
    line."""
    poll_interval_s: Final = 1.0
    """Time between two readings of a run that is followed."""
    closed_checks_per_poll: Final = 5
    """Checks in that time whether the run has closed: its program waits for the rest to be sent."""

    # Perfetto
    max_waiting_lanes: Final = 50
    """Lanes of waiting tasks; the curve of waiting tasks counts all."""
    max_curve_points: Final = 20_000
    """Points of a task curve; beyond that, each point is the highest value of its interval."""
    progress_interval_rows: Final = 10_000
    """Rows between two reports of progress."""
    write_buffer_bytes: Final = 1 << 20
    """Bytes that are written at once."""


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
    max_memory_per_run: Final = "80MB"
    """What DuckDB may hold of a run that goes on; the rest waits on disk."""
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


class SendingLimits:
    """How often alerts are looked for, and how patiently they are sent."""

    interval_s: Final = 1.0
    """Least time between two looks."""
    end_check_s: Final = 0.2
    """Time between two looks at whether the run is over."""
    send_timeout_s: Final = 30.0
    """How long a command may take, and a server to answer."""
    lock_wait_s: Final = 60.0
    """How long another process that sends to the same place is waited for."""
    deadline_s: Final = 40.0
    """How long sending once may take altogether, whatever a server or a function does."""
    first_retry_s: Final = 1.0
    """Wait after the first failure to send; each one after it is twice as long."""
    longest_retry_s: Final = 60.0
    """Longest such wait."""
    patience_s: Final = 300.0
    """How long sending one alert is tried."""
    max_shown_chars: Final = 200
    """Characters that are shown of a command."""
