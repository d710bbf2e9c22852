"""`flightlog advise`, and what `flightlog plan` says of history, through `main`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.events import Event, ResourceRequest, TaskCompleted

Captured = pytest.CaptureFixture[str]
GB = 10**9
MANIFEST = """\
version: 1
project: {name: demo}
targets:
  local: {provider: local, max_workers: 2}
components:
  model: {cpus: 4, memory: 16GB}
tasks:
  sim: {component: model}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FLIGHTLOG_TARGET", "FLIGHTLOG_OVERLAY", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()  # ends the search for a manifest here
    return tmp_path


def write_history(folder: Path) -> None:
    draw = Random(1)
    tasks: list[Event] = [
        TaskCompleted(
            timestamp=at(n),
            task="sim",
            task_id=f"sim-{n}",
            component="model",
            args={"n": n % 7},
            worker="w1",
            duration_s=60.0,
            cpu_s=108.0,
            cpu_scope="tree",
            rss_scope="tree",
            peak_rss_bytes=round(6 * GB * draw.lognormvariate(0, 0.02)),
        )
        for n in range(40)
    ]
    asked = ResourceRequest(task=None, component="model", cpus=4.0, memory_bytes=16 * GB)
    make_run(folder / "runs", [asked, *tasks], target="local")


def test_the_answer_stands_on_standard_output(folder: Path, capsys: Captured) -> None:
    write_history(folder)
    assert main(["advise", "--task", "sim"]) == 0
    captured = capsys.readouterr()
    assert "Recommended:        2 CPUs, 6.3GB memory" in captured.out
    assert captured.err == ""


def test_apply_writes_an_overlay_that_plan_takes(folder: Path, capsys: Captured) -> None:
    write_history(folder)
    (folder / "flightlog.yaml").write_text(MANIFEST)
    assert main(["advise", "--task", "sim", "--apply", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert msgspec.json.decode(captured.out)["changes"]["components.model.memory"] == "6.3GB"
    assert captured.err == (
        "flightlog: wrote flightlog.advised.yaml, with 2 values; nothing uses it yet\n"
        "flightlog: see what it changes: flightlog plan --overlay flightlog.advised.yaml\n"
        "flightlog: run with it: FLIGHTLOG_OVERLAY=flightlog.advised.yaml, or "
        "Session.from_yaml(overlay='flightlog.advised.yaml')\n"
    )
    assert (folder / "flightlog.yaml").read_text() == MANIFEST
    assert main(["plan", "--overlay", "flightlog.advised.yaml", "--format", "json"]) == 0
    plan = msgspec.json.decode(capsys.readouterr().out)
    assert plan["overlays"] == ["flightlog.advised.yaml"]
    assert (plan["components"]["model"]["memory_bytes"], plan["components"]["model"]["cpus"]) == (
        6_300_000_000,
        2.0,
    )


def test_plan_shows_what_history_suggests_beside_what_is_asked_for(folder: Path, capsys: Captured) -> None:
    write_history(folder)
    (folder / "flightlog.yaml").write_text(MANIFEST)
    assert main(["plan"]) == 0
    shown = capsys.readouterr().out
    assert "  Component  CPUs    Memory  History suggests\n" in shown
    assert "  model         4  14.9 GiB  2 CPUs, 6.3GB memory (40 attempts)\n" in shown
    assert main(["plan", "--format", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["suggestions"] == {
        "model": {
            "cpus": 2.0,
            "memory_bytes": 6_300_000_000,
            "tasks": ["sim"],
            "attempts": 40,
            "runs": 1,
            "confidence": 0.95,
            "whole": True,
            "elsewhere": False,
        }
    }


def test_plan_takes_what_other_targets_say_where_its_own_has_no_history(
    folder: Path, capsys: Captured
) -> None:
    write_history(folder)
    more = "targets:\n  away: {provider: local}\n"
    (folder / "flightlog.yaml").write_text(MANIFEST.replace("targets:\n", more))
    assert main(["plan", "--target", "away"]) == 0
    assert "2 CPUs, 6.3GB memory (40 attempts elsewhere)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there are no runs in"),
        (["--confidence", "1.5"], "a confidence of 1.5 makes no sense"),
        (["--project", "x"], "there are no runs in"),
        (["--runs-dir", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_in_an_empty_folder_there_is_one_clear_message(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert main(["advise", *arguments]) != 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n"), message in captured.err) == ("", 1, True)


def test_apply_without_a_manifest_or_over_a_foreign_file_changes_nothing(
    folder: Path, capsys: Captured
) -> None:
    write_history(folder)
    assert main(["advise", "--task", "sim", "--apply"]) != 0
    assert "there is no flightlog.yaml in" in capsys.readouterr().err
    (folder / "flightlog.yaml").write_text(MANIFEST)
    (folder / "flightlog.advised.yaml").write_text("mine\n")
    assert main(["advise", "--task", "sim", "--apply"]) != 0
    assert "was left alone; move it away" in capsys.readouterr().err
    assert (folder / "flightlog.advised.yaml").read_text() == "mine\n"


def test_advice_is_applied_to_the_manifest_of_its_own_project_alone(folder: Path, capsys: Captured) -> None:
    write_history(folder)
    late = TaskCompleted(timestamp=at(1), task="plot", task_id="p", args={}, worker="w1", duration_s=1.0)
    make_run(
        folder / "runs", [late], project="other", token="00000009", start_time="2026-06-01T00:00:00.000000Z"
    )
    (folder / "flightlog.yaml").write_text(MANIFEST)
    assert main(["advise", "--apply", "--project", "other"]) != 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "flightlog: flightlog.yaml is of project 'demo': advice on 'other' cannot be written beside it\n",
    )
    assert main(["advise", "--apply"]) == 0
    assert capsys.readouterr().out.startswith("Advice for demo: 1 request to change")


def test_what_is_left_to_the_user_is_said_where_nothing_else_is_to_set(
    folder: Path, capsys: Captured
) -> None:
    calls: list[Event] = [
        TaskCompleted(
            timestamp=at(n),
            task="load",
            task_id=f"load-{n}",
            args={"n": 1},
            args_digest="d",
            worker="w1",
            duration_s=5.0,
            result_bytes=9,
        )
        for n in range(8)
    ]
    run = make_run(folder / "runs", calls)
    (run / "plan.json").write_text('{"target": "local", "provider": "local"}')
    (folder / "flightlog.yaml").write_text(MANIFEST)
    assert main(["advise", "--apply"]) == 0
    assert capsys.readouterr().err == (
        "flightlog: tasks.load.cache: true is your decision: only if its result depends on its arguments "
        "alone\n"
        "flightlog: there is nothing else to set in the manifest: no overlay was written\n"
    )


def test_the_schema_of_the_json_is_printed(capsys: Captured) -> None:
    assert main(["schema", "advice"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["title"] == "Flightlog advice"


def test_the_help_is_shown_without_reading_anything(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom flightlog.cli.main import main\n"
        "try:\n    main(['advise', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'duckdb', 'yaml', 'sklearn', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Example: flightlog advise --task run_simulation" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
