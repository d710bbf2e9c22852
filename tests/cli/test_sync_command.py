"""`flightlog sync`, through `main`, to folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.core.units import format_bytes
from flightlog.events import Metric
from flightlog.store.remote.copies import list_remote
from flightlog.store.remote.objects import open_objects
from flightlog.store.remote.state import copies_of, sole_uploader, states_of
from flightlog.store.run import Run

Captured = pytest.CaptureFixture[str]
RUN_ID = "run-20260520T035200Z-demo-a1b2c3d4"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FLIGHTLOG_RUNS_DIR_REMOTE", raising=False)
    return folder


def made(runs: Path, token: str = "a1b2c3d4", metrics: int = 3) -> Path:
    return make_run(
        runs, [Metric(timestamp=at(n), name="loss", value=float(n)) for n in range(metrics)], token=token
    )


def size(run: Path) -> int:
    return sum(file.stat().st_size for file in run.iterdir() if file.is_file())


def test_a_run_is_copied_and_the_second_time_there_is_nothing_new(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    run, there = made(runs), tmp_path / "there"
    assert main(["sync", "--to", str(there)]) == 0
    assert main(["sync", "latest", "--to", f"file://{there}"]) == 0
    assert capsys.readouterr().out == (
        f"{RUN_ID}: sent {format_bytes(size(run))} of 3 files; 3 files, {format_bytes(size(run))} in file://{there}\n"
        f"{RUN_ID}: nothing new; 3 files, {format_bytes(size(run))} in file://{there}\n"
    )
    assert (there / RUN_ID / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert [event.seq for event in Run(there / RUN_ID).events("metrics")] == [0, 1, 2]


def test_all_runs_go_where_the_environment_says(
    runs: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(runs)
    made(runs, "b1b2c3d4")
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR_REMOTE", str(tmp_path / "there"))
    assert main(["sync", "--all", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [(one["run_id"][-8:], one["complete"], one["sent_files"]) for one in found] == [
        ("a1b2c3d4", True, 3),
        ("b1b2c3d4", True, 3),
    ]
    assert len(list_remote(open_objects(str(tmp_path / "there")))) == 2


def test_the_status_is_what_this_place_knows(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    made(runs)
    late = made(runs, "b1b2c3d4")
    made(runs, "c1b2c3d4")
    there = tmp_path / "there"
    for token in ("a1b2c3d4", "b1b2c3d4"):
        assert main(["sync", token, "--to", str(there)]) == 0
    (late / "parquet").mkdir()
    (late / "parquet" / "tasks.parquet").write_bytes(b"x" * 2048)
    capsys.readouterr()
    assert main(["sync", "--status"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["Run", "Copy", "Last", "Unsent", "Where"]
    assert [(row[0][-8:], row[1], row[-1]) for row in rows[1:]] == [
        ("a1b2c3d4", "complete", f"file://{there}"),
        ("b1b2c3d4", "behind", f"file://{there}"),
        ("c1b2c3d4", "never", "never"),
    ]
    assert rows[2][-3:-1] == ["2.0", "KiB"]


def test_verifying_finds_damage_and_mends_it(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    run, there = made(runs), tmp_path / "there"
    assert main(["sync", "--to", str(there)]) == 0
    copy = there / RUN_ID / "metrics.jsonl"
    copy.write_bytes(copy.read_bytes().replace(b"loss", b"boss"))
    capsys.readouterr()
    assert main(["sync", "--verify", "--to", str(there)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{RUN_ID}: ok, 3 files, {format_bytes(size(run))} read in file://{there}\n"
    assert err.startswith(f"flightlog: {RUN_ID}: metrics.jsonl: file://{there} holds something else")
    assert err.endswith("; it is sent again\n")
    assert copy.read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_copy_elsewhere_is_read_by_the_other_commands(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    made(runs)
    assert main(["sync", "--to", str(tmp_path / "there")]) == 0
    capsys.readouterr()
    assert main(["list", "--runs-dir", f"file://{tmp_path}/there", "--format", "json"]) == 0
    assert [one["run_id"] for one in msgspec.json.decode(capsys.readouterr().out)] == [RUN_ID]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["sync"],
            "name the destination: --to ADDRESS, or FLIGHTLOG_RUNS_DIR_REMOTE; for example s3://bucket/runs",
        ),
        (["sync", "latest", "--all"], "give either --all or runs, not both"),
        (["sync", "--follow", "--verify"], "--follow, --verify and --status exclude each other"),
        (["sync", "--to", "s3://me:hidden@bucket"], "the address s3://…@bucket holds a password"),
        (["sync", "--to", "gs://bucket/runs"], "pip install 'flightlog[gcs]'"),
        (
            ["sync", "s3://bucket/runs"],
            "runs are copied from a local folder: name a run, and the address with --to",
        ),
        (["sync", "nothing-like-it", "--to", "x"], "no run 'nothing-like-it'"),
    ],
)
def test_what_makes_no_sense_is_one_message(
    runs: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    made(runs)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert "hidden" not in err


def test_runs_are_not_copied_to_where_they_are(runs: Path, capsys: Captured) -> None:
    made(runs)
    assert main(["sync", "--to", str(runs)]) == 2
    assert capsys.readouterr().err == f"flightlog: {runs} already contains these runs\n"


def test_a_run_that_another_process_copies_is_left_to_it(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    run = made(runs)
    with sole_uploader(run):
        assert main(["sync", "--to", str(tmp_path / "there")]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"flightlog: {RUN_ID} is already being copied by process {os.getpid()} on ")


def test_a_place_that_refuses_is_one_sentence_and_exit_code_1(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    run = made(runs)
    (tmp_path / "there").write_text("a file, not a folder")
    assert main(["sync", "--to", str(tmp_path / "there" / "deeper")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"flightlog: {RUN_ID}: file://{tmp_path}/there/deeper ")
    (copy,) = copies_of(run)
    assert (copy.state, copy.unsent_bytes) == ("behind", size(run))


PROGRAM = """
import sys
import flightlog
with flightlog.record("followed") as run:
    for number in range(50):
        with flightlog.span("work", number=number):
            pass
print(run.path.name, sorted({"fsspec", "duckdb"} & sys.modules.keys()))
"""


def test_a_run_is_copied_beside_the_program_that_records_it(runs: Path, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "FLIGHTLOG_RUNS_DIR_REMOTE": str(tmp_path / "there"),
        "FLIGHTLOG_FOLLOWERS_WAIT": "60",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    name, modules = done.stdout.strip().split(" ", 1)
    assert modules == "[]"
    (state,) = states_of(runs / name)
    assert state.complete
    copy = Run(tmp_path / "there" / name)
    assert copy.completeness().problems == ()
    assert len({event.span_id for event in copy.events("spans")}) == 50
