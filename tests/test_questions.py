"""Every line of the page of questions runs as it stands, on the demo's runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.demo.sweep import sweep_twice

PAGE = (Path(__file__).parents[1] / "docs" / "questions.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.strip().splitlines()
]
LINES = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo was run, with few scenarios."""
    folder = tmp_path_factory.mktemp("questions")
    sweep_twice(folder / ".flightlog" / "runs", 12)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers(command: str, folder: Path) -> None:
    program, *words = shlex.split(command)
    assert program == "flightlog"
    done = subprocess.run(
        [sys.executable, "-m", "flightlog.cli.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 1


def test_each_line_of_python_answers(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINES], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("completed 15 tasks in")
