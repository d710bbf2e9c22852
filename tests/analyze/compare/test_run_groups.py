"""Runs and groups of runs by how people name them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.compare.run_groups import find_groups
from flightlog.core.errors import AmbiguousRun, RunNotFound, UsageError
from flightlog.store.completing import open_run
from flightlog.store.liveness import Observer, unix_time


@pytest.fixture
def runs(tmp_path):
    """Four runs of `demo` and one of `other`, which is neither the oldest nor the latest."""
    for number, project in enumerate(["demo", "demo", "other", "demo", "demo"]):
        make_run(tmp_path, project=project, token=f"a000000{number}", start_time=at(number))
    return tmp_path


def ids(groups):
    return tuple([run.run_id[-8:] for run in group.runs] for group in groups)


def test_without_arguments_the_last_two_runs_of_the_latest_ones_project_are_compared(runs):
    assert ids(find_groups(None, None, runs_dir=runs)) == (["a0000003"], ["a0000004"])


def test_one_run_is_compared_with_the_latest_of_its_project(runs):
    assert ids(find_groups("a0000001", None, runs_dir=runs)) == (["a0000001"], ["a0000004"])


def test_a_group_alone_is_compared_with_the_latest_run_which_is_then_no_part_of_it(runs):
    assert ids(find_groups("demo:last2", None, runs_dir=runs)) == (["a0000003", "a0000001"], ["a0000004"])
    assert ids(find_groups(iter(["demo:last2"]), None, runs_dir=runs))[0] == ["a0000003", "a0000001"]
    with pytest.raises(UsageError, match="is the latest run of 'demo'"):
        find_groups("a0000004,a0000003", None, runs_dir=runs)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a0000000", "latest", (["a0000000"], ["a0000004"])),
        ("demo:last2", "demo:latest", (["a0000003", "a0000001"], ["a0000004"])),
        ("demo:last9", "a0000003", (["a0000004", "a0000001", "a0000000"], ["a0000003"])),
        ("a0000000, a0000001", "demo:last1,a0000003", (["a0000001", "a0000000"], ["a0000004", "a0000003"])),
        ("other:last", "demo:last", (["a0000002"], ["a0000004"])),
    ],
)
def test_groups_are_named_by_project_or_by_commas(runs, before, after, expected):
    assert ids(find_groups(before, after, runs_dir=runs)) == expected


def test_paths_runs_and_lists_serve_in_python(runs):
    paths = {path.name[-1]: path for path in Path(runs).iterdir()}
    groups = find_groups([paths["0"], "a0000001"], open_run("a0000004", runs_dir=runs), runs_dir=runs)
    assert ids(groups) == (["a0000001", "a0000000"], ["a0000004"])
    assert ids(find_groups(str(paths["0"]), paths["1"], runs_dir="nowhere")) == (["a0000000"], ["a0000001"])


def test_runs_that_are_running_are_no_part_of_a_group_unless_they_are_the_latest(runs):
    make_run(
        runs,
        token="a0000005",
        start_time=at(9),
        status="running",
        end_time=None,
        duration_s=None,
        heartbeat=at(9),
    )
    moment = unix_time(at(10))
    observer = Observer(now=moment, host="another")
    found = find_groups("a0000000", "demo:latest", runs_dir=runs, observer=observer)
    assert ids(found) == (["a0000000"], ["a0000005"])
    assert ids(find_groups("a0000000", "demo:last2", runs_dir=runs, observer=observer))[1] == [
        "a0000004",
        "a0000003",
    ]


@pytest.mark.parametrize(
    ("before", "after", "error", "words"),
    [
        ("dmo:last5", "latest", RunNotFound, "no run in .* is of project 'dmo'; there are runs of demo"),
        ("demo:last0", "latest", UsageError, "asks for no run"),
        ("a0000000,,a0000001", "latest", UsageError, "names no run between two commas"),
        ("a0000004", "latest", UsageError, "stands on both sides"),
        ("a0000000,a0000004", "demo:latest", UsageError, "stands on both sides"),
        ("other:last5", "other:latest", RunNotFound, "'other' has no other runs"),
        ("a000000", "latest", AmbiguousRun, "5 runs"),
        ("a0000009", "latest", RunNotFound, "no run 'a0000009'"),
        (None, "latest", UsageError, "before the others"),
        ("demo:latest", None, UsageError, "is the latest run of 'demo'"),
        ([], "latest", UsageError, "needs a run"),
    ],
)
def test_what_cannot_be_meant_is_said(runs, before, after, error, words):
    with pytest.raises(error, match=words):
        find_groups(before, after, runs_dir=runs)


def test_two_copies_of_a_run_are_no_two_runs(runs, tmp_path_factory):
    original = next(Path(runs).glob("*a0000000"))
    copy = shutil.copytree(original, tmp_path_factory.mktemp("copy") / original.name)
    with pytest.raises(UsageError, match="copies of one run"):
        find_groups(original, copy, runs_dir=runs)


def test_a_project_with_one_run_and_an_empty_folder_have_nothing_to_compare(tmp_path):
    with pytest.raises(RunNotFound, match="there are no runs"):
        find_groups(None, None, runs_dir=tmp_path)
    make_run(tmp_path)
    with pytest.raises(RunNotFound, match="is the only run of 'demo'"):
        find_groups(None, None, runs_dir=tmp_path)
