"""Limits, waits and thresholds of `record/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class RecordLimits:
    """What a run keeps of names, values, texts and streams, and how long recording waits."""

    # array_run.py
    stale_array_age_s: Final = 86_400.0
    """A run that ended longer ago belongs to another array, of a Slurm that has begun to count again."""
    array_run_wait_s: Final = 10.0
    """How long a task of an array waits for the run that another one is making or ending."""

    # background.py
    heartbeat_interval_s: Final = 0.4
    """Interval of the heartbeat: open spans and the time of the last sign of life reach the disk within a
    second."""
    first_sample_intervals: Final = (0.25, 0.25, 0.5)
    """Parts of the sampling interval after which the first samples follow each other."""
    sample_timeout_s: Final = 5.0
    """A sample that takes longer than this hangs; a busy machine may well need a part of it."""

    # closing.py
    max_bytes_completed_at_end: Final = 1 << 20
    """Up to this size a run of one process is completed when it ends, where no thread competes for the
    interpreter."""

    # command/
    output_tail_characters: Final = 8192
    """How much of the end of each output stream of a command a run keeps."""
    output_chunk_bytes: Final = 1 << 16
    """Bytes of a command's output that are passed on at a time."""
    output_close_wait_s: Final = 0.1
    """How long the last writer may take to close a stream after the command ended, before others pass it
    on."""

    # context.py
    max_remembered_ended_runs: Final = 10_000
    """Runs that have ended and whose names are remembered; then all are forgotten."""

    # environment.py
    max_arguments: Final = 1_000
    """Arguments of the command line that are kept."""
    max_variable_characters: Final = 500
    """Longest text that is kept of an environment variable."""

    # failure.py
    max_message_characters: Final = 2_000
    """Longest text that is kept of an exception's message."""
    max_traceback_characters: Final = 16_000
    """Longest text that is kept of a traceback; its middle is left out."""
    max_failure_frames: Final = 5
    """Innermost places of the program's own code that a failure names."""
    max_causes: Final = 16
    """Exceptions of a chain of causes that a failure names."""
    secret_margin_characters: Final = 512
    """Where a text was cut before redaction, so much of its end may be part of a secret that can no
    longer be recognized, and is left out."""
    max_oom_text_characters: Final = 4000
    """Characters of an exception's text in which a message of an out of memory is searched for."""

    # fast_values.py
    max_known_texts: Final = 10_000
    """Names and labels that are remembered as harmless; then all are forgotten."""
    max_known_text_characters: Final = 256
    """Longer texts are not remembered."""
    max_name_characters: Final = 20_000
    """Longest name of a span or task; it is cut there."""
    max_fast_depth: Final = 8
    """Values that are nested more deeply are not taken by the fast path."""

    # followers.py
    max_log_bytes: Final = 64 << 10
    """Bytes of a follower's log; what it says after them is not kept."""
    max_followers_of_ended_runs: Final = 16
    """Followers of ended runs of one folder that may still be at work on this host when another is
    started: many short runs, one after the other or side by side, must not pile them up where a server is
    away."""
    alert_interval_s: Final = 0.5
    """Time between two looks at what alerts were found."""
    follower_start_timeout_s: Final = 5.0
    """How long starting a follower may take; a machine that needs longer is left alone."""
    max_completing_processes: Final = 2
    """Processes that complete runs of this process at the same time; what is more is left to the first
    reader."""

    # joining.py
    max_warned_folders: Final = 100
    """Folders that a process could not join a run in and has warned of; of further ones it says nothing."""
    idle_beats_before_check: Final = 5
    """A process that joined a run checks whether the run is over after so many heartbeats without events."""

    # lifecycle.py
    min_sampling_interval_s: Final = 0.1
    """Shortest interval between two samples of a run."""
    sync_interval_s: Final = 5.0
    """What a power cut may cost, in seconds of recording."""
    end_wait_s: Final = 1.0
    """How long the end of a run waits for a sample, for its heartbeat and for others that finalize it."""
    hasty_end_wait_s: Final = 0.1
    """The same for a sample, where other threads of the program run."""
    daemon_parent_wait_s: Final = 3.0
    """How long after a fork the parent of a daemon may live on."""
    signal_grace_s: Final = 1.0
    """How long the main thread may take to handle a deadly signal; then another thread ends the process."""

    # otel_bridge.py
    same_moment_ns: Final = 50_000_000
    """A start time that is this close before the clock's was read from the clock just now; any other was
    given by the program and is kept."""
    max_links: Final = 16
    """Links of a span of OpenTelemetry that are kept."""
    max_remembered_ended_spans: Final = 10_000
    """How many spans that have ended are remembered as parents of later ones."""

    # recorder.py
    max_line_bytes: Final = 1 << 15
    """Longest line that is written as it is; a longer one has its values cut."""
    max_events_written_together: Final = 64
    """Events that are encoded and written together, where they come together."""
    max_warnings: Final = 100
    """Kinds of warnings that a process gives once each; further ones are only counted."""
    max_streams: Final = 32
    """Streams of a process; further ones of the user's share one, for each takes three descriptors."""
    max_announced_spans: Final = 1000
    """Open spans that are written down in one heartbeat."""
    announce_after_ns: Final = 400_000_000
    """Spans open for longer than this are written down as open at the next heartbeat."""

    # span.py
    max_metric_values: Final = 1000
    """How many values of one metric a span keeps; `<key>.dropped` counts the others."""

    # subscribers.py
    max_delivered_together: Final = 1_000
    """Events that a subscriber is given, or an event loop is asked to deliver, at a time."""
    max_waiting_events: Final = 20_000
    """Events that wait in memory for a subscriber before it reads the files by itself."""
    room_wait_s: Final = 0.1
    """How long others wait for a subscriber whose capacity is used up, before it counts as slow."""
    loop_turn_s: Final = 0.002
    """How long events are delivered on an event loop before other coroutines have their turn."""
    stuck_subscriber_s: Final = 1.0
    """How long the end of a run waits for a subscriber that takes nothing."""
    subscribers_end_s: Final = 5.0
    """How long the end of a run waits for subscribers at most."""

    # values.py
    max_value_depth: Final = 6
    """What is nested more deeply in a value is left out."""
    max_value_items: Final = 100
    """Items that are kept of each list, set or mapping."""
    max_value_nodes: Final = 2_000
    """Items that are kept of one value in all."""
    max_key_characters: Final = 256
    """Longest key of a mapping."""
    max_text_limits_per_value: Final = 16
    """All texts of one value together may hold this many times the limit of one; then each is cut to a
    glimpse."""
    glimpse_characters: Final = 64
    """Characters of such a glimpse."""

    # worker_costs.py
    worker_costs_interval_s: Final = 1.0
    """Changes that follow each other within this time are written with the next one after it, or at the
    end."""


class TrackingLimits:
    """How often device memory is read, and what is kept of an out of memory."""

    # oom.py
    max_snapshot_bytes: Final = 16 << 20
    """What the snapshot of one bundle may take."""
    max_spans: Final = 100
    """Open spans that a bundle holds, the newest."""
    same_exception_s: Final = 10.0
    """An exception that cannot be referenced weakly, with the same identity, is taken for the same one
    for so long."""
    bundle_lock_timeout_s: Final = 5.0
    """How long a thread waits for the bundle of another: a framework or a disk that hangs there must hang
    nobody else."""
    max_bundles: Final = 5
    """Bundles of one run."""
    max_bundle_bytes: Final = 64 << 20
    """What the bundles of one run may take together."""
    max_segments: Final = 2000
    """Segments of the allocator that a shortened snapshot holds, the largest."""
    max_segment_bytes: Final = 256
    """Bytes of JSON that a segment takes at most."""
    reserved_bundles: Final = 1
    """Places for bundles that are left for exceptions: PyTorch may meet an out of memory and find another
    way itself."""
    observer_to_exception_s: Final = 30.0
    """Seconds from the observer's call to the exception that comes of it, at most."""
    max_rounding: Final = 0.006
    """Messages round sizes to hundredths of their unit: half a hundredth of the smallest, and a bit, as a
    share of the size."""

    # tracker.py, tracking.py
    max_recent_events: Final = 200
    """The last events, which an out-of-memory bundle holds."""
    rank_interval: Final = 5
    """A process that seems to be alone checks in every sample of this many whether it has got a rank."""
    sample_lock_timeout_s: Final = 1.0
    """How long a thread waits for a sample that another thread takes; the next ones do not wait at all,
    until it is over."""
    end_check_interval: Final = 50
    """A process that joined a run checks in every sample of this many whether the run has ended."""
    accelerator_check_interval: Final = 10
    """A program on the host may still turn to an accelerator: it is searched for in every sample of this
    many."""
    rest_factor: Final = 9
    """After so much CPU time in a reading comes so many times as long without: a tenth of a core at most."""
    max_rest_s: Final = 5.0
    """Longest rest of that kind."""
    calibration_rounds: Final = 9
    """Rounds of barriers from whose median the difference of two ranks' clocks is taken."""
    max_path_characters: Final = 400
    """Characters of a span's path that an event holds."""
    peak_step_bytes: Final = 1 << 20
    """A new peak is reported when it is higher than the last one reported by this much; every event holds
    the exact one."""
    threshold_margin_percent: Final = 5.0
    """A threshold that was reported is reported again only after a reading this far below it."""
    min_interval_s: Final = 0.01
    """Shortest interval between two samples of device memory."""
