"""Runs `sweep_program.py` on an engine, and says what every engine should give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("sweep_program.py")
SCRIPTS = Path(sys.executable).parent

MANIFEST = """\
version: 1
project:
  name: sweep
targets:
  local:
    provider: local
    max_workers: 2
  dragon:
    provider: dragon
    max_workers: 2
  ray:
    provider: ray
    num_cpus: 2
    object_store_memory: 80MiB
  cluster:
    provider: ray
    address: auto
"""

RESULTS = [0, 1, 4, 9, 16, "no such seed", 36, 49]
RECORDED = {
    "status": "completed",
    "tasks": {"submitted": 8, "completed": 7, "failed": 1, "retried": 2, "started": 10},
    "spans": [0, 1, 2, 3, 3, 4, 5, 5, 6, 7],
    "spans_outside_of_tasks": 0,
    "failures": ["ConnectionError", "ValueError", "ValueError"],
    "lost": 0,
}


def run_program(command, folder, env=None, timeout_s=300):
    """A program's end and what it wrote: stdout and stderr apart."""
    env = {
        **os.environ,
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "MANIFEST": MANIFEST,
        **(env or {}),
    }
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=env, timeout=timeout_s, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def sweep(launcher, target, folder, env=None):
    """What the sweep gives on a target: its results and what was recorded, and the two streams of the program."""
    marks, home = folder / "marks", folder / "home"
    marks.mkdir()
    home.mkdir()
    done = run_program([*launcher, PROGRAM, home, target], folder, {"MARKS": str(marks), **(env or {})})
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == 1, (done.stdout, done.stderr)
    return json.loads(told[0]), done


def agreed(told):
    """The part of what was recorded that is the same on every engine."""
    return {key: told["recorded"][key] for key in RECORDED}
