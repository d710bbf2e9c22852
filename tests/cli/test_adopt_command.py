"""`flightlog adopt PATH`, through `main`: what it prints, where, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flightlog.cli.main import main

Captured = pytest.CaptureFixture[str]
TESTS = Path(__file__).parents[1]
PEERS = TESTS / "golden" / "peers"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_what_was_kept_mapped_and_dropped_is_said(runs: Path, capsys: Captured) -> None:
    assert main(["adopt", str(PEERS / "scalable")]) == 0
    [run] = [path.name for path in runs.iterdir() if path.name.startswith("run-")]
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        f"Scalable run directory made into {run}\n"
        "  kept:    24 tasks submitted\n"
        "           22 tasks succeeded\n"
        "            2 tasks failed\n"
        "           22 cache lookups\n"
        "            2 failures\n"
        "            1 artifacts\n"
        "  mapped:   1 component's resources in plan.json → resource_request\n"
        "           24 task lines `running`, written at submission → task_queued\n"
        "           24 task durations, from submission to end → metric elapsed_s\n"
        "           24 task field `worker`, which holds the task's key → tag key\n"
        "            4 durations of misses, which include the computation → saved_s of later hits\n"
        "            1 worker lines `cluster_created` → user_event scalable.worker\n"
        "            1 worker lines `scaled` → user_event scalable.worker\n"
        "            1 worker lines `cluster_closed` → user_event scalable.worker\n"
        "  dropped:  1 manifest.yaml (it holds variables expanded, so perhaps secrets)\n"
        "            1 plan.json (its requests and components are taken)\n"
        "            1 manifest.lock (its hash stands in run.json)\n"
        "            1 summary.json (recomputed)\n"
        "           24 resource lines in which every figure is null\n"
        "  notes:   - Scalable's task durations count from submission, so they include waiting: 24 of them,\n"
        "             254 ms on average, 439 ms at most, 6.1s in all. They are recorded as the tasks' "
        "metric\n"
        "             elapsed_s; how long tasks executed, and on which worker, is not recorded.\n"
        "           - Times are whole seconds, as Scalable writes them.\n"
        f"  flightlog report {run}\n"
    )


def test_adopting_again_says_that_nothing_was_changed(runs: Path, capsys: Captured) -> None:
    main(["adopt", str(PEERS / "rhapsody")])
    run = capsys.readouterr().out.split("made into ")[1].split()[0]
    assert main(["adopt", str(PEERS / "rhapsody")]) == 0
    assert capsys.readouterr().out == (
        f"RHAPSODY telemetry checkpoint was adopted before, nothing was changed: {run}\n"
    )
    assert len([path for path in runs.iterdir() if path.name.startswith("run-")]) == 1


def test_json_holds_the_whole_account(runs: Path, capsys: Captured) -> None:
    assert main(["adopt", str(PEERS / "modelops"), "--format", "json"]) == 0
    [said] = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["made"], said["events"]) == ("modelops", True, {"span": 25})
    assert said["kept"] == {"spans with their durations, tags and metrics": 25}
    assert Path(said["path"]).parent == runs
    assert {"run_id", "title", "source", "mapped", "dropped", "notes", "problems"} <= said.keys()


def test_accounting_given_as_a_path_is_merged_as_ever(runs: Path, capsys: Captured) -> None:
    assert main(["adopt", str(TESTS / "adopt" / "slurm-22.05.json")]) == 0
    assert "made into run-" in capsys.readouterr().out
    assert any(path.name.startswith("run-") for path in runs.iterdir())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name what to adopt: a PATH, --slurm JOBID, or --slurm-file F"),
        (["x.json", "--slurm", "1"], "name what to adopt"),
        (["nothing-here"], "there is no file or folder nothing-here"),
        ([str(PEERS / "scalable"), "--into", "latest"], "--into is for Slurm's accounting"),
        ([str(PEERS / "scalable"), "--kind", "poem"], "there is no kind 'poem'"),
        ([str(PEERS / "scalable"), "--kind", "modelops"], "holds no job of ModelOps"),
        (["--slurm", "1", "--project", "p"], "--kind, --mapping and --project are for a PATH"),
    ],
)
def test_what_makes_no_sense_gets_one_clear_message(
    runs: Path, capsys: Captured, arguments: list[str], complaint: str
) -> None:
    assert main(["adopt", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, complaint in err, err.count("\n")) == ("", True, 1)
    assert not runs.exists() or list(runs.iterdir()) == []


def test_the_report_of_an_adopted_run_says_where_it_came_from_and_what_to_know(
    runs: Path, capsys: Captured
) -> None:
    main(["adopt", str(PEERS / "rhapsody")])
    capsys.readouterr()
    assert main(["report"]) == 0
    out = capsys.readouterr().out
    assert "Adopted:   from RHAPSODY telemetry checkpoint (fixture.session.1794727371.telemetry.jsonl)" in out
    assert "RHAPSODY's task durations count from before the backend's queue" in out
    assert main(["report", "--format", "json"]) == 0
    adopted = json.loads(capsys.readouterr().out)["adopted"]
    assert (adopted["kind"], adopted["kept"]["tasks failed"]) == ("rhapsody", 3)


def test_a_job_folder_that_is_named_as_a_run_is_told_with_the_way_to_read_it(
    runs: Path, capsys: Captured
) -> None:
    [job] = (PEERS / "modelops" / "telemetry" / "jobs").iterdir()
    for command in ("report", "diagnose"):
        assert main([command, str(job)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "is no run of Flightlog, but spans of a ModelOps job" in err
        assert f"`flightlog adopt {job}` makes one of it" in err
