"""The guide to predictions does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "predict.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_guides_commands_and_code_run_as_they_stand(tmp_path):
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("FLIGHTLOG_TARGET", "FLIGHTLOG_RUNS_DIR"):
        environ.pop(name, None)
    first, plan, evaluate = blocks("bash")
    [program] = blocks("python")
    said = []
    for command in (
        ["sh", "-ec", first],
        [sys.executable, "-c", program],
        ["sh", "-ec", plan],
        ["sh", "-ec", evaluate],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "run_simulation(r0=1.6, seed=20265)\n  Duration:     about " in said[0]
    assert re.match(r"0\.\d{3} to \d+\.\d{3} s, from \d+ attempts\n", said[1])
    assert said[2].startswith("Forecast: sir-demo on local\n  Wall time: ")
    assert said[3].startswith("Predictions of sir-demo, evaluated on its newest runs\n")
