"""RHAPSODY's Dragon backend and adapter under their own names, inside a Dragon that the test starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_programs import SCRIPTS, run_program, unless_dragon_stands_still

pytest.importorskip("dragon", reason="Dragon is not installed: pip install 'flightlog[dragon]'")

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("rhapsody_on_dragon.py")


def test_functions_commands_and_jobs_run_on_dragon_with_their_whole_telemetry(tmp_path):
    command = [SCRIPTS / "dragon", "-s", PROGRAM]
    env = {"ELSEWHERE": str(tmp_path), "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")}
    done = unless_dragon_stands_still(lambda: run_program(command, tmp_path, env, timeout_s=300))
    found = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    assert found is not None, done.stdout + done.stderr
    failed = {"failing", "command"}
    names = ("function", "coroutine", "failing", "command", "captured", "in_process", "job")
    values = (9, 8, None, 3, 0, 0, 0)
    assert json.loads(found) == {
        "states": {name: "FAILED" if name in failed else "DONE" for name in names},
        "values": dict(zip(names, values, strict=True)),
        "codes": {**dict.fromkeys(names, 0), "failing": 1, "command": 3},
        "errors": {"failing": "ValueError('as it was told')"},
        "stdout": {"command": "hi\n", "in_process": f"{tmp_path}\n"},
        "captured": "into a file\n",
        "cancelled": [True, "CANCELED"],
        "counts": {"submitted": 8, "completed": 5, "failed": 2, "canceled": 1, "running": 0},
        "nodes": [True],
        "ran_here": True,
        "measured": True,
        "started": 8,
        "inside": [True],
        "run": "completed",
    }
