"""Runs that were to be copied elsewhere, and were not: every command that shows or removes one says so."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.core.units import format_bytes
from flightlog.events import Metric
from flightlog.store import layout
from flightlog.store.remote.state import is_followed, sole_uploader

Captured = pytest.CaptureFixture[str]
TOKENS = ("a1b2c3d4", "b1b2c3d4", "c1b2c3d4")


def name(token: str) -> str:
    return f"run-20260520T035200Z-demo-{token}"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: one that was copied, one that could not be, and one that nobody wanted to copy."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.delenv("FLIGHTLOG_RUNS_DIR_REMOTE", raising=False)
    (tmp_path / "no-folder").write_text("a file")
    for token in TOKENS:
        make_run(
            folder, [Metric(timestamp=at(n), name="loss", value=float(n)) for n in range(3)], token=token
        )
    assert main(["sync", TOKENS[0], "--to", str(tmp_path / "no-folder")]) == 1
    assert main(["sync", TOKENS[0], "--to", str(tmp_path / "there")]) == 0
    assert main(["sync", TOKENS[1], "--to", str(tmp_path / "no-folder")]) == 1
    return folder


def lack(runs: Path) -> tuple[str, str]:
    """What is said of the run that could not be copied: how it begins, and how it ends."""
    run = runs / name(TOKENS[1])
    size = format_bytes(sum(file.stat().st_size for file in run.iterdir() if file.is_file()))
    place = f"file://{runs.parent}/no-folder"
    return (
        f"{size} of it were not copied to {place} (",
        f"); `flightlog sync {run.name} --to {place}` sends it",
    )


def test_gc_keeps_a_run_that_stands_nowhere_whole_until_it_is_forced(runs: Path, capsys: Captured) -> None:
    begin, end = lack(runs)
    capsys.readouterr()
    assert main(["gc", "--older-than", "1s"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("Removed 2 runs, ")
    assert err.startswith(f"flightlog: {name(TOKENS[1])} is kept: {begin}")
    assert err.endswith(f"{end}; --force removes it anyway\n")
    assert [run.name for run in runs.glob("run-*")] == [name(TOKENS[1])]
    assert main(["gc", "--older-than", "1s", "--force"]) == 0
    assert list(runs.glob("run-*")) == []


def test_gc_keeps_a_run_that_is_being_copied(runs: Path, capsys: Captured) -> None:
    with sole_uploader(runs / name(TOKENS[1])):
        capsys.readouterr()
        assert main(["gc", "--older-than", "1s", "--dry-run"]) == 1
    assert f"{name(TOKENS[1])} is kept: it is being copied to file://" in capsys.readouterr().err


def test_a_list_counts_them(runs: Path, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["list"]) == 0
    said = "flightlog: 1 run here has a copy elsewhere that is not whole; see `flightlog sync --status`\n"
    assert capsys.readouterr().err == said


def test_a_report_says_how_much_is_missing_where_and_why(runs: Path, capsys: Captured) -> None:
    begin, end = lack(runs)
    capsys.readouterr()
    for token in TOKENS:
        assert main(["report", token]) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"flightlog: {begin}")
    assert err.endswith(f"{end}\n")
    assert err.count("\n") == 1


def test_the_status_says_why_a_copy_was_never_begun(runs: Path, capsys: Captured) -> None:
    """The process beside the run ended before it knew the address, which it had no client for."""
    followers = runs / name(TOKENS[2]) / layout.FOLLOWERS
    followers.mkdir()
    (followers / "sync.exit").write_text("2\n")
    (followers / "sync.log").write_text(
        "flightlog: gs://bucket needs a package: pip install 'flightlog[gcs]'\n"
    )
    why = "gs://bucket needs a package: pip install 'flightlog[gcs]'"
    capsys.readouterr()
    assert main(["sync", "--status", TOKENS[2]]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{name(TOKENS[2])}: {why}"
    assert main(["report", TOKENS[2]]) == 0
    said = f"flightlog: it was not copied ({why}); `flightlog sync {name(TOKENS[2])}` does that\n"
    assert capsys.readouterr().err == said


def test_to_look_whether_a_run_is_being_copied_hinders_nobody(runs: Path) -> None:
    run = runs / name(TOKENS[1])
    with sole_uploader(run) as other:
        assert (other, is_followed(run)) == (None, True)
        said = (run / layout.FOLLOWERS / "sync.lock").read_text()
    with (run / layout.FOLLOWERS / "sync.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_followed(run)
    assert (run / layout.FOLLOWERS / "sync.lock").read_text() == said


def test_a_folder_with_odd_characters_is_taken_as_it_is_written(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    odd = tmp_path / "my 100% share:ü"
    assert main(["sync", TOKENS[2], "--to", str(odd)]) == 0
    assert (odd / name(TOKENS[2]) / "metrics.jsonl").exists()
    capsys.readouterr()
    assert main(["sync", TOKENS[2], "--to", str(runs / name(TOKENS[2]) / "inside")]) == 2
    assert (
        capsys.readouterr().err == f"flightlog: {runs / name(TOKENS[2])}/inside already contains these runs\n"
    )
