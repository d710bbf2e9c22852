"""Starts and stops a Slurm by hand.

cd tests/system; python -m slurm start [FOLDER]    prints the variables that make Slurm's commands use it
cd tests/system; python -m slurm stop [FOLDER]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .cluster import Cluster
from .packages import NoSlurm


def main(words: list[str]) -> int:
    if not words or words[0] not in {"start", "stop"} or len(words) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    cluster = Cluster(Path(words[1] if len(words) == 2 else "/tmp/flightlog-slurm"))
    began = time.monotonic()
    try:
        if words[0] == "stop":
            ended = cluster.stop()
            print(f"# {ended} daemons of it ran, and none does now", file=sys.stderr)
            return 0
        cluster.start()
    except NoSlurm as problem:
        print(problem, file=sys.stderr)
        return 1
    for name, value in cluster.environ.items():
        print(f"export {name}={value}")
    print(f"# ready after {time.monotonic() - began:.1f} s; logs in {cluster.folder}/logs", file=sys.stderr)
    return 0


sys.exit(main(sys.argv[1:]))
