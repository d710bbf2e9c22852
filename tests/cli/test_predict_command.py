"""`flightlog predict`, through `main`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.histories import make_history

from flightlog.cli.main import main
from flightlog.cli.predict import read_arguments
from flightlog.core.errors import UsageError

Captured = pytest.CaptureFixture[str]

MANIFEST = """\
version: 1
project: {name: demo}
targets:
  local: {provider: local, max_workers: 2, cost: {per_worker_hour: 3.6}}
components:
  model: {cpus: 2, memory: 16G}
tasks:
  sim: {component: model}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FLIGHTLOG_TARGET", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("PATH", str(tmp_path))  # on a machine with Slurm, its target would be the first choice
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()  # ends the search for a manifest here
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)
    return tmp_path


def test_a_prediction_says_the_answer_first_then_what_it_rests_on(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=4, tasks=10, seconds=lambda args: 2.0, peak=lambda args: 2e9)
    assert main(["predict", "sim", "n=300"]) == 0
    answer, why = capsys.readouterr().out.split("\n\n")
    title, duration, memory = answer.splitlines()
    assert title == "sim(n=300)"
    assert duration.startswith("  Duration:     about 2.0s (1.8s to 2.2s)")
    assert memory.startswith("  Peak memory:  about 1.9 GiB (1.8 GiB to 1.9 GiB)")
    assert why.startswith(
        "Why\n  - duration: 40 completed attempts in 4 runs; quantiles by name: too few examples"
    )
    assert "from 4 runs of demo" in why


def test_a_prediction_as_json_holds_the_numbers(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=2, tasks=10)
    assert main(["predict", "sim", "n=300", "method=rk4", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["task"], found["args"], found["confidence"]) == ("sim", {"n": 300, "method": "rk4"}, 0.9)
    assert found["duration_s"]["low"] < found["duration_s"]["expected"] < found["duration_s"]["high"]


def test_a_plan_is_forecast_from_the_last_runs_calls(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=4, tasks=10, seconds=lambda args: 2.0)
    assert main(["predict", "--plan", "--workers", "5"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Forecast: demo on local\n  Wall time: ")
    assert "the 10 calls of run-20260520T035200Z-demo-00000003, on 5 workers (as given)" in text
    assert main(["predict", "--plan", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["workers"], found["calls"], found["uncounted"]) == (2, 10, 0)
    assert found["cost"]["amount"] == pytest.approx(3.6 * 2 * found["wall_s"]["expected"] / 3600)


def test_calls_of_a_file_are_forecast_and_what_is_not_known_is_on_top(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=4, tasks=10, seconds=lambda args: 2.0)
    (folder / "calls.jsonl").write_text('{"task": "sim", "args": {"n": 300}}\n{"task": "plot"}\n')
    assert main(["predict", "--plan", "--calls", "calls.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "  Wall time:           at least " in text
    assert "not counted: 1 call of plot, of which history knows too little" in text


def test_an_evaluation_shows_error_and_coverage_against_the_baseline(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=6, tasks=10, failed=1)
    assert main(["predict", "--evaluate"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Predictions of demo, evaluated on its newest runs\n  2 of 6 runs tested")
    assert "Task       Attempts  Error  by name" in text
    assert "duration: 6 attempts left out that failed" in text


def test_training_says_what_was_learnt(folder: Path, capsys: Captured) -> None:
    make_history(folder / "runs", runs=2, tasks=10)
    assert main(["predict", "--train"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Model of demo: learnt from 20 attempts in 2 runs\n")
    assert "sim   duration           20  baseline  name" in text
    assert main(["predict", "--train", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["methods"] == {"duration_s": {"sim": "baseline"}, "peak_memory_bytes": {"sim": "baseline"}}


@pytest.mark.parametrize("words", [["sim"], ["--plan"], ["--evaluate"], ["--train"]])
def test_without_any_runs_there_is_one_message(folder: Path, capsys: Captured, words: list[str]) -> None:
    assert main(["predict", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "there are no runs in" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a task, as in `flightlog predict simulate n=2000`, or give --plan, --evaluate or --train"),
        (["sim", "--plan"], "give one of TASK, --plan and --evaluate"),
        (["sim", "--workers", "3"], "--workers goes with --plan"),
        (["--plan", "--project", "demo"], "--project goes without --plan: the manifest names the project"),
        (["--evaluate", "--host", "node-1"], "--host goes with a TASK"),
        (["sim", "300"], "'300' is not an argument: write name=value, as in n=2000"),
        (["sim", "n=3", "n=4"], "n is given twice, the second time as 'n=4'"),
    ],
)
def test_what_makes_no_sense_is_one_message(
    folder: Path, capsys: Captured, words: list[str], message: str
) -> None:
    make_history(folder / "runs", runs=1)
    assert main(["predict", *words]) == 2
    assert capsys.readouterr().err == f"flightlog: {message}\n"


def test_arguments_are_json_where_they_are_and_words_otherwise() -> None:
    assert read_arguments(
        ["n=3", "x=1e-3", "flag=true", "other=False", "m=rk4", "grid=[1, 2]", "empty=", "e=a=b"]
    ) == {
        "n": 3,
        "x": 1e-3,
        "flag": True,
        "other": False,
        "m": "rk4",
        "grid": [1, 2],
        "empty": "",
        "e": "a=b",
    }
    with pytest.raises(UsageError):
        read_arguments(["=3"])


def test_a_kept_model_answers_without_loading_the_library_that_made_it(folder: Path) -> None:
    make_history(folder / "runs")
    program = "import sys; from flightlog.cli.main import main; code = main(['predict', 'sim', 'n=300']); "
    learns, knows = (
        subprocess.run(
            [sys.executable, "-c", program + "print('sklearn' in sys.modules)"],
            capture_output=True,
            text=True,
        )
        for _ in range(2)
    )
    assert (learns.returncode, learns.stdout.splitlines()[-1]) == (0, "True")
    assert (knows.returncode, knows.stdout.splitlines()[-1]) == (0, "False")
    assert knows.stdout.splitlines()[:3] == learns.stdout.splitlines()[:3]
