"""The page on Dask does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import flightlog

PAGE = Path(__file__).parents[2] / "docs" / "engines" / "dask.md"


def test_the_examples_of_the_page_on_dask_run_as_they_stand(tmp_path):
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [query] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "sweep.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "sweep.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "20 20\n")
    [path] = (tmp_path / ".flightlog" / "runs").iterdir()
    [row] = flightlog.open_run(path).sql(query).rows()
    assert row[:2] == ("simulate", 20)
    assert row[2] > 0
