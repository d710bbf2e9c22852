"""The commands on runs at an address: what they say of a folder, they say of its copy, and nothing is written
there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from builders.counted_remote import ADDRESS, CountedMemory, empty_place, sync
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.events import Failure, TaskCompleted, TaskFailed, TaskSubmitted
from flightlog.store import layout
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run
from flightlog.store.runs_folder import folder_of_runs

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of three closed runs that were copied to the address, too."""
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    monkeypatch.delenv("FLIGHTLOG_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    empty_place()
    folder = tmp_path / "runs"
    for number in range(3):
        sync(some_run(folder, number))
    yield folder
    empty_place()


def some_run(folder: Path, number: int) -> Path:
    started = at(60 * number)
    events: list[object] = []
    for one in range(12):
        task_id, args = f"t{one}", {"seed": one}
        events += [
            TaskSubmitted(timestamp=at(60 * number + one), task="sim", task_id=task_id, args=args),
            TaskCompleted(
                timestamp=at(60 * number + one + 1),
                task="sim",
                task_id=task_id,
                args=args,
                worker="w1",
                duration_s=1.0 + number + one / 100,
                peak_rss_bytes=1_000_000,
            ),
        ]
    events += [
        TaskSubmitted(timestamp=at(60 * number + 13), task="sim", task_id="bad", args={}),
        TaskFailed(
            timestamp=at(60 * number + 14),
            task="sim",
            task_id="bad",
            args={},
            worker="w1",
            duration_s=0.5,
            error_type="ValueError",
            error_message="no such seed",
        ),
        Failure(
            timestamp=at(60 * number + 14),
            scope="task",
            task="sim",
            task_id="bad",
            error_type="ValueError",
            message="no such seed",
            traceback=None,
            fingerprint="f1",
        ),
    ]
    path = make_run(
        folder,
        events,
        token=f"a{number}b2c3d4",
        start_time=started,
        end_time=at(60 * number + 20),
        duration_s=20.0,
    )  # type: ignore[arg-type]
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    write_checksums(path)
    return path


def run(captured: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments])
    out, err = captured.readouterr()
    return code, out, err


COMMANDS = [
    ("list",),
    ("list", "--format", "json"),
    ("report",),
    ("report", "a1b2c3d4", "--format", "json"),
    ("report", "--failures"),
    ("compare", "--format", "json"),
    ("compare", "a0b2c3d4", "a2b2c3d4"),
    ("trends", "--metric", "duration:sim", "--format", "csv"),
    (
        "sql",
        "SELECT run_id, task, count(*) AS n, max(duration_s) AS s FROM attempts GROUP BY ALL ORDER BY 1",
        "--all",
        "--format",
        "csv",
    ),
    ("sql", "FROM runs", "--format", "json"),
    ("verify", "a2b2c3d4"),
    ("diagnose", "--format", "json"),
    ("advise", "--format", "json"),
    ("devices",),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words[:3])[:30])
def test_a_command_says_the_same_of_the_copies_as_of_the_runs(
    runs: Path, capsys: Captured, arguments: tuple[str, ...]
) -> None:
    code, here, notes = run(capsys, *arguments, "--runs-dir", str(runs))
    remote_code, there, remote_notes = run(capsys, *arguments, "--runs-dir", ADDRESS)
    copies = folder_of_runs(ADDRESS)
    there, remote_notes = (
        text.replace(str(copies), str(runs)).replace(ADDRESS, str(runs)) for text in (there, remote_notes)
    )
    assert (remote_code, there, remote_notes) == (code, here, notes)


def test_the_configured_folder_may_be_an_address(
    runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", ADDRESS)
    code, out, err = run(capsys, "list", "--format", "json")
    found = [entry["run_id"] for entry in msgspec.json.decode(out)]
    assert (code, found, err) == (0, sorted((path.name for path in runs.glob("run-*")), reverse=True), "")
    assert run(capsys, "report")[1] == run(capsys, "report", str(runs / found[0]))[1]


def test_a_run_may_be_named_by_its_address(runs: Path, capsys: Captured) -> None:
    path = next(runs.glob("*a1b2c3d4"))
    expected = run(capsys, "report", str(path))
    assert run(capsys, "report", f"{ADDRESS}/{path.name}") == expected
    assert run(capsys, "report", f"{ADDRESS}/{path.name}/") == expected
    code, out, err = run(capsys, "report", f"{ADDRESS}/run-20260520T035200Z-demo-99999999")
    assert (code, out) == (2, "")
    assert err == (
        f"flightlog: there is no run run-20260520T035200Z-demo-99999999 in {ADDRESS}; "
        "a folder of runs is named with --runs-dir\n"
    )


def test_a_diagnosis_names_the_run_so_that_its_commands_work_elsewhere(runs: Path, capsys: Captured) -> None:
    _, out, _ = run(capsys, "diagnose", "--runs-dir", ADDRESS)
    name = next(runs.glob("*a2b2c3d4")).name
    assert f"{ADDRESS}/{name}" in out
    assert "copies" not in out


def test_out_of_reach_the_copies_are_listed_with_one_note(runs: Path, capsys: Captured) -> None:
    before = run(capsys, "list", "--runs-dir", ADDRESS)
    assert before[2] == ""

    def broken(kind: str, path: str) -> None:
        raise ConnectionRefusedError("connection refused")

    CountedMemory.broken = broken
    code, out, err = run(capsys, "list", "--runs-dir", ADDRESS)
    assert (code, out) == before[:2]
    [line] = err.splitlines()
    assert line.startswith(f"flightlog: {ADDRESS} cannot be reached (connection refused);")
    assert "what is shown was copied from there at 20" in line
    code, out, err = run(capsys, "report", "--runs-dir", ADDRESS)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "flightlog: the files of run-20260520T035200Z-demo-a2b2c3d4 are not here: "
    )


def test_a_remote_that_was_never_read_and_cannot_be_is_one_sentence(runs: Path, capsys: Captured) -> None:
    def broken(kind: str, path: str) -> None:
        raise PermissionError("Forbidden")

    CountedMemory.broken = broken
    for command in (["list"], ["report"], ["trends"], ["sql", "FROM runs", "--all"]):
        code, out, err = run(capsys, *command, "--runs-dir", ADDRESS)
        assert (code, out) == (2, "")
        assert err.startswith(f"flightlog: {ADDRESS} refuses access (Forbidden); ")
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [["gc", "--older-than", "1d"], ["adopt", "--slurm-file", "jobs.json"], ["demo"], ["run", "--", "true"]],
    ids=lambda words: words[0],
)
def test_what_would_write_there_says_that_an_address_is_only_read(
    runs: Path, capsys: Captured, command: list[str]
) -> None:
    held = dict(CountedMemory.store)
    at_end = command.index("--") if "--" in command else len(command)
    words = [*command[:at_end], "--runs-dir", ADDRESS, *command[at_end:]]
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err == (
        "flightlog: --runs-dir is an address, and runs there are only read: name a folder; `flightlog "
        "sync` copies runs\n"
    )
    assert CountedMemory.store == held
    assert not Path("counted:").exists()


def test_compact_makes_a_history_of_remote_runs_and_nothing_beside_them(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    code, out, err = run(capsys, "compact", "--runs-dir", ADDRESS)
    assert (code, out) == (2, "")
    assert err == (
        "flightlog: run-20260520T035200Z-demo-a2b2c3d4 is at an address, and runs there are only read: add "
        "--history DIR\n"
    )
    code, out, err = run(
        capsys, "compact", "--all", "--runs-dir", ADDRESS, "--history", str(tmp_path / "history")
    )
    assert (code, err, len(out.splitlines())) == (0, "", 3)
    assert len(list((tmp_path / "history" / "runs").rglob("*.parquet"))) == 3


def test_recording_with_an_address_for_a_folder_goes_to_the_default_and_says_so(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import flightlog

    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", "s3://key:hidden-word@bucket/runs")
    with flightlog.record("first") as recorded:
        pass
    monkeypatch.delenv("FLIGHTLOG_RUNS_DIR")
    with flightlog.record("second", runs_dir="s3://key:hidden-word@bucket/runs") as other:
        pass
    assert recorded.path.parent == other.path.parent == tmp_path / ".flightlog" / "runs"
    assert [record.message.partition(" is an address")[0] for record in caplog.records] == [
        "FLIGHTLOG_RUNS_DIR",
        "runs_dir",
    ]
    assert "hidden-word" not in caplog.text
    assert not Path("s3:").exists()


def test_the_shell_completes_from_the_copies_and_asks_nothing(runs: Path, capsys: Captured) -> None:
    from flightlog.cli.options import complete_folder, complete_run

    run(capsys, "list", "--runs-dir", ADDRESS)
    place = CountedMemory()
    place.forget()

    class Context:
        params = {"runs_dir": ADDRESS}

    found = complete_run(Context(), "run-")  # type: ignore[arg-type]
    assert found == sorted((path.name for path in runs.glob("run-*")), reverse=True)
    assert not place.calls
    os.makedirs("data/old")
    assert (complete_folder("da"), complete_folder("data/"), complete_folder("nowhere/")) == (
        ["data/"],
        ["data/old/"],
        [],
    )


def test_a_limit_of_the_copies_that_is_no_size_is_said_and_the_usual_one_holds(
    runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE_MAX", "plenty")
    assert main(["list", "--runs-dir", ADDRESS]) == 0
    said = "FLIGHTLOG_REMOTE_CACHE_MAX='plenty' is no size (use for example 2GB); it is 10.0 GiB"
    assert capsys.readouterr().err == f"flightlog: {said}\n"
