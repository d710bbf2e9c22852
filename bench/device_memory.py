"""What tracking device memory every 100 ms costs a training loop: `python -m bench.device_memory`.

The same loop runs in short blocks, in turn with tracking and without, inside one recorded run; of each pair
of blocks the ratio of their times is taken, and of all pairs the median; of the process's CPU time too, which
other programs on the machine disturb less. Beside it stands what a sample costs by itself, which a noisy
machine cannot hide: that over the interval is the share of one core, an upper bound of what a loop can lose.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from typing import Any

import flightlog
from flightlog.record.device.tracker import DeviceMemoryTracker, Options

INTERVAL_S = 0.1
BLOCK_S = 1.0
ROUNDS = 20
SAMPLES = 500
STEP_MS = 15.0


class Loop:
    """A small network that is trained; a step takes 15 ms or a little more."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.device = torch, device
        torch.manual_seed(1)
        width = 2048 if device == "cuda" else 384
        layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(4)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batch = torch.randn(512, width, device=device)
        self.passes = 1
        for _ in range(20):
            self.step()
        while (took := self.seconds(10)) < STEP_MS / 1000 and self.passes < 1000:
            self.passes = max(self.passes + 1, int(self.passes * STEP_MS / 1000 / took))

    def step(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.passes):
            self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    def seconds(self, steps: int) -> float:
        """Seconds of a step, over so many."""
        return self.timed(steps)[0]

    def timed(self, steps: int) -> tuple[float, float]:
        """Seconds of a step by the clock, and of CPU time of the whole process."""
        self.wait()
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - began) / steps, (time.process_time() - began_cpu) / steps

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def measure(rounds: int = ROUNDS, device: str | None = None) -> dict[str, Any]:
    """Step time with and without tracking, and the cost of one sample; medians."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    loop = Loop(torch, device)
    steps = max(round(BLOCK_S / loop.seconds(10)), 3)
    with tempfile.TemporaryDirectory() as folder:
        with flightlog.record("bench", runs_dir=folder, sample_interval_s=None) as run:
            pairs = [_pair(loop, steps, turn % 2 == 0) for turn in range(rounds)]
            sample_us, cpu_us, collector = _sample_cost(run)
        tracked = sum(
            event.event_type == "sample" for event in flightlog.open_run(run.path).events("devices")
        )
    ratios = [on[0] / off[0] for on, off in pairs]
    cpu_ratios = [on[1] / off[1] for on, off in pairs]
    return {
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "collector": collector,
        "interval_ms": round(INTERVAL_S * 1000),
        "steps_per_block": steps,
        "rounds": rounds,
        "samples": tracked - SAMPLES,
        "step_ms": round(statistics.median(off[0] for _, off in pairs) * 1000, 3),
        "step_tracked_ms": round(statistics.median(on[0] for on, _ in pairs) * 1000, 3),
        "overhead_percent": round((statistics.median(ratios) - 1) * 100, 3),
        "overhead_quartiles_percent": [
            round((q - 1) * 100, 3) for q in statistics.quantiles(ratios, n=4)[::2]
        ],
        "cpu_overhead_percent": round((statistics.median(cpu_ratios) - 1) * 100, 3),
        "sample_us": round(sample_us, 1),
        "sample_cpu_us": round(cpu_us, 1),
        "sample_share_percent": round(cpu_us / 1e6 / INTERVAL_S * 100, 4),
    }


def _pair(loop: Loop, steps: int, tracked_first: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of a step, and of its CPU time, tracked and not."""
    found = {}
    for tracked in (tracked_first, not tracked_first):
        if tracked:
            with flightlog.track_device_memory("torch", INTERVAL_S) as tracker:
                tracker.sample()  # opens the GPU's driver, as a tracker does once in its life
                found[tracked] = loop.timed(steps)
        else:
            found[tracked] = loop.timed(steps)
    return found[True], found[False]


def _sample_cost(run: Any) -> tuple[float, float, str]:
    """Microseconds of a sample, by the clock and of CPU time, and what is sampled."""
    tracker = DeviceMemoryTracker(run, Options(framework="torch"))
    with flightlog.span("epoch"), flightlog.span("step"):
        tracker.sample()
        began, began_cpu = time.perf_counter(), time.thread_time()
        for _ in range(SAMPLES):
            tracker.sample()
        took, cpu = time.perf_counter() - began, time.thread_time() - began_cpu
    allocator = tracker.allocator
    tracker.stop()
    return took / SAMPLES * 1e6, cpu / SAMPLES * 1e6, allocator.name if allocator is not None else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=None)
    given = parser.parse_args()
    print(json.dumps(measure(given.rounds, given.device), indent=1))


if __name__ == "__main__":
    main()
