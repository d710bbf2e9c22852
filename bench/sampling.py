"""What one round of all samplers costs, on this process alone and on a tree of fifty children."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median

from flightlog.samplers import Sampler
from flightlog.samplers.cgroup import CgroupSampler
from flightlog.samplers.host import HostSampler
from flightlog.samplers.process import ProcessSampler

CHILDREN = 50
BATCHES = 9
ROUNDS = 40


def measure() -> dict[str, float]:
    """CPU seconds of one round, and percent of one core at a round a second; both trees, medians of batches.

    `new_process` is a round in which the kernel has given out a process number since the last one, as on a
    busy node, so that the tree must be searched for newcomers.
    """
    figures: dict[str, float] = {}
    figures.update(_figures("alone"))
    with ExitStack() as stack:
        for _ in range(CHILDREN):
            child = subprocess.Popen(
                [sys.executable, "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.callback(_end, child)
            assert child.stdout is not None
            child.stdout.readline()
        figures.update(_figures(f"children_{CHILDREN}"))
    return figures


def _figures(label: str) -> dict[str, float]:
    samplers: list[Sampler] = [HostSampler(), ProcessSampler(), CgroupSampler()]
    quiet = median(_round_s(samplers) for _ in range(BATCHES))
    busy = median(_round_s(samplers, new_process=True) for _ in range(BATCHES))
    return {
        f"{label}_round_s": quiet,
        f"{label}_percent_of_core": 100 * quiet,
        f"{label}_new_process_round_s": busy,
        f"{label}_new_process_percent_of_core": 100 * busy,
    }


def _round_s(samplers: list[Sampler], *, new_process: bool = False) -> float:
    spent = 0.0
    for _ in range(ROUNDS // 4 if new_process else ROUNDS):
        if new_process:
            subprocess.run(["/bin/true"], check=True)
        begun = time.thread_time()
        for sampler in samplers:
            sampler.sample()
        spent += time.thread_time() - begun
    return spent / (ROUNDS // 4 if new_process else ROUNDS)


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.stdout.close()
    child.wait()
