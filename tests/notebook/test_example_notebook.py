"""The notebook in `examples/` runs from top to bottom in a kernel of its own, and shows what the runs
hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from flightlog.analyze.report.report import report_on
from flightlog.events import TaskCompleted
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "look-at-a-run.ipynb"


def html_of(cell) -> str:
    return "".join(
        output.data.get("text/html", "")
        for output in cell.outputs
        if output.output_type in {"display_data", "execute_result"}
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The folder it ran in, and its cells by their source."""
    folder = tmp_path_factory.mktemp("example")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    environ = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "FLIGHTLOG_RUNS_DIR": str(folder / "runs"),
    }
    client = NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environ)
    return folder, {cell.source: cell for cell in notebook.cells if cell.cell_type == "code"}


def test_the_example_is_kept_without_outputs():
    cells = [cell for cell in json.loads(EXAMPLE.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)


def test_every_cell_of_the_example_runs_without_an_error(executed):
    _, cells = executed
    assert [
        cell.source for cell in cells.values() if any(out.output_type == "error" for out in cell.outputs)
    ] == []
    said = "".join(out.text for cell in cells.values() for out in cell.outputs if out.output_type == "stream")
    assert said.splitlines() == [
        "1 of 40 tasks failed:",
        "  simulate(seed=13): ValueError: no data for seed 13",
        "1 of 40 tasks failed:",
        "  simulate(seed=13, steps=40): ValueError: no data for seed 13",
    ]


def test_the_run_shows_the_numbers_of_its_report(executed):
    folder, cells = executed
    runs = sorted(list_runs(folder / "runs"), key=lambda entry: entry.start_time)
    assert [(entry.project, entry.status) for entry in runs] == [
        ("sweep", "completed"),
        ("sweep", "completed"),
        ("notebook", "completed"),
    ]
    report = report_on(Run(runs[0].path))
    assert (report.tasks.submitted, report.tasks.completed, report.tasks.failed) == (40, 39, 1)
    shown = html_of(cells['first = flightlog.open_run("latest")\nfirst'])
    assert "40 tasks" in shown
    assert "39 completed" in shown
    assert "1 failed" in shown
    assert "no data for seed 13" in shown
    assert runs[0].run_id in shown
    assert "40 rows, of which the first 10" in html_of(cells["first.tasks"])


def test_session_and_future_show_how_they_ended(executed):
    _, cells = executed
    session = next(html_of(cell) for source, cell in cells.items() if source.endswith("\nsession"))
    assert "40 of 40 tasks" in session
    assert "closed" in session
    assert "ValueError: no data for seed 13" in html_of(cells["futures[13]"])


def test_figures_are_plotly_figures_with_a_picture_beside_them(executed):
    _, cells = executed
    for source in ("figures.timeline(first)", "figures.durations(first)", "figures.ratios(comparison)"):
        [output] = cells[source].outputs
        assert set(output.data) == {"application/vnd.plotly.v1+json", "image/png", "text/plain"}


def test_the_followed_run_is_shown_as_ended_at_last(executed):
    _, cells = executed
    shown = next(html_of(cell) for source, cell in cells.items() if "follow(session)" in source)
    assert "completed</b> · sweep · 40 of 40 tasks" in shown


def test_the_cells_are_tasks_of_a_run(executed):
    folder, cells = executed
    entry = next(entry for entry in list_runs(folder / "runs") if entry.project == "notebook")
    done = [event for event in Run(entry.path).events("tasks") if isinstance(event, TaskCompleted)]
    numbers = [
        cell.execution_count
        for source, cell in cells.items()
        if source.startswith(("%%", 'with span("mean', "%flightlog st"))
    ]
    assert [(event.task, event.args["n"]) for event in done] == list(
        zip(["load the data", "cell", "cell", "cell"], numbers, strict=True)
    )
    assert "4 completed" in html_of(cells["%flightlog report"])


def test_the_bar_of_a_session_is_a_display_of_the_kernel(executed):
    _, cells = executed
    shown = next(
        html_of(cell)
        for source, cell in cells.items()
        if 'errors="return"' in source and "follow" not in source
    )
    assert "of 40 tasks" in shown


def test_every_display_is_told_in_words_too(executed):
    _, cells = executed
    told = [
        output.data["text/plain"]
        for cell in cells.values()
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert len(told) >= 12  # and a progress bar where the machine is slow
    assert [words for words in told if " at 0x" in words or "<div" in words or len(words) > 20_000] == []
    assert cells["first.tasks"].outputs[0].data["text/plain"].splitlines()[0].split()[:2] == [
        "task",
        "task_id",
    ]
