"""`flightlog trends`, through `main`."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from random import Random

import jsonschema
import msgspec
import pytest
from builders.runs import make_run

from flightlog.cli.main import main
from flightlog.store.catalogue import run_paths
from flightlog.store.index import RunIndex, load_index

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    return folder


def history(runs: Path, count: int, slower_from: int) -> None:
    draw = Random(5)
    for number in range(count):
        took = (3.0 if number < slower_from else 3.9) * draw.uniform(0.95, 1.05)
        make_run(
            runs,
            token=f"{number:08x}",
            duration_s=took,
            git_commit=f"{number // 10:040x}",
            start_time=f"2026-05-{1 + number // 24:02}T{number % 24:02}:00:00.000000Z",
        )


def test_a_step_is_told_with_its_run(runs: Path, capsys: Captured) -> None:
    history(runs, 40, 20)
    assert main(["trends"]) == 0
    out = capsys.readouterr().out
    assert (
        "% slower since run-20260520T035200Z-demo-00000014 (commit 0000000000, 2026-05-01 20:00 UTC)" in out
    )
    assert max(map(len, out.splitlines())) <= 100


def test_the_json_is_valid_by_its_own_schema(runs: Path, capsys: Captured) -> None:
    history(runs, 40, 20)
    assert main(["trends", "--format", "json"]) == 0
    trend = msgspec.json.decode(capsys.readouterr().out)
    assert main(["schema", "trends"]) == 0
    jsonschema.validate(trend, msgspec.json.decode(capsys.readouterr().out))


def test_the_json_and_the_csv_hold_every_run(runs: Path, capsys: Captured) -> None:
    history(runs, 40, 20)
    assert main(["trends", "--format", "json", "--last", "30"]) == 0
    trend = msgspec.json.decode(capsys.readouterr().out)
    assert (trend["project"], trend["metric"], trend["unit"]) == ("demo", "wall", "seconds")
    assert (len(trend["points"]), [change["at"] for change in trend["changes"]]) == (30, [10])
    assert main(["trends", "--format", "csv", "--since", "2026-05-02"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run_id"][-2:] for row in rows] == [f"{number:02x}" for number in range(24, 40)]


def test_without_utf8_everything_is_ascii(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(runs, 40, 20)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["trends"]) == 0
    text = out.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "^1" in text
    assert "\\u" not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "there are no runs in "),
        (["--metric", "speed"], "metric 'speed' is none of wall, "),
        (["--since", "soon"], "'soon' is no date"),
        (["--runs-dir", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_shown_is_a_message_and_exit_code_2(
    args: list[str], message: str, runs: Path, capsys: Captured
) -> None:
    assert main(["trends", *args]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"flightlog: {message}")) == ("", True)


def indexed(runs: Path) -> Path:
    """Index the runs, though they were written a moment ago; gives the index's file."""
    paths = run_paths(runs)
    with RunIndex(runs, paths, settled_ns=-(10**18)) as index:
        index.infos(paths)
    assert len(load_index(index.file)) == len(paths)
    return index.file


def test_a_list_through_the_index_is_the_list_without(runs: Path, capsys: Captured) -> None:
    history(runs, 60, 20)
    assert main(["list", "--format", "json"]) == 0
    without = capsys.readouterr().out
    indexed(runs)
    assert main(["list", "--format", "json"]) == 0
    assert capsys.readouterr().out == without
    assert [row["run_id"][-8:] for row in msgspec.json.decode(without)] == [
        f"{n:08x}" for n in reversed(range(60))
    ]


def test_old_runs_go_from_a_folder_with_an_index(runs: Path, capsys: Captured) -> None:
    history(runs, 60, 20)
    index = indexed(runs)
    assert main(["gc", "--older-than", "1s"]) == 0
    assert "Removed 60 runs" in capsys.readouterr().out
    assert [file.name for file in runs.iterdir()] == [index.name]
    assert main(["list", "--format", "json"]) == 0
    assert capsys.readouterr().out == "[]\n"
