"""What the documentation says is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import flightlog
from flightlog.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readmes_code_runs_as_it_stands(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("completed\ncount    3.0")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page(command):
    assert (ROOT / "docs" / "commands" / f"{command}.md").exists()


def test_every_setting_is_documented():
    from flightlog.settings import DOCUMENTED

    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in DOCUMENTED if name not in page] == []


def test_the_public_names_are_these():
    assert flightlog.__all__ == [
        "Collector", "Run", "Session", "__version__", "attached", "cacheable", "carrier", "current_run", "current_span", "define_event",
        "open_run", "record", "span", "trends",
    ]  # fmt: skip
    assert all(hasattr(flightlog, name) for name in flightlog.__all__)
