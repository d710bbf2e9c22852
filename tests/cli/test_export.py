"""`flightlog export`, through `main`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.cli.export import complete_exporter
from flightlog.cli.main import main
from flightlog.events import TaskCompleted, TaskStarted

Captured = pytest.CaptureFixture[str]
RUN = "run-20260520T035200Z-demo-a1b2c3d4"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one run, of two tasks of which one has not ended; the working directory is above it."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    make_run(
        folder,
        [
            TaskCompleted(timestamp=at(2), task="sim", task_id="t1", args={}, worker="w1", duration_s=1.0),
            TaskStarted(timestamp=at(3), task="sim", task_id="t2", worker="w1", queue_s=None),
        ],
    )
    return folder


def test_without_more_a_file_named_after_the_latest_run_is_written_here(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["export", "--to", "perfetto"]) == 0
    file = tmp_path / f"{RUN}.trace.json.gz"
    size = file.stat().st_size
    assert capsys.readouterr() == (
        f"Wrote {file.name} ({size} B): 2 tasks, 4 counter values\n"
        "  1 task had not ended, drawn up to the end of the run\n",
        "",
    )
    assert json.loads(gzip.decompress(file.read_bytes()))["otherData"]["run_id"] == RUN


def test_a_folder_of_tables_is_named_after_the_run_too(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["export", RUN, "--to", "csv"]) == 0
    out, err = capsys.readouterr()
    assert (out.partition(" (")[0], err) == (f"Wrote {RUN}-csv", "")
    assert out.endswith("): 2 rows of attempts, 2 rows of tasks, 1 row of runs, 2 rows of task_events\n")
    assert (tmp_path / f"{RUN}-csv" / "attempts.csv").exists()


def test_what_came_of_it_can_be_had_as_json(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["export", "--to", "csv", "--table", "tasks", "-o", "tasks.csv", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "run_id": RUN,
        "to": "csv",
        "where": "tasks.csv",
        "size_bytes": (tmp_path / "tasks.csv").stat().st_size,
        "counts": {"rows of tasks": 2},
        "notes": [],
    }


def test_one_file_goes_to_standard_output_and_notes_to_standard_error(
    runs: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", "--to", "csv", "--table", "runs", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.splitlines()[1].startswith(RUN.encode())
    assert err == b""
    assert main(["export", "--to", "perfetto", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert json.loads(gzip.decompress(out))["otherData"]["run_id"] == RUN
    assert err == b"flightlog: 1 task had not ended, drawn up to the end of the run\n"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_file_goes_into_a_folder_that_is_named(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    assert main(["export", "--to", "perfetto", "--output", "traces"]) == 0
    assert [path.name for path in (tmp_path / "traces").iterdir()] == [f"{RUN}.trace.json.gz"]


def refused(capsys: Captured, *arguments: str) -> str:
    """The one line that a command says which does nothing."""
    assert main(["export", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("flightlog: ").rstrip("\n")


def test_nothing_is_replaced_unless_that_is_asked_for(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.json").write_text("mine")
    said = refused(capsys, "--to", "json", "-o", "mine.json")
    assert said == "mine.json already exists: name another with --output, or replace it with --force"
    assert (tmp_path / "mine.json").read_text() == "mine"
    assert main(["export", "--to", "json", "-o", "mine.json", "--force"]) == 0
    assert json.loads((tmp_path / "mine.json").read_text())["run_id"] == RUN
    assert main(["export", "--to", "csv"]) == 0
    capsys.readouterr()
    assert refused(capsys, "--to", "csv").startswith(f"{RUN}-csv already exists")
    assert main(["export", "--to", "csv", "--force"]) == 0


def test_the_run_itself_is_never_written_into(runs: Path, capsys: Captured) -> None:
    before = sorted(path.name for path in (runs / RUN).iterdir())
    said = refused(capsys, "--to", "json", "-o", f"runs/{RUN}", "--force")
    assert said == f"runs/{RUN}/{RUN}.json is within the run, which is never changed: name another place"
    assert refused(capsys, "--to", "csv", "-o", f"runs/{RUN}", "--force").startswith(f"runs/{RUN} is within")
    assert sorted(path.name for path in (runs / RUN).iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the format: --to csv or json or "),
        (["--to", "xlsx"], "there is no exporter 'xlsx'."),
        (["--to", "csv", "--table", "task"], "there is no table 'task'. Did you mean tasks?"),
        (["--to", "csv", "--follow"], "--follow does not go with --to csv: leave it out"),
        (["--to", "csv", "-o", "no/such/folder"], "cannot write no/such/folder: there is no folder no/such"),
        (
            ["--to", "csv", "-o", "-"],
            "--to csv is no single file, and does not go to standard output; name one --table",
        ),
        (["nobody", "--to", "csv"], "no run 'nobody' in "),
        ([RUN, "--run-id", "other", "--to", "csv"], f"name one run, not 2: {RUN}, other"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    runs: Path, tmp_path: Path, capsys: Captured, arguments: list[str], said: str
) -> None:
    assert refused(capsys, *arguments).startswith(said)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_folder_where_a_file_is_to_be_and_the_other_way_round(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "file").write_text("mine")
    said = refused(capsys, "--to", "csv", "-o", "file", "--force")
    assert said == "file is a file, and --to csv writes a folder: name another place"


def test_a_pipe_or_a_device_is_never_replaced(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = refused(capsys, "--to", "json", "-o", "pipe", "--force")
    assert said == "pipe is no file, and is never replaced: name another place, or -o - to print"
    assert (tmp_path / "pipe").is_fifo()


def test_the_shell_completes_exporters_with_what_they_give() -> None:
    assert ("perfetto", "a trace for ui.perfetto.dev and chrome://tracing") in complete_exporter("p")
    assert {name for name, _ in complete_exporter("p")} == {"parquet", "perfetto", "prometheus"}


def test_help_lists_the_exporters_that_are_installed(capsys: Captured) -> None:
    assert main(["export", "--help"]) == 0
    assert "otlp-json,parquet,perfetto,prometheus,ro-crate" in "".join(capsys.readouterr().out.split())
