"""A sweep that makes a good picture: three kinds of tasks in turn, attempts that are retried, samples.

Called as `showcase_program.py RUNS_DIR PROJECT`; prints the run's folder when a third of it has been done,
and goes on till its input ends.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import islice
from pathlib import Path

import flightlog
from flightlog import Session

MANIFEST = """
version: 1
project:
  name: {project}
targets:
  local: {{provider: local, max_workers: 6}}
components:
  model: {{cpus: 1, memory: 512MB}}
tasks:
  prepare: {{component: model}}
  simulate: {{component: model, retries: 2}}
  analyse: {{component: model}}
"""
MEMBERS = 300


def prepare(member: int) -> int:
    with flightlog.span("read.forcing", member=member):
        time.sleep(0.1 + random.Random(member).random() * 0.15)
    return member


def simulate(member: int) -> int:
    dice = random.Random(f"simulate {member}")
    if member in {31, 97}:
        _fail_once(member)
    with flightlog.span("simulation.execute", member=member) as span:
        for _ in range(3):
            with flightlog.span("step"):
                time.sleep(dice.lognormvariate(-1.6, 0.5))
        span.metrics["energy"] = dice.gauss(240, 2)
    return member


def analyse(member: int) -> int:
    time.sleep(0.12 + random.Random(f"analyse {member}").random() * 0.2)
    return member


def _fail_once(member: int) -> None:
    mark = Path(f"tried-{member}")
    if not mark.exists():
        mark.touch()
        raise ConnectionResetError(104, "Connection reset by peer")


def main(runs_dir: Path, project: str) -> None:
    manifest = runs_dir.parent / f"{project}.yaml"
    manifest.write_text(MANIFEST.format(project=project))
    with Session.from_yaml(manifest, target="local", runs_dir=runs_dir) as session:
        client = session.client
        sweep = [
            client.submit(task, member) for member in range(MEMBERS) for task in (prepare, simulate, analyse)
        ]
        for _ in islice(client.as_completed(sweep), len(sweep) // 3):  # what is retried may come last
            pass
        print(session.path, flush=True)
        sys.stdin.read()
        for future in sweep:
            future.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
