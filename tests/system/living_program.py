"""A program that records until it is told to stop: tasks all the time, and one that fails or hangs on a word
from its input.

Called as `living_program.py RUNS_DIR PROJECT`: it prints the run's folder once tasks have ended, then reads
`fail`, `hang` and `stop`. The end of its input is a `stop`.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import flightlog
from flightlog import Session

MANIFEST = """
version: 1
project:
  name: {project}
targets:
  local: {{provider: local, max_workers: 2}}
"""


def simulate(seed: int) -> int:
    with flightlog.span("simulation.execute", seed=seed):
        time.sleep(0.05 + seed % 5 * 0.02)
    return seed


def broken(seed: int) -> int:
    raise ValueError(f"no such seed: {seed}")


def hang(seconds: float) -> None:
    time.sleep(seconds)


def main(runs_dir: Path, project: str) -> None:
    manifest = runs_dir.parent / f"{project}.yaml"
    manifest.write_text(MANIFEST.format(project=project))
    words: list[str] = []
    threading.Thread(target=_read, args=(words,), daemon=True).start()
    with Session.from_yaml(manifest, target="local", runs_dir=runs_dir) as session:
        seed, told, pending = 0, 0, []
        while "stop" not in words:
            pending.append(session.client.submit(simulate, seed))
            seed += 1
            for word in words[told:]:
                told += 1
                if word == "fail":
                    session.client.submit(broken, told)
                elif word == "hang":
                    session.client.submit(hang, 600.0)
            if len(pending) > 4:
                pending.pop(0).result()
            if seed == 20:
                print(session.path, flush=True)
        for future in pending:
            future.result()


def _read(words: list[str]) -> None:
    for line in sys.stdin:
        words.append(line.strip())
    words.append("stop")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
