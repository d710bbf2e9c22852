"""`flightlog diagnose`, through `main`, and with a rule that a site installs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.analyze.diagnosis.results import RunDiagnosis
from flightlog.analyze.diagnosis.rules import Clue, own_rules, parse_rule
from flightlog.cli.main import main
from flightlog.events import Failure, TaskFailed, WorkerLost

Captured = pytest.CaptureFixture[str]
TRACEBACK = """Traceback (most recent call last):
  File "model.py", line 7, in step
    import hydrology
ModuleNotFoundError: No module named 'hydrology'
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    return folder


def failing(runs: Path) -> Path:
    said = {"error_type": "ModuleNotFoundError", "fingerprint": "a" * 16}
    message = "No module named 'hydrology'"
    return make_run(
        runs,
        [
            TaskFailed(
                timestamp=at(1),
                task="sim",
                task_id="t1",
                args={"seed": 3},
                worker="w1",
                duration_s=0.5,
                error_message=message,
                **said,
            ),
            Failure(
                timestamp=at(1),
                scope="task",
                task="sim",
                task_id="t1",
                attempt=1,
                worker="w1",
                message=message,
                traceback=TRACEBACK,
                **said,
            ),
            WorkerLost(
                timestamp=at(2),
                worker="w2",
                host="n2",
                pid=7,
                reason="its process was killed by SIGKILL",
                signal="SIGKILL",
            ),
        ],
        status="failed",
    )


def test_the_text_gives_the_answer_first_then_cause_evidence_remedy_and_check(
    runs: Path, capsys: Captured
) -> None:
    failing(runs)
    assert main(["diagnose"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "run-20260520T035200Z-demo-a1b2c3d4",
        "The run failed: 1 task failed. Very likely import_error: `sim` failed: ModuleNotFoundError: No",
    ]
    assert "   where      2026-05-20 03:52:01 UTC, sim(seed=3) on w1" in lines
    assert '              File "model.py", line 7, in step' in lines
    assert (
        "   because    ModuleNotFoundError: No module named 'hydrology' [failures.jsonl failure 03:52:01]"
        in lines
    )
    assert "   check      flightlog report run-20260520T035200Z-demo-a1b2c3d4 --failures" in lines
    assert any(line.startswith("2. worker_lost, very likely (0.9") for line in lines)
    assert all(len(line) <= 100 or "flightlog sql" in line for line in lines)


def test_the_json_is_valid_by_its_own_schema_and_reads_back(runs: Path, capsys: Captured) -> None:
    failing(runs)
    assert main(["diagnose", "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert main(["schema", "diagnosis"]) == 0
    jsonschema.validate(msgspec.json.decode(out), msgspec.json.decode(capsys.readouterr().out))
    found = msgspec.json.decode(out, type=RunDiagnosis)
    assert [cause.failure_class for cause in found.causes] == ["import_error", "worker_lost"]


def test_an_empty_folder_gets_one_clear_message(runs: Path, capsys: Captured) -> None:
    assert main(["diagnose"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "there are no runs in" in said.err


def test_a_text_is_diagnosed_from_a_file_and_from_standard_input(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"\xff\xfe starting\n" + TRACEBACK.encode())
    assert main(["diagnose", "--text", str(log)]) == 0
    from_file = capsys.readouterr().out
    assert from_file.startswith("import_error, very likely (0.9")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TRACEBACK.encode()), closed=False))
    assert main(["diagnose", "--text", "-", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["failure_class"] == "import_error"
    assert {"confidence", "evidence", "suggestions"} <= found.keys()


def test_an_empty_text_is_unknown(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "empty").write_text("")
    assert main(["diagnose", "--text", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out.startswith("Cause unknown")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latest", "--text", "x"], "--text diagnoses a text alone: leave out the run"),
        (["--exception-type", "KeyError"], "--exception-type goes with --text"),
        (["--text", "no/such/file"], "cannot read no/such/file: No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["diagnose", *arguments]) == 2
    assert capsys.readouterr().err == f"flightlog: {message}\n"


DOCS = Path(__file__).parents[2] / "docs" / "diagnose.md"


def documented(language: str, start: str) -> str:
    """The example of the documentation in a language that begins with these words."""
    blocks = DOCS.read_text().split(f"```{language}\n")[1:]
    return next(block.partition("```")[0] for block in blocks if block.startswith(start))


def test_a_site_adds_a_rule_by_an_entry_point_and_a_broken_one_is_named(runs: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "our_site-1.0.dist-info").mkdir(parents=True)
    (site / "our_rules.py").write_text(documented("python", "# our_rules.py") + "broken = None\n")
    assert documented("toml", "[project").split()[-3:] == ["no_licence", "=", '"our_rules:rule"']
    (site / "our_site-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: our-site\nVersion: 1.0\n"
    )
    (site / "our_site-1.0.dist-info" / "entry_points.txt").write_text(
        "[flightlog.rules]\nno_licence = our_rules:rule\nnothing = our_rules:broken\n"
    )
    make_run(
        runs,
        [
            TaskFailed(
                timestamp=at(1),
                task="solve",
                task_id="t",
                args={},
                worker="w1",
                duration_s=1.0,
                error_type="ExitCode",
                error_message="solve ended with exit code 42",
                exit_code=42,
            )
        ],
    )
    done = subprocess.run(
        [sys.executable, "-m", "flightlog", "diagnose", "--format", "json"],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = msgspec.json.decode(done.stdout, type=RunDiagnosis)
    [cause] = found.causes
    assert (cause.failure_class, cause.evidence[0].text) == (
        "no_licence",
        "exit code 42: no licence was free",
    )
    assert cause.suggestions == ["Ask for a licence with the job: `#SBATCH --licenses=solver:1`."]
    assert found.problems == [
        "rule 'nothing' cannot be used: our_rules:broken: has no `signs` and `suggestions` to call"
    ]


def test_the_documentation_lists_every_class_that_has_a_rule_and_every_kind_of_clue() -> None:
    def rows(text: str) -> set[str]:
        return {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}

    classes, _, own = DOCS.read_text().partition("## A rule of your own")
    assert rows(classes) == {*own_rules(), "unknown"}
    assert rows(own) == {one.__struct_config__.tag for one in Clue.__subclasses__()}
    assert parse_rule(documented("toml", "description")).clues
