"""`flightlog follow`: the events of a run, as text or as JSON, to its end or to Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flightlog
from flightlog.cli.main import main
from flightlog.cli.output import BROKEN_PIPE


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with flightlog.record("follow", runs_dir=tmp_path / "runs", sample_interval_s=None) as run:
        for step in range(3):
            run.metric("loss", 0.5 * step, step=step)
        with flightlog.span("odd \x1b[31mname", number=1):
            pass
        run.event("login", password="hunter2")
    return run.path


def lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_events_are_lines_of_text_without_control_characters(run, capsys):
    assert main(["follow", str(run)]) == 0
    said = lines(capsys)
    kinds = [line.split()[1] for line in said]
    assert kinds == ["metric", "metric", "metric", "span", "user_event"]
    assert said[1][23:] == "  metric           name=loss value=0.5 step=1"
    assert r"name=odd \x1b[31mname tags={" in said[3]
    assert "hunter2" not in "".join(said)


def test_json_lines_are_those_of_the_files(run, capsys):
    assert (
        main(["follow", str(run), "--format", "json", "--events", "metric,span", "--events", "failure"]) == 0
    )
    files = [(run / f"{stream}.jsonl").read_text().splitlines() for stream in ("metrics", "spans")]
    assert list(map(json.loads, lines(capsys))) == [json.loads(one) for file in files for one in file]


def test_what_was_recorded_before_can_be_left_out(run, capsys):
    assert (main(["follow", str(run), "--from-now"]), lines(capsys)) == (0, [])
    position = flightlog.open_run(run).follow(events="metric")
    next(position)
    assert main(["follow", str(run), "--events", "metric", "--since", position.position]) == 0
    assert [line.split()[-1] for line in lines(capsys)] == ["step=1", "step=2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--events", "metrik"], "no event is called 'metrik'. Did you mean 'metric'?"),
        (["--since", "x"], "give the whole text that says where an earlier `follow` ended"),
        (["--since", "x", "--from-now"], "give one of --since and --from-now"),
    ],
)
def test_misuse_is_said(run, capsys, arguments, said):
    assert main(["follow", str(run), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_blanks_and_a_comma_too_many_name_no_kind(run, capsys):
    assert main(["follow", str(run), "--events", "span, metric,"]) == 0
    assert {line.split()[1] for line in lines(capsys)} == {"metric", "span"}


def test_kinds_that_no_process_has_defined_are_told(tmp_path, capsys):
    Epoch = flightlog.define_event("followed.Epoch", loss=float)
    with flightlog.record("follow", runs_dir=tmp_path, sample_interval_s=None) as run:
        run.event(Epoch(loss=0.5))
    assert main(["follow", str(run.path), "--events", "followed.Epoch,followed.Epoche"]) == 0
    out, said = capsys.readouterr()
    assert out[23:] == "  followed.Epoch   loss=0.5\n"
    assert said == (
        "flightlog: no process of the run has defined an event 'followed.Epoche' so far. "
        "Did you mean 'followed.Epoch'?\n"
    )


def test_ctrl_c_says_how_to_go_on_and_the_rest_follows(tmp_path, capsys):
    command = [sys.executable, "-m", "flightlog", "follow", "--format", "json", "--events", "metric"]
    with flightlog.record("follow", runs_dir=tmp_path, sample_interval_s=None) as run:
        run.metric("loss", 1.0)
        with subprocess.Popen(
            [*command, str(run.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["value"] == 1.0
            run.metric("loss", 2.0)
            assert json.loads(follower.stdout.readline())["value"] == 2.0
            follower.send_signal(signal.SIGINT)
            _, said = follower.communicate(timeout=30)
        assert follower.returncode == 130
        run.metric("loss", 3.0)
    start = f"flightlog: to go on: flightlog follow {run.run_id} --since "
    assert said.startswith(start)
    position = said.removeprefix(start).strip()
    assert main(["follow", str(run.path), "--format", "json", "--events", "metric", "--since", position]) == 0
    values = [json.loads(line)["value"] for line in lines(capsys)]
    assert values in ([3.0], [2.0, 3.0])  # Ctrl-C may come before the position of what was just printed


def test_a_reader_that_goes_away_ends_it(tmp_path):
    with flightlog.record("follow", runs_dir=tmp_path, sample_interval_s=None) as run:
        for step in range(30_000):
            run.metric("loss", step)
    command = f"{sys.executable} -m flightlog follow {run.path} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (BROKEN_PIPE, "", 1)
