"""The pages on moving do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.compat.scalable.manifest import FLIGHTLOG_VARIABLES
from flightlog.store.completing import open_run

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def ran(folder, *command):
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("FLIGHTLOG_", "SCALABLE_"))
    }
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def test_the_page_on_modelops_runs(tmp_path):
    ran(tmp_path, sys.executable, "-c", "\n".join(blocks("compat-modelops.md", "python")))
    saved = sorted(path.name for path in (tmp_path / "provenance/telemetry/jobs/job-abc123").iterdir())
    assert saved == ["spans.jsonl", "summary.json"]
    (run,) = (tmp_path / ".flightlog/runs").glob("run-*")
    names = [event.name for event in open_run(run).events("spans") if type(event).__name__ == "SpanEvent"]
    assert names == ["calibration.job"]


def test_the_page_on_scalable_runs(tmp_path):
    [manifest] = blocks("compat-scalable.md", "yaml")
    [program] = blocks("compat-scalable.md", "python")
    [commands] = blocks("compat-scalable.md", "bash")
    (tmp_path / "scalable.yaml").write_text(manifest)
    (tmp_path / "sweep.py").write_text(program)
    assert (
        ran(tmp_path, sys.executable, "sweep.py") == f"{sum(range(20)) * sum(i % 7 for i in range(1000))}\n"
    )
    (run,) = (tmp_path / ".scalable/runs").glob("run-*")
    assert open_run(run).info.tasks_completed == 20
    lines = commands.splitlines()
    assert {line.split()[3] for line in lines} == {"report", "advise", "diagnose"}
    for line in lines:
        ran(tmp_path, sys.executable, *line.split()[1:])
    assert (tmp_path / "report.json").is_file()


@pytest.mark.parametrize("name", [*FLIGHTLOG_VARIABLES, "SCALABLE_MANIFEST", "SCALABLE_PATH_SNIFFING"])
def test_every_variable_is_on_the_page(name):
    assert f"`{name}`" in (DOCS / "compat-scalable.md").read_text()
