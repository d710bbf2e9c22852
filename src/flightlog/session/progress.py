"""How far a session is, on a terminal, while somebody waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from flightlog.session.tracking import Counts


@contextmanager
def shown(counts: Callable[[], Counts], wanted: bool | None) -> Iterator[None]:
    """Show a bar on standard error meanwhile, which goes away afterwards.

    Only where standard error is a terminal: in a pipe or a file there is nothing. `wanted=False` switches it off.
    """
    if wanted is False or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    bar = Bar(counts)
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
    """The counts as a line: how many of how many, and what went wrong."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        self._counts = counts

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
        return " · ".join(parts)
