"""Runs in folders with odd names: every command reads them as it reads others, and shows their names on one
line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from builders.runs import at, make_run

import flightlog
from flightlog.cli.main import main
from flightlog.events import TaskCompleted, TaskStarted
from flightlog.store.tables.connection import is_plain, path_text

Captured = pytest.CaptureFixture[str]
NAMES = {
    "a pattern": "a*b[c]?{d,e}",
    "quotes, a partition and a comparison": 'it\'s "x" run_id=1 <a> \\ ;',
    "two lines and half a character": os.fsdecode(b"caf\xe9\nand \x1b[31mmore"),
}


@pytest.fixture(params=NAMES)
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two runs under an odd name, beside one that a pattern would take for it."""
    monkeypatch.chdir(tmp_path)
    two_runs(tmp_path / "aXbcYd", 3.0)
    folder = tmp_path / NAMES[request.param]
    two_runs(folder, 1.0)
    return folder


def two_runs(folder: Path, duration_s: float) -> None:
    for second, token in enumerate(("00000001", "00000002")):
        events = []
        for n in range(4):
            named = {"task": "simulate", "task_id": f"t{n}", "worker": f"w{n % 2}", "attempt": 1}
            events += [
                TaskStarted(timestamp=at(1 + n), queue_s=None, **named),
                TaskCompleted(timestamp=at(1 + n + duration_s), args={}, duration_s=duration_s, **named),
            ]
        make_run(folder, events, token=token, start_time=f"2026-05-20T03:52:0{second}.000000Z")


def asked(capsys: Captured, *command: str) -> str:
    code = main(list(command))
    out, err = capsys.readouterr()
    assert code == 0, err
    assert all(line.isprintable() for line in (out + err).splitlines())
    return out


def longest(capsys: Captured, *options: str) -> list[dict[str, object]]:
    query = "SELECT count(*) AS n, max(duration_s) AS s FROM attempts"
    found: list[dict[str, object]] = json.loads(asked(capsys, "sql", query, "--format", "json", *options))
    return found


def test_reports_tables_and_comparisons_are_of_these_runs_and_no_others(odd: Path, capsys: Captured) -> None:
    before, after = (str(odd / f"run-20260520T035200Z-demo-0000000{n}") for n in (1, 2))
    for _compacted in (False, True):
        report = json.loads(asked(capsys, "report", after, "--format", "json"))
        assert report["tasks"]["duration_s"]["max"] == 1.0
        assert longest(capsys, "--run", after) == [{"n": 4, "s": 1.0}]
        assert longest(capsys, "--all", "--runs-dir", str(odd)) == [{"n": 8, "s": 1.0}]
        assert json.loads(asked(capsys, "compare", before, after, "--format", "json"))["durations"]
        assert "simulate" in asked(capsys, "timeline", after)
        assert "simulate" in asked(capsys, "top", after, "--once")
        asked(capsys, "compact", "--all", "--runs-dir", str(odd))
    assert "nothing new" in asked(capsys, "compact", "--all", "--runs-dir", str(odd))


def test_what_is_written_goes_where_it_was_asked_to_go(odd: Path, capsys: Captured) -> None:
    run = str(odd / "run-20260520T035200Z-demo-00000001")
    asked(capsys, "sql", "FROM attempts", "--run", run, "--format", "parquet", "-o", str(odd / "a.parquet"))
    asked(capsys, "export", run, "--to", "csv", "-o", str(odd / "tables"))
    asked(capsys, "export", run, "--to", "csv", "--table", "attempts", "-o", str(odd / f"{odd.name}.csv"))
    asked(capsys, "compact", run, "--history", str(odd / "history"))
    [stored] = (odd / "history" / "attempts").rglob("*.parquet")
    made = [odd / "a.parquet", odd / "tables" / "attempts.csv", odd / f"{odd.name}.csv", stored]
    assert all(file.stat().st_size > 0 for file in made)
    assert not [file for file in odd.iterdir() if file.name.startswith(".")]


def test_a_path_in_the_output_is_one_line_that_can_be_printed(odd: Path, capsys: Captured) -> None:
    listed = json.loads(asked(capsys, "list", "--runs-dir", str(odd), "--format", "json"))
    run = listed[0]["path"]
    assert run == path_text(odd / "run-20260520T035200Z-demo-00000002")
    query = "SELECT path FROM runs ORDER BY path DESC LIMIT 1"
    rows = json.loads(asked(capsys, "sql", query, "--all", "--runs-dir", str(odd), "--format", "json"))
    assert rows == [{"path": run}]
    assert json.loads(asked(capsys, "diagnose", str(odd / Path(run).name), "--format", "json"))


def test_a_condition_is_told_from_a_path(odd: Path, capsys: Captured) -> None:
    before, after = (str(odd / f"run-20260520T035200Z-demo-0000000{n}") for n in (1, 2))
    asked(capsys, "compare", before, after, "--fail-on", "failures>0", "wall>50%")
    assert main(["compare", before, after, "p95>10%"]) == 2
    assert "write it after --fail-on" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["~nobody-of-that-name>1", "p95>" + "1" * 300, "wall>50%,"])
def test_what_can_be_neither_a_path_nor_a_condition_is_one_message(text: str, capsys: Captured) -> None:
    assert main(["compare", "--fail-on", "p95>10%", text]) == 2
    said = capsys.readouterr().err
    assert said.startswith("flightlog: condition ")
    assert said.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of open folders are Linux's")
def test_the_folder_of_temporary_files_may_have_an_odd_name_too(
    odd: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / f"t{odd.name}"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert not is_plain(temporary)
    assert longest(capsys, "--all", "--runs-dir", str(odd)) == [{"n": 8, "s": 1.0}]
    asked(capsys, "compact", "--all", "--runs-dir", str(odd))
    asked(capsys, "report", "--runs-dir", str(odd))
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY_PARQUET", "1")
    with flightlog.record("demo", runs_dir=odd) as run, flightlog.span("step"):
        pass
    flightlog.open_run(run.path)  # makes the copies that the run asked for
    assert (run.path / "parquet" / "spans.parquet").is_file()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("report", "~nosuchuser/x"),
        ("list", "--runs-dir", "~nosuchuser/x"),
        ("validate", "~nosuchuser/x.yaml"),
    ],
)
def test_a_home_folder_that_there_is_not_is_a_path_like_any_other(
    command: tuple[str, ...], capsys: Captured
) -> None:
    assert main(list(command)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "~nosuchuser/x" in line
