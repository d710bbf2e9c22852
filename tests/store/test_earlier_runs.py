"""One selection of earlier runs, for plans, time left, stuck tasks, advice and prediction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.core.errors import RunNotFound
from flightlog.store.catalogue import PastRun
from flightlog.store.earlier_runs import SelectedRuns, check_project, select_runs
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run


def write(folder: Path, minute: int, project: str = "demo", **info: object) -> Path:
    return make_run(
        folder,
        [],
        token=f"{minute:08x}",
        project=project,
        start_time=at(60 * minute),
        **{"status": "completed", "end_time": at(60 * minute + 9), "duration_s": 9.0, **info},
    )


def minutes(found: SelectedRuns) -> list[int]:
    def of(run: PastRun) -> int:
        return int(run.entry.run_id[-8:], 16)

    return [of(run) for run in found.runs]


def test_the_newest_runs_of_one_project_are_selected_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(5):
        write(tmp_path, minute)
    write(tmp_path, 7, "other")
    monkeypatch.setattr(StoreLimits, "max_selected_runs", 3)
    found = select_runs(tmp_path, project="demo")
    assert (found.project, minutes(found), found.older_runs) == ("demo", [4, 3, 2], 2)
    assert found.projects == ["other", "demo"]
    assert minutes(select_runs(tmp_path, project=None)) == [7]


def test_a_target_keeps_runs_on_it_and_its_runs_alone_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(6):
        write(tmp_path, minute, target="ab"[minute % 2])
    monkeypatch.setattr(StoreLimits, "max_selected_runs", 2)
    found = select_runs(tmp_path, project="demo", target="a")
    assert (minutes(found), found.older_runs) == ([4, 2], 1)


def test_before_a_run_those_count_that_completed_and_began_earlier(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2, status="failed")
    write(tmp_path, 3)
    run = Run(write(tmp_path, 4, status="crashed", end_time=None, duration_s=None))
    write(tmp_path, 5)
    write(tmp_path, 3, "other")
    assert minutes(select_runs(tmp_path, project="demo", before=run)) == [3, 1]


def test_a_copy_counts_once_and_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    shutil.copytree(path, tmp_path / "a copy")
    found = select_runs(tmp_path, project="demo")
    assert [run.entry.path for run in found.runs] == [path]
    assert found.problems == [f"a copy: is a copy of {path.name}, which counts once"]


def test_copies_take_no_place_of_a_run_and_the_rest_is_counted_with_headlines_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = [write(tmp_path, minute) for minute in range(5)][-1]
    for number in range(3):
        shutil.copytree(newest, tmp_path / f"copy {number}")
    monkeypatch.setattr(StoreLimits, "max_selected_runs", 3)
    for headlines in (False, True):
        found = select_runs(tmp_path, project="demo", headlines=headlines)
        assert (minutes(found), found.older_runs, len(found.problems)) == ([4, 3, 2], 2, 3)
        assert found.runs[0].entry.path == newest


def test_a_project_without_runs_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    assert select_runs(tmp_path / "none", project=None) == SelectedRuns(project=None, runs=[])
    assert check_project(None, ["b", "a"], tmp_path) == "b"
    with pytest.raises(RunNotFound, match="is of project 'c'; there are runs of a, b"):
        check_project("c", ["b", "a"], tmp_path)
    with pytest.raises(RunNotFound, match="there are no runs in"):
        check_project("c", [], tmp_path)
