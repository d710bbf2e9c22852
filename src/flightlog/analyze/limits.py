"""Limits, waits and thresholds of `analyze/`: each stands in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class AdviceLimits:
    """What `advise` reads of earlier runs, and when a setting is worth a recommendation."""

    # Which runs advice is drawn from
    min_confidence: Final = 0.5
    """Lowest share of later attempts that advice can be asked to be enough for."""
    max_confidence: Final = 0.999
    """Highest such share."""
    max_projects_searched: Final = 20
    """Projects that are searched for a task, those with the newest runs first."""
    max_runs: Final = 20
    """Most runs whose work is looked at, the newest ones."""
    max_tasks: Final = 3_000_000
    """Most tasks of these runs together; `min_runs` runs are read whatever their size."""
    min_runs: Final = 3
    """Least runs that are read, however many tasks they have."""
    max_runs_in_full: Final = 5
    """Runs of each target read in full; of older ones those where something failed or was cached."""

    # Rounding of requests
    max_rounding_share: Final = 0.03
    """A step of memory is at most this share of the amount, so that rounding asks for little more."""
    cpu_tolerance: Final = 0.05
    """CPUs in use by this share above a number are that number: clocks are no finer."""
    max_cpus_of_waiting_task: Final = 0.3
    """CPUs in use up to which half a CPU is asked for: more may be a task that had to share one."""

    # Caching
    min_call_s: Final = 0.05
    """Shorter calls gain little by a lookup, which takes about a millisecond."""
    min_cache_saving_s: Final = 5.0
    """Least time that a cache has to save."""
    min_cache_saving_share: Final = 0.1
    """Least share of a function's time that a cache has to save."""
    min_repeated_calls: Final = 3
    """Least number of repeated calls."""
    max_written_bytes: Final = 1 << 20
    """A call that writes more makes files, which a cached result would not."""
    min_runs_without_hit: Final = 3
    """Least runs without a hit before a cache is said never to hit."""
    min_lookups_without_hit: Final = 20
    """Least lookups without a hit before a cache is said never to hit."""

    # What a task needs
    min_duration_for_cpus_s: Final = 0.1
    """Shorter attempts say nothing of CPUs: clocks tick at a hundredth of a second."""
    max_runs_ahead: Final = 5
    """How many runs ahead advice on a growing need is for; never more than half of those seen."""
    min_runs_for_drift: Final = 6
    """Least runs that show a drift."""
    min_need_change: Final = 0.05
    """Smaller changes of a need are not worth leaving out, or correcting, history for."""
    max_bracket_ratio: Final = 1.1
    """A value known to lie between two that are no further apart counts as the larger one."""
    max_bound_ratio: Final = 100.0
    """No bound is larger than this multiple of what was seen."""
    max_argument_rows: Final = 5
    """Values of an argument for which the need is listed."""
    max_fit_rounds: Final = 6
    """How often a dependence is fitted anew with the tasks that were killed."""
    min_log_spread: Final = 0.01
    """Least deviation of logarithms, whatever a few values look like."""
    assurance: Final = 0.80
    """Share of histories of a length in which the bound covers the share that was asked for."""
    min_values: Final = 5
    """Least exact values that give a bound."""
    min_values_for_growth: Final = 15
    """Least values that show a dependence on an argument."""
    max_values_for_growth: Final = 1000
    """Most values that a dependence is fitted to, evenly spread over all."""
    max_held_out_error: Final = 0.7
    """Error on held-out values up to which a dependence is believed, as a share of that of their median."""
    min_rank_correlation: Final = 0.3
    """Least rank correlation of a need with a numeric argument."""
    max_arguments: Final = 12
    """Numeric arguments that are tried, the first by name."""
    max_argument_products: Final = 5
    """Of these, the first ones whose products of two are tried as well."""
    max_argument: Final = 1e30
    """Larger arguments are no sizes of anything, and the square of their cube would overflow."""
    max_categories: Final = 8
    """Most values that an argument may have as a category."""

    # Number of workers
    max_replay_error: Final = 0.15
    """How far a replay may be off the measured time, as a share of it."""
    max_slowdown: Final = 0.05
    """Share by which the wall time may grow for the sake of fewer workers."""
    min_wall_s: Final = 10.0
    """Shorter runs get no advice on workers."""
    min_worker_saving_share: Final = 0.15
    """Least share of worker time that fewer workers have to save."""
    min_local_worker_saving_share: Final = 0.50
    """The same where workers are processes of one's own machine."""
    min_wall_for_more_workers_s: Final = 600.0
    """Wall time from which on more workers of a cluster are advised."""
    min_busy_share: Final = 0.9
    """Share of their time for which workers are busy where more of them are advised."""
    min_speedup_share: Final = 0.25
    """Least share of wall time that more workers have to save."""
    usable_share_of_machine: Final = 0.8
    """Share of a machine's cores and memory that advice may plan with."""
    min_agreeing_runs: Final = 3
    """Least runs that have to agree before a number of workers is advised."""
    max_replayed_jobs: Final = 5_000
    """Most pieces of work of a run that are replayed; of more tasks, neighbours are put together."""
    max_batches: Final = 2_000
    """Runs with more batches of work are not replayed."""

    # Threads and processes
    min_similar_runs: Final = 2
    """Least runs of a kind before threads, processes or chunks are advised."""
    min_threads_at_once: Final = 1.5
    """Fewer concurrent tasks of a process say nothing of a lock between them."""
    min_speedup_by_processes: Final = 1.3
    """Least speed-up of tasks by processes, on the cores that were free."""
    min_saving_s: Final = 5.0
    """Less time of a run is not worth a change."""
    min_startup_share: Final = 0.3
    """Share of worker time spent on starting processes from which on threads are advised."""
    max_work_per_startup: Final = 0.5
    """CPU time of all tasks, as a share of one process start, up to which threads are advised."""
    min_result_bytes: Final = 1 << 20
    """Results from which on their transfer is mentioned."""

    # Chunks
    min_tasks_for_chunks: Final = 200
    """Least tasks of a name in a run whose dispatch was measured."""
    min_dispatch_share: Final = 0.1
    """Least share of the time of tasks and dispatch that dispatch takes."""
    min_dispatch_s: Final = 1.0
    """Least dispatch latency in a run, in worker-seconds."""
    max_dispatch_share_of_chunk: Final = 0.01
    """Share of a chunk's time that its dispatch may take."""
    min_chunks_per_worker: Final = 8
    """Least chunks per worker: few large ones leave workers idle at the end."""
    max_chunk_s: Final = 10.0
    """Longest chunk that is advised."""

    # Requests
    max_unused_share: Final = 0.10
    """A request is right as it is where less than this share of it could be saved."""
    max_missing_share: Final = 0.02
    """A request is right as it is where less than this share of it is missing."""
    busy_host_percent: Final = 85.0
    """Percent of the hosts' CPUs in use from which on tasks may have waited for them."""
    negligible_cpus: Final = 0.05
    """CPUs in use that are as good as none."""

    # Retries
    min_vain_retries: Final = 5
    """Tasks that have to fail again before their retries are called useless."""
    min_vain_retries_of_transient: Final = 10
    """The same where the error may pass by itself."""
    min_rescued_tasks: Final = 3
    """Retried tasks that have to complete before retries are advised."""
    min_rescued_share: Final = 0.5
    """Share of the retried tasks that has to complete."""
    min_retry_s: Final = 0.1
    """Least time of a run that further attempts take."""
    large_retry_s: Final = 1.0
    """Time of a run that is worth advice whatever its share."""
    min_retry_share: Final = 0.01
    """Least share of worker time where further attempts take less than that."""
    advised_retries: Final = 2
    """Retries that are advised."""

    # Statistics of a run
    max_cache_reasons: Final = 5
    """Reasons of a cache that are kept for each function, the most frequent ones."""
    max_failure_kinds: Final = 1000
    """Kinds of failures of a run that are kept, those of most tasks first."""

    # Time limits
    min_ended_jobs: Final = 5
    """Least jobs that ended by themselves before a shorter limit is advised."""
    min_completed_tasks: Final = 20
    """Least tasks that completed before a shorter timeout is advised."""
    min_runs_with_limit: Final = 2
    """Least runs, or tasks, with a limit before it is advised to change it."""
    far_limit_ratio: Final = 3.0
    """A limit of this multiple of the longest job is far too long."""
    near_limit_share: Final = 0.9
    """A job or task that takes this share of its limit nearly reaches it."""
    limit_margin: Final = 1.5
    """An advised limit is this multiple of the longest, rounded up."""
    max_share_of_completed: Final = 0.5
    """What ran into a limit hung where all that completed took less than this share of it."""
    min_walltime_s: Final = 1800
    """Shorter limits of jobs gain nothing in a batch system's queue."""


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

    # What is compared
    min_span_share: Final = 0.01
    """Spans that take less of the wall time are left out: a task may hold thousands of them."""
    max_lost_share: Final = 0.01
    """Of a stream that lost a larger share of its lines, what they recorded is not compared."""
    max_elapsed_notes: Final = 5
    """Task names whose times with waiting are named."""
    max_argument_examples: Final = 3
    """Examples of arguments that only one side has."""
    min_shared_arguments: Final = 0.5
    """Where both sides share a smaller part of the sets of arguments, tasks did other work."""
    parallel_runs: Final = 4
    """Runs whose times are split at once: much of it is sorting, in one thread per run."""
    max_names_per_share: Final = 3
    """Names that a share of the wall time's difference mentions."""
    max_environment_values: Final = 4
    """Values of one side that are listed; a group of runs may have one each."""

    # When a difference is a change
    bootstrap_draws: Final = 500
    """How often the blocks are drawn: the standard error is then good to 3 %, in some 10 ms."""
    max_names_with_all_draws: Final = 60
    """Names that have all draws, those that take most time."""
    fewer_bootstrap_draws: Final = 100
    """Draws of each other name."""
    bootstrap_blocks: Final = 40
    """Blocks of tasks next to each other in time: enough to tell their spread."""
    min_blocks: Final = 4
    """Fewer values than this on a side are inconclusive."""
    min_values_for_p95: Final = 40
    """Fewer values than this hold no more than two above their p95."""
    confidence: Final = 0.95
    """Confidence level of the intervals."""
    min_runs_for_spread: Final = 4
    """Runs beyond one per side that are enough to measure how much runs differ."""
    min_run_deviation: Final = 0.01
    """Least deviation of the logarithm of a whole run: heat, neighbours, layout."""
    autocorrelation_errors: Final = 1.0
    """Standard errors beyond which neighbouring blocks resemble each other."""
    outlier_reach: Final = 2.0
    """Deviations from the median that an outlier counts at most."""
    false_alarm_rate: Final = 0.04
    """Highest share of noise among what is called a change."""
    min_change: Final = 0.03
    """A smaller relative change is called none, however sure it is."""
    max_inconclusive_ratio: Final = 1.3
    """An interval that holds 1 and reaches beyond this ratio, or its inverse, is inconclusive."""


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
    max_under_way: Final = 4
    """Attempts that were under way when the run ended that are named one by one."""
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

    min_hung_s: Final = 10.0
    """Seconds without any end from which on a task without one may be stuck."""
    hung_ratio: Final = 5.0
    """How many times as long as the longest other task of its name that is."""
    min_hung_alone_s: Final = 300.0
    """The same in seconds for a task that is the first of its name, whose worker used no CPU meanwhile."""
    max_cores_of_hung: Final = 0.05
    """Cores that count as none: a process that does nothing but record uses less."""

    # Chains of tasks that depend on each other
    min_chain_share: Final = 0.1
    """The part of the wall time from which on a chain of tasks is reported."""
    min_chained_tasks: Final = 3
    """Tasks that a chain must have to be called one."""
    max_running_beside_chain: Final = 1.5
    """Concurrency, on average, beyond which something else ran beside the chain."""
    max_queued_beside_chain: Final = 0.2
    """Queued tasks, on average, beyond which something else could have run beside the chain."""
    max_program_share_between_tasks: Final = 0.25
    """What a program may do between tasks, against their time, for waiting for each to be what limits it."""

    # Waiting for a CPU or the interpreter
    min_cpu_wait_share: Final = 0.1
    """The part of the time of tasks below which waiting for a CPU is what any machine has."""
    min_share_of_other_programs: Final = 0.25
    """The part of a machine's cores from which on other programs keep it busy."""
    max_own_share_beside_others: Final = 0.8
    """A run that has more than this part of the cores that it may use is not held up by others."""
    max_blocked_share: Final = 0.1
    """The part of the time of tasks that they may wait for something else than a CPU for fewer workers to
    finish as soon."""
    min_cores_for_processes: Final = 1.5
    """Cores that a run may use below which processes in place of threads gain nothing."""
    contended_interpreter_wait_s: Final = 0.002
    """A thread that waits this many seconds for the interpreter has others that compute in Python beside
    it."""

    min_contended_share: Final = 1 / 3
    """The part of the time in which a thread was seen to wait that long: one that asks while another lets go
    of the interpreter gets it at once."""
    min_cores_in_turns: Final = 0.7
    """Cores that threads use, or wait for, from which on they are busy with the interpreter."""
    max_cores_in_turns: Final = 1.4
    """Cores above which they compute outside of it."""

    min_stolen_share: Final = 0.1
    """The part of the CPU time of a machine that the hypervisor must have given away to be reported."""
    min_pressure_share: Final = 0.15
    """The part of the wall time in which something waited for storage, or for memory, to be reported."""
    min_storage_bytes: Final = 50e6
    """Data that a run must have moved to or from storage to be what the storage was busy with."""
    min_own_memory_share: Final = 0.5
    """The part of a host's memory in use that must be this run's to have made it run short."""
    min_major_faults: Final = 1000
    """Pages that a task must have waited for to be short of memory itself."""
    min_swapped_bytes: Final = 256e6
    """Memory that must have been moved to swap while the run went on to be reported."""

    # Workers that wait for the program
    max_named_spans: Final = 3
    """Span names in the sentence: those that took longest."""
    min_span_share: Final = 0.1
    """Spans below this part of the time that workers waited for the program are left out."""
    max_span_name_characters: Final = 60
    """Characters of a span's name; names that agree in these count as one."""
    max_span_depth: Final = 32
    """Levels of spans; the time of deeper ones counts for the last level."""

    min_share_before_tasks: Final = 0.2
    """The part of the wall time before the first task from which on it is reported."""
    max_framing_s: Final = 0.5
    """Seconds before the first task, and after the last one, that starting and ending a session takes."""

    # Spans that hold most of the time
    min_dominant_share: Final = 0.25
    """The part of the wall time that a span on the critical path must hold to be named."""
    max_dominant_share_alone: Final = 0.95
    """A span that nothing is around or inside of is the program itself if it holds more than this part."""
    min_waiting_share: Final = 0.5
    """The part of a span's time without computing from which on it mostly waits."""

    # Tasks that take turns
    min_lock_share: Final = 0.25
    """The part of the time of tasks that they must have waited for locks to be reported."""
    min_tasks_in_turn: Final = 10
    """Completed tasks of a name from which on it is known how they ended."""
    max_active_in_turn: Final = 1.15
    """Tasks at work at a time, on average, above which they do not take turns."""
    min_at_once_in_turn: Final = 1.5
    """Average concurrency below which tasks do not wait for each other."""
    min_regular_gap: Final = 0.5
    """The p10 of the time between two ends, of its median, and that of its mean: tasks that do not wait for
    each other end together, or at random."""
    min_longer_in_turn: Final = 1.5
    """How many times as long as the shortest task the median is."""
    max_turn_share_alone: Final = 2.0
    """How many times as long as the time between two ends a task takes that is alone."""

    # Metrics that are no numbers
    min_nonfinite_values: Final = 3
    """Values in a row, up to the last, that must be no numbers; fewer may be one odd batch."""
    min_diverging_values: Final = 20
    """Values of a loss from which on it is known whether it grows."""
    diverging_ratio: Final = 10.0
    """How many times its least value, as medians of fifths, a loss that diverges is at the end."""
    sure_diverging_ratio: Final = 100.0
    """The same from which on nothing but a divergence explains it."""
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
    min_growth_samples: Final = 10
    """Samples of a program without tasks from which on it is known whether its memory grows."""
    min_growth_evenness: Final = 0.3
    """What memory must gain in each fifth of the time, of what it gains in a fifth on average."""
    min_growth_share: Final = 0.5
    """Memory that it must gain against what it began with."""
    foreseeable_tasks: Final = 1000
    """Further tasks of a worker within which growing memory must reach the limit to be what matters most; or
    ten times those that there were."""
    foreseeable_s: Final = 3600.0
    """The same in seconds for a program without tasks; or ten times what it took."""


class HistoryLimits:
    """Which earlier runs are read, and when their durations have changed."""

    # Attempts of earlier runs
    max_attempts: Final = 100_000
    """Most attempts of earlier runs that are read, the newest ones."""
    max_named_problems: Final = 20
    """Unreadable runs that are named; the rest is counted."""
    retry_factor_after_kill: Final = 1.5
    """Multiple of a limit to ask for after an attempt was ended at it: how much it needed is unknown."""

    # Steps in a series of runs
    false_alarm_rate: Final = 0.03
    """Highest probability that a series without any change shows a step."""
    min_values_beside_step: Final = 3
    """Least values on either side of a step that is found by order; fewer are outliers."""
    min_values_for_step: Final = 10
    """Least values that tell a step from noise by their order alone."""
    min_values_beside_clear_step: Final = 2
    """Least values on either side of a step that stands out by its size; one alone is an outlier."""
    min_values_beside_clear_step_of_few: Final = 4
    """The same in a series of fewer than `min_values_for_step` values."""
    clear_step_false_alarm_rate: Final = 0.01
    """Highest probability that noise shows a step that stands out by its size, by simulation."""
    false_alarm_share_of_whole: Final = 0.75
    """Share of the false alarm rate that a whole stretch gets; the windows in it get the rest."""
    shortest_window: Final = 16
    """Values in the shortest window that is searched for a bump."""
    min_values_for_autocorrelation: Final = 50
    """Least values whose differences alone tell whether each resembles the one before."""
    autocorrelation_errors: Final = 1.0
    """Standard errors beyond which neighbouring values are called alike."""
    outlier_clip: Final = 3.0
    """Deviations from its level to which a value is drawn in when a line is fitted."""
    max_step_moves: Final = 4
    """How often steps are moved to where they stand out most."""
    outlier_deviations: Final = 8.0
    """Deviations of the middle half from its level that make a value an outlier."""
    min_values_for_outlier: Final = 8
    """Least values of a level in which one may be called an outlier."""

    # Trends
    min_trend_change: Final = 0.01
    """Least relative change that is called a step, however clear it is."""
    min_runs_for_interval: Final = 4
    """Least runs on either side of a step that give its size a confidence interval."""
    max_runs_beside_step: Final = 200
    """Runs on either side of a step from which its size is computed."""
    max_plausible_value: Final = 1e100
    """Nothing in a run is as large: what claims to be is damage."""


class AlertLimits:
    """Of alerts: what is said, and how sure of it one is."""

    max_message_chars: Final = 500
    """Characters of what an error or a row of a query adds to a message."""
    min_stuck_s: Final = 60.0
    """Whatever usual is, nothing that runs for less is an alert."""
    retry_wait_s: Final = 2.0
    """A task that failed so recently may be about to be retried: it is no alert yet."""
    max_causes: Final = 1000
    """Names of tasks and classes of their errors that are told apart, those that failed last."""
    max_silence_s: Final = 3600.0
    """A run of another host is over after so long without a heartbeat; before that, they may resume."""


class LiveLimits:
    """What is shown of a run while it is followed, and what following it may cost."""

    # Texts
    max_name_chars: Final = 200
    """Characters of names, ids and hosts; longer ones are cut."""
    max_args_chars: Final = 200
    """Characters of the arguments of a task, or of the tags of a span."""
    max_line_chars: Final = 300
    """Characters of a line of the log, and of a problem."""
    max_message_chars: Final = 2_000
    """Characters of the message of a failure."""
    max_traceback_chars: Final = 8_000
    """Characters of a traceback, from its end."""

    # Lists; counts beside them are of all
    max_listed_names: Final = 200
    """Names of tasks that are listed, the largest."""
    max_listed_workers: Final = 200
    """Workers that are listed, busy ones first."""
    max_listed_machines: Final = 64
    """Hosts, and devices, that are listed."""
    max_listed_failures: Final = 50
    """Failures that are listed, the newest."""
    max_log_lines: Final = 200
    """Lines of the log, the newest."""
    max_slowest_tasks: Final = 20
    """Completed tasks that are listed, the slowest."""
    max_listed_spans: Final = 100
    """Names of spans that are listed, those that took most of the time."""
    max_listed_metrics: Final = 50
    """Metrics that are listed, in order of their names."""
    max_listed_problems: Final = 20
    """Problems of the recording that are listed."""
    max_listed_tags: Final = 50
    """Tags of the run that are listed."""

    # Charts
    chart_window_s: Final = 600
    """Charts are of so many seconds, the last ones."""
    max_chart_points: Final = 300
    """Points of a line."""
    max_chart_series: Final = 16
    """Lines of a chart."""
    max_chart_gap_s: Final = 15
    """A line of samples is interrupted where there are none for longer than this."""
    max_metric_curves: Final = 6
    """Metrics that are drawn, those with the most values."""
    max_metric_points: Final = 200
    """Points of the curve of a metric."""
    max_timeline_bars: Final = 500
    """Attempts that ended that are drawn one by one, the newest."""
    max_timeline_running: Final = 200
    """Attempts that run that are drawn, the longest."""
    max_timeline_rows: Final = 60
    """Rows of the timeline; attempts of further workers are not drawn."""
    max_timeline_names: Final = 10
    """Names with a colour of their own, those that took most of the time."""

    # Rates and states
    rate_window_s: Final = 60
    """Tasks per second are those of so many seconds, the last ones."""
    concurrency_window_s: Final = 10
    """Concurrency, for the time left, is averaged over this time: at a single moment a worker may have no
    task, between one and the next, or two, where the end of the one is not written yet."""
    max_stale_share: Final = 0.01
    """While a run goes on, quantiles are computed again when so many more have ended."""
    min_attempts_of_worker: Final = 3
    """Attempts that show whether a worker executes several at once."""

    # Reading
    update_interval_s: Final = 1.0
    """A state is computed no more often than this."""
    max_cpu_share: Final = 0.2
    """The part of a core that following a run may take: where a state costs more, it is computed less
    often."""
    forget_after_s: Final = 60.0
    """A run that nobody asked for in this time is no longer followed."""
    read_slice_s: Final = 0.4
    """How long one run is read before the next has its turn."""
    max_events_per_turn: Final = 1_000
    """Events that are taken from one stream before the next has its turn."""
    max_bytes_at_once: Final = 8 << 20
    """A run that is over and has no more bytes of lines is read before anything is shown of it."""
    max_buffered_lines: Final = 20_000
    """Lines of one stream that are read before they are added to their table."""
    remote_interval_s: Final = 5.0
    """Shortest time between two requests to a remote."""
    reader_niceness: Final = 10
    """By how much the priority of the thread that reads is lowered."""


class PredictLimits:
    """What estimates are made from."""

    # Intervals by task name
    confidence: Final = 0.9
    """Share of later values that an interval holds."""
    max_recent_attempts: Final = 400
    """Most attempts of a name that count, the newest."""
    min_attempts: Final = 5
    """With fewer attempts of a name there is no estimate."""
    min_attempts_for_ranks: Final = 20
    """Attempts from which on ranks alone give an interval; it is wider for fewer."""

    # Time left
    min_ended_tasks: Final = 3
    """Of a name of which fewer tasks have ended nothing is said."""
    max_duration_s: Final = 1e9
    """Thirty years: what claims to have taken longer did not, and its square may overflow."""
    pace_deviation: Final = 0.02
    """Relative deviation of a machine's pace, judged by the run so far."""
    other_run_deviation: Final = 0.2
    """Relative deviation of a task of an earlier run from one of this run."""
    eta_draws: Final = 60
    """How often the rest of the run is simulated."""
    eta_draws_outside: Final = 1
    """Draws at either end that the interval leaves out."""
    max_eta_names: Final = 20
    """Names that are drawn anew each time, the largest; of others the mean counts."""
    max_queued_tasks: Final = 240
    """Waiting tasks that are placed one by one, the last; of others the sum counts."""
    max_running_tasks: Final = 400
    """Running tasks that stand for all of them."""
    max_ended_tasks: Final = 500
    """Ended tasks that count, the last of each name."""
    min_excess_share: Final = 0.02
    """Share of its length by which the longest duration seen is exceeded, if at all."""
    min_survival_share: Final = 0.05
    """Least share of 1 by which what outlasts all that was seen is divided."""
    changed_deviations: Final = 3.5
    """Deviations from which on the tasks that began last are of another kind than those before."""

    # Makespan of a plan
    max_drawn_tasks: Final = 200_000
    """Tasks that are drawn in all rounds of a simulation together."""

    # Arguments
    max_argument_depth: Final = 3
    """Nesting up to which arguments are read."""
    max_argument_items: Final = 8
    """Items of each list that are read."""
    max_argument_values: Final = 40
    """Values of one call that are read."""
    max_words: Final = 16
    """Words of an argument that get a column each, the most frequent ones."""
    min_word_count: Final = 5
    """How often a word must be seen to get a column."""
    max_word_characters: Final = 200
    """Characters of a text that are read."""

    # Models
    max_model_bytes: Final = 256 * 2**20
    """A larger model file is refused."""
    max_new_tasks_share: Final = 0.2
    """A model is stale when newer runs hold more than this share of the tasks it learnt from."""
    max_new_runs: Final = 10
    """A model is stale when there are so many newer runs."""
    tested_share: Final = 0.3
    """Share of the runs, the newest, that predictions are tested on."""
    test_steps: Final = 3
    """Steps in which these are taken: a model learns from everything before its step."""
    min_tested_runs: Final = 3
    """Least runs that allow a test."""

    # Training
    learning_rate: Final = 0.1
    """Learning rate of gradient boosting."""
    max_examples: Final = 10_000
    """Most examples that are learnt from, the newest: more add time and little else."""
    learnt_share: Final = 0.65
    """Share of the examples, the oldest, that boosting learns from."""
    min_examples_to_learn: Final = 60
    """With fewer examples to learn from there is no boosting."""
    min_examples_to_judge: Final = 20
    """With fewer examples to judge by there is no boosting."""
    max_judged_examples: Final = 3_000
    """Newer examples that the methods are compared on, about, evenly taken."""
    min_examples_of_name: Final = 10
    """With fewer to learn from, a name has the baseline."""
    min_examples_for_own_correction: Final = 30
    """Examples from which on a name has its own correction; with fewer it has that of all names."""
    max_loss_ratio: Final = 0.98
    """Boosting is taken where its loss is at most this share of the baseline's."""
    min_runs_for_drift: Final = 5
    """Least runs that show a steady rise or fall."""
    drift_errors: Final = 4.0
    """Least slope of a steady rise or fall, in standard errors."""
    min_error_increase: Final = 0.05
    """A column matters where shuffling it makes the error larger by at least this share."""
    error_increase_errors: Final = 3.0
    """And by so many standard errors."""
    max_tried_examples: Final = 300
    """Most examples that columns are tried on, evenly taken."""
    learnt_share_for_columns: Final = 0.75
    """Share of the examples that the model learns from which tells which columns matter."""


class ReportLimits:
    """What a report lists, and how much of it."""

    # Keeping
    min_kept_report_bytes: Final = 16 << 20
    """The report of a run with lines of this size takes long enough to be kept beside it, and read from there
    while nothing changes."""

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
    min_start_up_s: Final = 1.0
    """Worker start-up that could save fewer seconds is what any run has: interpreters that start and import
    what a worker needs, all at once."""

    # The critical path
    max_listed_segments: Final = 10
    """Segments of the critical path that are listed, the longest."""
    max_path_names: Final = 100
    """Names that the critical path is summed up by; `links` is of all."""
    max_savings: Final = 3
    """Names, and single segments, that the maximum saving is computed of."""
    max_replay_error: Final = 0.25
    """A replay that differs from the run as it was by more than this part of it says nothing of savings."""
    max_listed_places: Final = 50
    """Places inside of the critical path that are listed, the longest."""
    min_place_share: Final = 0.01
    """The part of the wall time below which a place inside of the critical path is left out."""
    max_descended: Final = 5_000
    """Tasks, and stretches of the program, on the critical path that are taken apart by their spans: the
    longest."""
    min_descended_program_share: Final = 0.02
    """The part of the wall time outside of tasks below which the program's own spans are not looked up."""
    max_descended_spans: Final = 50_000
    """Spans inside of them that are followed, the longest of each level first."""
    max_descended_levels: Final = 32
    """Levels of spans inside of a task; deeper ones count for the last level."""
    max_followed_spans: Final = 200_000
    """The longest spans that are followed; the time of shorter ones counts for the span around them."""

    # Time of workers
    max_listed_workers: Final = 1000
    """Workers that are listed, the busiest first; counts and sums are of all."""
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
