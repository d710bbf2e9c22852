"""What browsers need is in the packages that users install."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib.resources import files
from pathlib import Path

from builders.documents import ROOT

FOR_BROWSERS = (".css", ".js")


def test_wheel_and_sdist_hold_every_file_of_the_dashboard(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    expected = {path.name for path in files("flightlog.web").iterdir() if path.name.endswith(FOR_BROWSERS)}
    assert {"run_head.js", "run_table.js", "run_feed.js", "run_figure.js", "run_page.css"} <= expected
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        assert browsers_files(packed.namelist()) == expected
    with tarfile.open(sdist) as unpacked:
        assert browsers_files(unpacked.getnames()) == expected


def browsers_files(names: list[str]) -> set[str]:
    return {
        name.rpartition("/")[2] for name in names if "flightlog/web/" in name and name.endswith(FOR_BROWSERS)
    }
