"""One run as it happens: gives the page of a run its state, shared by all viewers of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.dashboard import Dashboard
    from flightlog.web.listing import Row


async def live_page(dashboard: Dashboard, row: Row) -> None:
    """The content of `/run/<key>`."""
    from flightlog.web.run_page import run_page
    from flightlog.web.run_shown import shown_run

    def state_of() -> LiveState | None:
        return dashboard.live.state(row.path)

    def problem_of() -> str | None:
        return dashboard.live.problem(row.path)

    run_page(state_of, shown_run(row.path), address=f"/run/{row.key}", problem_of=problem_of)
