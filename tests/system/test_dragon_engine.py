"""The engine on Dragon keeps the contract of engines, inside a Dragon that the test starts."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from engine_programs import (
    PROGRAM,
    RECORDED,
    RESULTS,
    SCRIPTS,
    agreed,
    run_program,
    sweep,
    unless_dragon_stands_still,
)

from flightlog.testing.engines import ProcessEngineContract

pytest.importorskip("dragon", reason="Dragon is not installed: pip install 'flightlog[dragon]'")

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
CLAIMS = sorted(name for name in dir(ProcessEngineContract) if name.startswith("test_"))


DRAGON = [SCRIPTS / "dragon", "-s"]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What became of each test of the contract inside Dragon: None if it passed, else what is told of it."""
    folder = tmp_path_factory.mktemp("dragon")
    report = folder / "report.xml"
    options = ("-p", "no:cacheprovider", "-n", "0", f"--junitxml={report}", f"--rootdir={HERE.parents[1]}")
    command = [*DRAGON, HERE / "dragon_contract.py", *options]
    done = unless_dragon_stands_still(lambda: run_program(command, folder, timeout_s=400))
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    return {case.get("name"): (next(iter(case)).get("message") if len(case) else None) for case in cases}


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_contract_holds_inside_dragon(verdicts, claim):
    assert verdicts[claim] is None


def test_a_sweep_on_dragon_is_recorded_as_on_local_processes(tmp_path):
    folders = [tmp_path / "local", tmp_path / "dragon"]
    for folder in folders:
        folder.mkdir()
    local, _ = sweep([sys.executable], "local", folders[0])
    on_dragon, _ = sweep(DRAGON, "dragon", folders[1])
    assert agreed(on_dragon) == agreed(local) == RECORDED
    assert on_dragon["results"] == local["results"] == RESULTS
    assert set(on_dragon["recorded"]["workers"]) < set(
        on_dragon["recorded"]["sampled"]
    )  # the program itself, too


def test_nothing_is_missing_where_workers_do_not_see_the_files_of_the_program(tmp_path):
    told, _ = sweep(DRAGON, "dragon", tmp_path, {"HIDDEN": str(tmp_path / "home")})
    assert (agreed(told), told["results"]) == (RECORDED, RESULTS)
    assert list((tmp_path / "home").iterdir()) == []  # nobody else has seen any of it


def test_a_program_that_dragon_did_not_start_is_told_how_to(tmp_path):
    (tmp_path / "home").mkdir()
    done = run_program(
        [sys.executable, PROGRAM, tmp_path / "home", "dragon"], tmp_path, {"MARKS": str(tmp_path)}
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "flightlog.core.errors.UsageError: this program was not started by Dragon, which has to be there "
        "before it: start it "
        "with `dragon prog.py` in place of `python prog.py`, or with `dragon -s prog.py` on a single machine"
    )
