from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

LISTING = (
    "from flightlog.samplers import installed_samplers\n"
    "installed = installed_samplers()\n"
    "print(sorted(installed.found))\n"
    "for name, reason in installed.failed.items(): print(name, '|', reason)\n"
)


def _listing(site: Path, entry_points: str) -> list[str]:
    """What a fresh Python finds when a plugin distribution lies on its path."""
    info = site / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[flightlog.samplers]\n{entry_points}")
    (site / "plugin.py").write_text("class Rack:\n    def sample(self): return []\nnothing = 1\n")
    (site / "plugin_bad.py").write_text("raise RuntimeError('no such rack')\n")
    code = f"import sys; sys.path.append({str(site)!r})\n{LISTING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_plugins_sampler_is_found_beside_the_built_in_ones(tmp_path: Path) -> None:
    assert _listing(tmp_path, "rack = plugin:Rack\n") == ["['cgroup', 'gpu', 'host', 'process', 'rack']"]


def test_plugins_that_cannot_be_loaded_are_reported_and_cost_nobody_else(tmp_path: Path) -> None:
    entry_points = "bad = plugin_bad:Rack\nmissing = plugin:Other\nnumber = plugin:nothing\n"
    first, *failed = _listing(tmp_path, entry_points)
    assert first == "['cgroup', 'gpu', 'host', 'process']"
    assert failed == [
        "bad | plugin_bad:Rack: RuntimeError: no such rack",
        "missing | plugin:Other: AttributeError: module 'plugin' has no attribute 'Other'",
        "number | plugin:nothing: is no class",
    ]


def test_a_sampler_in_an_archive_on_the_path_is_found_too(tmp_path: Path) -> None:
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n")
        file.writestr("packed-1.0.dist-info/entry_points.txt", "[flightlog.samplers]\npacked = packed:Rack\n")
        file.writestr("packed.py", "class Rack:\n    def sample(self): return []\n")
    code = f"import sys; sys.path.append({str(archive)!r})\n{LISTING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['cgroup', 'gpu', 'host', 'packed', 'process']"]


def test_of_two_installations_of_a_distribution_the_first_on_the_path_counts(tmp_path: Path) -> None:
    for place, name in (("first", "rack"), ("second", "shelf")):
        (tmp_path / place / "plugin-1.0.dist-info").mkdir(parents=True)
        points = f"[console_scripts]\nx = y:z\n\n[flightlog.samplers]\n# ours\n{name} = plugin:Rack [extra]\n"
        (tmp_path / place / "plugin-1.0.dist-info" / "entry_points.txt").write_text(points)
        (tmp_path / place / "plugin.py").write_text("class Rack:\n    def sample(self): return []\n")
    paths = [str(tmp_path / place) for place in ("first", "second")]
    code = f"import sys; sys.path.extend({paths!r})\n{LISTING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['cgroup', 'gpu', 'host', 'process', 'rack']"]
