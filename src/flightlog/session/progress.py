"""How far a session is, on a terminal or in a notebook, while somebody waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flightlog.core.displayed import in_notebook, notebook_part

if TYPE_CHECKING:
    from rich.table import Table

    from flightlog.session.eta import Eta
    from flightlog.session.tracking import Counts


_UNITS = ((86_400.0, "days", 1), (3_600.0, "h", 1), (60.0, "min", 0), (1.0, "s", 0))


@contextmanager
def shown(
    counts: Callable[[], Counts], wanted: bool | None, eta: Callable[[], Eta | None] | None = None
) -> Iterator[None]:
    """Show a bar on standard error meanwhile, which goes away afterwards; with how long it still takes, where
    `eta` knows.

    Only where standard error is a terminal: in a pipe or a file there is nothing. In a notebook it is a
    display that is updated. `wanted=False` switches it off.
    """
    if wanted is not False and in_notebook():
        with notebook_part("sessions").displayed(counts, eta):
            yield
        return
    if wanted is False or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    bar = Bar(counts, eta)
    console = Console(stderr=True)
    # The program's own output is its own: it is not redirected through the display.
    with Live(
        bar,
        console=console,
        refresh_per_second=8,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


class Bar:
    """The counts as a line: how many of how many, what went wrong, and how long it still takes."""

    def __init__(self, counts: Callable[[], Counts], eta: Callable[[], Eta | None] | None = None) -> None:
        self._counts, self._eta = counts, eta

    def __rich__(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        counts = self._counts()
        line = Table.grid(padding=(0, 1))
        line.add_row(
            "tasks",
            ProgressBar(total=max(1, counts.submitted), completed=counts.ended, width=40),
            self.text(),
        )
        return line

    def text(self) -> str:
        """The counts in words."""
        counts = self._counts()
        parts = [f"{counts.ended:,}/{counts.submitted:,}"]
        for word in ("failed", "cancelled", "retried"):
            number = getattr(counts, word)
            if number:
                parts.append(f"{number:,} {word}")
        eta = self._eta() if self._eta is not None and counts.ended < counts.submitted else None
        if eta is not None:
            parts.append(eta_text(eta))
        return " · ".join(parts)


def eta_text(eta: Eta) -> str:
    """`about 3 min left (2 to 5)`; the unit is that of the upper end."""
    size, unit, decimals = next((each for each in _UNITS if eta.high >= 2 * each[0]), _UNITS[-1])
    low, expected, high = (f"{value / size:.{decimals}f}" for value in (eta.low, eta.expected, eta.high))
    words = "at least " if eta.at_least else "about "
    return f"{words}{expected} {unit} left" + (f" ({low} to {high})" if low != high else "")
