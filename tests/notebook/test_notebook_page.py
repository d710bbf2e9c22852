"""The page on notebooks names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from flightlog import figures
from flightlog.notebook.magics import HELP

PAGE = (Path(__file__).parents[2] / "docs" / "notebook.md").read_text()


def test_every_figure_stands_on_the_page():
    named = set(
        re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE.partition("## Figures")[2].partition("## While it runs")[0])
    )
    assert set(figures.__all__) - named == set()


def test_every_magic_stands_on_the_page():
    wishes = re.findall(r"^%flightlog (\w+)", HELP, re.MULTILINE)
    assert wishes == ["start", "stop", "report", "top"]
    assert [wish for wish in wishes if f"`%flightlog {wish}" not in PAGE] == []
