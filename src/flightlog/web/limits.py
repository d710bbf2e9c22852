"""Limits, waits and thresholds of `web/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class WebLimits:
    """What clients may use of the server, what is cached for viewers, and how much the pages list."""

    # Clients
    max_ports_tried: Final = 20
    """Ports from the usual one on that are tried, where none is named."""
    max_logged_chars: Final = 2000
    """Characters of a line of the server's log; a longer one is cut."""
    max_headers_bytes: Final = 64 << 10
    """Headers of a request: clients without the token cannot use more of the machine."""
    max_message_bytes: Final = 1 << 20
    """A message of a socket, for the same reason."""
    max_connections: Final = 500
    """Connections at a time, for the same reason."""
    shutdown_timeout_s: Final = 1
    """How long connections have to end when the server does."""
    min_token_chars: Final = 16
    """Characters of a token; a file with a shorter one is refused."""
    max_token_chars: Final = 256
    """Characters of a token; a file with a longer one is refused."""
    tab_storage_s: Final = 60.0
    """How long NiceGUI's data of a browser tab outlives it; its default is a month. It contains
    nothing of Flightlog."""
    page_timeout_s: Final = 30.0
    """How long the start of a page may take: the first read of a long history on a slow disk."""
    max_accept_chars: Final = 1000
    """Characters of a request's `Accept` header that are read."""

    # Results that are shared by viewers
    run_list_interval_s: Final = 2.0
    """Minimum age of the list of runs before it is read again; reading takes at most a fifth of the time."""
    running_run_reuse_s: Final = 5.0
    """How long results of a running run are reused."""
    progress_shown_after_s: Final = 2.0
    """How long a window stays empty before it shows that its page is being made."""
    max_threads: Final = 3
    """Threads that compute results."""
    max_cached_results: Final = 64
    """Results that are cached; the least recently used are dropped first."""
    max_cached_bytes: Final = 128 << 20
    """Characters of cached texts, such as pages; the least recently used are dropped first."""
    failure_reuse_s: Final = 5.0
    """How long a failure is cached: a viewer who comes back sees it, instead of starting again."""

    # The page of a run
    page_interval_s: Final = 0.5
    """Time between two updates of the page."""
    figures_interval_s: Final = 2.0
    """Figures are made no more often than that."""
    max_listed_failures: Final = 20
    """Failures on the page, the newest."""
    max_listed_log_lines: Final = 80
    """Lines of the log on the page, the newest."""
    max_details_key_chars: Final = 100
    """Characters of the key of details that a browser asks for; a longer one is none."""
    max_open_details: Final = 20
    """Details that one viewer has open at a time; the oldest are forgotten."""
    max_waiting_to_running: Final = 10
    """Tasks that wait are drawn while they are at most so many times those that run: their line would
    flatten the others."""

    # Lists of runs and trends
    max_offered_choices: Final = 500
    """Projects and tags that can be chosen from a list; others are found by their words."""
    max_note_chars: Final = 1000
    """Characters of a note on the list."""
    runs_per_page: Final = 25
    """Runs on a page of the list."""
    max_listed_changes: Final = 5
    """The newest changes of a trend that lead to their runs."""
    max_runs_in_trend: Final = 1000
    """The newest runs that a trend is drawn of."""
