"""The gate: a test that fails runs once more, alone, and only what fails again stops a change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GATE = Path(__file__).parents[1] / ".ci" / "gate.py"
MAKEFILE = """
BIN := BIN_FOLDER
PYTEST = $(BIN)/python -m pytest
lint:
	@test ! -e untidy
types:
	@true
unit:
	@$(PYTEST) -p no:cacheprovider first
test-system:
	@$(PYTEST) -p no:cacheprovider $(DISTRIBUTED) second
"""
FLAKY = """
from pathlib import Path
def test_flaky():
    tried = Path("tried")
    before, _ = tried.exists(), tried.touch()
    assert before
"""


@pytest.fixture
def gate(tmp_path):
    """Runs the gate over a project with these two test files, and empty files of other names.

    The second suite is run by these options of pytest-xdist.
    """

    def run(first: str, second: str, *others: str, distributed: str = "") -> tuple[int, str, list[str]]:
        binaries = Path(sys.executable).parent
        (tmp_path / "Makefile").write_text(MAKEFILE.replace("BIN_FOLDER", str(binaries)))
        (tmp_path / ".ci").mkdir()
        shutil.copy(GATE, tmp_path / ".ci")
        for folder, text in (("first", first), ("second", second)):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / f"test_{folder}.py").write_text(text)
        for name in others:
            (tmp_path / name).touch()
        done = subprocess.run(
            [sys.executable, ".ci/gate.py"],
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "VENV": str(binaries.parent),
                "DISTRIBUTED": distributed,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
        )
        listed = (tmp_path / "build" / "ci" / "flaky.txt").read_text().splitlines()
        return done.returncode, done.stdout, listed

    return run


GROUPED = "import pytest\npytestmark = pytest.mark.xdist_group('a group')\n"


def test_a_test_of_a_group_is_run_again_by_its_own_name(gate):
    code, _, flaky = gate(
        PASSES, GROUPED + PASSES + FLAKY, distributed="-p xdist.plugin -n 1 --dist loadgroup"
    )
    assert (code, flaky) == (0, ["second/test_second.py::test_flaky"])


PASSES = "def test_passes(): pass\n"


def test_a_change_whose_tests_all_pass_may_land(gate):
    code, said, flaky = gate(PASSES, PASSES)
    assert (code, flaky) == (0, [])
    assert said.endswith("gate: nothing stands in the way\n")


def test_a_test_that_passes_alone_is_listed_as_flaky_and_stops_nothing(gate):
    code, said, flaky = gate(PASSES + FLAKY, PASSES)
    assert (code, flaky) == (0, ["first/test_first.py::test_flaky"])
    assert "gate: FLAKY   first/test_first.py::test_flaky: failed beside others, passed alone\n" in said


def test_a_check_that_fails_stops_the_change_though_all_tests_pass_in_the_end(gate):
    code, said, flaky = gate(PASSES + FLAKY, PASSES, "untidy")
    assert (code, flaky) == (1, ["first/test_first.py::test_flaky"])
    assert "gate: make lint types failed\n" in said


def test_a_test_that_fails_twice_stops_the_change_and_the_other_suite_runs_all_the_same(gate):
    code, said, flaky = gate("def test_fails(): assert False\n", PASSES + FLAKY)
    assert (code, flaky) == (1, ["second/test_second.py::test_flaky"])
    assert "gate: FAILED  first/test_first.py::test_fails\n" in said


def test_a_suite_that_cannot_be_collected_stops_the_change(gate):
    code, said, flaky = gate("import nowhere\n", PASSES)
    assert (code, flaky) == (1, [])
    assert "gate: a suite did not run to its end\n" in said


def test_a_suite_without_tests_stops_the_change(gate):
    code, said, _ = gate("", PASSES)
    assert code == 1
    assert "gate: a suite did not run to its end\n" in said


def test_very_many_failures_are_not_repeated(gate):
    many = "import pytest\n@pytest.mark.parametrize('i', range(21))\ndef test_fails(i): assert False\n"
    code, said, flaky = gate(many, PASSES)
    assert (code, flaky) == (1, [])
    assert "once more, alone" not in said
