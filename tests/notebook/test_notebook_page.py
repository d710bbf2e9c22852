"""The page on notebooks names what there is, and its code runs in a notebook."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import flightlog
from flightlog import figures
from flightlog.notebook.extension import HELP

PAGE = (Path(__file__).parents[2] / "docs" / "notebook.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_figure_stands_on_the_page():
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", section("See where the time went")))
    assert set(figures.__all__) - named == set()


def test_every_magic_stands_on_the_page():
    wishes = re.findall(r"^%flightlog (\w+)", HELP, re.MULTILINE)
    assert wishes == ["start", "stop", "report", "top"]
    assert [wish for wish in wishes if f"`%flightlog {wish}" not in PAGE] == []


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each piece of code on the page shows, in a kernel, after two runs were recorded."""
    folder = tmp_path_factory.mktemp("page")
    for _ in range(2):
        with flightlog.record("sweep", runs_dir=folder / "runs") as run:
            for seed in range(3):
                with run.task("simulate", seed=seed):
                    pass
    pieces = re.findall(r"^```i?python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(piece.strip()) for piece in pieces])
    environ = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "FLIGHTLOG_RUNS_DIR": str(folder / "runs"),
    }
    NotebookClient(
        made, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute(env=environ)
    return ["".join(str(output.get("data", output)) for output in cell.outputs) for cell in made.cells]


def test_the_code_on_the_page_shows_what_the_page_says(shown):
    run, timeline, compared, followed, loaded, named = shown
    assert "3 completed" in run
    assert "vnd.plotly" in timeline
    assert "image/png" in timeline
    assert "The whole comparison" in compared
    assert "completed</b> · sweep · 3 of 3 tasks" in followed
    assert "The cells from the next one on are recorded in" in loaded
    assert named == ""
