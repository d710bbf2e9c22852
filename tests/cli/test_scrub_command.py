"""`flightlog scrub`: secrets go from runs that were recorded before, and everything else stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flightlog
from flightlog.cli.main import main
from flightlog.cli.scrub import _rebuild
from flightlog.core.redaction import own_patterns
from flightlog.session.secrets import without_secrets
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run
from flightlog.store.scrub import NOTE, scrub_run

STAND_IN = "zzp_" + "a1B2" * 9
SECRET = "ghp_" + "a1B2" * 9
"""Put in place of the stand-in: what a version without the redactor would have written."""

Captured = pytest.CaptureFixture[str]


def holding(folder: Path, secret: str = SECRET) -> list[str]:
    """The files that hold the secret."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(
        file.relative_to(folder).as_posix() for file in files if secret.encode() in file.read_bytes()
    )


def as_recorded_before(run: Path) -> Path:
    """The run with secrets in it."""
    for file in [file for file in run.rglob("*") if file.is_file()]:
        data = file.read_bytes()
        if STAND_IN.encode() in data:
            with file.open("r+b") as out:
                out.write(data.replace(STAND_IN.encode(), SECRET.encode()))
    if (run / "checksums.json").exists():
        write_checksums(run)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with flightlog.record(
        "demo", runs_dir=tmp_path / "runs", sample_interval_s=None, tags={"t": STAND_IN}
    ) as live:
        for number in range(20):
            with flightlog.span(f"GET {STAND_IN}" if number % 2 else "plain", number=number):
                live.metric(f"m{number} {STAND_IN}", 1.0)
        with live.task("sim", url=f"https://x/{STAND_IN}"):
            pass
    (live.path / "oom" / "1-now").mkdir(parents=True)
    (live.path / "oom" / "1-now" / "bundle.json").write_text(json.dumps({"environment": {"X": STAND_IN}}))
    (live.path / "oom" / "1-now" / "snapshot.pickle").write_bytes(b"\x80\x04\xff")
    (live.path / ".followers").mkdir()
    (live.path / ".followers" / "sync.log").write_text(f"trouble with {STAND_IN}\n")
    (live.path / "run.json").write_text(
        (live.path / "run.json").read_text().replace('"command": [', '"command": ["mysql", "-phunter2", ')
    )
    return as_recorded_before(live.path)


def numbers(run: Path, stream: str) -> list[tuple[str, int]]:
    lines = (run / f"{stream}.jsonl").read_text().splitlines()
    return [(line["writer"], line["seq"]) for line in map(json.loads, lines)]


def test_a_dry_run_says_where_secrets_are_and_changes_nothing(run: Path, capsys: Captured) -> None:
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert main(["scrub", str(run), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert "hunter2" not in said.out
    assert "  spans.jsonl: 10 texts (GitHub token)\n" in said.out
    assert "  run.json: 2 texts (GitHub token, password on a command line)\n" in said.out
    assert said.out.endswith(" would be cleaned\n")
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_scrubbed_run_holds_no_secret_keeps_its_lines_and_verifies(run: Path, capsys: Captured) -> None:
    assert main(["compact", str(run)]) == 0
    assert holding(run) != []
    before = {stream: numbers(run, stream) for stream in ("spans", "metrics", "tasks")}
    plain = [line for line in (run / "spans.jsonl").read_bytes().splitlines() if b'"plain"' in line]
    assert main(["scrub", str(run)]) == 0
    assert holding(run) == holding(run, "hunter2") == []
    assert {stream: numbers(run, stream) for stream in ("spans", "metrics", "tasks")} == before
    assert [line for line in (run / "spans.jsonl").read_bytes().splitlines() if b'"plain"' in line] == plain
    assert json.loads((run / "run.json").read_text())["command"][:2] == ["mysql", "-p[redacted]"]
    assert json.loads((run / "oom" / "1-now" / "bundle.json").read_text()) == {
        "environment": {"X": "[redacted]"}
    }
    assert (run / ".followers" / "sync.log").read_text() == "trouble with [redacted]\n"
    assert list((run / "parquet").glob("*.parquet")) != []
    said = capsys.readouterr()
    assert "oom/1-now/snapshot.pickle holds no text, and was not searched" in said.err
    assert main(["verify", str(run)]) == 0
    capsys.readouterr()
    assert main(["scrub", str(run)]) == 0
    assert capsys.readouterr().out == f"{run.name}: nothing was cleaned\n"


def test_patterns_of_ones_own_are_scrubbed_too_and_a_bad_one_is_refused(run: Path, capsys: Captured) -> None:
    assert main(["scrub", str(run), "--pattern", "("]) == 2
    assert main(["scrub", str(run), "--pattern", "pl(ai)n"]) == 0
    own_patterns(())
    assert {span.name for span in Run(run).events("spans")} == {"GET [redacted]", "pl[redacted]n"}


def test_a_run_that_is_running_is_refused(tmp_path: Path, capsys: Captured) -> None:
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as live:
        assert main(["scrub", str(live.path)]) == 2
    assert "is running" in capsys.readouterr().err


def test_a_run_whose_run_json_is_damaged_is_scrubbed_unless_a_process_of_it_lives(
    run: Path, tmp_path: Path, capsys: Captured
) -> None:
    (run / "run.json").write_text("{")
    assert main(["scrub", str(run)]) == 0
    assert holding(run) == []
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as live:
        (live.path / "run.json").write_text("{")
        assert main(["scrub", str(live.path)]) == 2
    assert "is running" in capsys.readouterr().err


def test_damage_that_was_there_before_stays_visible(run: Path, capsys: Captured) -> None:
    with (run / "spans.jsonl").open("ab") as out:
        out.write(b'{"added": "later"}\n')
    assert main(["scrub", str(run)]) == 0
    assert main(["verify", str(run)]) == 1
    assert "spans.jsonl" in capsys.readouterr().out


def test_a_copy_elsewhere_is_replaced_and_its_old_objects_go(
    run: Path, tmp_path: Path, capsys: Captured
) -> None:
    there = tmp_path / "there"
    assert main(["sync", str(run), "--to", str(there)]) == 0
    assert holding(there) != []
    assert main(["scrub", str(run), "--remote"]) == 0
    assert holding(there) == []
    assert main(["sync", str(run), "--to", str(there), "--verify"]) == 0


def test_a_secret_in_the_folders_name_is_said(tmp_path: Path, run: Path, capsys: Captured) -> None:
    named = run.rename(run.with_name(f"run-20260520T035200Z-{SECRET}-a1b2c3d4"))
    assert main(["scrub", str(named), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "the folder's name holds a secret (GitHub token)" in said.err


def test_lines_that_a_killed_program_left_in_memory_are_scrubbed_too(
    tmp_path: Path, capsys: Captured
) -> None:
    program = (
        "import flightlog, os, signal\n"
        f"with flightlog.record('demo', runs_dir={str(tmp_path)!r}, sample_interval_s=None):\n"
        "    for n in range(5):\n"
        f"        with flightlog.span('GET {STAND_IN}'):\n"
        "            pass\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    (path,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
    as_recorded_before(path)
    assert holding(path) != []
    assert main(["scrub", str(path)]) == 0
    assert holding(path) == []
    assert [span.name for span in Run(path).events("spans")] == ["GET [redacted]"] * 5


def killed_at(run: Path, number: int) -> bool:
    """Scrub in a process that is killed after so many steps; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        steps = iter(range(number))

        def step(_done: str) -> None:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            scrub_run(run, special={"manifest.yaml": without_secrets}, rebuild=_rebuild, step=step)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_kill_at_any_step_leaves_each_file_old_or_new_and_scrubbing_again_goes_on(
    run: Path, tmp_path: Path
) -> None:
    old = {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()}
    scrub_run(run, rebuild=_rebuild)
    new = {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()}
    number = 0
    killed = True
    while killed:
        copy = tmp_path / "copies" / str(number) / run.name
        for name, data in old.items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(data)
        killed = killed_at(copy, number)
        for name in old.keys() - {Path("checksums.json"), Path("summary.json")}:
            assert (copy / name).read_bytes() in {old[name], new[name]}
        if killed:
            scrub_run(copy, rebuild=_rebuild)
        assert holding(copy) == []
        assert not (copy / NOTE).exists()
        assert {file.relative_to(copy) for file in copy.rglob("*") if file.is_file()} - {
            Path(".followers/sync.lock")
        } == new.keys() - {Path(".followers/sync.lock")}
        assert main(["verify", str(copy)]) == 0
        number += 2
    assert number > 12
