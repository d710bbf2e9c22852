"""The commands, through `main`: what they print, where, and the exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from builders.runs import at, make_run

import flightlog
from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.analyze.report.summary import summarize
from flightlog.cli.main import COMMANDS, main
from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.show.report import report_text
from flightlog.store import layout
from flightlog.store.completing import open_run
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.liveness import process_start, this_host

Captured = pytest.CaptureFixture[str]


def some_run(runs: Path, token: str = "a1b2c3d4", **info: object) -> Path:
    events = [
        TaskSubmitted(timestamp=at(0), task="sim", task_id="a", args={"seed": 1}),
        TaskCompleted(
            timestamp=at(3), task="sim", task_id="a", args={"seed": 1}, worker="w1", duration_s=2.5
        ),
    ]
    return make_run(runs, events, token=token, **info)


def live_run(runs: Path, token: str = "11111111") -> Path:
    pid = os.getpid()
    path = make_run(runs, token=token, status="running", end_time=None, duration_s=None, start_time=at(30))
    document = msgspec.json.decode((path / layout.RUN).read_bytes())
    document |= {"host": this_host(), "pid": pid, "pid_start": process_start(pid)}
    (path / layout.RUN).write_bytes(msgspec.json.encode(document))
    return path


def seal(path: Path) -> Path:
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(open_run(path))))
    write_checksums(path)
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_version_is_printed(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"flightlog {flightlog.__version__}\n"


def test_the_package_runs_as_a_module_and_gives_the_commands_exit_code(tmp_path: Path) -> None:
    python = [sys.executable, "-m", "flightlog"]
    told = subprocess.run([*python, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("flightlog ")
    lost = subprocess.run(
        [*python, "report", "nothing", "--runs-dir", tmp_path], capture_output=True, check=False
    )
    assert lost.returncode == 2


def test_the_version_needs_no_command_line_library() -> None:
    code = (
        "import sys; from flightlog.cli.main import main; main(['--version']);"
        "print(sorted({'typer', 'rich', 'duckdb', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"flightlog {flightlog.__version__}\n[]\n"


def test_every_command_is_in_the_help_and_has_help_with_an_example(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        assert main([name, "--help"]) == 0
        assert "Example: flightlog " in capsys.readouterr().out


def test_the_help_lists_commands_in_five_groups_uncut_at_80_columns(capsys: Captured, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for option in ("--help", "-h"):
        assert main([option]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.endswith(":") and not line.startswith(" ")] == [
            *("Options:", "Record:", "Look:", "Understand:", "Manage:", "Share:")
        ]
        assert not [line for line in lines[1:] if len(line) > 80 or line.endswith(("...", "…"))]


def test_the_help_of_run_shows_how_a_command_is_given(capsys: Captured) -> None:
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: flightlog run [OPTIONS] -- COMMAND [ARGUMENTS]...\n")
    assert "list[" not in shown
    assert main(["run"]) == 2
    assert capsys.readouterr().err.endswith("Error: Missing argument 'COMMAND'.\n")


@pytest.mark.parametrize(
    "args", [["nonsense"], ["report", "--nonsense"], ["report", "--format", "xml"], ["gc"], []]
)
def test_misuse_is_exit_code_2_and_a_message_on_standard_error(args: list[str], capsys: Captured) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == "" or not args
    assert captured.err != "" or not args
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "args", [[], ["--latest"], ["--last"], ["latest"], ["--run-id", "b2b2b2b2"], ["b2b2"]]
)
def test_a_run_can_be_named_in_many_ways_and_the_latest_is_the_default(
    args: list[str], runs: Path, capsys: Captured
) -> None:
    some_run(runs)
    path = some_run(runs, "b2b2b2b2", start_time=at(5))
    assert main(["report", *args]) == 0
    assert capsys.readouterr().out == report_text(report_on(open_run(path)))


def test_a_path_names_a_run_too_and_so_does_another_folder(
    tmp_path: Path, runs: Path, capsys: Captured
) -> None:
    path = some_run(tmp_path / "elsewhere")
    assert main(["report", str(path)]) == 0
    by_path = capsys.readouterr().out
    assert main(["report", "--runs-dir", str(tmp_path / "elsewhere")]) == 0
    assert capsys.readouterr().out == by_path


def test_the_reports_json_holds_the_summary_and_is_valid_by_its_own_schema(
    runs: Path, capsys: Captured
) -> None:
    path = some_run(runs)
    assert main(["report", "--format", "json"]) == 0
    text = capsys.readouterr().out
    summary = msgspec.json.decode(report_bytes(summarize(open_run(path))))
    assert {name: msgspec.json.decode(text)[name] for name in summary} == summary
    assert main(["schema", "report"]) == 0
    jsonschema.validate(msgspec.json.decode(text), msgspec.json.decode(capsys.readouterr().out))


def test_a_report_written_to_a_file_leaves_standard_output_empty(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    path = some_run(runs)
    for extra in ([], ["--format", "json"]):
        assert main(["report", *extra, "--output", "out.txt"]) == 0
        assert capsys.readouterr().out == ""
    assert (tmp_path / "out.txt").read_bytes() == report_bytes(report_on(open_run(path)))


def test_a_missing_folder_for_the_output_is_a_clear_error(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["report", "--output", "no/such/report.txt"]) == 2
    assert (
        capsys.readouterr().err == "flightlog: cannot write no/such/report.txt: there is no folder no/such\n"
    )


def test_an_output_that_cannot_be_written_says_what_the_system_said(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    (runs.parent / "file").write_text("")
    assert main(["report", "--output", "."]) == 2
    assert capsys.readouterr().err == "flightlog: cannot write .: Is a directory\n"
    assert main(["report", "--output", "file/report.txt"]) == 2
    assert capsys.readouterr().err == "flightlog: cannot write file/report.txt: Not a directory\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_takes_no_files_is_not_called_missing(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["report", "--output", "/proc/report.txt"]) == 2
    assert "there is no folder" not in capsys.readouterr().err


def test_two_names_for_one_report_are_misuse(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["report", "a1b2c3d4", "--latest"]) == 2
    assert capsys.readouterr().err == "flightlog: name one run, not 2: a1b2c3d4, latest\n"


def test_a_missing_run_is_exit_code_2(runs: Path, capsys: Captured) -> None:
    for args in (["report"], ["report", "run-nope"], ["verify", "run-nope"]):
        assert main(args) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("flightlog: ")


def test_a_run_that_is_running_is_reported_and_verified_as_such(runs: Path, capsys: Captured) -> None:
    live_run(runs)
    assert main(["report"]) == 0
    assert "\nStatus:    running" in capsys.readouterr().out
    assert main(["verify"]) == 0
    assert "no checksums yet: the run is still running" in capsys.readouterr().out


def test_runs_are_listed_newest_first(runs: Path, capsys: Captured) -> None:
    some_run(runs, tasks_submitted=3, tasks_completed=2, tasks_failed=1)
    some_run(runs, "b2b2b2b2", start_time=at(5), project="other", status="failed")
    assert main(["list"]) == 0
    assert capsys.readouterr().out == (
        "Run                                  Status     Started                  Duration  Tasks\n"
        "run-20260520T035200Z-other-b2b2b2b2  failed     2026-05-20 03:52:05 UTC     10.0s\n"
        "run-20260520T035200Z-demo-a1b2c3d4   completed  2026-05-20 03:52:00 UTC     10.0s  2 of 3, 1 "
        "failed\n"
    )


def test_in_a_terminal_a_run_is_one_line(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some_run(runs, tasks_submitted=3, tasks_completed=2, tasks_failed=1)
    for columns in ("80", "24"):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert main(["list"]) == 0
        lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 2
        assert max(map(len, lines)) <= int(columns)
        assert "a1b2c3d4" in lines[1]


def test_a_list_can_be_narrowed(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    some_run(runs, "b2b2b2b2", start_time=at(5), project="other", status="failed")
    some_run(runs, "c3c3c3c3", start_time=at(6))
    for args, found in (
        (["--project", "other"], ["b2b2b2b2"]),
        (["--status", "completed"], ["c3c3c3c3", "a1b2c3d4"]),
        (["--limit", "1"], ["c3c3c3c3"]),
    ):
        assert main(["list", "--format", "json", *args]) == 0
        rows = msgspec.json.decode(capsys.readouterr().out)
        assert [row["run_id"][-8:] for row in rows] == found


def test_a_list_as_json_has_the_catalogues_facts(runs: Path, capsys: Captured) -> None:
    path = some_run(runs)
    assert main(["list", "--format", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == [
        {
            "path": str(path),
            "run_id": path.name,
            "project": "demo",
            "status": "completed",
            "start_time": at(0),
            "end_time": at(10),
            "duration_s": 10.0,
            "tasks_submitted": 0,
            "tasks_completed": 0,
            "tasks_failed": 0,
            "problem": None,
            "lines_lost": None,
        }
    ]


def test_a_list_that_is_cut_says_so_on_standard_error(runs: Path, capsys: Captured) -> None:
    for n in range(21):
        make_run(runs, token=f"{n:08x}")
    assert main(["list"]) == 0
    assert capsys.readouterr().err == "flightlog: 1 older run is not shown; see --limit\n"
    make_run(runs, token="ffffffff")
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 21
    assert captured.err == "flightlog: 2 older runs are not shown; see --limit\n"


def test_no_runs_are_a_message_and_no_failure(runs: Path, capsys: Captured) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr() == ("", f"flightlog: no runs in {runs}\n")
    assert main(["list", "--format", "json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize("command", [["list"], ["gc", "--older-than", "1d"]])
def test_a_file_in_place_of_the_folder_of_runs_is_misuse(
    command: list[str], how: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (runs.parent / "file").write_text("")
    if how == "variable":
        monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", "file")
    assert main([*command, "--runs-dir", "file"] if how == "option" else command) == 2
    assert capsys.readouterr() == ("", "flightlog: file is not a folder, so it holds no runs\n")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_demo_that_could_not_be_recorded_does_not_start(
    how: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (runs.parent / "file").write_text("")
    if how == "variable":
        monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", "file")
    assert main(["demo", "--runs-dir", "file"] if how == "option" else ["demo"]) == 2
    assert capsys.readouterr() == ("", "flightlog: file is not a folder, so no run can be recorded there\n")


def test_old_runs_go_and_a_live_one_never(runs: Path, capsys: Captured) -> None:
    old, alive = some_run(runs), live_run(runs)
    assert main(["gc", "--older-than", "1s", "--max-bytes", "0", "--dry-run"]) == 0
    assert "Would remove 1 run, " in capsys.readouterr().out
    assert old.exists()
    assert main(["gc", "--older-than", "1s", "--max-bytes", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{old.name}  ")
    assert "\nRemoved 1 run, " in out
    assert (old.exists(), alive.exists()) == (False, True)


def test_a_bad_age_or_size_removes_nothing(runs: Path, capsys: Captured) -> None:
    path = some_run(runs)
    assert main(["gc", "--older-than", "30"]) == 2
    assert main(["gc", "--max-bytes", "lots"]) == 2
    assert "is not understood" in capsys.readouterr().err
    assert path.exists()


def test_a_whole_run_verifies_with_exit_code_0(runs: Path, capsys: Captured) -> None:
    path = seal(some_run(runs))
    assert main(["verify", path.name]) == 0
    assert capsys.readouterr().out == (
        f"{path.name}: completed\n"
        "  ok     files         as they were when the run closed\n"
        "  ok     summary.json  computed again, byte for byte the same\n"
        "  ok     lines         2 of 2 read, none lost\n"
    )


def test_a_run_that_was_never_closed_is_one_plain_finding(runs: Path, capsys: Captured) -> None:
    path = some_run(runs, status="crashed", end_time=None, duration_s=None)
    assert main(["verify"]) == 1
    assert capsys.readouterr().out == (
        f"{path.name}: crashed\n"
        "  wrong  files         the run was never closed: there are no checksums to compare with\n"
        "  -      summary.json  not written; a reader counts what it needs\n"
        "  ok     lines         2 of 2 read, none lost\n"
    )


def test_checksums_that_are_gone_say_nothing_of_the_files(runs: Path, capsys: Captured) -> None:
    path = some_run(runs)
    assert main(["verify"]) == 1
    assert (
        "  wrong  files         there are no checksums to compare with: "
        f"they were removed, or closing the run failed; `flightlog verify {path.name} --repair` makes them\n"
    ) in capsys.readouterr().out


def test_a_run_that_lost_a_line_is_a_finding(runs: Path, capsys: Captured) -> None:
    path = seal(some_run(runs))
    tasks = path / "tasks.jsonl"
    tasks.write_bytes(tasks.read_bytes().splitlines(keepends=True)[1])
    assert main(["verify"]) == 1
    out = capsys.readouterr().out
    assert "  wrong  lines         1 of 2 read, 1 lost\n" in out
    assert "           tasks: 1 line of writer w0000001 lost: no. 0\n" in out


def test_a_schema_is_printed_for_a_stream_and_unknown_streams_are_misuse(capsys: Captured) -> None:
    assert main(["schema", "tasks"]) == 0
    jsonschema.Draft202012Validator.check_schema(msgspec.json.decode(capsys.readouterr().out))
    assert main(["schema", "task"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("flightlog: there is no schema 'task'. Did you mean 'tasks'? The schemas are ")
    assert message.endswith(", report, compare, trends, advice, diagnosis, device-report, manifest.\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colour_unless_it_asks_for_none(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some_run(runs)
    monkeypatch.setenv("TERM", "xterm")
    painted = {}
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert main(["report"]) == 0
        painted[no_color] = "\x1b[" in sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert painted == {"": True, "1": False}


def test_a_reader_that_goes_away_ends_a_command_quietly(runs: Path) -> None:
    some_run(runs)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "flightlog.cli.main", "report"]
    with os.fdopen(write) as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["list", "report", "schema"])
def test_a_closed_standard_output_is_a_clear_error(command: str, runs: Path) -> None:
    some_run(runs)
    script = f"'{sys.executable}' -m flightlog.cli.main {command} >&-"
    done = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, text=True, check=False)
    message = "flightlog: standard output is closed: there is nowhere to print to\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_a_message_goes_nowhere_where_standard_error_is_closed(runs: Path) -> None:
    script = f"'{sys.executable}' -m flightlog.cli.main report 2>&-"
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_terminal_without_unicode_gets_escapes_and_no_crash(runs: Path) -> None:
    some_run(runs)
    command = [sys.executable, "-m", "flightlog.cli.main", "report"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Run Report: run-" in done.stdout


def test_the_shell_completes_commands_and_run_ids(runs: Path) -> None:
    path = some_run(runs)
    command = [sys.executable, "-c", "import sys; from flightlog.cli.main import main; sys.exit(main())"]
    other = some_run(runs.parent / "other", "b2b2b2b2")
    for words, expected in (
        ("flightlog re", "report"),
        ("flightlog report run-", path.name),
        ("flightlog verify run-", path.name),
        ("flightlog report --run-id run-", path.name),
        ("flightlog report --runs-dir other --run-id run-", other.name),
    ):
        env = {
            **os.environ,
            "_FLIGHTLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "_TYPER_COMPLETE_ARGS": words,
        }
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.stdout.split() == [expected]
