"""The documents of the project, their blocks of code, and commands run in a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def run_in(folder: Path, *command: str) -> str:
    """What a command prints in a folder, which must go well and say nothing else."""
    beside = str(Path(sys.executable).parent)
    environ = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout
