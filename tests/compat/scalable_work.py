"""Functions that tasks of the tests run, importable by worker processes."""

from __future__ import annotations

import os
from pathlib import Path

from flightlog.compat.scalable import FileType, cacheable

MANIFEST = """\
version: 1
project:
  name: demeter-lulcc
targets:
  local:
    provider: local
    max_workers: 2
    threads_per_worker: 2
    processes: false
    containers: none
components:
  sim:
    cpus: 1
    memory: 2G
tasks:
  run_simulation:
    component: sim
"""


def run_simulation(scenario_id):
    return scenario_id * scenario_id


def divide(over):
    return 12 / over


def own_keywords(task, component, timeout=None):
    return task, component, timeout


@cacheable
def solve(value):
    return value + 1


@cacheable(path=FileType)
def count_lines(path, log):
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(Path(path).read_text().splitlines())
