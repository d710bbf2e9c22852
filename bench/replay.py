"""How well advice on workers foresees: the same naps on several numbers of workers, each foretold from all
others.

    python -m bench.replay [SEED]

Naps need no processor, so that the machine's other load does not count. Two waves of 60, of 0.2 s in the
median.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from pathlib import Path

from flightlog.analyze.advice.statistics import RunStatistics, gather
from flightlog.session.session import Session
from flightlog.store.run import Run

WORKERS, NAPS, WAVES = (2, 4, 8, 12), 60, 2


def nap(lasts_s: float) -> None:
    time.sleep(lasts_s)


def record(folder: Path, workers: int, naps: list[float]) -> RunStatistics:
    """The shape of a real session of threads."""
    manifest = folder / "flightlog.yaml"
    options = f"provider: local, processes: false, max_workers: {workers}"
    manifest.write_text(f"version: 1\nproject: {{name: naps}}\ntargets:\n  here: {{{options}}}\n")
    with Session(manifest, target="here", runs_dir=folder / "runs", progress=False) as session:
        for _ in range(WAVES):
            session.client.gather(session.client.map(nap, naps))
    return gather(Run(session.path))


def main(seed: int = 7) -> None:
    """Print measured and foretold wall times."""
    dice = random.Random(seed)
    naps = [min(1.5, dice.lognormvariate(-1.6, 0.7)) for _ in range(NAPS)]
    with tempfile.TemporaryDirectory() as folder:
        shapes = {workers: record(Path(folder), workers, naps) for workers in WORKERS}
    print("recorded on   measured   " + "".join(f"foretold on {workers:2}   " for workers in WORKERS))
    for workers, shape in shapes.items():
        waves = shape.waves or []
        told = [math.fsum(wave.on(other) for wave in waves) for other in WORKERS]
        measured = math.fsum(wave.wall_s for wave in waves)
        print(f"{workers:2} workers    {measured:7.2f} s   " + "".join(f"{one:12.2f} s   " for one in told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
