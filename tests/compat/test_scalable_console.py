"""`python -m flightlog.compat.scalable …`: Scalable's commands and options, on Flightlog's answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scalable_work as work
from builders import tutorial_snippets
from builders.runs import make_run

from flightlog.compat.scalable import ResourceAdvisor, ScalableSession
from flightlog.compat.scalable.cli.main import as_flightlog, main
from flightlog.compat.scalable.cli.main import main as named_main
from flightlog.compat.scalable.session.session import ScalableSession as named_session
from flightlog.store.run import Run

PEER = Path(__file__).parents[1] / "golden/peers/scalable/runs"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder in which two runs were recorded under Scalable's names."""
    folder = tmp_path_factory.mktemp("scalable")
    (folder / "scalable.yaml").write_text(work.MANIFEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _ in range(2):
            with ScalableSession.from_yaml(target="local", sample_interval_s=0.1) as client:
                client.gather(client.map(work.run_simulation, range(6)))
                client.gather(client.map(work.solve, [1, 1, 2]))
    return folder


@pytest.fixture(autouse=True)
def here(project, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("SCALABLE_", "FLIGHTLOG_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(project)


def run_ids(project):
    """The oldest first: names of one second are in no order."""
    runs = [Run(path) for path in (project / ".scalable/runs").glob("run-*")]
    return [run.path.name for run in sorted(runs, key=lambda run: run.info.start_time)]


@pytest.mark.parametrize("words", [[], ["--latest"], ["--last"]])
def test_report_shows_the_last_run(project, capsys, words):
    assert main(["report", *words]) == 0
    shown = capsys.readouterr().out
    assert f"Run Report: {run_ids(project)[-1]}" in shown
    assert "Target:    local (provider: local)" in shown
    assert "Completed:     9" in shown


def test_report_of_one_run_as_json_goes_to_a_file(project, capsys, tmp_path):
    output = tmp_path / "report.json"
    assert main(["report", "--run-id", run_ids(project)[0], "--format", "json", "--output", str(output)]) == 0
    assert json.loads(output.read_text())["run"]["run_id"] == run_ids(project)[0]
    assert capsys.readouterr().out == ""


def test_report_compares_two_runs(project, capsys):
    assert main(["report", "--compare", *run_ids(project)]) == 0
    shown = capsys.readouterr().out
    assert [name for name in run_ids(project) if name not in shown] == []


def test_the_folder_of_runs_is_where_the_option_or_the_variable_says(tmp_path, capsys, monkeypatch):
    make_run(tmp_path / "other", token="11111111", project="elsewhere")
    assert main(["report", "--runs-dir", str(tmp_path / "other")]) == 0
    assert "elsewhere-11111111" in capsys.readouterr().out
    monkeypatch.setenv("SCALABLE_RUNS_DIR", str(tmp_path / "other"))
    assert main(["report", "--latest"]) == 0
    assert "elsewhere-11111111" in capsys.readouterr().out
    assert "FLIGHTLOG_RUNS_DIR" not in os.environ


def test_a_run_that_is_not_there_is_one_clear_message(capsys):
    assert main(["report", "--run-id", "run-nothing"]) == 2
    assert "no run 'run-nothing' in .scalable/runs" in capsys.readouterr().err


def test_advise_and_diagnose_take_the_originals_options(project, capsys, tmp_path):
    assert main(["advise", "--task", "run_simulation", "--confidence", "0.9", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == 0.9
    output = tmp_path / "diagnosis.txt"
    assert main(["diagnose", "--run-id", run_ids(project)[0], "--no-ai", "--output", str(output)]) == 0
    assert output.read_text().startswith(run_ids(project)[0])
    assert capsys.readouterr().out == ""


def test_the_advisor_advises_from_what_was_measured(tmp_path):
    advisor = ResourceAdvisor.from_history(".scalable/runs")
    found = advisor.recommend(task="run_simulation[3]", target="local", confidence=0.9)
    assert (found.task, found.target, found.confidence, found.workers) == (
        "run_simulation[3]",
        "local",
        0.9,
        {"sim": 1},
    )
    assert (found.evidence["records"], found.evidence["runs"]) == (12, 2)
    assert set(found.resources["sim"]) == {"cpus", "memory", "walltime"}
    assert found.resources["sim"]["memory"][-1] in "MGB"
    nothing = ResourceAdvisor.from_history(tmp_path / "none").recommend(task="simulate")
    assert (nothing.workers, nothing.resources, nothing.evidence["records"]) == (
        {"simulate": 1},
        {"simulate": {"cpus": 1, "memory": None, "walltime": None}},
        0,
    )


def test_options_become_flightlogs():
    assert as_flightlog(["diagnose", "--latest", "--format=json"]) == (
        ["diagnose", "latest", "--format=json"],
        None,
    )
    assert as_flightlog(["diagnose", "--runs-dir", "d"]) == (["diagnose", "--runs-dir", "d"], None)
    assert as_flightlog(["advise", "--task", "t", "-o", "f", "--model-type", "random_forest"]) == (
        ["advise", "--task", "t"],
        Path("f"),
    )
    assert as_flightlog(["sql", "SELECT 1"]) == (["sql", "SELECT 1"], None)
    assert as_flightlog([]) == (["--help"], None)


@pytest.mark.parametrize(
    "words", [["diagnose", "--latest", "--run-id", "r"], ["diagnose", "--output", "/nowhere/at/all"]]
)
def test_misuse_ends_with_2_and_a_message(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_other_commands_work_on_the_same_runs(project, capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in run_ids(project) if name not in shown] == []


def test_it_is_a_program(project):
    done = subprocess.run(
        [sys.executable, "-m", "flightlog.compat.scalable", "report", "--last"],
        capture_output=True,
        text=True,
        cwd=project,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(run_ids(project)[-1]) >= 1


SNIPPETS = {
    name: getattr(tutorial_snippets, name).replace(".flightlog/runs", ".scalable/runs")
    for name in ("READ_LINES", "READ_WITH_PANDAS", "SLOWEST", "IDLE", "CACHING", "TREND")
}


def printed(project, capsys, *names):
    """What the last of these snippets prints, by line; they run as the tutorial has them."""
    run = f".scalable/runs/{run_ids(project)[-1]}"
    found = {}
    for name in names:
        capsys.readouterr()
        exec(SNIPPETS[name].replace(".scalable/runs/run-...", run), found)
    return capsys.readouterr().out.splitlines()


def test_the_tutorials_snippets_run_as_they_are(project, capsys):
    kinds = [line.split(" | ")[1] for line in printed(project, capsys, "READ_LINES")]
    assert (kinds.count("task_submitted"), kinds.count("task_completed")) == (9, 9)
    lines = printed(project, capsys, "READ_WITH_PANDAS")
    assert lines[0] == "Total tasks: 9"
    slowest = printed(project, capsys, "READ_WITH_PANDAS", "SLOWEST")
    assert (slowest[0].split(), len(slowest)) == (["task", "duration_s"], 6)
    (idle,) = printed(project, capsys, "READ_WITH_PANDAS", "IDLE")
    assert idle.startswith("Average CPU utilization: ")
    (hits,) = printed(project, capsys, "READ_WITH_PANDAS", "CACHING")
    assert hits == "Cache hit rate: 100.0%"  # in the second run
    trend = printed(project, capsys, "TREND")
    starts = [Run(project / ".scalable/runs" / name).info.start_time for name in sorted(run_ids(project))]
    assert [line.split(": ")[0] for line in trend] == starts
    assert all(line.endswith("(9 tasks)") for line in trend)


def test_a_run_that_scalable_recorded_is_told_with_the_way_to_read_it(tmp_path, caplog):
    folder = tmp_path / "runs"
    shutil.copytree(PEER, folder)
    [run] = folder.iterdir()
    assert main(["report", "--runs-dir", str(folder)]) == 0
    assert caplog.messages == [
        f"{run.name} was recorded by Scalable, in its own form: `flightlog adopt {run}` makes a run of it "
        "that can be read"
    ]


def test_the_command_line_and_the_session_stand_where_scalable_has_them():
    assert (named_main, named_session) == (main, ScalableSession)
