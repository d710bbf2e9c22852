"""The bar on a terminal: there while somebody waits, gone afterwards, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from flightlog.session.progress import ProgressBar, shown
from flightlog.session.tracking import Counts


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


COUNTS = Counts(submitted=1200, completed=1100, failed=3, cancelled=0, retried=12)


def test_the_counts_are_put_into_words():
    assert ProgressBar(lambda: COUNTS).text() == "1,103/1,200 · 3 failed · 12 retried"


def test_on_a_terminal_a_bar_is_drawn_on_standard_error(monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with shown(lambda: COUNTS, None):
        pass
    assert "1,103/1,200" in screen.getvalue()


@pytest.mark.parametrize(
    ("screen", "wanted"), [(Terminal(), False), (io.StringIO(), None), (io.StringIO(), True)]
)
def test_in_a_pipe_or_switched_off_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch, screen, wanted):
    monkeypatch.setattr(sys, "stderr", screen)
    with shown(lambda: COUNTS, wanted):
        pass
    assert screen.getvalue() == ""
