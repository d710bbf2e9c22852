"""The checks and test suites as the gate runs them: a test that fails runs once more, alone, and only what
fails again stops a change.

    python .ci/gate.py                           run the checks beside the suites, then repeat the tests that
                                                 failed, and exit with 1 if a check or a test fails for good
    python .ci/gate.py --outcome FILE [ARGS...]  run pytest with these arguments; FILE says which tests failed

A test that fails beside others and passes alone is flaky: it is listed at the end, and in
`build/ci/flaky.txt`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

CHECKS = ("lint", "types")
SUITES = ("unit", "test-system")
REPORTS = Path("build", "ci")
MAX_REPEATED = 20
"""With more failures than this the change is to blame, and not the machine."""
TESTS_FAILED = 1
"""pytest's exit code where all tests ran and some failed; the others say that it could not run them."""


class Outcome:
    """A pytest plugin: writes the exit code and the tests that failed into a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.failed: dict[str, None] = {}
        self.grouped = False

    def pytest_configure(self, config) -> None:
        """Note whether pytest-xdist writes the group of a test behind its name."""
        self.grouped = config.getoption("dist", None) == "loadgroup"

    def pytest_runtest_logreport(self, report) -> None:
        """Remember a test that failed, be it in its set-up, itself or its clean-up."""
        if report.failed:
            name, at, _group = report.nodeid.rpartition("@")
            self.failed[name if self.grouped and at else report.nodeid] = None

    def pytest_sessionfinish(self, session, exitstatus) -> None:
        """Write the file: it is missing where pytest did not get that far."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps({"exit_code": int(exitstatus), "failed": list(self.failed)}))


def run_suite(suite: str) -> tuple[bool, list[str]]:
    """Run one suite by its make target; whether it ran to its end, and the tests that failed."""
    file = REPORTS / f"{suite}.json"
    file.unlink(missing_ok=True)
    began = time.monotonic()
    pytest = f"$(BIN)/python .ci/gate.py --outcome {file}"
    done = subprocess.run(["make", suite, f"PYTEST={pytest}"], check=False)
    print(f"gate: make {suite} took {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return False, []
    if done.returncode == 0 and found["exit_code"] == 0:
        return True, []
    return found["exit_code"] == TESTS_FAILED, found["failed"]


def passes_alone(test: str) -> bool:
    """Whether a test passes with nothing beside it."""
    python = Path(os.environ.get("VENV", ".venv"), "bin", "python")
    return (
        subprocess.run([python, "-m", "pytest", "-p", "no:cacheprovider", test], check=False).returncode == 0
    )


def gate() -> int:
    """Run everything; 0 if a change may land."""
    complete, failed = True, []
    with subprocess.Popen(["make", *CHECKS]) as checks:  # they use one core, and tests do not always use both
        for suite in SUITES:
            ran, its_failed = run_suite(suite)
            complete = complete and ran
            failed += its_failed
    REPORTS.mkdir(parents=True, exist_ok=True)
    flaky: list[str] = []
    if len(failed) <= MAX_REPEATED:
        for test in failed:
            print(f"\ngate: {test} failed; once more, alone", flush=True)
            if passes_alone(test):
                flaky.append(test)
    (REPORTS / "flaky.txt").write_text("".join(f"{test}\n" for test in flaky))
    broken = [test for test in failed if test not in flaky]
    print()
    for test in flaky:
        print(f"gate: FLAKY   {test}: failed beside others, passed alone")
    for test in broken:
        print(f"gate: FAILED  {test}")
    if not complete:
        print("gate: a suite did not run to its end")
    if checks.returncode != 0:
        print(f"gate: make {' '.join(CHECKS)} failed")
    may_land = complete and not broken and checks.returncode == 0
    print("gate: nothing stands in the way" if may_land else "gate: this cannot land")
    return 0 if may_land else 1


def main(arguments: list[str]) -> int:
    """The two ways that this file is called."""
    if arguments[:1] == ["--outcome"]:
        import pytest

        sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it: tests import `bench`
        return int(pytest.main(arguments[2:], plugins=[Outcome(Path(arguments[1]))]))
    return gate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
