"""The line that says how far a command has come."""

from __future__ import annotations

import io

from flightlog.cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, moments: list[float]) -> str:
    clock = iter([0.0, *moments])
    with ProgressLine(stream, clock=lambda: next(clock)) as progress:
        for number, _ in enumerate(moments):
            progress(1000 * number, 5000)
    return stream.getvalue()


def test_within_a_second_nobody_is_told_anything() -> None:
    assert told(Terminal(), [0.1, 0.5, 0.9]) == ""


def test_after_a_second_a_line_is_told_a_few_times_a_second_and_goes_at_the_end() -> None:
    assert told(Terminal(), [0.5, 1.0, 1.05, 1.2]) == (
        "\r\x1b[Kflightlog: reading run 1,000 of 5,000 …\r\x1b[Kflightlog: reading run 3,000 of 5,000 …\r\x1b[K"
    )


def test_what_is_no_terminal_gets_no_line() -> None:
    assert told(io.StringIO(), [2.0, 3.0]) == ""


def test_a_terminal_that_went_away_is_no_error() -> None:
    gone = Terminal()
    clock = iter([0.0, 2.0])
    with ProgressLine(gone, clock=lambda: next(clock)) as progress:
        gone.close()
        progress(1, 2)
