"""Limits, waits and thresholds of `show/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class TextLimits:
    """What a text in a terminal or in Markdown lists, and how wide it is."""

    # Every text
    default_width: Final = 100
    """Columns of a text whose caller does not say how wide it may be."""
    max_result_text: Final = 400
    """Characters of a recorded text in a result; the rest is counted."""
    max_cell_width: Final = 300
    """Columns of a text in a cell: a name may have millions of characters."""
    min_column_width: Final = 8
    """Columns of a table's column that is cut."""

    # The report
    report_answer_sections: Final = 3
    """The first sections of a report, before its figures: data quality, what set the wall time, findings."""
    max_findings: Final = 4
    """Findings that a report states; the JSON has all."""
    max_path_parts: Final = 3
    """Parts of the critical path that the answer names, the longest first."""
    min_path_part_share: Final = 0.03
    """Share of the wall time from which a part of the critical path is named."""
    max_path_name_width: Final = 60
    """Columns of the name of a part of the critical path."""
    max_open_tasks: Final = 20
    """Tasks without an end that are listed."""
    max_report_rows: Final = 5
    """Names, failures, spans, metrics, artifacts or remarks that a section of the report lists."""
    max_slowest_tasks: Final = 3
    """Tasks in the table of the slowest ones; a run with no more tasks has no such table."""
    max_calibration_rounds: Final = 5
    """Rounds of a calibration that are listed."""
    max_batch_jobs: Final = 5
    """Batch jobs that are listed."""
    max_traceback_frames: Final = 4
    """Innermost frames of a traceback."""
    max_names_per_cause: Final = 5
    """Tasks and workers named beside a cause of failures."""
    share_bar_width: Final = 24
    """Columns of the bar of a whole."""
    concurrency_line_width: Final = 48
    """Columns of the line that shows concurrency; fewer where there is less room."""
    max_unpriced_items: Final = 3
    """Items without an amount that the cost names."""

    # Diagnosis and advice
    max_causes: Final = 8
    """Causes of a diagnosis that are shown; the JSON has all."""
    max_names_per_diagnosis: Final = 4
    """Tasks, hosts or workers named beside a cause of a diagnosis."""
    max_advised_tasks: Final = 12
    """Tasks whose recommendation is shown in full; the rest is counted."""
    max_advice_problems: Final = 5
    """Runs that could not be read that the advice names."""

    # Comparison
    max_compared_rows: Final = 15
    """Rows of a table of a comparison; twice as many for its context."""
    max_compared_names: Final = 5
    """Names that appeared or vanished, sets of arguments and causes that a comparison lists."""
    min_wall_share: Final = 0.01
    """Shares of the wall time's difference below this part of the largest one are added up."""
    max_wall_detail_width: Final = 64
    """Columns of the detail beside a share of the wall time's difference."""
    max_context_width: Final = 36
    """Columns of a value before and after."""
    min_resource_change: Final = 0.05
    """Relative change from which the use of a resource is shown."""
    equal_wall_time: Final = 0.02
    """Relative difference below which wall times are as good as equal."""
    min_opposing_share: Final = 0.1
    """Share of the wall time from which an effect is named though another one makes up for it."""
    max_changes_in_answer: Final = 3
    """Changed names and new kinds of errors that the answer names."""

    # Trends
    max_newest_runs: Final = 8
    """Newest runs that are listed."""
    max_steps: Final = 5
    """Steps that the text describes; the table of levels has all."""
    max_outliers: Final = 3
    """Outliers that the text names."""
    trend_plot_height: Final = 10
    """Rows of the plot."""

    # Devices
    max_device_plots: Final = 8
    """Sessions of a device that are drawn."""
    max_device_phases: Final = 30
    """Phases that are listed."""
    max_device_errors: Final = 8
    """Out-of-memory errors that are described."""
    device_plot_height: Final = 6
    """Rows of a plot where there are one or two."""
    low_device_plot_height: Final = 4
    """Rows of each plot where there are more."""
    device_plot_steps: Final = 45
    """Steps of time in a plot; the highest value of each is drawn."""

    # Cache and lists of runs
    max_cache_entries: Final = 10
    """Entries of a cache that are listed."""
    digest_digits: Final = 12
    """Digits of a digest that are shown, enough to identify a key."""

    # Plots in a terminal
    plot_height: Final = 4
    """Rows of the area of one plot."""
    min_plot_points: Final = 3
    """Points below which no line is drawn."""
    histogram_name_width: Final = 16
    """Columns of a task's name beside its histogram."""
    max_timeline_lanes: Final = 40
    """Lanes of a timeline in text."""
    lane_label_width: Final = 24
    """Columns of the name of a lane."""


class LiveTextLimits:
    """What `top` and other live views show of a followed run."""

    # Tables and columns of a followed run
    min_column_width: Final = 12
    """Columns of a table's column that is cut."""
    worker_name_end: Final = 6
    """Columns kept at the end of a worker's name, where names often differ: `node-1:4711/ThreadPool-0_3`."""
    run_name_width: Final = 8
    """The last digits of a run's id, which name it where there is no room for more."""
    wide_terminal: Final = 96
    """Columns from which bars and lines have their full width."""
    unwrapped_width: Final = 1_000
    """Columns of a head that is wrapped later."""
    max_printed_rows: Final = 10
    """Rows of each table in a frame that is printed."""
    max_problems: Final = 3
    """Problems above the tables; the rest is counted."""

    # An opened text
    max_text_lines: Final = 400
    """Lines of an opened text."""
    max_line_length: Final = 2_000
    """Characters of one of its lines."""


class FigureLimits:
    """What a figure draws, and how much of it."""

    # Texts
    max_name_width: Final = 60
    """Columns of a name."""
    note_width: Final = 100
    """Columns of a title or a note: about 600 pixels, which a cell of a notebook has."""
    max_duration_s: Final = 1e10
    """Three centuries: longer durations come from a wrong clock, and lie beyond the axis."""

    # Lines
    max_limit_ratio: Final = 5.0
    """A limit more than this many times above the values is noted and not drawn: the lines would lie flat."""
    logarithmic_from: Final = 1000.0
    """Positive values whose largest is this many times the smallest are drawn on a logarithmic axis."""
    max_dotted_points: Final = 30
    """Lines of at most this many points have dots, too."""
    max_drawn_value: Final = 1e300
    """Larger values are drawn as this one: browsers draw them at a wrong height, or not at all."""
    max_not_a_number_marks: Final = 50
    """Marks at places where a value was no number."""
    max_run_ticks: Final = 8
    """Runs that the axis of a trend names."""
    min_runs_for_p95: Final = 10
    """Levels of fewer runs have no band from p5 to p95."""

    # Rows
    max_path_parts: Final = 12
    """Parts of the critical path with a row."""
    max_workers: Final = 30
    """Workers with a row, the busiest first."""
    max_wall_shares: Final = 12
    """Reasons of a comparison with a row; the rest is added up."""
    max_compared_names: Final = 20
    """Names of a comparison with a row."""
    max_durations: Final = 20
    """Task names in the figure of durations."""
    max_span_paths: Final = 300
    """Paths of spans that are drawn, the longest first."""
    max_span_depth: Final = 40
    """Names in a path of spans that is drawn."""
    picture_width_px: Final = 1200
    """Width of a picture, where nobody says otherwise."""
    max_span_colors: Final = 8
    """Names of spans inside tasks that have a colour."""


class HtmlLimits:
    """What an HTML page shows, and how much of it."""

    # Texts
    max_text: Final = 400
    """Characters of a recorded text; the rest is counted."""
    max_text_lines: Final = 60
    """Lines of a text, the last ones: the end of a traceback matters most."""
    max_line_length: Final = 1000
    """Characters of each."""
    max_verbatim_text: Final = 60_000
    """Characters of preformatted lines."""

    # Rows
    max_names: Final = 50
    """Names in the tables of durations and of metrics."""
    max_list_rows: Final = 500
    """Rows of a list, such as the packages of the environment."""
    max_failures: Final = 20
    """Groups of failures that a page shows in full."""
    max_findings_in_verdict: Final = 3
    """Findings in the verdict; the rest follows below."""
    max_causes_in_verdict: Final = 2
    """Causes in the verdict; the rest follows below."""
    max_marks: Final = 50
    """Failures and retries in the table beside the timeline."""
    max_reasons: Final = 3
    """Shares of the wall time's difference in the verdict."""

    # Runs
    max_diagnosed_bytes: Final = 4 << 30
    """Runs up to this size are diagnosed for the page; for a larger one the page names the command."""
