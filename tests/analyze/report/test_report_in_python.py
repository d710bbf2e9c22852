"""`flightlog.report` and `flightlog.advise`: what the commands print, in Python."""

from __future__ import annotations

import subprocess
import sys

import pytest
from builders.project_history import completed
from builders.runs import make_run

import flightlog
from flightlog.cli.main import main
from flightlog.core.errors import RunNotFound


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path, [completed(number) for number in range(20)])
    return tmp_path


def test_a_report_is_what_the_command_prints(runs, capsys):
    found = flightlog.report(runs_dir=runs)
    assert found.tasks.completed == 20
    assert flightlog.report(flightlog.open_run(runs_dir=runs)).verdict == found.verdict
    assert main(["report", "--runs-dir", str(runs)]) == 0
    assert found.text().strip() == capsys.readouterr().out.strip()
    with pytest.raises(RunNotFound):
        flightlog.report("nothing", runs_dir=runs)


def test_advice_is_what_the_command_prints(runs, capsys):
    found = flightlog.advise("sim", runs_dir=runs)
    assert [one.task for one in found.recommendations] == ["sim"]
    assert main(["advise", "--task", "sim", "--runs-dir", str(runs)]) == 0
    assert found.text().strip() == capsys.readouterr().out.strip()


def test_other_results_have_their_text_as_well(runs):
    assert flightlog.diagnose(flightlog.open_run(runs_dir=runs)).text()
    assert flightlog.trends(runs_dir=runs).text()


def test_importing_the_package_imports_none_of_it():
    code = "import sys, flightlog; print([name for name in sys.modules if 'flightlog.analyze' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
