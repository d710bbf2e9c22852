"""The samples in CONTRIBUTING are true: each one is a test module that passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
SAMPLES = dict(re.findall(r"^### (.+?)$.*?^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))


def test_there_is_a_sample_for_everything_that_can_be_added() -> None:
    assert [*SAMPLES] == ["A command", "A sampler", "A rule", "An exporter", "An engine"]


@pytest.mark.parametrize("what", [*SAMPLES])
def test_the_sample_passes(what: str, tmp_path: Path) -> None:
    """Of an engine, one test of the contract stands for all."""
    file = tmp_path / "test_sample.py"
    file.write_text(SAMPLES[what])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "--rootdir", tmp_path]
    if what == "An engine":
        command += ["-k", "completed_attempt_has_its_result"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
