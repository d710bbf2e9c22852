"""Limits, waits and thresholds of `analyze/`: each stands in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class AdviceLimits:
    """What `advise` reads of earlier runs, and when a setting is worth a recommendation."""


class ChartLimits:
    """How many bars, lines and points a chart has."""

    # Names, rows and text of timelines
    max_coloured_names: Final = 12
    """Names with a colour of their own, those that took most time; all others share one."""
    max_compared_names: Final = 32
    """Names that are compared by time within a cell; all others count together."""
    max_name_characters: Final = 200
    """Characters that are drawn of a name or an id; the rest is cut."""
    max_rows: Final = 64
    """Rows of workers; beyond that, workers of one host share a row."""
    max_drawn_attempts: Final = 5000
    """Attempts that are drawn one by one; of more, each cell shows what ran most in it."""
    max_argument_characters: Final = 120
    """Characters of a task's arguments that are shown."""
    max_read_argument_characters: Final = 2000
    """Characters of a task's arguments that are read; longer ones are shown as cut text."""
    max_cells_per_row: Final = 400
    """Intervals into which a row is divided where attempts are not drawn one by one."""
    merged_load_difference: Final = 0.05
    """Neighbouring cells of one name become one where their load is this close to that of the first."""

    # Marks and nested spans of timelines
    max_marks: Final = 500
    """Marks of all kinds, such as failures and lost workers."""
    max_lost_worker_marks: Final = 100
    """Marks of lost workers; of more, evenly chosen ones."""
    max_error_characters: Final = 300
    """Characters of an error that are shown."""
    max_mark_intervals: Final = 100
    """Intervals of which each shows one mark of a kind where there are many."""
    max_nested_spans: Final = 2000
    """Spans inside tasks, the longest of each level."""
    max_span_levels: Final = 4
    """Levels of nested spans."""
    max_rows_with_spans: Final = 90
    """Rows of tasks and nested spans; deeper levels are left out where there would be more."""
    max_outside_spans: Final = 1000
    """Spans outside of tasks."""
    max_outside_rows: Final = 8
    """Rows of spans outside of tasks."""

    # Lines over time
    max_lines: Final = 16
    """Lines per chart, the largest."""
    max_line_points: Final = 300
    """Points per line of samples, not counting one for each gap."""
    max_concurrency_points: Final = 240
    """Points per line of attempts that ran or waited."""
    max_overview_points: Final = 120
    """Points per line of the overview that a terminal draws."""
    max_lookup_intervals: Final = 60
    """Intervals in which cache lookups are counted."""
    max_metrics: Final = 24
    """Metrics that are drawn, those with the most values."""
    max_metric_points: Final = 300
    """Points per metric, not counting one at its end."""
    gap_of_median_steps: Final = 3.5
    """Two points that are this many times the median step apart have a gap between them."""
    edge_tolerance_s: Final = 2.0
    """Samples taken this shortly before the run began or after it ended are drawn at its edge."""

    # Durations and waits
    max_histograms: Final = 20
    """Names with a histogram of durations, those that took most time."""
    max_bins: Final = 48
    """Bins of a histogram of durations."""
    max_wait_points: Final = 2000
    """Attempts whose wait and duration are drawn one by one; of more, they are counted in a grid."""
    max_grid_bins: Final = 40
    """Bins of that grid in each direction."""
    max_printed_histograms: Final = 5
    """Names with a histogram in a terminal, those with the largest total."""
    max_printed_bins: Final = 40
    """Bins of a histogram in a terminal."""


class CompareLimits:
    """What is compared, and when a difference counts as one."""


class CostLimits:
    """What is priced."""

    # Prices
    max_price_age_days: Final = 365
    """A price that was last known to hold longer ago than this is called old."""


class DeviceLimits:
    """What is read of device memory, and when something there stands out."""

    # Events of a session that are kept
    max_unordered_events: Final = 32
    """Events of a session that wait to be put in order: threads of a process write past each other."""
    max_points: Final = 2048
    """Events of a session that stay for medians and for what happened before an error; of more, evenly
    thinned ones."""
    max_curve_points: Final = 256
    """Groups of events in the curve of a session, each with its highest values."""
    max_recent_points: Final = 512
    """Events before the last that all stay: errors come at the end."""
    max_repetitions: Final = 512
    """Repetitions of a phase that stay to be compared; of more, evenly thinned ones."""
    max_phases: Final = 256
    """Phases of a session; those that come later are only counted."""
    max_errors: Final = 20
    """Errors of a session that are kept."""

    # What advice is given for
    max_advice_lines: Final = 8
    """Sentences of advice of one kind."""
    min_hidden_share: Final = 0.1
    """Share of the device that others than the framework's allocator must hold to be worth a sentence."""
    min_reserved_share: Final = 0.9
    """Share of the device that must be reserved for memory to be tight."""
    min_unused_share: Final = 0.2
    """Share of the reserved memory that must lie unused while memory is tight to count as fragmented."""

    # Growth
    max_gap_parts: Final = 48
    """Parts of a session whose medians tell whether memory outside of the allocator grows."""
    min_gap_growth_bytes: Final = 16 << 20
    """Growth of memory outside of the allocator below which it is not reported."""
    min_growth_bytes: Final = 1 << 20
    """Growth of anything else below which it is not reported."""
    min_levels: Final = 8
    """Levels that a growth needs, those of the warm-up included."""
    warm_up_levels: Final = 2
    """Levels at the start that never count; of more than 20, a tenth."""
    max_levels: Final = 192
    """Levels that are compared; of more, as many medians of neighbours."""
    max_growth_chance: Final = 0.005
    """A trend that levels in a random order show more often than this is none."""
    min_slope_of_thirds: Final = 0.4
    """Each third must rise at this share of the whole slope: steps and levelling off do not count."""
    max_drop_share: Final = 0.4
    """A drop between neighbours by this share of the whole growth is a reset (saw tooth)."""
    min_growth_of_scatter: Final = 3.0
    """The growth must be this many times the scatter around the line."""

    # Running out of memory
    rise_window_s: Final = 300.0
    """How far before an error a rise may begin, in seconds."""
    rise_start_share: Final = 0.1
    """A rise begins where the level was last within this share of its range above its lowest."""
    min_rise_share: Final = 0.05
    """Share of the device from which on a rise counts."""
    same_error_s: Final = 5.0
    """A bundle and an error event of the same session within that time are one."""
    large_allocation_share: Final = 0.25
    """Share of the device from which on one allocation is large."""
    min_others_share: Final = 0.05
    """Share of the device from which on other processes matter."""
    max_bundle_bytes: Final = 16 << 20
    """A bundle's document is a few kilobytes; one larger than that is none."""

    # Ranks
    min_ranks: Final = 3
    """With fewer ranks there are no stragglers."""
    straggler_duration_ratio: Final = 1.25
    """A rank is a straggler that takes this many times the median …"""
    straggler_memory_ratio: Final = 1.25
    """… or holds this many times the median …"""
    straggler_scatter_ratio: Final = 5.0
    """… and is this many times the median distance away from it."""
    min_straggler_s: Final = 0.1
    """Smaller differences of time are never reported."""
    min_straggler_bytes: Final = 64 << 20
    """Smaller differences of memory are never reported."""


class DiagnosisLimits:
    """How much text and how many causes a diagnosis takes in, and when it is sure."""

    # What is read of a run
    max_checked_bytes: Final = 32 << 20
    """Size of a record up to which it is checked for lines that are missing."""
    max_nonfinite_metrics: Final = 20
    """Metrics that became NaN or infinite that are read."""
    samples_before_s: Final = 120.0
    """Seconds before the end of an attempt from which samples are read."""
    samples_after_s: Final = 10.0
    """Samples this much later still tell of it: the kernel's counters are read by the next one."""
    max_samples: Final = 400
    """Samples that are read around one cause."""
    max_slope_samples: Final = 12
    """Samples of memory before the end that its slope is taken from."""
    max_neighbours: Final = 5
    """Tasks on the same host at that moment that are named."""

    # What belongs together
    host_loss_s: Final = 10.0
    """Workers of one host that go within this long went together."""
    consequence_before_s: Final = 2.0
    """What ends in connection with a lost worker may have ended this long before it was noticed …"""
    consequence_after_s: Final = 15.0
    """… and this long after it."""
    max_incident_s: Final = 60.0
    """What went on for longer was no moment: that something else ended meanwhile says nothing."""
    job_end_s: Final = 120.0
    """What ends this near to the end of its job may have ended with it: batch systems give time between
    signal and kill."""
    bundle_distance_s: Final = 60.0
    """A bundle of a device that ran out of memory belongs to failures that are no further off."""
    max_causes: Final = 30
    """Causes that are diagnosed, those that hit most first."""
    max_named: Final = 20
    """Tasks and workers of a cause that are named; counts are of all."""

    # Texts of failures
    max_characters_at_start: Final = 32 * 1024
    """Characters read of how a long text began …"""
    max_characters_at_end: Final = 96 * 1024
    """… and of how it ended."""
    max_line_characters: Final = 4_000
    """Characters of a line that are read."""
    max_message_characters: Final = 4_000
    """Characters of an exception's message that are kept …"""
    max_message_lines: Final = 40
    """… and lines of it."""
    max_exceptions: Final = 64
    """Exceptions kept of one text: this many of the first ones, and of the last."""
    max_line_prefixes: Final = 6
    """Prefixes that a line may carry: a pod's name, a time, a logger, a level, a rank."""
    min_wrapped_characters: Final = 30
    """Characters that a line must have to be one that a terminal or an editor wrapped."""
    max_rejoined_sentences: Final = 200
    """Sentences put together again, the last ones: a log of prose must not take twice the time."""

    # Rules
    min_word_letters: Final = 3
    """Letters that a word needs to be worth looking for before a pattern is tried."""
    max_words_per_pattern: Final = 24
    """Words by which lines for a pattern are found; a pattern with more is tried on every line."""
    max_lines_per_word: Final = 200
    """Lines tried for one pattern and word."""
    max_evidence_characters: Final = 240
    """Characters of a line that is quoted as evidence."""
    guess_weight: Final = 0.5
    """Part of the weight that words keep on a line that only supposes a cause ("perhaps out of memory?")."""
    weakened_weight: Final = 0.3
    """Part of the weight that a clue keeps where the text holds its `weakened_by`."""
    full_memory_share: Final = 0.9
    """Memory beyond this share of its limit leaves no room."""
    roomy_memory_share: Final = 0.5
    """Memory below this share of its limit was not the matter."""

    # Scores
    further_sign_weight: Final = 0.35
    """The part that each further sign of a class adds, of the part before."""
    doubt: Final = 1.0
    """The strength of "something else", at which a hint is as good as a guess; and …"""
    doubt_of_words: Final = 1.6
    """… where nothing but words speaks for a class: no exception, no exit, no batch system."""
    rival_weight: Final = 0.3
    """The part of the strongest rival's share that is taken off the confidence: near a tie, nobody should
    be sure."""
    min_strength: Final = 0.9
    """Strength below which no class is named, and …"""
    min_confidence: Final = 0.35
    """… confidence below which none is."""
    max_confidence: Final = 0.98
    """Confidence that is never exceeded."""

    # What a cause lists
    max_evidence: Final = 6
    """Pieces of evidence of one cause."""
    max_quoted_characters: Final = 160
    """Characters of a line that a cause quotes."""
    max_silent_failures: Final = 6
    """Causes of one kind that nothing failed of, such as metrics that became NaN."""
    needed_memory_ratio: Final = 1.2
    """Room above what a success is known to have needed that is recommended."""

    # Failures of a report
    max_dependency_rounds: Final = 64
    """Rounds in which chains of dependents are followed; each doubles the distance."""
    max_listed_causes: Final = 100
    """Causes that a report lists; its counts are of all."""
    max_traceback_characters: Final = 8000
    """Characters of a traceback that a report keeps, from its end."""
    max_examples: Final = 3
    """Failures of a cause that are listed, the earliest; the count is of all."""
    max_listed_per_cause: Final = 20
    """Workers, tasks and attempts that are listed of a cause, the most frequent first."""


class FindingLimits:
    """Below these, something is not worth a sentence."""

    # When a finding is worth a sentence at all
    min_share: Final = 0.03
    """The part of all worker time, or of the wall time, below which nothing stands out."""
    min_seconds: Final = 0.05
    """Seconds below which nothing stands out."""
    min_tasks_for_usual: Final = 5
    """Completed tasks of a name from which on it is known what is usual."""

    # Chains of tasks that depend on each other
    min_chain_share: Final = 0.1
    """The part of the wall time from which on a chain of tasks is reported."""
    min_chained_tasks: Final = 3
    """Tasks that a chain must have to be called one."""
    max_running_beside_chain: Final = 1.5
    """Tasks at once, on average, beyond which something else ran beside the chain."""
    max_queued_beside_chain: Final = 0.2
    """Queued tasks, on average, beyond which something else could have run beside the chain."""

    # Waiting for a CPU or the interpreter
    min_cpu_wait_share: Final = 0.1
    """The part of the time of tasks below which waiting for a CPU is what any machine has."""
    min_share_of_other_programs: Final = 0.25
    """The part of a machine's cores from which on other programs keep it busy."""
    max_own_share_beside_others: Final = 0.8
    """A run that has more than this part of the cores that it may use is not held up by others."""
    contended_interpreter_wait_s: Final = 0.002
    """A thread that waits this many seconds for the interpreter has others that compute in Python beside
    it."""

    # Workers that wait for the program
    max_named_spans: Final = 3
    """Span names in the sentence: those that took longest."""
    min_span_share: Final = 0.1
    """Spans below this part of the time that workers waited for the program are left out."""
    max_span_name_characters: Final = 60
    """Characters of a span's name; names that agree in these count as one."""
    max_span_depth: Final = 32
    """Levels of spans; the time of deeper ones counts for the last level."""

    # Metrics that are no numbers
    min_nonfinite_values: Final = 3
    """Values in a row, up to the last, that must be no numbers; fewer may be one odd batch."""
    min_nonfinite_share: Final = 0.2
    """The part of all values of the metric; fewer may be one of many trials that diverged."""

    # Moving data
    large_result_bytes: Final = 10 << 20
    """The size of a result from which on moving it is reported."""
    large_total_result_bytes: Final = 1 << 30
    """The size of all results from which on moving them is reported."""
    sizable_data_bytes: Final = 100_000
    """Data of a task from this size on takes time to move."""
    max_transfer_bytes_per_s: Final = 500e6
    """The rate at which data is moved at best."""
    min_transfer_steps: Final = 3
    """How many times as long moving takes as the worker's reading, at least: data is written, sent and
    received, too."""
    min_transfer_share_of_latency: Final = 0.3
    """If moving the data takes this part of the dispatch latency at best, that is what the latency is."""

    # Memory and devices
    full_memory_share: Final = 0.95
    """A peak beyond this part of the memory there is leaves no room."""
    min_leaked_share: Final = 0.02
    """The part of a device's memory that must have leaked to be reported."""
    busy_gpu_share: Final = 0.7
    """A GPU that is busy for this part of the time is well used."""
    min_gpu_run_s: Final = 10.0
    """Shorter runs have too few samples to say how busy a GPU was."""
    min_gpu_sampled_share: Final = 0.5
    """The part of the wall time that samples of a GPU must cover."""
    full_gpu_memory_share: Final = 0.8
    """A GPU of which more memory is in use has no room for larger batches."""

    # Workers
    min_tasks_per_worker: Final = 5
    """Tasks of one name that a worker must have completed to be compared."""
    slow_worker_ratio: Final = 1.5
    """A worker is slow whose tasks take this many times as long as those of the faster workers."""
    min_growth_bytes: Final = 100e6
    """Memory that a worker must gain in all to be said to grow."""
    min_growth_share: Final = 0.5
    """Memory that it must gain against what it began with."""


class HistoryLimits:
    """Which earlier runs are read, and when their durations have changed."""


class LiveLimits:
    """What is kept and shown of a run while it is followed."""


class PredictLimits:
    """What estimates are made from."""


class ReportLimits:
    """What a report lists, and how much of it."""

    # Verification
    max_listed_differences: Final = 8
    """Numbers of a summary that differ from the record and are named; the others are counted."""

    # The verdict
    max_failure_characters: Final = 120
    """Characters of a failure's text in the verdict."""
    min_limiting_share: Final = 0.1
    """What could save less than this part of the wall time limits nothing."""
    leak_share: Final = 0.3
    """Memory that grows with each task counts as much as a loss of this part of the time."""
    min_loading_share: Final = 0.25
    """The part of the wall time that loading must take to be named, if nothing takes more."""

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

    # The critical path
    max_listed_segments: Final = 10
    """Segments of the critical path that are listed, the longest."""
    max_path_names: Final = 100
    """Names that the critical path is summed up by; `links` is of all."""
    max_replayed_attempts: Final = 50_000
    """Up to this many attempts the maximum saving is computed: each answer replays all of them."""
    max_savings: Final = 3
    """Names, and single segments, that the maximum saving is computed of."""
    max_followed_spans: Final = 200_000
    """The longest spans that are followed; the time of shorter ones counts for the span around them."""

    # Time of workers
    max_listed_workers: Final = 1000
    """Workers that are listed, the busiest first; counts and sums are of all."""
    max_compared_marks: Final = 16
    """Up to this many marks are compared one by one; more by an ordered join."""
    max_listed_jobs: Final = 100
    """Jobs that are listed; counts are of all."""

    # Tasks and spans
    max_listed_names: Final = 1000
    """Names of tasks, and of spans, that are listed; counts are of all."""
    max_slowest_tasks: Final = 10
    """The slowest tasks of a run that are listed."""
    max_slowest_per_name: Final = 3
    """The slowest tasks of each name that are listed."""
    max_listed_in_flight: Final = 100
    """Tasks, and spans, in flight that are listed, the longest first."""
    concurrency_points: Final = 60
    """Points of the curve of concurrency over the run."""
    min_ended_for_usual: Final = 5
    """Tasks, or spans, that must have ended to say what is usual."""
    stuck_ratio: Final = 3.0
    """What has been running for this many times the p95 may be stuck."""
    max_tree_paths: Final = 1000
    """Paths that a tree of spans lists, the longest first; `paths` is of all."""
    max_tree_depth: Final = 100
    """Deeper spans are left out of a tree, and counted in `unplaced`."""
    max_listed_iterations: Final = 1000
    """Iterations of a loop that are listed, the last ones; figures of the loop are of all."""

    # Everything else
    max_listed_artifacts: Final = 100
    """Artifacts that are listed; `count` is of all."""
    max_metric: Final = 1.7e308
    """Larger numbers are no values of a metric: whole numbers in JSON have no end, floats have."""
    max_summed_s: Final = 1e20
    """More seconds, or fewer than none by as many, are noise, and count as so many in a sum."""
    max_device_events: Final = 50_000
    """Of more events of device memory a report does not look for leaks, unless it ran out: `flightlog
    devices` does."""
