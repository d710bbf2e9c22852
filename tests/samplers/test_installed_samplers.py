from __future__ import annotations

import subprocess
import sys
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
    entry_points = (
        "bad = plugin_bad:Rack\nhost = plugin:Rack\nmissing = plugin:Other\nnumber = plugin:nothing\n"
    )
    first, *failed = _listing(tmp_path, entry_points)
    assert first == "['cgroup', 'gpu', 'host', 'process']"
    assert failed == [
        "bad | plugin_bad:Rack: RuntimeError: no such rack",
        "host (plugin:Rack) | the name is taken by flightlog.samplers.host:HostSampler",
        "missing | plugin:Other: AttributeError: module 'plugin' has no attribute 'Other'",
        "number | plugin:nothing: is no class",
    ]
