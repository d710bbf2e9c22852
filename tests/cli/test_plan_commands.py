"""`validate`, `plan`, `explain` and `schema manifest`, through `main`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.events import TaskCompleted
from flightlog.record.environment import read_environment
from flightlog.session.lock import make_lock
from flightlog.session.manifest import load_manifest
from flightlog.session.plan import Plan
from flightlog.store import layout
from flightlog.store.documents import write_document

Captured = pytest.CaptureFixture[str]

TEXT = """\
version: 1
project: {name: demo}
targets:
  local: {provider: local, max_workers: 2}
  cluster: {provider: slurm, overlay: big, account: "${ACCOUNT}"}
components:
  model: {cpus: 2, memory: 16G}
tasks:
  sim: {component: model}
overlays:
  big: {components: {model: {memory: 64G}}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FLIGHTLOG_TARGET", "SLURM_JOB_ID", "ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("PATH", str(tmp_path))  # on a machine with Slurm, its target would be the first choice
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()  # ends the search here
    (tmp_path / "flightlog.yaml").write_text(TEXT)
    return tmp_path


def test_a_good_manifest_is_one_line_and_unset_variables_are_noted(capsys: Captured) -> None:
    assert main(["validate"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "flightlog.yaml: ok, 2 targets, 1 component, 1 task\n"
    assert captured.err == (
        "flightlog: flightlog.yaml:5: targets.cluster.account: the variable ACCOUNT is not set; set it, or "
        "write "
        "${ACCOUNT:-default}\n"
    )


def test_unset_variables_are_problems_of_the_target_that_is_named(capsys: Captured) -> None:
    assert main(["validate", "--target", "local"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["validate", "--target", "cluster"]) == 1
    assert capsys.readouterr().out.startswith(
        "flightlog.yaml:5: targets.cluster.account: the variable ACCOUNT"
    )


def test_every_problem_is_a_line(folder: Path, capsys: Captured) -> None:
    (folder / "bad.yaml").write_text(TEXT.replace("cpus: 2", "cups: 2").replace("16G", "16 Gigs"))
    assert main(["validate", "bad.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bad.yaml:7: components.model.cups: 'cups' is no key; did you mean 'cpus'?"
    assert lines[1].endswith("did you mean '16GB'?")
    assert len(lines) == 2
    for command in (["plan", "--manifest", "bad.yaml"], ["explain", "bad.yaml"]):
        assert main(command) == 1
        assert capsys.readouterr() == ("", "".join(f"flightlog: {line}\n" for line in lines))


@pytest.mark.parametrize(
    "args", [["validate"], ["plan"], ["explain"], ["validate", "nowhere.yaml"], ["plan", "--check"]]
)
def test_no_manifest_is_exit_code_2(folder: Path, args: list[str], capsys: Captured) -> None:
    (folder / "flightlog.yaml").unlink()
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("flightlog: there is no ")


def test_an_unknown_target_is_exit_code_2_and_lists_them(capsys: Captured) -> None:
    for command in ("validate", "plan", "explain"):
        assert main([command, "--target", "cloud"]) == 2
        assert capsys.readouterr().err == (
            "flightlog: there is no target 'cloud' in flightlog.yaml; the targets are local, cluster\n"
        )


def test_the_plan_is_text_or_json_and_counts_history(folder: Path, capsys: Captured) -> None:
    events = [TaskCompleted(timestamp=at(1), task="sim", task_id="a", args={}, worker="w", duration_s=2.0)]
    make_run(folder / "runs", events, tasks_completed=1)
    assert main(["plan", "--target", "cluster"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Plan: demo\n")
    assert "History (1 run)\n" in captured.out
    assert "ACCOUNT is not set" in captured.err
    assert main(["plan", "--format", "json"]) == 0
    plan = msgspec.json.decode(capsys.readouterr().out, type=Plan)
    assert (plan.target, plan.workers, plan.history.tasks["sim"].p50_s) == ("local", 2, 2.0)


def test_the_variable_picks_the_target(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("FLIGHTLOG_TARGET", "cluster")
    monkeypatch.setenv("ACCOUNT", "hunter2")
    assert main(["plan", "--format", "json"]) == 0
    captured = capsys.readouterr()
    plan = msgspec.json.decode(captured.out, type=Plan)
    assert (plan.target, plan.overlays, plan.options) == ("cluster", ("big",), {"account": "${ACCOUNT}"})
    assert "hunter2" not in captured.out + captured.err


def test_the_output_goes_to_a_file_unless_it_is_a_dry_run(folder: Path, capsys: Captured) -> None:
    assert main(["plan", "--format", "json", "--output", "plan.json", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert not (folder / "plan.json").exists()
    assert main(["plan", "--format", "json", "--output", "plan.json"]) == 0
    assert capsys.readouterr().out == ""
    assert (folder / "plan.json").read_text() == printed
    assert main(["plan", "--output", "missing/plan.json"]) == 2


def test_check_lists_what_differs_from_the_lock_of_a_run(folder: Path, capsys: Captured) -> None:
    lock = make_lock(load_manifest(), [], read_environment(cwd=folder), {})
    path = make_run(folder / "runs")
    write_document(path / layout.LOCK, lock)
    assert main(["plan", "--check"]) == 0
    assert capsys.readouterr().out == f"nothing differs from {path.name}\n"
    (folder / "flightlog.yaml").write_text(TEXT + "# changed\n")
    assert main(["plan", "--check", "a1b2c3d4"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"1 thing differs from {path.name}:"
    assert out[1].startswith("  the manifest changed: ")
    assert main(["plan", "--check", "--format", "json"]) == 1
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [each["what"] for each in found["differences"]] == ["manifest"]


def test_check_without_a_lock_and_a_run_without_check_are_misuse(folder: Path, capsys: Captured) -> None:
    make_run(folder / "runs")
    assert main(["plan", "--check"]) == 2
    assert "has a lock to check against" in capsys.readouterr().err
    assert main(["plan", "a1b2c3d4"]) == 2
    assert "--manifest" in capsys.readouterr().err


def test_explain_says_what_the_overlay_changes(capsys: Captured) -> None:
    assert main(["explain", "--target", "cluster"]) == 0
    out = capsys.readouterr().out
    assert "  components.model.memory: 16G (line 7) becomes 64G (line 11)\n" in out
    assert "line 11, overlay big\n" in out


def test_the_schema_of_a_manifest_is_printed(capsys: Captured) -> None:
    import yaml

    assert main(["schema", "manifest"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(TEXT))


def test_importing_the_package_does_not_read_yaml() -> None:
    code = "import sys, flightlog, flightlog.session.manifest; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_validate_warns_of_secrets_by_line_and_kind_and_never_says_them(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "flightlog.yaml").write_text(TEXT + "# password: hunter2\n")
    assert main(["validate", str(tmp_path / "flightlog.yaml")]) == 0
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert (
        ":12: a comment: looks like a secret (value of a secret's name); take it from a variable" in said.err
    )
