"""The demo's manifest, written into the demo's folder for its users to look at and to change."""

from __future__ import annotations

from pathlib import Path

TEXT = """\
# The manifest of `flightlog demo`: what runs where. `flightlog plan` shows what it comes to.
version: 1

project:
  name: sir-demo
  local_cache: cache            # beside this file

targets:
  local:
    provider: local
    max_workers: ${SIR_DEMO_WORKERS:-2}
    cost:
      currency: USD
      per_worker_hour: 0        # this machine is paid for

components:
  simulator:
    cpus: 1
    memory: 512MB

tasks:
  run_simulation:
    component: simulator
    retries: 2                  # the staging area is not always there at the first try
    timeout: 60s
"""
"""The manifest as it is written."""


def write_manifest(folder: Path) -> Path:
    """Write the manifest into a folder, which is made; gives the file. One that is there stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "flightlog.yaml"
    if not file.exists():
        file.write_text(TEXT, encoding="utf-8")
    return file
