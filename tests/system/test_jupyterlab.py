"""A real JupyterLab in a real Chromium: displays, figures, a live display, hostile texts, and cells that are
recorded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browsing import Visit, visit
from builders.hostile_run import hostile_run
from jupyterlab_server import Lab, jupyterlab

from flightlog.events import TaskCompleted
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "look-at-a-run.ipynb"
PATIENCE_MS = 60_000
_READY = """() => {
    const here = window.jupyterapp?.shell.currentWidget;
    return here?.context?.isReady && here.sessionContext?.isReady && here.sessionContext.session?.kernel?.status === 'idle';
}"""
_RUN = """async () => {
    await jupyterapp.restored;
    await jupyterapp.commands.execute('notebook:run-all-cells');
}"""
_SAVE = "async () => { await jupyterapp.commands.execute('docmanager:save'); }"
_TRUSTED = "() => jupyterapp.shell.currentWidget.content.widgets.some(cell => cell.model.trusted)"
_SHOWN = """() => jupyterapp.shell.currentWidget.content.widgets.map(cell => ({
    source: cell.model.sharedModel.getSource(),
    text: cell.node.querySelector('.jp-Cell-outputWrapper')?.innerText ?? '',
    displays: cell.node.querySelectorAll('.flightlog').length,
    figures: cell.node.querySelectorAll('.jp-RenderedPlotly').length,
    errors: cell.node.querySelectorAll('[data-mime-type="application/vnd.jupyter.error"]').length,
}))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@contextmanager
def opened(browser: Any, address: str) -> Iterator[Visit]:
    """A notebook whose kernel waits."""
    with visit(browser, address) as seen:
        seen.page.wait_for_function(_READY, timeout=PATIENCE_MS)
        yield seen


def went_wrong(seen: Visit) -> list[str]:
    """Everything that should not have happened. JupyterLab warns when it is slow, and links to its manual:
    that is its own."""
    own = ("console: warning: ", "leads out of the page: https://jupyterlab.")
    return [one for one in seen.problems() if not one.startswith(own)]


def text_of(seen: Visit, source: str) -> str:
    """What is seen below the cell in which this stands."""
    [found] = [one for one in seen.page.evaluate(_SHOWN) if source in one["source"]]
    return str(found["text"])


@pytest.fixture(scope="module")
def saved(browser: Any, lab: Lab) -> tuple[Path, list[str]]:
    """The example, run from top to bottom and saved; and what its cells showed."""
    path = lab.folder / "example.ipynb"
    shutil.copy(EXAMPLE, path)
    with opened(browser, lab.at(path.name)) as seen:
        seen.page.evaluate(_RUN)
        shown = look_at_the_example(seen)
        seen.page.evaluate(_SAVE)
        assert went_wrong(seen) == []
    return path, shown


def test_the_example_is_the_same_when_it_was_saved_and_opened_again(
    browser: Any, lab: Lab, saved: tuple[Path, list[str]]
) -> None:
    path, shown = saved
    cells = nbformat.read(path, as_version=4).cells
    assert all(one.execution_count for one in cells if one.cell_type == "code")
    assert path.stat().st_size < 400_000
    with opened(browser, lab.at(path.name)) as seen:
        assert look_at_the_example(seen) == shown
        assert draw_figures(seen) == 3
        assert went_wrong(seen) == []


def test_the_example_shows_the_same_where_it_is_not_trusted_and_nothing_draws_figures(
    browser: Any, saved: tuple[Path, list[str]], tmp_path: Path
) -> None:
    path, shown = saved
    with jupyterlab(tmp_path / "other", plotly=False) as other:
        shutil.copy(path, other.folder)
        with opened(browser, other.at(path.name)) as seen:
            assert not seen.page.evaluate(_TRUSTED)
            assert look_at_the_example(seen) == shown
            pictures = seen.page.locator(".jp-OutputArea-output img").all()
            assert [one.evaluate("one => one.naturalWidth > 0") for one in pictures] == [True] * 3
            assert went_wrong(seen) == []


def look_at_the_example(seen: Visit) -> list[str]:
    """What the cells show, but for figures, after a look at each of them."""
    cells = seen.page.evaluate(_SHOWN)
    assert [one["source"] for one in cells if one["errors"]] == []
    assert "40 of 40 tasks" in text_of(seen, "\nsession")
    assert "ValueError: no data for seed 13" in text_of(seen, "futures[13]")
    assert "40 tasks" in text_of(seen, "\nfirst")
    assert "40 rows, of which the first 10" in text_of(seen, "first.tasks")
    assert "completed · sweep · 40 of 40 tasks" in text_of(seen, "follow(session)")
    assert "Why the wall time differs" in text_of(seen, "\ncomparison")
    assert "4 completed" in text_of(seen, "%flightlog report")
    return [one["text"] for one in cells if not one["source"].startswith("figures.")]


def draw_figures(seen: Visit) -> int:
    """Bring the pointer to each picture, where Plotly draws its figure then; how many there are."""
    figures = seen.page.locator(".jp-RenderedPlotly").all()
    for figure in figures:
        figure.scroll_into_view_if_needed()
        picture = figure.locator("img.plot-img")
        assert picture.evaluate("one => one.naturalWidth") > 0  # ours, or what Plotly left when it had drawn
        picture.dispatch_event("mouseenter")
        figure.locator(".main-svg").first.wait_for(timeout=PATIENCE_MS)
    return len(figures)


def test_the_cells_that_were_recorded_are_tasks_of_a_run_named_as_the_notebook(
    browser: Any, lab: Lab
) -> None:
    address = lab.place(
        "fit.ipynb", ["%load_ext flightlog", "%%flightlog load\nx = 1", "x + 1", "%flightlog stop"]
    )
    with opened(browser, address) as seen:
        seen.page.evaluate(_RUN)
        assert "3 cells recorded in" in text_of(seen, "%flightlog stop")
        assert went_wrong(seen) == []
    [entry] = [one for one in list_runs(lab.runs_dir) if one.project == "fit"]
    done = [event for event in Run(entry.path).events("tasks") if isinstance(event, TaskCompleted)]
    assert [(event.task, event.args["source"]) for event in done] == [
        ("load", "x = 1"),
        ("cell", "x + 1"),
        ("cell", "%flightlog stop"),
    ]


LIVE = """
import time
from pathlib import Path
from flightlog import Session
from flightlog.notebook import follow

Path("live.yaml").write_text(
    "version: 1\\nproject: {name: live}\\ntargets: {local: {provider: local, max_workers: 2, processes: false}}"
)


def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.05)


session = Session("live.yaml")
futures = session.client.map(wait_for, ["one", "two", "three"])
follow(session)
"""


def test_a_live_display_follows_a_session_while_it_runs(browser: Any, lab: Lab) -> None:
    with opened(browser, lab.place("live.ipynb", [LIVE, "1 + 1"])) as seen:
        seen.page.evaluate(_RUN)  # both cells are over, and the session goes on
        shown = seen.page.locator(".flightlog")
        wait_for_text(shown, "running · live · 0 of 3 tasks")
        (lab.folder / "one").touch()
        wait_for_text(shown, "running · live · 1 of 3 tasks")
        (lab.folder / "two").touch()
        (lab.folder / "three").touch()
        wait_for_text(shown, "running · live · 3 of 3 tasks")
        assert shown.count() == 1
        assert went_wrong(seen) == []


def test_texts_of_a_hostile_run_stay_texts(browser: Any, lab: Lab) -> None:
    path = hostile_run(lab.folder / "hostile", name_bytes=100_000)
    looks = [
        "run",
        "run.tasks",
        "run.failures",
        "run.spans",
        "flightlog.diagnose(run)",
        "figures.timeline(run)",
    ]
    looks += ["figures.durations(run)", "figures.spans(run)", "follow(run)"]
    begin = (
        "import flightlog\nfrom flightlog import figures\nfrom flightlog.notebook import follow\nrun = "
        f"flightlog.open_run({str(path)!r})"
    )
    with opened(browser, lab.place("hostile.ipynb", [begin, *looks])) as seen:
        seen.page.evaluate(_RUN)
        cells = seen.page.evaluate(_SHOWN)
        assert [one["source"] for one in cells if one["errors"]] == []
        assert [one["source"] for one in cells if one["displays"] + one["figures"]] == looks
        assert "<script>window.pwned=1</script>" in "".join(one["text"] for one in cells)
        assert draw_figures(seen) == 3
        assert went_wrong(seen) == []


def wait_for_text(shown: Any, text: str) -> None:
    shown.filter(has_text=text).first.wait_for(timeout=PATIENCE_MS)
