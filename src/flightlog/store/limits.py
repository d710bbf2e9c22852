"""Limits, waits and thresholds of `store/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class StoreLimits:
    """Sizes, counts and waits of everything that writes, reads, copies and indexes runs."""

    # Reading lines and documents
    max_document_bytes: Final = 32 << 20
    """A larger JSON document of a run is not read."""
    max_line_bytes: Final = 16 << 20
    """A longer line is skipped and counted. DuckDB is given the same limit; it takes lines of up to twice as
    many bytes, and gives up on a file that has a longer one."""
    block_bytes: Final = 1 << 16
    """Bytes read at a time where the end of a file is searched backwards."""
    line_chunk_bytes: Final = 1 << 20
    """Bytes of lines read at a time."""
    scan_attempts: Final = 5
    """How often the files of a run that change while they are listed are listed again."""
    max_plain_gap_lines: Final = 1_000
    """A gap of up to this many numbers counts as lost lines without further evidence."""
    max_unwritten_numbers: Final = 64
    """Numbers beyond its last count that a writer may have given out in its last moment."""
    max_line_number: Final = 1 << 48
    """No process gives out a number this large; one that does is damaged."""
    heartbeat_timeout_s: Final = 60.0
    """A process on another host counts as alive while its heartbeat is younger than this."""

    # Following a run
    min_follow_pause_s: Final = 0.1
    """Pause between two looks at the files of a run while something comes."""
    max_follow_pause_s: Final = 0.3
    """The longest pause, unless looks take long: an event of a process on this host is given within half a
    second."""
    follow_pause_per_look: Final = 20.0
    """Seconds of pause for each second of CPU time that a look takes, even where nothing has come: with
    hundreds of writers looks are rarer, and take a twentieth of a core at most."""
    missing_line_wait_s: Final = 1.0
    """How long later lines of a writer wait for one that is missing: another thread may be writing it."""
    max_held_events: Final = 10_000
    """Lines of one stream of a writer that wait for a missing one."""
    max_followed_events: Final = 10_000
    """Events that are read, and brought into order, at a time."""
    followed_events_per_turn: Final = 1_000
    """Events that are read of one stream before it is another's turn."""
    events_per_loop_turn: Final = 100
    """Events that an asynchronous iteration gives before other coroutines have their turn."""
    silent_writer_wait_s: Final = 5.0
    """How long a run that is over is followed after the last event, where a writer left no word of itself."""
    tail_mark_bytes: Final = 200
    """The beginning of a tail, which tells its content from what was there before."""

    # Snapshots of a running run
    snapshot_free_space_divisor: Final = 4
    """A snapshot takes at most one part in this many of the free space for temporary files."""
    snapshot_max_age_s: Final = 3600.0
    """Snapshots that a killed process left behind are removed after this time."""
    snapshot_attempts: Final = 3
    """How often a run that changes while it is copied is copied again."""
    snapshot_chunk_bytes: Final = 1 << 20
    """Bytes copied at a time."""
    snapshot_checked_bytes: Final = 2 << 20
    """The last bytes of a recently written file that are checked line by line."""
    snapshot_recent_s: Final = 5.0
    """A file that was written to within this time counts as recently written."""
    snapshot_max_pending_lines: Final = 50
    """Numbers below the highest of the first this many checked lines stand before them, or come too late to
    wait for; at most this many lines are on their way."""

    # Writing
    rotate_bytes: Final = 1 << 30
    """A stream that reaches this size goes on in a new file."""
    max_backlog_bytes: Final = 1 << 18
    """Lines of one stream that wait in memory for a disk; more are dropped and counted."""
    slow_disk_s: Final = 1.0
    """A disk that takes longer than this for a tail is left to the background thread: the program waits for
    it no more. Lines then wait in memory, which a kill would take away; so it must be a disk that hangs,
    and not a busy machine."""
    disk_retry_s: Final = 0.2
    """Pause before a disk that refused a write is used again."""
    open_file_attempts: Final = 5
    """How often a line is written again to a file whose descriptor was lost."""
    line_settled_s: Final = 0.3
    """A number given out this long ago has its line written, or its loss counted."""
    finalize_chunk_bytes: Final = 8 << 20
    """Bytes of a segment joined at a time when a run is finalized."""
    finalize_sync_bytes: Final = 64 << 20
    """Joined bytes are brought to the disk after this many, so that the last sync is short."""

    max_added_tallies: Final = 10_000
    """Rows that were added to the counts of attempts of a followed run, after which these are made anew."""

    # Completing, headlines and the index of a runs folder
    max_completed_summary_bytes: Final = 16 << 20
    """A larger run is completed without its headline numbers, which readers count when they need them."""
    max_ordered_tasks_bytes: Final = 16 << 20
    """Lines of tasks up to this size are put in order of time when a run is completed."""
    max_counted_earlier_run_bytes: Final = 1 << 20
    """Of an earlier run up to this size that was not completed the headline numbers are counted when asked
    for."""
    completion_wait_s: Final = 10.0
    """How long a reader waits for another process that completes the same run."""
    max_headline_names: Final = 1000
    """How many task names a headline lists, those with the most tasks; totals are of all."""
    max_index_names: Final = 64
    """Task names of a run that an index keeps; numbers of the others are read from the run when they are
    asked for."""
    min_indexed_runs: Final = 50
    """Folders with fewer runs get no index for their documents alone."""
    max_selected_runs: Final = 50
    """Earlier runs of a project that plans, time left, advice and prediction look at, the newest ones."""
    file_settled_ns: Final = 3_000_000_000
    """A file that changed more recently may change again without its times telling: longer than the coarsest
    step in which a file system counts time (two seconds, on FAT)."""
    index_leftover_s: Final = 3_600.0
    """Temporary files of an index that a killed process left behind are removed after this time."""

    # Tables
    max_replayed_attempts: Final = 50_000
    """Up to this many attempts the maximum saving is computed: each answer replays all of them."""
    max_task_levels: Final = 32
    """How many spans may be between a task and those inside of it."""
    max_compared_marks: Final = 16
    """Up to this many marks are compared one by one; more by an ordered join."""
    large_stream_bytes: Final = 16 << 20
    """Of a stream of at least this many bytes, rows are kept on disk and not in memory."""
    large_run_memory: Final = "340MB"
    """What DuckDB may hold at once of a run with a large stream; the rest waits on disk."""
    sampled_pieces: Final = 16
    """Pieces of a large stream that tell which fields its lines have; those of no piece are kept as one
    column."""
    max_union_runs: Final = 8
    """This many runs are read one by one. More are read by one scan, and their small files from one
    bundle."""
    max_bundled_file_bytes: Final = 1 << 20
    """Larger files are read from where they are and not from a bundle."""
    repair_chunk_bytes: Final = 8 << 20
    """Bytes of lines repaired at a time where DuckDB cannot read a file as it is."""
    snapshot_note_bytes: Final = 256 << 20
    """Written Parquet is noted after this many bytes of lines: of a run of thousands of streams not after
    each of them."""
    threaded_hash_bytes: Final = 8 << 20
    """Files of this many bytes together are hashed in several threads."""
    max_known_hashes: Final = 10_000
    """Hashes of files that a process remembers."""

    # Remote copies
    remote_refresh_s: Final = 10.0
    """A remote is asked no more often than that, and seldom enough to take a fifth of the time at most."""
    transfer_chunk_bytes: Final = 8 << 20
    """What is in memory at a time, and one part of a multipart upload."""
    min_transfer_bytes_per_s: Final = 64 << 10
    """A slower connection counts as one that hangs."""
    copy_list_attempts: Final = 4
    """How often the notes of a remote run are read again that change meanwhile."""
    max_concurrent_reads: Final = 16
    """Objects read at a time."""
    remote_list_timeout_s: Final = 60.0
    """How long to wait for a listing of everything."""
    remote_read_timeout_s: Final = 20.0
    """How long to wait for one small answer."""
    mirror_attempts: Final = 4
    """How often a run that goes on is read again while it is mirrored."""
    mirror_in_use_s: Final = 3_600.0
    """A copy that was opened within this time is not removed: somebody may be reading it."""
    sync_lock_wait_s: Final = 0.5
    """How long to wait for the lock of a copy, which `is_followed` holds for a moment."""
    upload_passes: Final = 6
    """How often a run that changes while it is uploaded is looked through again."""
    max_piece_bytes: Final = 32 << 20
    """The largest piece of a file that is uploaded as one object."""
    joined_pieces: Final = 16
    """This many pieces of about one size are joined into one, by sending their bytes again."""
    piece_size_steps_bytes: Final = (16 << 10, 256 << 10, 4 << 20)
    """Pieces below each of these sizes are joined with others of their kind."""
    upload_timeout_s: Final = 60.0
    """How long a remote that does not answer is retried by whoever waits for it."""
    ended_upload_timeout_s: Final = 300.0
    """How long it is retried beside a run that has ended."""
    upload_interval_s: Final = (2.0, 20.0)
    """Pause between two copies of a run that goes on: at first, and after a while. A heartbeat must come over
    in time."""
    upload_poll_s: Final = 0.2
    """How often the uploader looks whether the run has ended."""
    upload_retry_s: Final = (1.0, 30.0)
    """Pause before a failed upload is retried: at first, and at most."""

    # Runs that were slower than earlier ones
    max_earlier_runs: Final = 10
    """Earlier runs that count, the newest ones."""
    min_earlier_runs: Final = 5
    """Of fewer earlier runs it is not known how much they vary."""
    min_slowdown: Final = 1.2
    """A smaller ratio is not worth a sentence."""
    false_alarm_rate: Final = 0.001
    """How likely a run may be called slow that varies as those before it did, where logarithms of durations
    are normally distributed; with a long tail of slow runs it is up to 2.5 %, by simulation."""
    max_slow_earlier_runs: Final = 2
    """Earlier runs that were clearly slow themselves and are not counted; where there are more, that is what
    is usual."""
    slow_earlier_run_rate: Final = 1e-5
    """How likely an earlier run may be left out that varies as the others do."""
    max_difference_of_work: Final = 0.1
    """By how much the number of tasks of a name, and the share of cache hits, may differ between runs that
    are compared."""
    min_explained_share: Final = 0.5
    """The part of the additional time that something must have taken to be named as the reason."""

    # Device sessions
    max_listed_problems: Final = 20
    """Problems that are named one by one; all are counted."""
    device_chunk_bytes: Final = 1 << 17
    """Bytes of a device file read at a time."""
    max_device_object_bytes: Final = 256 << 20
    """At most this much of a file is in memory, unpacked; lines, and records of an array, are read a piece at
    a time."""
    device_read_attempts: Final = 4
    """How many ends of records are tried, from the last, where a piece of an array is cut."""
