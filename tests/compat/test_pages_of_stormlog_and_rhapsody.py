"""The pages on moving from Stormlog and RHAPSODY do what they say."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

from flightlog import open_run

DOCS = Path(__file__).parents[2] / "docs"


def ran(page: str, folder: Path) -> str:
    """What the Python code of a page prints in a folder."""
    code = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLIGHTLOG_")}
    (folder / "program.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def modules(page: str) -> set[str]:
    return set(re.findall(r"`(flightlog\.compat\.[\w.]+)`", (DOCS / page).read_text()))


def test_the_page_on_stormlog_runs(tmp_path):
    assert ran("compat-stormlog.md", tmp_path) == "training completed 3\n"


def test_the_page_on_rhapsody_runs(tmp_path):
    assert ran("compat-rhapsody.md", tmp_path) == (
        "{'submitted': 11, 'completed': 11, 'failed': 0, 'canceled': 0, 'running': 0}\n"
    )
    (file,) = (tmp_path / "telemetry").iterdir()
    assert file.name.endswith(".telemetry.jsonl")
    (run,) = (tmp_path / ".flightlog/runs").glob("run-*")
    assert open_run(run).info.tasks_completed == 11


def test_every_module_on_the_pages_can_be_imported():
    found = modules("compat-stormlog.md") | modules("compat-rhapsody.md")
    assert len(found) >= 8
    for module in found:
        importlib.import_module(module)
