"""`flightlog alert`: any run, any rule, and a process beside a run that sends its alerts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.alert_receivers import SECRET, hook
from builders.runs import make_run
from builders.task_events import completed, failed, submitted

import flightlog
from flightlog.cli.alert import _AskedEntries
from flightlog.cli.main import main
from flightlog.record.followers import followers_of
from flightlog.store.run import Run

PATIENCE_S = 60.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs", [submitted("1"), failed("1", 1.0, 1.0)])


def test_alerts_are_printed_where_nothing_else_is_asked_for(run: Path, capsys) -> None:
    for _ in range(2):  # what is only printed is not remembered
        assert main(["alert", str(run), "--when", "failed", "--when", "loss is NaN"]) == 0
        out, err = capsys.readouterr()
        assert out.endswith(f"Z {run.name}: sim failed: ValueError: bad seed (1 of 1 task failed)\n")
        assert (out.count("\n"), err) == (1, "")
    assert not (run / ".followers").exists()


def test_what_was_sent_is_listed_and_not_sent_again(run: Path, capsys) -> None:
    with hook() as receiver:
        for _ in range(2):
            arguments = ["--when", "failed", "--when", "finished", "--webhook", receiver.address, "--once"]
            assert main(["alert", str(run), *arguments]) == 0
        assert len(receiver.posted) == 2
    capsys.readouterr()
    assert main(["alert", str(run), "--fired"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" → ")[2].partition("http")[0] for line in lines] == ["webhook ", "webhook "]
    assert main(["alert", str(run), "--fired", "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert [one["rule"] for one in json.loads(out)] == ["failed", "finished"]
    assert SECRET not in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--when", "fialed"], "did you mean 'failed'?"),
        (["--when", "SELECT 1; SELECT 2"], "a query is one SELECT, and there are 2 statements"),
        (["--when", "SELECT * FROM read_csv('/etc/passwd')"], "read_csv() cannot be used in it"),
        (["--when", "failed", "--every", "1"], "age '1' is not understood"),
        (["--when", "failed", "--command", "'"], "--command cannot be split into words"),
        (["--when", "failed", "--webhook", "hook"], "is no webhook"),
        ([], "name a rule, as in --when failed, or set FLIGHTLOG_ALERTS"),
        (["--webhook", "http://localhost/"], "name a rule"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Path, capsys, arguments: list[str], why: str) -> None:
    assert main(["alert", str(run), *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_query_that_cannot_be_answered_is_said_and_the_others_are(run: Path, capsys) -> None:
    assert main(["alert", str(run), "--when", "SELECT 1 FROM nowhere", "--when", "finished"]) == 1
    out, err = capsys.readouterr()
    assert "the run completed" in out
    assert "there is no table nowhere" in err


def test_alerts_are_printed_as_json_and_without_control_characters(tmp_path: Path, capsys) -> None:
    error = failed("1", 1.0, 1.0, error_message="\x1b]0;title\x07")
    run = make_run(tmp_path, [submitted("1"), error])
    assert main(["alert", str(run), "--when", "failed"]) == 0
    out = capsys.readouterr().out
    assert "sim failed: ValueError: \\x1b]0;title\\x07 (" in out
    assert main(["alert", str(run), "--when", "failed", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["message"].startswith("sim failed: ValueError: \x1b]0;")


def test_a_file_of_entries_that_is_half_saved_leaves_them_as_they_were(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    file = tmp_path / "alerts.json"
    file.write_text('[{"when": ["failed"]}]')
    monkeypatch.setenv("FLIGHTLOG_ALERTS", f"@{file}")
    asked = _AskedEntries()
    before = asked()
    assert [one.when for one in before] == [("failed",)]
    file.write_text('[{"when": ["fai')
    assert (asked(), asked()) == (before, before)
    file.unlink()
    assert (asked(), asked()) == (before, before)
    said = capsys.readouterr().err.splitlines()
    assert [line.endswith("; its entries stay as they were") for line in said] == [True, True]  # each once
    file.write_text('[{"when": ["finished"]}]')
    assert [one.when for one in asked()] == [("finished",)]


def test_examples_show_no_password_on_a_command_line() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "docs/alerts.md", root / "docs/commands/alert.md", root / "README.md"]
    lines = [
        line for page in pages for line in page.read_text("utf-8").splitlines() if "flightlog alert" in line
    ]
    assert [line for line in lines if "password" in line] == []


def test_a_test_of_nothing_is_refused(capsys, monkeypatch) -> None:
    monkeypatch.delenv("FLIGHTLOG_ALERTS", raising=False)
    assert main(["alert", "--test"]) == 2
    assert "there is nothing to test" in capsys.readouterr().err


def test_a_test_is_sent_and_its_failure_is_said(capsys) -> None:
    with hook() as receiver:
        receiver.answers = [500]
        assert main(["alert", "--test", "--webhook", receiver.address]) == 1
        assert "the server answered 500" in capsys.readouterr().err
        assert main(["alert", "--test", "--webhook", receiver.address]) == 0
        assert receiver.posted[0]["message"] == "this is a test: no rule holds"


def test_the_variable_names_rules_and_a_file_of_them(run: Path, capsys, tmp_path: Path, monkeypatch) -> None:
    with hook() as receiver:
        entries = [{"when": ["finished"], "webhook": receiver.address}]
        monkeypatch.setenv("FLIGHTLOG_ALERTS", json.dumps(entries))
        assert main(["alert", str(run)]) == 0
        (tmp_path / "alerts.json").write_text(json.dumps([{**entries[0], "when": ["failed"]}]))
        monkeypatch.setenv("FLIGHTLOG_ALERTS", f"@{tmp_path}/alerts.json")
        assert main(["alert", str(run)]) == 0
        assert [one["rule"] for one in receiver.posted] == ["finished", "failed"]
    monkeypatch.setenv("FLIGHTLOG_ALERTS", "@/no/such/file")
    assert main(["alert", str(run)]) == 2
    assert "cannot read /no/such/file" in capsys.readouterr().err


def test_a_copy_of_a_remote_run_is_watched(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    run = make_run(tmp_path / "there", [submitted("1"), completed("1", 1.0, 1.0)])
    address = (tmp_path / "there").as_uri()
    assert main(["alert", run.name, "--runs-dir", address, "--when", "finished"]) == 0
    assert "the run completed after 10.0s; 1 task, 0 failed" in capsys.readouterr().out


def test_every_run_is_watched_where_the_environment_asks_for_it(tmp_path: Path, monkeypatch, caplog) -> None:
    with hook() as receiver:
        entries = [{"when": ["loss is NaN", "finished"], "webhook": receiver.address}]
        monkeypatch.setenv("FLIGHTLOG_ALERTS", json.dumps(entries))
        monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", str(PATIENCE_S))
        with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
            [follower] = followers_of(run.path)
            assert follower.name == "alerts"
            run.metric("loss", float("nan"), step=7)
            deadline = time.monotonic() + PATIENCE_S
            while not receiver.posted and time.monotonic() < deadline:
                time.sleep(0.05)
            assert receiver.posted[0]["message"] == "loss is NaN at step 7"
        assert [one["rule"] for one in receiver.posted] == ["loss is NaN", "finished"]
    assert caplog.records == []
    assert not any(SECRET.encode() in file.read_bytes() for file in run.path.rglob("*") if file.is_file())


def test_a_webhook_that_fails_does_not_hurt_the_run_and_is_said(tmp_path: Path, monkeypatch, caplog) -> None:
    with hook() as receiver:
        receiver.answers = [400]
        monkeypatch.setenv(
            "FLIGHTLOG_ALERTS", json.dumps([{"when": ["finished"], "webhook": receiver.address}])
        )
        monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", str(PATIENCE_S))
        with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
            pass
    assert Run(run.path).status == "completed"
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("the run was recorded, but not all of its alerts were sent (an alert could not be")
    assert "/[redacted] (" in said
    assert said.endswith("): the server answered 400)")


def test_alerts_that_make_no_sense_do_not_hurt_the_run_and_are_said(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("FLIGHTLOG_ALERTS", '[{"when": ["fialed"]}]')
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", str(PATIENCE_S))
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        pass
    assert Run(run.path).status == "completed"
    [said] = [record.getMessage() for record in caplog.records]
    assert "'fialed' is no rule of an alert; did you mean 'failed'?" in said


def test_addresses_that_cannot_be_right_are_said_at_the_start_of_a_run(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    entries = [{"when": ["failed"], "webhook": f"ftp://{SECRET}"}, {"when": ["failed"], "notify": [SECRET]}]
    monkeypatch.setenv("FLIGHTLOG_ALERTS", json.dumps(entries))
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None):
        said = [record.getMessage() for record in caplog.records]
    assert [line.partition(";")[0] for line in said] == [
        "FLIGHTLOG_ALERTS: ftp://[redacted] is no webhook: write http://HOST/… or https://HOST/…",
        "FLIGHTLOG_ALERTS: [redacted] is no address that Apprise understands",
    ]


def test_a_variable_that_is_no_list_of_alerts_is_said_at_the_start_of_a_run(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("FLIGHTLOG_ALERTS", "@/no/such/file")
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        [said] = [record.getMessage() for record in caplog.records]
        assert followers_of(run.path) == ()
    assert "/no/such/file" in said


PROGRAM = """
import os, sys, time, flightlog
with flightlog.record("train", runs_dir=sys.argv[1]) as run:
    print(run.path, flush=True)
    time.sleep(600)
"""


def test_a_program_that_is_killed_is_noticed(tmp_path: Path) -> None:
    with hook() as receiver:
        environ = {
            **os.environ,
            "FLIGHTLOG_ALERTS": json.dumps([{"when": ["failed"], "webhook": receiver.address}]),
        }
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            path = Path(program.stdout.readline().strip())
            time.sleep(1)
            program.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not receiver.posted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [one["message"] for one in receiver.posted] == ["the run crashed: its process is gone"]
        while not (path / ".followers" / "alerts.exit").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (path / ".followers" / "alerts.exit").read_text() == "0\n"
