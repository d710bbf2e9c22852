"""Limits, waits and thresholds of `engines/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class EngineLimits:
    """How long engines wait for workers and for Slurm, and how much they hand out at once."""

    # attempts.py, dispatcher.py, execute.py, wire.py
    max_handouts: Final = 3
    """Hand-outs of one attempt that may come to nothing because its worker died before it began."""
    max_failed_launches: Final = 3
    """Launches of a worker that may fail in a row."""
    max_unread_attempts: Final = 2
    """Attempts that may wait unread in a worker's socket: on a busy machine the engine's thread is not
    always there in time."""
    max_unread_quick_attempts: Final = 16
    """The same where attempts are quick: a worker that sleeps and wakes up between two of them, and the
    engine's thread with it, takes longer than they do."""
    quick_attempt_s: Final = 0.002
    """An attempt that takes less is quick."""
    max_quick_frame_bytes: Final = 4096
    """A larger message is not queued behind more than `max_unread_attempts`."""
    slow_attempt_s: Final = 0.05
    """What waits unread behind an attempt that runs for longer is had back."""
    run_check_interval_s: Final = 1.0
    """How often a worker that the engine cannot tell anything checks whether the run is over."""
    leave_timeout_s: Final = 5.0
    """How long workers that the engine did not launch may take to leave the run."""
    kill_timeout_s: Final = 5.0
    """A process that has not ended this long after SIGKILL hangs in the kernel, and is given up."""
    late_timeout_s: Final = 0.05
    """A timeout that is handled later than this was held up, and so may be what the worker has reported."""
    catch_up_s: Final = 1.0
    """How long reports of the worker may take to be read then."""
    pipe_check_interval_s: Final = 1.0
    """How often to check that the pipe of an event loop is still its own; nothing is waited for longer
    than this."""
    max_clock_difference_s: Final = 0.001
    """Two processes of one host disagree on the time by less than this."""
    max_packet_bytes: Final = 1 << 16
    """Largest packet of a socket; longer frames travel in several."""
    max_revocable_frame_bytes: Final = 1 << 15
    """Frames up to this size can be taken back."""
    worker_check_interval_s: Final = 1.0
    """How long a worker waits at most before it checks that its end of the connection is still its own."""

    # local_processes.py
    descriptor_check_interval_s: Final = 1.0
    """How often to check that all descriptors are still the engine's own, and for dead workers where the
    kernel does not report them."""
    lingering_check_interval_s: Final = 0.05
    """How often to check whether processes are gone that outlived their worker, or whose descriptor was
    closed."""
    descriptors_settle_s: Final = 0.25
    """How long nothing is started or looked up after the program closed descriptors: it may be about to
    open files of its own, and what is open for a moment only has a low number."""

    # dragon/
    dragon_start_timeout_s: Final = 30.0
    """How long a worker may take to be ready before it is made to end when the engine closes. It speaks
    with Dragon's runtime then. Locks that a process of Dragon's holds when it is killed stay locked, and
    if they are the runtime's, nothing in it ever moves again: force is for those that do not get on at
    all."""
    dragon_stop_timeout_s: Final = 30.0
    """How long a worker may take to end when it was asked to, before it is made to end."""
    dragon_poll_interval_s: Final = 0.1
    """How often Dragon is asked which processes have ended, up to 50 of them; less often the more there
    are."""
    dragon_drain_s: Final = 2.0
    """The output of a process that has ended is complete when nothing more came for this long."""
    dragon_request_s: Final = 2.0
    """A request without an answer for this long may have lost it."""

    # slurm/
    near_memory_limit: Final = 0.9
    """A job that was seen with this share of the memory it may use may have been ended for it."""
    sacct_timeout_s: Final = 60.0
    """How long `sacct` may take to answer."""
    accounting_poll_interval_s: Final = 0.5
    """Pause between two questions to the accounting while something is awaited."""
    accounting_completion_s: Final = 10.0
    """How long the parts of an account that has its end already may take: Slurm sends some of them every
    5 s."""
    accounting_fresh_s: Final = 60.0
    """What is still missing this long after the end of a job will not come any more."""
    accounting_end_timeout_s: Final = 10.0
    """How long Slurm's accounting may take to know that the jobs have ended."""


class DaskLimits:
    """What waits, travels and is remembered on a Dask cluster."""

    # attempt.py
    note_flush_s: Final = 0.002
    """How long notes are gathered before they are sent home together."""
    max_notes_per_message: Final = 256
    """Notes in one message."""
    max_result_bytes_in_note: Final = 8192
    """Results up to this size travel with the note of their end, others as Dask's own data: messages go
    by the scheduler."""
    max_noted_attempts: Final = 256
    """Attempts that can be noted at once; more are executed all the same, and are not known to have begun."""

    # cluster.py, engine.py
    connect_timeout_s: Final = 30.0
    """How long a scheduler may take to answer."""
    max_batch_attempts: Final = 512
    """Attempts that are handed to Dask together."""
    max_batch_bytes: Final = 1 << 20
    """A batch that has reached this size takes no more attempts."""
    scheduler_check_interval_s: Final = 0.5
    """How often to check that the scheduler is still there."""
    future_release_delay_s: Final = 0.05
    """How long futures of attempts that are over are kept, to be released together."""
    large_message_bytes: Final = 8_000_000
    """Dask warns of a little more than this in one message."""
    answer_timeout_s: Final = 5.0
    """How long a worker may take to answer."""
    attempt_answer_timeout_s: Final = 1.0
    """Twice this is waited for a worker to say whether an attempt still runs; then it is taken to. Twice,
    for the program may have stalled the first time."""

    # messages.py
    max_unacknowledged_chunks: Final = 16
    """Chunks, of a MiB at most, that the client has not yet acknowledged."""
    messages_per_acknowledgement: Final = 4
    """Messages between two acknowledgements of the client."""
    chunk_wait_s: Final = 20.0
    """How long a chunk may wait on the scheduler; then its worker keeps it, and tries again later."""
    handover_timeout_s: Final = 30.0
    """How long a worker waits for the scheduler's answer."""
    window_check_interval_s: Final = 0.05
    """How often a waiting chunk checks whether there is room for it."""

    # observer.py
    last_parcels_timeout_s: Final = 3.0
    """How long the last parcels may take when watching ends."""
    settle_timeout_s: Final = 10.0
    """How long an engine's workers that do not see the run directory may take to send what they have
    recorded, and that to be written."""
    end_step_timeout_s: Final = 6.0
    """How long each step of ending may take: a worker may hang, or be out of reach."""
    parcel_wait_s: Final = 0.25
    """How long the observer waits for a parcel at a time."""
    nanny_wait_s: Final = 5.0
    """How long attempts that went with a worker wait for what its nanny reports of its end."""
    install_timeout_s: Final = 30.0
    """How long installing one plugin may keep the program; Dask waits for nannies that are starting."""
    max_counted_keys: Final = 100_000
    """Keys of which the client's repeated submissions are counted."""
    max_reported_keys: Final = 1_000
    """Such keys that are reported at the end."""

    # scheduler_plugin.py
    max_waiting_messages: Final = 50_000
    """Messages that wait on the scheduler at most: some 30 MB."""
    waiting_messages_per_task: Final = 4
    """Messages that wait at most for each task that the scheduler knows, where it knows many: a part of
    what Dask keeps."""
    max_messages_per_parcel: Final = 2_000
    """Messages in a parcel."""
    max_tasks_per_message: Final = 20
    """Submitted tasks in a message."""
    max_unacknowledged_parcels: Final = 32
    """Parcels on their way that the client has not yet acknowledged."""
    parcel_interval_s: Final = 0.1
    """Interval at which parcels are sent."""
    scheduler_sample_interval_s: Final = 1.0
    """Interval of the scheduler's samples."""
    max_argument_characters: Final = 200
    """Characters of an argument that are kept."""
    max_arguments: Final = 20
    """Arguments of a task that are kept, by position and by name each."""

    # watched_tasks.py, watched_workers.py
    max_remembered_keys: Final = 100_000
    """Ended keys whose number of lives is remembered, and failures that wait for their end."""
    explanation_wait_s: Final = 2.0
    """How long a worker's end, or a transfer, waits for what others report of it."""
    max_remembered_workers: Final = 10_000
    """Ended workers, and nannies, that are remembered."""

    # worker_plugin.py
    worker_report_interval_s: Final = 0.25
    """A task that executes for longer than this is known to do so while it does."""
    reports_per_sample: Final = 4
    """Reports between two samples of a worker."""
    run_check_interval_s: Final = 1.0
    """How often a worker that the engine cannot tell anything checks whether the run is over."""
    leave_timeout_s: Final = 5.0
    """How long what was recorded elsewhere than in the run directory may take to be sent home."""
    max_waiting_reports: Final = 10_000
    """Reports kept while the scheduler cannot be reached; then the oldest are dropped, and counted."""


class RayLimits:
    """The same on a Ray cluster."""

    # engine.py
    min_attempts_ahead: Final = 64
    """Attempts that Ray is handed at least: it can plan ahead, and a cluster that grows sees why it
    should."""
    review_interval_s: Final = 5.0
    """How often to ask Ray which nodes there are, and after workers that cannot be watched from here."""
    cluster_gone_s: Final = 20.0
    """A cluster whose head was unreachable for this long is gone; Ray itself ends the whole program after
    60 s."""
    exit_poll_interval_s: Final = 0.02
    """How often the kernel is asked how a process ended that is over."""
    max_exit_polls: Final = 100
    """How many times it is asked."""
    forced_end_s: Final = 10.0
    """An end that neither Ray nor the kernel has reported this long after it was due is reported without
    them."""
    max_task_names: Final = 1000
    """How many different task names are passed on to Ray; later ones are not."""
    probe_timeout_s: Final = 5.0
    """How long an address may take to answer."""

    # worker.py
    max_messages_taken: Final = 256
    """Messages taken at once."""


class RelayLimits:
    """How lines of hosts that do not see the run directory travel."""

    # chunks.py
    max_chunk_bytes: Final = 1 << 20
    """A chunk as it travels, whole."""
    max_backlog_bytes: Final = 64 << 20
    """Chunks that wait for the disk in memory; what comes while it is full is counted, and lost unless it
    is sent again."""
    close_wait_s: Final = 1.0
    """How long a receiver that closes waits for writers that have not reported that they are done."""
    write_retry_s: Final = 0.2
    """Pause before a chunk that could not be written is written again."""
    max_gap_bytes: Final = 64 << 20
    """What may be awaited in the middle of files, in all: a chunk that names a place far behind that is
    not believed."""
    max_files: Final = 100_000
    """Writers, and files, that a receiver takes; chunks of others are refused."""
    max_bundle_bytes: Final = 256 << 20
    """What bundles that come in chunks may take together."""

    # recording.py
    settle_timeout_s: Final = 30.0
    """How long what was recorded may take to arrive before the end of its task is reported without
    waiting for it."""
    orphan_check_interval_s: Final = 2.0
    """How often a process searches for what killed ones of the same run have left on its host."""
    exit_timeout_s: Final = 2.0
    """How long a process that ends waits for its last chunks to be taken."""
    max_known_runs: Final = 10_000
    """Run directories of which it is remembered whether this host sees them; then all are forgotten."""
    send_interval_s: Final = 0.5
    """Interval at which new lines are sent."""
    max_retry_pause_s: Final = 15.0
    """A connection that fails is retried after twice as long each time, and at least this often."""
    awaited_retry_pause_s: Final = 0.25
    """The same, while somebody waits for it."""
    alive_interval_s: Final = 5.0
    """A writer without new lines is reported alive this often."""
    max_spool_tries: Final = 5
    """How often a new spool is made that another process removes or takes at once."""
    abandoned_spool_age_s: Final = 600.0
    """A spool that was begun so long ago and has no run in it was given up by its process."""
