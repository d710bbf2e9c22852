"""`%load_ext flightlog` in IPython's own shell: cells are tasks, and behave as they would have."""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.runs import finished
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import flightlog
from flightlog.events import ResourceSample, TaskCancelled, TaskCompleted, TaskFailed, TaskSubmitted
from flightlog.notebook.extension import CellRecorder, MagicAnswer, WhileBusy, notebook_name, read_cell
from flightlog.store.completing import open_run
from flightlog.store.run import Run


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts its own there
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    yield shell
    if "flightlog" in shell.extension_manager.loaded:
        shell.run_line_magic("unload_ext", "flightlog")
    shell.atexit_operations()
    atexit.unregister(shell.atexit_operations)


def execute(shell: Any, source: str) -> Any:
    return shell.run_cell(source, store_history=True)


def cells_of(run: Run) -> list[tuple[str, str, dict[str, Any]]]:
    ends = [
        event
        for event in run.events("tasks")
        if isinstance(event, TaskCompleted | TaskFailed | TaskCancelled)
    ]
    return [(event.task, type(event).__name__, event.args) for event in ends]


def test_every_cell_after_the_loading_one_is_a_task_with_its_number_and_first_line(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "\n# fit the model\nx = 1\n")
    execute(shell, "x += 1")
    execute(shell, "%unload_ext flightlog")
    run = open_run("latest")
    assert (run.info.project, run.status) == ("notebook", "completed")
    assert cells_of(run) == [
        ("cell", "TaskCompleted", {"n": 2, "source": "# fit the model"}),
        ("cell", "TaskCompleted", {"n": 3, "source": "x += 1"}),
        ("cell", "TaskCompleted", {"n": 4, "source": "%unload_ext flightlog"}),
    ]


def test_a_cell_that_raises_is_a_failed_task_with_its_traceback_and_the_run_completes(shell, capsys):
    execute(shell, "%load_ext flightlog")
    done = execute(shell, "def model(): raise ValueError('no data')\nmodel()")
    execute(shell, "%flightlog stop")
    assert isinstance(done.error_in_exec, ValueError)
    run = open_run("latest")
    assert run.status == "completed"
    assert cells_of(run)[0][:2] == ("cell", "TaskFailed")
    [failure] = run.events("failures")
    assert (failure.error_type, failure.message) == ("ValueError", "no data")
    assert "model()" in failure.traceback


def test_a_cell_that_is_no_python_is_a_failed_task(shell, capsys):
    execute(shell, "%load_ext flightlog")
    execute(shell, "x = = 1")
    execute(shell, "%flightlog stop")
    assert cells_of(open_run("latest"))[0] == ("cell", "TaskFailed", {"n": 2, "source": "x = = 1"})


def test_an_interrupted_cell_is_a_cancelled_task(shell, capsys):
    execute(shell, "%load_ext flightlog")
    execute(shell, "raise KeyboardInterrupt")
    execute(shell, "%flightlog stop")
    assert cells_of(open_run("latest"))[0][1] == "TaskCancelled"


def test_spans_and_tasks_inside_a_cell_are_its_children(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "import flightlog\nwith flightlog.span('load'):\n    pass")
    execute(shell, "%flightlog stop")
    run = open_run("latest")
    [span] = finished(run)
    [cell, _stop] = [event for event in run.events("tasks") if isinstance(event, TaskSubmitted)]
    assert (span.name, span.parent_id) == ("load", cell.span_id)


def test_a_cell_that_awaits_is_recorded_with_what_it_opens(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "import asyncio, flightlog\nwith flightlog.span('waiting'):\n    await asyncio.sleep(0)")
    execute(shell, "%flightlog stop")
    run = open_run("latest")
    [span] = finished(run)
    [cell, _stop] = [event for event in run.events("tasks") if isinstance(event, TaskSubmitted)]
    assert span.parent_id == cell.span_id


def test_a_run_recorded_inside_a_cell_is_a_run_of_its_own_and_the_cell_goes_on_in_the_notebooks(shell):
    execute(shell, "%load_ext flightlog")
    notebook = open_run("latest").run_id
    execute(
        shell,
        "import flightlog\nwith flightlog.record('inner') as inner:\n    with flightlog.span('there'):\n   "
        "     pass\n"
        "with flightlog.span('here'):\n    pass",
    )
    execute(shell, "%flightlog stop")
    assert [span.name for span in finished(open_run(notebook))] == ["here"]
    assert [span.name for span in finished(open_run(shell.user_ns["inner"].path))] == ["there"]


def test_the_first_line_names_the_task_and_the_lines_of_an_error_keep_their_numbers(shell, capsys):
    execute(shell, "%load_ext flightlog")
    done = execute(shell, "%%flightlog load data\n\n1 / 0")
    execute(shell, "%flightlog stop")
    assert done.error_in_exec.__traceback__.tb_next.tb_lineno == 3
    assert cells_of(open_run("latest"))[0] == ("load data", "TaskFailed", {"n": 2, "source": "1 / 0"})


def test_a_cell_magic_may_follow_the_line_that_names_the_cell(shell, capsys):
    execute(shell, "%load_ext flightlog")
    execute(shell, "%%flightlog fit\n\n%%capture said\nprint('captured')")
    execute(shell, "%flightlog stop")
    assert cells_of(open_run("latest"))[0] == ("fit", "TaskCompleted", {"n": 2, "source": "%%capture said"})
    assert shell.user_ns["said"].stdout == "captured\n"


def test_the_time_between_cells_is_nothing_that_stands_out(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "1")
    execute(shell, "%flightlog stop")
    report = shell.run_line_magic("flightlog", "report")
    assert "program_alone" not in [finding.kind for finding in report.findings]


def test_secrets_in_a_first_line_stay_out(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "api_key = 'sk-1234567890abcdef1234'")
    execute(shell, "%flightlog stop")
    assert cells_of(open_run("latest"))[0][2] == {"n": 2, "source": "api_key = '[redacted]'"}


def test_what_a_front_end_asks_without_a_number_is_no_task(shell):
    execute(shell, "%load_ext flightlog")
    shell.run_cell("1 + 1", store_history=False)
    shell.run_cell("1 + 1", silent=True)
    execute(shell, "%flightlog stop")
    assert [args["source"] for _, _, args in cells_of(open_run("latest"))] == ["%flightlog stop"]


def test_start_ends_one_run_and_begins_another_of_the_name(shell):
    execute(shell, "%load_ext flightlog")
    first = open_run("latest").run_id
    execute(shell, "%flightlog start 'second try'")
    execute(shell, "1")
    execute(shell, "%flightlog stop")
    assert open_run(first).status == "completed"
    second = open_run("latest")
    assert (second.info.project, [args["source"] for *_, args in cells_of(second)]) == (
        "second try",
        ["1", "%flightlog stop"],
    )


def test_loading_twice_records_once_and_unloading_leaves_the_shell_as_it_was(shell):
    before = {name: list(found) for name, found in shell.events.callbacks.items()}
    transformers = list(shell.input_transformers_cleanup)
    execute(shell, "%load_ext flightlog")
    flightlog.load_ipython_extension(shell)
    execute(shell, "1")
    execute(shell, "%unload_ext flightlog")
    assert len(cells_of(open_run("latest"))) == 2
    assert {name: list(found) for name, found in shell.events.callbacks.items()} == before
    assert list(shell.input_transformers_cleanup) == transformers
    assert "flightlog" not in shell.magics_manager.magics["line"]


def test_where_recording_is_off_cells_run_all_the_same(shell, monkeypatch, tmp_path):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "off")
    execute(shell, "%load_ext flightlog")
    assert execute(shell, "40 + 2").result == 42
    assert not (tmp_path / "runs").exists()


def test_where_nothing_can_be_written_it_is_said_and_cells_run_all_the_same(shell, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "file" / "runs"))
    execute(shell, "%load_ext flightlog")
    assert execute(shell, "40 + 2").result == 42
    assert answers(shell, "status").endswith(" cannot be written: 1 cell executed and not recorded.")


def test_a_recorder_that_breaks_is_said_once_and_no_cell_notices(shell, caplog):
    class Broken:
        def task(self, *_args, **_more):
            raise RuntimeError("disk on fire")

    cells = CellRecorder(shell)
    cells.run = Broken()
    info = SimpleNamespace(raw_cell="1", store_history=True)
    with caplog.at_level(logging.WARNING, "flightlog"):
        for _ in range(3):
            cells.begin(info)
            cells.end(SimpleNamespace(info=info, error_before_exec=None, error_in_exec=None))
    assert [record.message for record in caplog.records] == [
        "a cell could not be recorded, and was executed all the same: disk on fire"
    ]


def test_an_end_without_a_result_gives_the_open_cell_up(shell, tmp_path):
    cells = CellRecorder(shell, runs_dir=tmp_path / "other")
    run = cells.start("notebook")
    cells.begin(SimpleNamespace(raw_cell="await forever()", store_history=True))
    cells.end(None)
    cells.end(None)
    cells.stop()
    assert [kind for _, kind, _ in cells_of(Run(run.path))] == ["TaskCancelled"]


def answers(shell: Any, line: str) -> str:
    said = shell.run_line_magic("flightlog", line)
    assert isinstance(said, MagicAnswer)
    return said.words


def test_the_magic_says_how_the_recording_stands(shell):
    execute(shell, "%load_ext flightlog")
    path = open_run("latest").path
    assert answers(shell, "") == f"0 cells recorded in {path}"
    execute(shell, "1")
    assert answers(shell, "status") == f"1 cell recorded in {path}"
    assert answers(shell, "stop") == f"1 cell recorded in {path}"
    assert answers(shell, "stop") == "No cell is being recorded."
    assert answers(shell, "status") == (
        f"No cell is being recorded; `%flightlog start` begins a run. The last run is {path}."
    )
    assert answers(shell, "dance").startswith("%flightlog dance is not understood.\n%flightlog   ")
    assert answers(shell, "report no-such-run").startswith("no run 'no-such-run' in ")


def test_the_help_keeps_its_columns(shell):
    execute(shell, "%load_ext flightlog")
    shown = shell.run_line_magic("flightlog", "help")._repr_html_()
    assert "%flightlog stop            end the run\n" in shown
    assert "<pre" in shown


def test_the_magic_gives_the_report_of_the_notebook(shell):
    execute(shell, "%load_ext flightlog")
    execute(shell, "1")
    execute(shell, "%flightlog stop")
    report = shell.run_line_magic("flightlog", "report")
    assert (report.run.project, report.tasks.completed) == ("notebook", 2)
    assert "2 completed" in report._repr_html_()


@given(st.text())
def test_any_text_is_read_as_a_cell(source):
    name, line = read_cell(source)
    assert name
    assert len(name) <= 120
    assert len(line) <= 120
    assert line == line.strip()


@pytest.mark.parametrize(
    ("names", "environ", "name"),
    [
        ({"__vsc_ipynb_file__": "/home/me/sweep.ipynb"}, {}, "sweep"),
        ({"__vsc_ipynb_file__": "C:\\me\\sweep.ipynb"}, {}, "sweep"),
        ({}, {"JPY_SESSION_NAME": "work/fit model.ipynb"}, "fit model"),
        ({"__vsc_ipynb_file__": 3}, {"JPY_SESSION_NAME": ""}, None),
    ],
)
def test_the_run_is_called_as_the_notebook_where_its_front_end_tells(names, environ, name):
    assert notebook_name(names, environ) == name


def test_samples_count_while_a_cell_runs_and_once_after():
    class Counting:
        taken = 0

        def sample(self):
            self.taken += 1
            return [ResourceSample(scope="node", host="n1", cpu_percent=float(self.taken))]

    sampler, busy = Counting(), iter([True, True, False, False, True])
    resting = WhileBusy(lambda: [sampler], lambda: next(busy))
    assert [[one.cpu_percent for one in resting.sample()] for _ in range(5)] == [
        [1.0],
        [2.0],
        [3.0],
        [],
        [5.0],
    ]
    assert [one.cpu_percent for one in resting.last_sample()] == [6.0]


def test_a_sampler_that_raises_is_left_out_and_the_others_go_on(caplog):
    class Broken:
        def sample(self):
            raise OSError("gone")

    class Fine:
        def sample(self):
            return [ResourceSample(scope="node", host="n1", cpu_percent=1.0)]

    resting = WhileBusy(lambda: [Broken(), Fine()], lambda: True)
    with caplog.at_level(logging.WARNING, "flightlog"):
        assert [len(resting.sample()), len(resting.sample())] == [1, 1]
    assert len(caplog.records) == 1


def test_two_cells_at_once_each_get_their_own_end(shell, tmp_path):
    cells = CellRecorder(shell, runs_dir=tmp_path / "other")
    run = cells.start("notebook")
    infos = [SimpleNamespace(raw_cell=source, store_history=True) for source in ("a", "b")]

    async def one(info, error):
        cells.begin(info)
        await asyncio.sleep(0)
        cells.end(SimpleNamespace(info=info, error_before_exec=None, error_in_exec=error))

    async def both():
        await asyncio.gather(one(infos[0], ValueError("x")), one(infos[1], None))

    asyncio.run(both())
    cells.stop()
    ends = {args["source"]: kind for _, kind, args in cells_of(Run(run.path))}
    assert ends == {"a": "TaskFailed", "b": "TaskCompleted"}
