"""The verdict on programs whose bottleneck is known because it is built in: those of the exam that a busy
machine does not change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "name",
    [
        *("chain", "one_at_a_time", "lock_threads", "straggler", "imbalance", "retries", "slow_driver"),
        *("failures_of_dependents", "hung", "diverging", "growing_loss", "sleeping"),
        *("straggler_watched", "chain_watched", "sleeping_watched"),
    ],
)
def test_the_verdict_names_what_was_built_in(name: str, tmp_path: Path) -> None:
    exam = [sys.executable, "-m", "bench.verdicts", name, "--strength", "strong", "--runs", str(tmp_path)]
    done = subprocess.run(
        exam, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1 of 1 right"]), (
        done.stdout + done.stderr
    )
