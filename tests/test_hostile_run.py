"""The run that attacks whoever shows it is itself in order: it can be read, and nothing in it is lost on the
way."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.hostile_run import EVERYTHING, PROJECT, RUN_ID, TRICKS, hostile_run

from flightlog.analyze.compare.compare import compare
from flightlog.analyze.report.report import report_on
from flightlog.cli.main import main
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("hostile"))


def test_every_trick_is_the_name_of_a_task_and_comes_back_as_it_was_written(hostile: Path) -> None:
    by_name = report_on(Run(hostile)).tasks.by_name
    assert set(TRICKS.values()) | {EVERYTHING} <= set(by_name)


def test_the_catalogue_lists_it_under_its_own_name(hostile: Path) -> None:
    assert [(run.run_id, run.project, run.path) for run in list_runs(hostile.parent)] == [
        (RUN_ID, PROJECT, hostile)
    ]


def test_its_document_may_claim_to_be_another_run(tmp_path: Path) -> None:
    path = hostile_run(tmp_path, run_id="../../etc/passwd")
    assert [(run.run_id, run.path) for run in list_runs(tmp_path)] == [("../../etc/passwd", path)]


def test_a_report_on_it_is_json_with_every_line_counted(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(hostile), "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["run"]["status"] == "failed"
    assert found["completeness"]["lost"] == {}


def test_long_names_are_as_long_as_asked_for(tmp_path: Path) -> None:
    names = report_on(Run(hostile_run(tmp_path, name_bytes=300_000))).tasks.by_name
    assert max(len(name.encode()) for name in names) >= 299_000


def test_two_hostile_runs_can_be_compared(tmp_path: Path) -> None:
    before = hostile_run(tmp_path / "before")
    after = hostile_run(tmp_path / "after", run_id="run-20260521T035200Z-after-0bad0bae")
    found = compare(before, after)
    assert found.tasks["completed"].before == found.tasks["completed"].after
